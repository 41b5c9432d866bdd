// Copies between the memory of a device and that of the host (graph/place/memory_copies.h). On a
// CPU, where both are one, they hand their input on.
#include "muster/device/device_copies.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

// The thread is free until the device has come so far.
class HostCopy : public Kernel {
 public:
  bool is_async() const override { return true; }
  absl::Status Compute(KernelContext&) override {
    return Internal("_MusterCopyToHost runs asynchronously");
  }
  void ComputeAsync(KernelContext& c, Done done) override {
    CopyToHost(c.device(), c.input(0),
               [&c, done = std::move(done)](absl::StatusOr<Tensor> copy) mutable {
                 if (copy.ok()) c.SetOutput(0, *std::move(copy));
                 std::move(done)(copy.status());
               });
  }
};

absl::Status CopyToDevice(KernelContext& c) {
  ASSIGN_OR_RETURN(Tensor copy, CopyFromHost(c.device(), c.input(0)));
  c.SetOutput(0, std::move(copy));
  return absl::OkStatus();
}

DEFINE_OP(_MusterCopyToHost) {
  op.Attr("T: type")
      .Input("input: T")
      .Output("output: T")
      .Doc("The input, from the memory of the device to that of the host.")
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
