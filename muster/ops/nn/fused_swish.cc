// _MklSwish and _MklFusedMish: what the graph optimizer of TensorFlow 2 makes of x * sigmoid(x) and
// of x * tanh(softplus(x)) on a CPU. Its masters send them to any worker.
#include <cmath>

#include "muster/ops/nn/elementwise.h"
#include "muster/ops/nn/exponential.h"

namespace muster {
namespace {

constexpr double kCostly = 8;

template <typename T>
absl::Status Swish(KernelContext& c) {
  using V = Compute<T>;
  return MapElements<T>(c, kCostly, [](V x) { return x / (V(1) + Exponential(-x)); });
}

template <typename T>
absl::Status Mish(KernelContext& c) {
  using V = Compute<T>;
  // Beyond 20 the softplus is x and its tanh 1, and e^x would not stay finite for long.
  return MapElements<T>(
      c, kCostly, [](V x) { return x > V(20) ? x : x * std::tanh(std::log1p(Exponential(x))); });
}

}  // namespace

DEFINE_OP(_MklSwish) {
  op.Attr("T: {float, bfloat16, half} = DT_FLOAT")
      .Input("features: T")
      .Output("activations: T")
      .Doc("x * sigmoid(x); made by graph rewriting.")
      .Shape(UnchangedShape)
      .CpuTypes<Types<float, Bfloat16, Half>>("T",
                                              []<typename T>() { return Stateless(Swish<T>); });
}

DEFINE_OP(_MklFusedMish) {
  op.Attr("T: {bfloat16, float, half}")
      .Input("features: T")
      .Output("activations: T")
      .Doc("x * tanh(softplus(x)); made by graph rewriting.")
      .Shape(UnchangedShape)
      .CpuTypes<Types<Bfloat16, float, Half>>("T", []<typename T>() { return Stateless(Mish<T>); });
}

}  // namespace muster
