// RemoteCall: a function that runs on another device of the task than its caller. TensorFlow's
// prefetching to a device reads the host's dataset by it.
#include "muster/device/device_copies.h"
#include "muster/device/device_name.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

// The device in input 0; what the name leaves out is as for the caller.
absl::StatusOr<Device*> TargetOf(const KernelContext& c, const FunctionCaller& caller) {
  const Tensor& input = c.input(0);
  if (input.rank() != 0)
    return InvalidArgument("target must be a scalar, not shape ", input.shape().ToString());
  ASSIGN_OR_RETURN(const DeviceName asked, DeviceName::Parse(input.scalar<std::string>()));
  ASSIGN_OR_RETURN(DeviceName whole, DeviceName::Parse(c.device().name()));
  if (asked.type && !asked.index) whole.index = 0;
  whole = whole.Override(asked);
  Device* const device = caller.FindDevice(whole.ToString());
  if (device == nullptr) {
    return InvalidArgument("RemoteCall '", c.node().name(), "' has no device ", whole.ToString(),
                           " in its task");
  }
  return device;
}

// int32 is in the memory of both devices.
CallSite SiteOn(Device& device, absl::Span<const Tensor> arguments) {
  CallSite site = CallSiteOf(device, arguments);
  site.counts_on_device = site.on_device;
  return site;
}

absl::Status SetOutputs(KernelContext& c, absl::StatusOr<std::vector<Tensor>> results) {
  RETURN_IF_ERROR(results.status());
  if (static_cast<int>(results->size()) != c.num_outputs()) {
    return InvalidArgument("A function of '", c.node().name(), "' gave ", results->size(),
                           " values where ", c.num_outputs(), " are wanted");
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    if ((*results)[i].dtype() != c.output_type(i)) {
      return InvalidArgument("A function of '", c.node().name(), "' gave a ",
                             DTypeName((*results)[i].dtype()), " for result ", i, " of type ",
                             DTypeName(c.output_type(i)));
    }
    c.SetOutput(i, std::move((*results)[i]));
  }
  return absl::OkStatus();
}

class RemoteCallKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(function_, setup.Attr<FunctionRef>("f"));
    return absl::OkStatus();
  }
  bool is_async() const override { return true; }
  absl::Status Compute(KernelContext&) override { return Internal("asynchronous"); }
  void ComputeAsync(KernelContext& c, Done done) override {
    FunctionCaller* const caller = c.step().functions;
    if (caller == nullptr)
      return std::move(done)(NotFound("Function ", function_.name, " is not defined."));
    const absl::StatusOr<Device*> target = TargetOf(c, *caller);
    if (!target.ok()) return std::move(done)(target.status());
    std::vector<Tensor> arguments;
    for (int i = 1; i < c.num_inputs(); ++i) arguments.push_back(c.TakeInput(i));
    CopyBetween(c.device(), **target, std::move(arguments),
                [this, &c, caller, target = *target,
                 done = std::move(done)](absl::StatusOr<std::vector<Tensor>> copied) mutable {
                  if (!copied.ok()) return std::move(done)(copied.status());
                  Call(c, *caller, *target, *std::move(copied), std::move(done));
                });
  }

 private:
  void Call(KernelContext& c, FunctionCaller& caller, Device& target, std::vector<Tensor> arguments,
            Done done) {
    const absl::StatusOr<FunctionCaller::Handle> handle =
        caller.Instantiate(function_, SiteOn(target, arguments));
    if (!handle.ok()) return std::move(done)(handle.status());
    caller.Call(
        *handle, std::move(arguments), c.step(),
        [&c, &target, done = std::move(done)](absl::StatusOr<std::vector<Tensor>> results) mutable {
          if (!results.ok()) return std::move(done)(results.status());
          CopyBetween(
              target, c.device(), *std::move(results),
              [&c, done = std::move(done)](absl::StatusOr<std::vector<Tensor>> copied) mutable {
                std::move(done)(SetOutputs(c, std::move(copied)));
              });
        });
  }

  FunctionRef function_;
};

DEFINE_OP(RemoteCall) {
  op.Attr("Tin: list(type) >= 1")
      .Attr("Tout: list(type) >= 1")
      .Attr("f: func")
      .Input("target: string")
      .Input("args: Tin")
      .Output("output: Tout")
      .Stateful()
      .Doc("Calls a function on the device of the task that the target names.")
      .Shape(UnknownShape)
      .NoGradient("the function may be anywhere")
      .Cpu(New<RemoteCallKernel>())
      .Gpu(New<RemoteCallKernel>());
}

}  // namespace
}  // namespace muster
