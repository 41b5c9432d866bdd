// Average pooling: the mean over the cells of each window that are inside the image.
#include "muster/ops/nn/gradient_support.h"
#include "muster/ops/nn/window.h"
#include "muster/ops/pooling/gpu_pool.h"

namespace muster {
namespace {

template <typename T, typename V>
void AddRow(const T* __restrict from, int64_t n, V* __restrict to) {
  for (int64_t i = 0; i < n; ++i) to[i] += static_cast<V>(from[i]);
}

int64_t CellsIn(PoolWindow::Range rows, PoolWindow::Range columns) {
  return std::max<int64_t>(rows.end - rows.begin, 0) *
         std::max<int64_t>(columns.end - columns.begin, 0);
}

template <typename T>
void PoolRow(const PoolWindow& w, const T* image, int64_t out_row, T* out) {
  using V = Compute<T>;
  std::vector<V> sums(static_cast<size_t>(w.channels));
  const auto rows = w.Rows(out_row);
  for (int64_t column = 0; column < w.out_width; ++column, out += w.channels) {
    const auto columns = w.Columns(column);
    std::fill(sums.begin(), sums.end(), V(0));
    for (int64_t y = rows.begin; y < rows.end; ++y) {
      for (int64_t x = columns.begin; x < columns.end; ++x) {
        AddRow(image + (y * w.width + x) * w.channels, w.channels, sums.data());
      }
    }
    const V count = static_cast<V>(CellsIn(rows, columns));
    for (int64_t i = 0; i < w.channels; ++i) out[i] = static_cast<T>(sums[i] / count);
  }
}

template <typename T>
void SpreadImage(const PoolWindow& w, const T* dy, T* dx) {
  using V = Compute<T>;
  const int64_t size = w.height * w.width * w.channels;
  std::vector<V> sums(static_cast<size_t>(size), V(0));
  std::vector<V> share(static_cast<size_t>(w.channels));
  for (int64_t row = 0; row < w.out_height; ++row) {
    const auto rows = w.Rows(row);
    for (int64_t column = 0; column < w.out_width; ++column, dy += w.channels) {
      const auto columns = w.Columns(column);
      const V scale = V(1) / static_cast<V>(CellsIn(rows, columns));
      for (int64_t i = 0; i < w.channels; ++i) share[i] = static_cast<V>(dy[i]) * scale;
      for (int64_t y = rows.begin; y < rows.end; ++y) {
        for (int64_t x = columns.begin; x < columns.end; ++x) {
          AddRow(share.data(), w.channels, sums.data() + (y * w.width + x) * w.channels);
        }
      }
    }
  }
  for (int64_t i = 0; i < size; ++i) dx[i] = static_cast<T>(sums[i]);
}

absl::Status CheckDepth(int64_t window_channels) {
  if (window_channels == 1) return absl::OkStatus();
  return Unimplemented("Non-spatial pooling is not yet supported. Volunteers? :)");
}

class Pool : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadPoolAttrs(setup.node()));
    return absl::OkStatus();
  }

 protected:
  PoolAttrs attrs_;
};

template <typename T>
class AvgPool : public Pool {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(const PoolWindow w, CheckedAvgPool(attrs_, input.shape()));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, w.output_shape()));
    if (output->num_elements() == 0) return absl::OkStatus();
    const T* const in = input.data<T>();
    T* const out = output->data<T>();
    const int64_t row = w.out_width * w.channels;
    const double cost = 0.3 * static_cast<double>(row * w.window_height * w.window_width);
    c.ParallelFor(w.batch * w.out_height, cost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        PoolRow(w, in + i / w.out_height * (w.height * w.width * w.channels), i % w.out_height,
                out + i * row);
      }
    });
    return absl::OkStatus();
  }
};

template <typename T>
class AvgPoolGrad : public Pool {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& grad = c.input(1);
    ASSIGN_OR_RETURN(const PoolWindow w, CheckedAvgPoolGrad(attrs_, c.input(0), grad.shape()));
    const Shape shape({w.batch, w.height, w.width, w.channels});
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    if (output->num_elements() == 0) return absl::OkStatus();
    const T* const dy = grad.data<T>();
    T* const dx = output->data<T>();
    const int64_t image = w.height * w.width * w.channels;
    const int64_t small = w.out_height * w.out_width * w.channels;
    const double cost = static_cast<double>(image + small * w.window_height * w.window_width);
    c.ParallelFor(w.batch, 0.3 * cost, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) SpreadImage(w, dy + n * small, dx + n * image);
    });
    return absl::OkStatus();
  }
};

