// BiasAdd: a vector added along the channels, and its gradient.
#include "muster/graph/build/emit.h"
#include "muster/ops/nn/channels.h"
#include "muster/ops/nn/elementwise.h"
#include "muster/ops/nn/gradient_support.h"

namespace muster {
namespace {

template <typename T>
T Sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));  // wraps around
  } else {
    return a + b;
  }
}

ChannelView SplitAtChannels(const Shape& shape, bool channels_first) {
  if (channels_first) return {shape.dim(0), shape.dim(1), shape.ElementsIn(2, shape.rank())};
  return {shape.ElementsIn(0, shape.rank() - 1), shape.dim(shape.rank() - 1), 1};
}

absl::StatusOr<bool> ChannelsFirst(const Node& node) {
  if (node.def().FindAttr("data_format") == nullptr) return false;
  ASSIGN_OR_RETURN(const std::string format, node.Attr<std::string>("data_format"));
  return format == "NCHW";
}

absl::StatusOr<ChannelView> CheckedBiasAdd(const Shape& shape, const Shape& bias,
                                           bool channels_first) {
  if (shape.rank() < 2)
    return InvalidArgument("Input tensor must be at least 2D: ", shape.ToString());
  if (bias.rank() != 1) return InvalidArgument("Biases must be 1D: ", bias.ToString());
  const ChannelView view = SplitAtChannels(shape, channels_first);
  if (bias.dim(0) != view.channels) {
    // TensorFlow says "last" of channels that come first, too.
    return InvalidArgument(
        "Must provide as many biases as the last dimension of the input tensor: ", bias.ToString(),
        " vs. ", shape.ToString());
  }
  return view;
}

absl::StatusOr<ChannelView> CheckedBiasAddGrad(const Shape& shape, bool channels_first) {
  if (shape.rank() < 2)
    return InvalidArgument("Input tensor must be at least 2D: ", shape.ToString());
  return SplitAtChannels(shape, channels_first);
}

class Bias : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(channels_first_, ChannelsFirst(setup.node()));
    return absl::OkStatus();
  }

 protected:
  bool channels_first_ = false;
};

template <typename T>
class BiasAdd : public Bias {
 public:
  absl::Status Compute(KernelContext& c) override {
    using V = muster::Compute<T>;
    const Shape shape = c.input(0).shape();
    ASSIGN_OR_RETURN(const ChannelView d,
                     CheckedBiasAdd(shape, c.input(1).shape(), channels_first_));
    const T* const in = c.input(0).data<T>();
    const Tensor bias = c.input(1);
    ASSIGN_OR_RETURN(Tensor * output, c.ForwardOrAllocate({0}, 0, shape));
    if (shape.num_elements() == 0) return absl::OkStatus();
    const T* const b = bias.data<T>();
    T* const out = output->data<T>();
    if (d.inner == 1) {
      c.ParallelFor(
          d.outer, 0.3 * static_cast<double>(d.channels), [=](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
              const T* const from = in + row * d.channels;
              T* const to = out + row * d.channels;
#pragma GCC ivdep
              for (int64_t i = 0; i < d.channels; ++i) {
                to[i] = static_cast<T>(Sum(static_cast<V>(from[i]), static_cast<V>(b[i])));
              }
            }
          });
    } else {
      c.ParallelFor(d.outer * d.channels, 0.3 * static_cast<double>(d.inner),
                    [=](int64_t begin, int64_t end) {
                      for (int64_t row = begin; row < end; ++row) {
                        const T* const from = in + row * d.inner;
                        T* const to = out + row * d.inner;
                        const V add = static_cast<V>(b[row % d.channels]);
#pragma GCC ivdep
                        for (int64_t i = 0; i < d.inner; ++i)
                          to[i] = static_cast<T>(Sum(static_cast<V>(from[i]), add));
                      }
                    });
    }
    return absl::OkStatus();
  }
};

