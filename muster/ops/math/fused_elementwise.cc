// Two element-wise nodes that a rewrite has made one (muster/graph/rewrite/fuse_elementwise.cc).
#include "muster/ops/math/elementwise.h"

namespace muster {
namespace {

class FusedElementwise final : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(const std::string first, setup.Attr<std::string>("binary_op"));
    ASSIGN_OR_RETURN(const std::string second, setup.Attr<std::string>("unary_op"));
    const DType dtype = setup.input_type(0);
    const BinarySpec* const binary = FindBinaryLoop(first, dtype);
    const UnarySpec* const unary = FindUnaryLoop(second, dtype);
    if (binary == nullptr || unary == nullptr || binary->out != dtype || unary->out != dtype)
      return Unimplemented("Fusion is not implemented: [", first, ",", second, "]");
    spec_ = *binary;
    spec_.then = unary->loop;
    spec_.cost_ns += unary->cost_ns;
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override { return RunBinary(c, spec_); }

 private:
  BinarySpec spec_;
};

}  // namespace

DEFINE_OP(MusterFusedElementwise) {
  op.Attr("T: {float, double}")
      .Attr("binary_op: string")
      .Attr("unary_op: string")
      .Input("x: T")
      .Input("y: T")
      .Output("z: T")
      .Doc("A function of what another makes of two operands.")
      .Shape(BroadcastBinaryShape)
      .CpuTypes<Types<float, double>>("T", []<typename T>() { return New<FusedElementwise>(); });
}

}  // namespace muster
