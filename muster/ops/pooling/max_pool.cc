// Maximum pooling.
#include "muster/ops/pooling/max_pool.h"

#include "muster/ops/nn/gradient_support.h"
#include "muster/ops/nn/window.h"
#include "muster/ops/pooling/gpu_pool.h"

namespace muster {
namespace {

// out[c] = the larger of out[c] and cell[c].
template <typename T>
void Enlarge(const T* __restrict cell, int64_t n, T* __restrict out) {
  using V = Compute<T>;
  for (int64_t i = 0; i < n; ++i)
    out[i] = static_cast<V>(out[i]) < static_cast<V>(cell[i]) ? cell[i] : out[i];
}

template <typename T>
void PoolRow(const PoolWindow& w, const T* image, int64_t out_row, T* out) {
  const auto rows = w.Rows(out_row);
  for (int64_t column = 0; column < w.out_width; ++column, out += w.channels) {
    const auto columns = w.Columns(column);
    // From below every number, so that a NaN in the first cell is passed over like any other.
    std::fill(out, out + w.channels, LowestOf<T>());
    for (int64_t y = rows.begin; y < rows.end; ++y) {
      for (int64_t x = columns.begin; x < columns.end; ++x) {
        Enlarge(image + (y * w.width + x) * w.channels, w.channels, out);
      }
    }
  }
}

// The largest of each `window_channels` neighbouring channels.
template <typename T>
void PoolChannels(const PoolWindow& w, const T* in, int64_t cells, T* out) {
  using V = Compute<T>;
  for (int64_t i = 0; i < cells; ++i, in += w.window_channels) {
    T best = in[0];
    for (int64_t k = 1; k < w.window_channels; ++k) {
      if (static_cast<V>(best) < static_cast<V>(in[k])) best = in[k];
    }
    out[i] = best;
  }
}

template <typename T>
absl::Status Run(KernelContext& c, const PoolAttrs& attrs) {
  const Tensor input = c.input(0);
  ASSIGN_OR_RETURN(const PoolWindow w, MakePoolWindow(attrs, input.shape()));
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, w.output_shape()));
  if (output->num_elements() == 0) return absl::OkStatus();
  const T* const in = input.data<T>();
  T* const out = output->data<T>();
  if (w.window_channels != 1) {
    const int64_t cells = output->num_elements();
    c.ParallelFor(cells, static_cast<double>(w.window_channels), [&](int64_t begin, int64_t end) {
      PoolChannels(w, in + begin * w.window_channels, end - begin, out + begin);
    });
    return absl::OkStatus();
  }
  const int64_t row = w.out_width * w.channels;
  const double cost = 0.2 * static_cast<double>(row * w.window_height * w.window_width);
  c.ParallelFor(w.batch * w.out_height, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* const image = in + i / w.out_height * (w.height * w.width * w.channels);
      PoolRow(w, image, i % w.out_height, out + i * row);
    }
  });
  return absl::OkStatus();
}

template <typename T>
class MaxPool : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadPoolAttrs(setup.node()));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const PoolAttrs attrs, CheckedMaxPool(c, attrs_));
    return Run<T>(c, attrs);
  }

 private:
  PoolAttrs attrs_;
};

absl::Status InferMaxPool(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PoolAttrs attrs, ReadPoolAttrs(c.node()));
  ASSIGN_OR_RETURN(PartialShape shape, InferPool(c, c.input(0), attrs, "MaxPool", true));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferMaxPoolV2(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape shape, InferInputWindow(c));
  c.SetOutput(0, shape.known_rank() ? shape : PartialShape::OfRank(4));
  return absl::OkStatus();
}

absl::Status Differentiate(GradientContext& c) {
  c.SetDx(0,
          c.Op("MaxPoolGrad", {c.input(0), c.output(), c.dy()},
               CopyAttrs(c, {"ksize", "strides", "padding", "explicit_paddings", "data_format"})));
  return absl::OkStatus();
}