template <typename T>
class BiasAddGrad : public Bias {
 public:
  absl::Status Compute(KernelContext& c) override {
    using V = muster::Compute<T>;
    const Tensor& dy = c.input(0);
    ASSIGN_OR_RETURN(const ChannelView d, CheckedBiasAddGrad(dy.shape(), channels_first_));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, Shape({d.channels})));
    T* const out = output->data<T>();
    const T* const in = dy.data<T>();
    // Each part of the rows has sums of its own; their order is fixed by the parts, not by the
    // threads.
    const int64_t rows = d.outer;
    const int64_t parts = std::clamp<int64_t>(dy.num_elements() / 32768, 1, 16);
    std::vector<V> sums(static_cast<size_t>(parts * d.channels), V(0));
    c.ParallelFor(parts, 0.3 * static_cast<double>(dy.num_elements()) / static_cast<double>(parts),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t part = begin; part < end; ++part) {
                      SumRows(in, d, rows * part / parts, rows * (part + 1) / parts,
                              sums.data() + part * d.channels);
                    }
                  });
    for (int64_t i = 0; i < d.channels; ++i) {
      V total = sums[i];
      for (int64_t part = 1; part < parts; ++part) total = Sum(total, sums[part * d.channels + i]);
      out[i] = static_cast<T>(total);
    }
    return absl::OkStatus();
  }

 private:
  static void SumRows(const T* in, const ChannelView& d, int64_t begin, int64_t end,
                      muster::Compute<T>* __restrict sums) {
    using V = muster::Compute<T>;
    for (int64_t row = begin; row < end; ++row) {
      if (d.inner == 1) {
        const T* const from = in + row * d.channels;
        for (int64_t i = 0; i < d.channels; ++i) sums[i] = Sum(sums[i], static_cast<V>(from[i]));
        continue;
      }
      for (int64_t channel = 0; channel < d.channels; ++channel) {
        const T* const from = in + (row * d.channels + channel) * d.inner;
        V total = V(0);
        for (int64_t i = 0; i < d.inner; ++i) total = Sum(total, static_cast<V>(from[i]));
        sums[channel] = Sum(sums[channel], total);
      }
    }
  }
};

class GpuBias : public GpuKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(channels_first_, ChannelsFirst(setup.node()));
    return GpuKernel::Init(setup);
  }

 protected:
  bool channels_first_ = false;
};

class GpuBiasAdd : public GpuBias {
 public:
  explicit GpuBiasAdd(DType dtype)
      : add_(*this, "nn/bias.cu", absl::StrCat("BiasAdd<", GpuTypeName(dtype), ">")) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    const Tensor& bias = c.input(1);
    ASSIGN_OR_RETURN(const ChannelView view,
                     CheckedBiasAdd(x.shape(), bias.shape(), channels_first_));
    ASSIGN_OR_RETURN(Tensor* const y, c.ForwardOrAllocate({0}, 0, x.shape()));
    return add_.LaunchForEach(PacksIn(x), GpuIn(x), GpuIn(bias), GpuOut(*y), x.num_elements(),
                              view.channels, view.inner);
  }

 private:
  GpuFunction add_;
};

class GpuBiasAddGrad : public GpuBias {
 public:
  explicit GpuBiasAddGrad(DType dtype) : GpuBiasAddGrad("SumChannels", dtype) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& dy = c.input(0);
    ASSIGN_OR_RETURN(const ChannelView view, CheckedBiasAddGrad(dy.shape(), channels_first_));
    ASSIGN_OR_RETURN(Tensor* const sums, c.AllocateOutput(0, Shape({view.channels})));
    return SumInParts(c, ReduceChannelsOf(view, gpu(), {&dy}), *sums, GpuIn(dy));
  }

 protected:
  GpuBiasAddGrad(const char* function, DType dtype)
      : sum_(*this, "nn/bias.cu", absl::StrCat(function, "<", GpuTypeName(dtype), ">")),
        join_(*this, "nn/bias.cu", absl::StrCat("SumParts<", GpuTypeName(dtype), ">")) {}
  // `arguments` are those of the function before the sums.
  template <typename... Arguments>
  absl::Status SumInParts(KernelContext& c, const ChannelReduction& reduction, Tensor& sums,
                          const Arguments&... arguments) const {
    const DType computed = sums.dtype() == DType::kDouble ? DType::kDouble : DType::kFloat;
    ASSIGN_OR_RETURN(Tensor parts, reduction.AllocateParts(c, computed, 1));
    RETURN_IF_ERROR(
        sum_.Launch(reduction.grid, arguments..., GpuOut(sums), GpuOut(parts), reduction.split));
    if (reduction.parts() == 1) return absl::OkStatus();
    const ChannelReduction join = ReducePartsOf(reduction);
    return join_.Launch(join.grid, GpuIn(parts), GpuOut(sums), join.split);
  }

 private:
  GpuFunction sum_;
  GpuFunction join_;
};

