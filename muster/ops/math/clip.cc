// ClipByValue, and the fused chains of unary ops that TensorFlow's graph optimizer makes.
#include <algorithm>
#include <array>
#include <cmath>

#include "muster/ops/math/elementwise.h"
#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/math/gradient_helpers.h"

namespace muster {
namespace {

constexpr int64_t kBlock = 1024;

// The lower bound wins where the bounds contradict each other; NaN stays NaN. Complex numbers are
// clipped by parts.
template <typename T>
T Clipped(const T& x, const T& low, const T& high) {
  if constexpr (std::is_same_v<T, Complex64> || std::is_same_v<T, Complex128>) {
    using R = typename T::value_type;
    return T(Clipped<R>(x.real(), low.real(), high.real()),
             Clipped<R>(x.imag(), low.imag(), high.imag()));
  } else {
    const T upper = x > high ? high : x;
    return upper < low ? low : upper;
  }
}

absl::Status CheckBounds(const Shape& shape, const Shape& low, const Shape& high) {
  const auto fits = [&](const Shape& bound) { return bound.is_scalar() || bound == shape; };
  if (fits(low) && fits(high)) return absl::OkStatus();
  return InvalidArgument(
      "clip_value_min and clip_value_max must be either of the same shape as input, or a scalar. "
      "input shape: ",
      shape.ToString(), "clip_value_min shape: ", low.ToString(),
      "clip_value_max shape: ", high.ToString());
}

template <typename T>
absl::Status RunClip(KernelContext& c) {
  const Shape shape = c.input(0).shape();
  const Shape& low_shape = c.input(1).shape();
  const Shape& high_shape = c.input(2).shape();
  RETURN_IF_ERROR(CheckBounds(shape, low_shape, high_shape));
  const int64_t low_step = low_shape.is_scalar() ? 0 : 1;
  const int64_t high_step = high_shape.is_scalar() ? 0 : 1;
  const T* x = c.input(0).data<T>();
  const T* low = c.input(1).data<T>();
  const T* high = c.input(2).data<T>();
  ASSIGN_OR_RETURN(Tensor * output, c.ForwardOrAllocate({0}, 0, shape));
  T* y = output->data<T>();
  using L = Compute<T>;
  c.ParallelFor(shape.num_elements(), 0.5, [=](int64_t begin, int64_t end) {
    if (low_step == 0 && high_step == 0) {
      const L lowest = static_cast<L>(*low);
      const L highest = static_cast<L>(*high);
#pragma GCC ivdep
      for (int64_t i = begin; i < end; ++i)
        y[i] = static_cast<T>(Clipped<L>(static_cast<L>(x[i]), lowest, highest));
      return;
    }
    for (int64_t i = begin; i < end; ++i) {
      y[i] = static_cast<T>(Clipped<L>(static_cast<L>(x[i]), static_cast<L>(low[i * low_step]),
                                       static_cast<L>(high[i * high_step])));
    }
  });
  return absl::OkStatus();
}

class GpuClip final : public GpuKernel {
 public:
  explicit GpuClip(DType dtype)
      : run_(*this, "math/binary.cu",
             absl::StrCat("Ternary<Clip, ", GpuTypeName(dtype), ", ", GpuTypeName(dtype), ">")) {}

  absl::Status Compute(KernelContext& c) override {
    const Shape shape = c.input(0).shape();
    const Shape& low_shape = c.input(1).shape();
    const Shape& high_shape = c.input(2).shape();
    RETURN_IF_ERROR(CheckBounds(shape, low_shape, high_shape));
    const std::array<const Shape*, 3> shapes = {&shape, &low_shape, &high_shape};
    ASSIGN_OR_RETURN(const BroadcastPlan plan, BroadcastPlan::Make(shapes));
    ASSIGN_OR_RETURN(const GpuBroadcast<3> broadcast, MakeGpuBroadcast<3>(plan));
    const void* const x = GpuIn(c.input(0));
    const void* const low = GpuIn(c.input(1));
    const void* const high = GpuIn(c.input(2));
    ASSIGN_OR_RETURN(Tensor* const output, c.ForwardOrAllocate({0}, 0, shape));
    return run_.LaunchForEach(GpuPacks(broadcast.count, output->dtype()), x, low, high,
                              GpuOut(*output), broadcast);
  }

 private:
  GpuFunction run_;
};

absl::Status ClipGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Output dy, DenseGradient(c));
  const Output x = c.input(0);
  const Output shape_x = c.ShapeOf(x);
  Reduction low;
  Reduction high;
  low.shape = c.ShapeOf(c.input(1));
  high.shape = c.ShapeOf(c.input(2));
  const Output zeros = Zeros(c.scope(), c.ShapeOf(dy), dy.base_dtype());
  const Output below = c.Op("Less", {x, c.input(1)});
  const Output above = c.Op("Greater", {x, c.input(2)});
  low.axes = Output(c.Op("BroadcastGradientArgs", {shape_x, low.shape}).node, 1);
  high.axes = Output(c.Op("BroadcastGradientArgs", {shape_x, high.shape}).node, 1);
  const Output outside = c.Op("LogicalOr", {below, above});
  c.SetDx(0, c.Op("Select", {outside, zeros, dy}));
  const Output dlow = c.Op("Select", {below, dy, zeros});
  const Output dhigh = c.Op("Select", {above, dy, zeros});
  c.SetDx(1, Reduce(c.scope(), dlow, low));
  c.SetDx(2, Reduce(c.scope(), dhigh, high));
  return c.scope().status();
}