absl::Status DifferentiateV2(GradientContext& c) {
  c.SetDx(0, c.Op("MaxPoolGradV2", {c.input(0), c.output(), c.dy(), c.input(1), c.input(2)},
                  CopyAttrs(c, {"padding", "data_format"})));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PoolAttrs> CheckedMaxPool(const KernelContext& c, PoolAttrs attrs) {
  if (c.num_inputs() == 1) {
    RETURN_IF_ERROR(CheckPoolAttrs(attrs, {"MaxPoolingOp"}));
    for (const int64_t stride : attrs.strides) {
      if (stride > 0) continue;
      return InvalidArgument("Sliding window stride for dimension must be positive, but got ",
                             stride);
    }
    return attrs;
  }
  if (attrs.data_format != "NHWC") {
    return InvalidArgument("MaxPoolingV2Op only supports NHWC or NCHW_VECT_C. Got: ",
                           attrs.data_format);
  }
  ASSIGN_OR_RETURN(attrs, WithInputWindow(attrs, c.input(1), c.input(2)));
  // It does not list the window as MaxPool does.
  if (attrs.ksize.size() == 4 && attrs.strides.size() == 4 && !CheckKsizeIsPositive(attrs).ok())
    return InvalidArgument("Sliding window ksize must be positive.");
  RETURN_IF_ERROR(CheckPoolAttrs(attrs, {"MaxPoolingOp"}));
  return attrs;
}

absl::StatusOr<PoolAttrs> WithInputWindow(PoolAttrs attrs, const Tensor& ksize,
                                          const Tensor& strides) {
  // TensorFlow reads four numbers from a tensor of any rank.
  ASSIGN_OR_RETURN(const Dims sizes, IntegerValues(ksize));
  ASSIGN_OR_RETURN(const Dims steps, IntegerValues(strides));
  attrs.ksize.assign(sizes.begin(), sizes.end());
  attrs.strides.assign(steps.begin(), steps.end());
  if (!attrs.of_channels_first) return attrs;
  attrs.data_format = "NCHW";
  return InChannelsLast(std::move(attrs));
}

absl::StatusOr<PartialShape> InferInputWindow(ShapeContext& c) {
  ASSIGN_OR_RETURN(PoolAttrs attrs, ReadPoolAttrs(c.node()));
  const bool in_blocks = attrs.data_format == "NCHW_VECT_C";
  ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(c.input(0), in_blocks ? 5 : 4));
  if (in_blocks) return InferPool(c, input, attrs, "MaxPool", true);
  const int inputs = c.node().num_inputs();
  for (int i : {inputs - 2, inputs - 1}) {
    ASSIGN_OR_RETURN(const PartialShape vector, c.WithRank(c.input(i), 1));
    if (vector.dim(0) >= 0 && vector.dim(0) != 4) {
      return InvalidArgument("Dimension must be 4 but is ", vector.dim(0));
    }
  }
  const auto ksize = c.ConstantInput(inputs - 2);
  const auto strides = c.ConstantInput(inputs - 1);
  if (!ksize || !strides) return PartialShape();
  ASSIGN_OR_RETURN(attrs, WithInputWindow(attrs, *ksize, *strides));
  return InferPool(c, input, attrs, "MaxPool", true);
}

DEFINE_OP(MaxPool) {
  op.Attr(
        "T: {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = "
        "DT_FLOAT")
      .Attr("ksize: list(int) >= 4")
      .Attr("strides: list(int) >= 4")
      .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
      .Attr2x("explicit_paddings: list(int) = []")
      .Attr("data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'")
      .Input("input: T")
      .Output("output: T")
      .Doc("The largest value of each window; cells outside the image do not count.")
      .Shape(InferMaxPool)
      .Gradient(Differentiate)
      .CpuTypes<PoolTypes>("T", []<typename T>() { return New<MaxPool<T>>(); })
      .GpuTypes("T", GpuFloats(), MakeGpuMaxPool);
}

DEFINE_OP(MaxPoolV2) {
  op.Attr(
        "T: {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = "
        "DT_FLOAT")
      .Attr("padding: {'SAME', 'VALID'}")
      .Attr("data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'")
      .Input("input: T")
      .Input("ksize: int32")
      .Input("strides: int32")
      .Output("output: T")
      .Doc("MaxPool whose window is an input.")
      .Shape(InferMaxPoolV2)
      .Gradient(DifferentiateV2)
      .HostMemory({"ksize", "strides"})
      .CpuTypes<PoolTypes>("T", []<typename T>() { return New<MaxPool<T>>(); })
      .GpuTypes("T", GpuFloats(), MakeGpuMaxPool);
}

}  // namespace muster