// ReluGrad and BiasAddGrad of its result.
class GpuReluBiasGrad : public GpuBiasAddGrad {
 public:
  explicit GpuReluBiasGrad(DType dtype) : GpuBiasAddGrad("SumThroughRelu", dtype) {}
  absl::Status Compute(KernelContext& c) override {
    RETURN_IF_ERROR(CheckSameShapes(c));
    const Tensor& dy = c.input(0);
    const Tensor& y = c.input(1);
    ASSIGN_OR_RETURN(const ChannelView view, CheckedBiasAddGrad(dy.shape(), channels_first_));
    ASSIGN_OR_RETURN(Tensor* const dx, c.AllocateOutput(0, dy.shape()));
    ASSIGN_OR_RETURN(Tensor* const sums, c.AllocateOutput(1, Shape({view.channels})));
    return SumInParts(c, ReduceChannelsOf(view, gpu(), {&dy, &y, dx}), *sums, GpuIn(dy), GpuIn(y),
                      GpuOut(*dx));
  }
};

absl::Status InferBiasAdd(ShapeContext& c) {
  ASSIGN_OR_RETURN(const bool channels_first, ChannelsFirst(c.node()));
  ASSIGN_OR_RETURN(PartialShape value, c.WithRankAtLeast(c.input(0), channels_first ? 3 : 2));
  ASSIGN_OR_RETURN(const PartialShape bias, c.WithRank(c.input(1), 1));
  if (value.known_rank()) {
    const int axis = channels_first ? 1 : value.rank() - 1;
    ASSIGN_OR_RETURN(const int64_t channels, ShapeContext::MergeDims(value.dim(axis), bias.dim(0)));
    value.Set(axis, channels);
  }
  c.SetOutput(0, std::move(value));
  return absl::OkStatus();
}

absl::StatusOr<PartialShape> ChannelsOf(ShapeContext& c) {
  ASSIGN_OR_RETURN(const bool channels_first, ChannelsFirst(c.node()));
  ASSIGN_OR_RETURN(const PartialShape value, c.WithRankAtLeast(c.input(0), channels_first ? 3 : 2));
  const int64_t channels =
      value.known_rank() ? value.dim(channels_first ? 1 : value.rank() - 1) : -1;
  return PartialShape::Vector(channels);
}
absl::Status InferBiasAddGrad(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape channels, ChannelsOf(c));
  c.SetOutput(0, channels);
  return absl::OkStatus();
}

absl::Status InferReluBiasGrad(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape channels, ChannelsOf(c));
  c.SetOutput(0, c.input(0));
  c.SetOutput(1, channels);
  return absl::OkStatus();
}

absl::Status DifferentiateBiasAdd(GradientContext& c) {
  c.SetDx(0, c.dy());
  c.SetDx(1, c.Op("BiasAddGrad", {c.dy()}, CopyAttrs(c, {"data_format"})));
  return absl::OkStatus();
}

absl::Status DifferentiateBiasAddV1(GradientContext& c) {
  const Output dy = c.dy();
  if (!dy) return c.scope().status();
  const Output rank = dy.shape().known_rank()
                          ? c.scope().ConstScalar<int32_t>(dy.shape().rank(), "Rank")
                          : c.Op("Rank", {dy});
  const Output last = OpWithConstant(c, "Sub", rank, Tensor::Scalar<int32_t>(1), "y", {}, "sub");
  const Scope range = c.scope().NameScope("range");
  const Output start = range.ConstScalar<int32_t>(0, "start");
  const Output delta = range.ConstScalar<int32_t>(1, "delta");
  const Output axes = OpNamed(range, "Range", {start, last, delta});
  c.SetDx(0, dy);
  c.SetDx(1, c.Op("Sum", {dy, axes}, {{"keep_dims", false}}));
  return absl::OkStatus();
}