absl::Status InferAvgPool(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PoolAttrs attrs, ReadPoolAttrs(c.node()));
  ASSIGN_OR_RETURN(PartialShape shape, InferPool(c, c.input(0), attrs, "AvgPool", false));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferAvgPoolGrad(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape sizes, c.InputAsShape(0));
  ASSIGN_OR_RETURN(PartialShape shape, c.WithRank(sizes, 4));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status Differentiate(GradientContext& c) {
  const Output shape = c.ShapeOf(c.input(0));
  c.SetDx(0, c.Op("AvgPoolGrad", {shape, c.dy()},
                  CopyAttrs(c, {"ksize", "strides", "padding", "data_format"})));
  return absl::OkStatus();
}

absl::Status DifferentiateGrad(GradientContext& c) {
  c.SetDx(0, c.Op("StopGradient", {c.input(0)}));
  c.SetDx(1,
          c.Op("AvgPool", {c.dy()}, CopyAttrs(c, {"ksize", "strides", "padding", "data_format"})));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PoolWindow> CheckedAvgPool(const PoolAttrs& attrs, const Shape& input) {
  RETURN_IF_ERROR(CheckPoolAttrs(attrs, {"AvgPoolingOp"}));
  for (const int64_t size : attrs.ksize)
    if (size <= 0) return InvalidArgument("ksize must be a positive int32 value, got:", size);
  ASSIGN_OR_RETURN(const PoolWindow w, MakePoolWindow(attrs, attrs.ToLast(input)));
  RETURN_IF_ERROR(CheckDepth(w.window_channels));
  return w;
}

absl::StatusOr<PoolWindow> CheckedAvgPoolGrad(const PoolAttrs& attrs, const Tensor& sizes,
                                              const Shape& grad) {
  RETURN_IF_ERROR(CheckPoolAttrs(attrs, {"AvgPoolingGradOp", "strides"}));
  if (sizes.rank() != 1 || sizes.num_elements() != 4) {
    return InvalidArgument("out_backprop must be 1-dimensional and 4 elements");
  }
  if (grad.rank() != 4) return InvalidArgument("out_backprop must be 4-dimensional");
  ASSIGN_OR_RETURN(const Dims dims, IntegerValues(sizes));
  for (const int64_t size : dims)
    if (size < 0) return InvalidArgument("Expected a non-negative size, got ", size);
  ASSIGN_OR_RETURN(const Shape own, Shape::Make(dims));
  RETURN_IF_ERROR(CheckDepth(attrs.ksize[3]));
  const Shape shape = attrs.ToLast(own), pooled = attrs.ToLast(grad);
  ASSIGN_OR_RETURN(const PoolWindow w, MakePoolWindow(attrs, shape));
  for (const int axis : {1, 2}) {
    if (pooled.dim(axis) - 1 > shape.dim(axis) / attrs.strides[axis])
      return InvalidArgument("index * stride must be less than or equal to input size");
  }
  RETURN_IF_ERROR(CheckShapeIs(grad, attrs.FromLast(w.output_shape()), "grad"));
  RETURN_IF_ERROR(CheckWindowIsPositive(w));
  return w;
}

DEFINE_OP(AvgPool) {
  op.Attr("ksize: list(int) >= 4")
      .Attr("strides: list(int) >= 4")
      .Attr("padding: {'SAME', 'VALID'}")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Attr("T: {half, bfloat16, float, double}")
      .Input("value: T")
      .Output("output: T")
      .Doc("The mean of each window over its cells inside the image.")
      .Shape(InferAvgPool)
      .Gradient(Differentiate)
      .CpuTypes<Floats>("T", []<typename T>() { return New<AvgPool<T>>(); })
      .GpuTypes("T", GpuFloats(), MakeGpuAvgPool);
}

DEFINE_OP(AvgPoolGrad) {
  op.Attr("ksize: list(int) >= 4")
      .Attr("strides: list(int) >= 4")
      .Attr("padding: {'SAME', 'VALID'}")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Attr("T: {half, bfloat16, float, double}")
      .Input("orig_input_shape: int32")
      .Input("grad: T")
      .Output("output: T")
      .Doc("Gradient of AvgPool: each window's gradient in equal shares.")
      .Shape(InferAvgPoolGrad)
      .Gradient(DifferentiateGrad)
      .HostMemory({"orig_input_shape"})
      .CpuTypes<Floats>("T", []<typename T>() { return New<AvgPoolGrad<T>>(); })
      .GpuTypes("T", GpuFloats(), MakeGpuAvgPoolGrad);
}

}  // namespace muster
