// Relu, Relu6 and LeakyRelu with their gradients.
#include "muster/ops/nn/elementwise.h"
#include "muster/ops/nn/gpu_activation.h"
#include "muster/ops/nn/gradient_support.h"

namespace muster {
namespace {

constexpr double kCheap = 0.3;

template <typename T>
absl::Status Relu(KernelContext& c) {
  using V = Compute<T>;
  // NaN is not below zero and passes.
  return MapElements<T>(c, kCheap, [](V x) { return x < V(0) ? V(0) : x; });
}
template <typename T>
absl::Status ReluGrad(KernelContext& c) {
  using V = Compute<T>;
  return MapPairs<T>(c, kCheap, [](V dy, V y) { return y > V(0) ? dy : V(0); });
}
template <typename T>
absl::Status Relu6(KernelContext& c) {
  using V = Compute<T>;
  return MapElements<T>(c, kCheap, [](V x) {
    const V low = x < V(0) ? V(0) : x;
    return low > V(6) ? V(6) : low;
  });
}
template <typename T>
absl::Status Relu6Grad(KernelContext& c) {
  using V = Compute<T>;
  return MapPairs<T>(c, kCheap, [](V dy, V y) { return ((y > V(0)) & (y < V(6))) ? dy : V(0); });
}

class Leaky : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(alpha_, setup.Attr<float>("alpha"));
    return absl::OkStatus();
  }

 protected:
  // alpha as TensorFlow has it: rounded to the type of the elements.
  template <typename T>
  muster::Compute<T> alpha() const {
    return static_cast<muster::Compute<T>>(static_cast<T>(alpha_));
  }

 private:
  float alpha_ = 0;
};
template <typename T>
class LeakyRelu : public Leaky {
 public:
  absl::Status Compute(KernelContext& c) override {
    using V = muster::Compute<T>;
    const V slope = alpha<T>();
    return MapElements<T>(c, kCheap, [slope](V x) { return x > V(0) ? x : x * slope; });
  }
};
template <typename T>
class LeakyReluGrad : public Leaky {
 public:
  absl::Status Compute(KernelContext& c) override {
    using V = muster::Compute<T>;
    const V slope = alpha<T>();
    return MapPairs<T>(c, kCheap, [slope](V dy, V x) { return x > V(0) ? dy : dy * slope; });
  }
};

// The gradient is `op`(dy, y) or `op`(dy, x).
GradientFunction ByOutput(const char* op) {
  return [op](GradientContext& c) {
    c.SetDx(0, c.Op(op, {c.dy(), c.output()}));
    return absl::OkStatus();
  };
}
// Second order: linear in dy, and flat in the features almost everywhere.
GradientFunction LinearInGradient(const char* op) {
  return [op](GradientContext& c) {
    c.SetDx(0, c.Op(op, {c.dy(), c.input(1)}));
    c.SetDx(1, ZerosLike(c, c.input(1)));
    return absl::OkStatus();
  };
}

}  // namespace

DEFINE_OP(Relu) {
  op.Attr(
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, "
        "uint64, qint8}")
      .Input("features: T")
      .Output("activations: T")
      .Doc("The larger of x and 0.")
      .Shape(UnchangedShape)
      .Gradient(ByOutput("ReluGrad"))
      .CpuTypes<Reals>("T", []<typename T>() { return Stateless(Relu<T>); })
      .GpuTypes("T", {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble, DType::kQint8},
                MakeGpuActivation("Relu"));
}

DEFINE_OP(ReluGrad) {
  op.Attr(
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, "
        "uint64}")
      .Input("gradients: T")
      .Input("features: T")
      .Output("backprops: T")
      .Doc("The gradients where the features (in or out of Relu) are positive, else 0.")
      .Shape(MergedShape)
      .Gradient(LinearInGradient("ReluGrad"))
      .CpuTypes<Reals>("T", []<typename T>() { return Stateless(ReluGrad<T>); })
      .GpuTypes("T", GpuFloats(), MakeGpuActivationGrad("ReluGrad"));
}

DEFINE_OP(Relu6) {
  op.Attr(
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, "
        "uint64}")
      .Input("features: T")
      .Output("activations: T")
      .Doc("x held between 0 and 6.")
      .Shape(UnchangedShape)
      .Gradient(ByOutput("Relu6Grad"))
      .CpuTypes<Reals>("T", []<typename T>() { return Stateless(Relu6<T>); })
      .GpuTypes("T", GpuFloats(), MakeGpuActivation("Relu6"));
}

DEFINE_OP(Relu6Grad) {
  op.Attr(
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, "
        "uint64}")
      .Input("gradients: T")
      .Input("features: T")
      .Output("backprops: T")
      .Doc("The gradients where the features are strictly between 0 and 6, else 0.")
      .Shape(MergedShape)
      .Gradient(LinearInGradient("Relu6Grad"))
      .CpuTypes<Reals>("T", []<typename T>() { return Stateless(Relu6Grad<T>); })
      .GpuTypes("T", GpuFloats(), MakeGpuActivationGrad("Relu6Grad"));
}

DEFINE_OP(LeakyRelu) {
  op.Attr("alpha: float = 0.20000000298023224")
      .Attr("T: {half, bfloat16, float, double} = DT_FLOAT")
      .Input("features: T")
      .Output("activations: T")
      .Doc("x where it is positive, else alpha times x.")
      .Shape(UnchangedShape)
      .Gradient([](GradientContext& c) {
        c.SetDx(0, c.Op("LeakyReluGrad", {c.dy(), c.input(0)}, CopyAttrs(c, {"alpha"})));
        return absl::OkStatus();
      })
      .CpuTypes<Floats>("T", []<typename T>() { return New<LeakyRelu<T>>(); })
      .GpuTypes("T", GpuFloats(), MakeGpuActivation("LeakyRelu"));
}

DEFINE_OP(LeakyReluGrad) {
  op.Attr("alpha: float = 0.20000000298023224")
      .Attr("T: {half, bfloat16, float, double} = DT_FLOAT")
      .Input("gradients: T")
      .Input("features: T")
      .Output("backprops: T")
      .Doc("The gradients where the features are positive, else alpha times them.")
      .Shape(MergedShape)
      .Gradient([](GradientContext& c) {
        c.SetDx(0, c.Op("LeakyReluGrad", {c.dy(), c.input(1)}, CopyAttrs(c, {"alpha"})));
        c.SetDx(1, ZerosLike(c, c.input(1)));
        return absl::OkStatus();
      })
      .CpuTypes<Floats>("T", []<typename T>() { return New<LeakyReluGrad<T>>(); })
      .GpuTypes("T", GpuFloats(), MakeGpuActivationGrad("LeakyReluGrad"));
}

}  // namespace muster