DEFINE_OP(ClipByValue) {
  op.Attr(
      "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
      "bfloat16, qint16, "
      "quint16, uint16, complex128, half, uint32, uint64}");
  op.Input("t: T").Input("clip_value_min: T").Input("clip_value_max: T").Output("output: T");
  op.Doc("Values brought into the range of the two bounds.")
      .Shape(UnchangedShape)
      .Gradient(ClipGradient)
      .CpuTypes<Numbers>("T", []<typename T>() { return Stateless(RunClip<T>); })
      .GpuTypes("T",
                With(kGpuFloats,
                     {DType::kUint8, DType::kUint16, DType::kInt8, DType::kInt16, DType::kInt64}),
                KernelOnGpu<GpuClip>())
      .GpuOnHost("T");
}

// --- _UnaryOpsComposition

// Activations that may appear in a chain; their ops live with the neural network ops.
struct Relu {
  template <typename T>
  static T Apply(T x) {
    return x < T(0) ? T(0) : x;
  }
};
struct Relu6 {
  template <typename T>
  static T Apply(T x) {
    const T low = x < T(0) ? T(0) : x;
    return low > T(6) ? T(6) : low;
  }
};
struct Elu {
  template <typename T>
  static T Apply(T x) {
    return x < T(0) ? std::expm1(x) : x;
  }
};
struct Selu {
  template <typename T>
  static T Apply(T x) {
    constexpr double kScale = 1.0507009873554804934193349852946;
    constexpr double kScaleAlpha = 1.7580993408473768599402175208123;
    return x < T(0) ? static_cast<T>(kScaleAlpha) * std::expm1(x) : static_cast<T>(kScale) * x;
  }
};

template <typename L>
UnaryLoop ActivationLoop(absl::string_view name) {
  if (name == "Relu") return elementwise::RunUnaryLoop<Relu, L>;
  if (name == "Relu6") return elementwise::RunUnaryLoop<Relu6, L>;
  if (name == "Elu") return elementwise::RunUnaryLoop<Elu, L>;
  if (name == "Selu") return elementwise::RunUnaryLoop<Selu, L>;
  return nullptr;
}

class UnaryOpsComposition final : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(const std::vector<std::string> names,
                     setup.Attr<std::vector<std::string>>("op_names"));
    dtype_ = setup.input_type(0);
    if (names.empty()) return InvalidArgument("Unary op composition must have at least one op");
    for (const std::string& name : names) {
      const UnarySpec* spec = FindUnaryLoop(name, dtype_);
      UnaryLoop loop = spec != nullptr ? spec->loop : nullptr;
      cost_ns_ += spec != nullptr ? spec->cost_ns : 4;
      if (loop == nullptr) {
        loop =
            dtype_ == DType::kDouble ? ActivationLoop<double>(name) : ActivationLoop<float>(name);
      }
      if (loop == nullptr) {
        return InvalidArgument("Do not have a compute function registered for op: ", name);
      }
      loops_.push_back(loop);
    }
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Shape shape = c.input(0).shape();
    const char* from = c.input(0).raw();
    const int64_t size = static_cast<int64_t>(DTypeSize(dtype_));
    ASSIGN_OR_RETURN(Tensor * y, c.ForwardOrAllocate({0}, 0, shape));
    char* to = y->raw();
    c.ParallelFor(shape.num_elements(), cost_ns_, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at += kBlock) {
        RunBlock(from + at * size, to + at * size, std::min(kBlock, end - at));
      }
    });
    return absl::OkStatus();
  }

 private:
  void RunBlock(const char* from, char* to, int64_t count) const {
    std::array<float, kBlock> buffer;
    const bool small = IsSmallFloat(dtype_);
    void* block = to;
    const void* source = from;
    if (small) {
      ToFloat(dtype_, from, buffer.data(), count);
      source = block = buffer.data();
    }
    for (const UnaryLoop loop : loops_) {
      loop(source, block, count);
      source = block;
    }
    if (small) FromFloat(dtype_, buffer.data(), to, count);
  }

  DType dtype_ = DType::kInvalid;
  std::vector<UnaryLoop> loops_;
  double cost_ns_ = 0;
};

DEFINE_OP(_UnaryOpsComposition) {
  op.Attr("T: {float, half, double}").Attr("op_names: list(string)").Input("x: T").Output("y: T");
  op.Doc("Several unary ops one after the other.")
      .Shape(UnchangedShape)
      .CpuTypes<Types<float, Half, double>>(
          "T", []<typename T>() { return New<UnaryOpsComposition>(); });
}

}  // namespace
}  // namespace muster
