// Copies between the memory of a device and that of the host (graph/place/memory_copies.h). On a
// CPU, where both are one, they hand their input on.
#include "muster/device/device_copies.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

// The thread is free until the device has come so far. Results of a step are not waited for here,
// since the step ends when its streams have ended.
class HostCopy : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(const bool is_result, setup.Attr<bool>("is_result"));
    is_result_ = is_result && IsPlainData(setup.input_type(0));
    return absl::OkStatus();
  }
  bool is_async() const override { return !is_result_; }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(Tensor copy, c.device().BeginCopyToHost(c.input(0)));
    c.SetOutput(0, std::move(copy));
    return absl::OkStatus();
  }
  void ComputeAsync(KernelContext& c, Done done) override {
    CopyToHost(c.device(), c.input(0),
               [&c, done = std::move(done)](absl::StatusOr<Tensor> copy) mutable {
                 if (copy.ok()) c.SetOutput(0, *std::move(copy));
                 std::move(done)(copy.status());
               });
  }

 private:
  bool is_result_ = false;
};

absl::Status CopyToDevice(KernelContext& c) {
  ASSIGN_OR_RETURN(Tensor copy, CopyFromHost(c.device(), c.input(0)));
  c.SetOutput(0, std::move(copy));
  return absl::OkStatus();
}

DEFINE_OP(_MusterCopyToHost) {
  op.Attr("T: type")
      .Attr("is_result: bool = false")
      .Input("input: T")
      .Output("output: T")
      .Doc("The input, from the memory of the device to that of the host; of a result it is there at "
           "the end of the step.")
      .Shape(UnchangedShape)
      .HostMemory({"output"})
      .Cpu(New<HostCopy>())
      .Gpu(New<HostCopy>());
}

DEFINE_OP(_MusterCopyToDevice) {
  op.Attr("T: type")
      .Input("input: T")
      .Output("output: T")
      .Doc("The input, from the memory of the host to that of the device.")
      .Shape(UnchangedShape)
      .HostMemory({"input"})
      .Cpu(CopyToDevice)
      .Gpu(CopyToDevice);
}

}  // namespace
}  // namespace muster