// shape[begin:end]; `open_begin`/`open_end` leave that side out.
Output SliceShape(GradientContext& c, Output shape, int begin, int end, bool open_begin,
                  bool open_end) {
  const Scope inner = c.scope().NameScope("strided_slice");
  const Output first = inner.ConstVector({begin}, "stack");
  const Output last = inner.ConstVector({end}, "stack_1");
  const Output step = inner.ConstVector({1}, "stack_2");
  return OpNamed(inner, "StridedSlice", {shape, first, last, step},
                 {{"begin_mask", open_begin ? 1 : 0}, {"end_mask", open_end ? 1 : 0}});
}
Output OnesLike(GradientContext& c, Output x) {
  if (!x) return x;  // an error is already recorded
  const Scope inner = c.scope().NameScope("ones_like");
  const Output sizes = x.shape().fully_known()
                           ? inner.ConstVector({static_cast<int32_t>(x.shape().dim(0))}, "Shape")
                           : inner.Op("Shape", {x}, {{"out_type", DType::kInt32}});
  const Output one = inner.ConstScalar<int32_t>(1);
  return OpNamed(inner, "Fill", {sizes, one});
}
// concat(values, 0); an absent output stands for the constant [1].
Output Concat(GradientContext& c, std::vector<Output> values) {
  const Scope inner = c.scope().NameScope("concat");
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i]) values[i] = inner.ConstVector({1}, absl::StrCat("values_", i));
  }
  const Output axis = inner.ConstScalar<int32_t>(0, "axis");
  return OpNamed(inner, "ConcatV2", {std::move(values), axis});
}

// The gradient of a sum: the received vector, repeated over all other axes.
absl::Status DifferentiateBiasAddGrad(GradientContext& c) {
  const bool channels_first = c.Attr<std::string>("data_format") == "NCHW";
  const Output shape = c.ShapeOf(c.input(0));
  const Output bias_shape = c.ShapeOf(c.dy());
  Output expanded;
  Output multiples;
  if (channels_first) {
    const Output before = OnesLike(c, SliceShape(c, shape, 0, 1, true, false));
    const Output after = OnesLike(c, SliceShape(c, shape, 2, 0, false, true));
    expanded = Concat(c, {before, bias_shape, after});
    const Output outer = SliceShape(c, shape, 0, 1, true, false);
    const Output inner = SliceShape(c, shape, 2, 0, false, true);
    multiples = Concat(c, {outer, Output(), inner});
  } else {
    const Output before = OnesLike(c, SliceShape(c, shape, 0, -1, true, false));
    expanded = Concat(c, {before, bias_shape});
    const Output outer = SliceShape(c, shape, 0, -1, true, false);
    multiples = Concat(c, {outer, Output()});
  }
  const Output reshaped = c.Op("Reshape", {c.dy(), expanded});
  c.SetDx(0, c.Op("Tile", {reshaped, multiples}));
  return absl::OkStatus();
}

constexpr char kNumberTypes[] =
    "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
    "bfloat16, qint16, quint16, "
    "uint16, complex128, half, uint32, uint64}";

}  // namespace

DEFINE_OP(BiasAdd) {
  op.Attr(kNumberTypes)
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Input("value: T")
      .Input("bias: T")
      .Output("output: T")
      .Doc("Adds a vector along the channels.")
      .Shape(InferBiasAdd)
      .Gradient(DifferentiateBiasAdd)
      .CpuTypes<Numbers>("T", []<typename T>() { return New<BiasAdd<T>>(); })
      .GpuTypes("T", GpuFloats(), MakeGpu<GpuBiasAdd>);
}

DEFINE_OP(BiasAddV1) {
  op.Attr(kNumberTypes)
      .Input("value: T")
      .Input("bias: T")
      .Output("output: T")
      .Doc("Adds a vector along the last axis.")
      .Shape(InferBiasAdd)
      .Gradient(DifferentiateBiasAddV1)
      .CpuTypes<Numbers>("T", []<typename T>() { return New<BiasAdd<T>>(); })
      .GpuTypes("T", GpuFloats(), MakeGpu<GpuBiasAdd>);
}

DEFINE_OP(BiasAddGrad) {
  op.Attr(kNumberTypes)
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Input("out_backprop: T")
      .Output("output: T")
      .Doc("Sums over all axes but the channels.")
      .Shape(InferBiasAddGrad)
      .Gradient(DifferentiateBiasAddGrad)
      .CpuTypes<Numbers>("T", []<typename T>() { return New<BiasAddGrad<T>>(); })
      .GpuTypes("T", GpuFloats(), MakeGpu<GpuBiasAddGrad>);
}

// What a rewrite puts in the place of ReluGrad and BiasAddGrad on GPUs (graph/rewrite).
DEFINE_OP(MusterReluBiasGrad) {
  op.Attr("T: {half, bfloat16, float, double}")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Input("gradients: T")
      .Input("features: T")
      .Output("backprops: T")
      .Output("bias_gradient: T")
      .Doc("ReluGrad, and the sums of its result over all axes but the channels.")
      .Shape(InferReluBiasGrad)
      .GpuTypes("T", GpuFloats(), MakeGpu<GpuReluBiasGrad>);
}

}  // namespace muster
