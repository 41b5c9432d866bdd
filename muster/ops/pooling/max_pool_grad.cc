// Gradients of maximum pooling: everything goes through the first maximum of each window in scan
// order.
#include "muster/ops/nn/gradient_support.h"
#include "muster/ops/nn/window.h"
#include "muster/ops/pooling/gpu_pool.h"
#include "muster/ops/pooling/max_pool.h"

namespace muster {
namespace {

// For every channel of one window the first cell with the largest value, as its position y * width
// + x in the image
// (-1 for a window outside the image), and that value. NaN is never larger than anything.
template <typename T>
class WindowMaximum {
 public:
  explicit WindowMaximum(const PoolWindow& w)
      : w_(w), best_(static_cast<size_t>(w.channels)), cell_(static_cast<size_t>(w.channels)) {}

  void Find(const T* image, PoolWindow::Range rows, PoolWindow::Range columns) {
    const int64_t n = w_.channels;
    bool first = true;
    for (int64_t y = rows.begin; y < rows.end; ++y) {
      for (int64_t x = columns.begin; x < columns.end; ++x) {
        const int32_t position = static_cast<int32_t>(y * w_.width + x);
        const T* const cell = image + position * n;
        if (first) {
          std::copy(cell, cell + n, best_.begin());
          std::fill(cell_.begin(), cell_.end(), position);
        } else {
          Improve(cell, position, n, best_.data(), cell_.data());
        }
        first = false;
      }
    }
    if (first) {
      std::fill(best_.begin(), best_.end(), LowestOf<T>());
      std::fill(cell_.begin(), cell_.end(), -1);
    }
  }
  const T* best() const { return best_.data(); }
  const int32_t* cell() const { return cell_.data(); }

 private:
  static void Improve(const T* __restrict from, int32_t position, int64_t n, T* __restrict best,
                      int32_t* __restrict cell) {
    using V = Compute<T>;
    for (int64_t i = 0; i < n; ++i) {
      const bool larger = static_cast<V>(best[i]) < static_cast<V>(from[i]);
      best[i] = larger ? from[i] : best[i];
      cell[i] = larger ? position : cell[i];
    }
  }

  const PoolWindow& w_;
  std::vector<T> best_;
  std::vector<int32_t> cell_;
};

template <typename T>
T Plus(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return static_cast<T>(static_cast<Compute<T>>(a) + static_cast<Compute<T>>(b));
  }
}

// to[i] += dy[i] where cell[i] is `position`.
template <typename T>
void AddWhere(const int32_t* __restrict cell, int32_t position, const T* __restrict dy, int64_t n,
              T* __restrict to) {
  for (int64_t i = 0; i < n; ++i)
    to[i] = Plus(to[i], cell[i] == position ? dy[i] : static_cast<T>(0));
}

// Windows of up to this many cells are added cell by cell, in vectors; larger ones element by
// element.
constexpr int64_t kSmallWindow = 16;

template <typename T>
void SpreadImage(const PoolWindow& w, const T* image, const T* dy, T* dx) {
  std::fill(dx, dx + w.height * w.width * w.channels, static_cast<T>(0));
  WindowMaximum<T> maximum(w);
  for (int64_t row = 0; row < w.out_height; ++row) {
    const auto rows = w.Rows(row);
    for (int64_t column = 0; column < w.out_width; ++column, dy += w.channels) {
      const auto columns = w.Columns(column);
      maximum.Find(image, rows, columns);
      if (w.window_height * w.window_width <= kSmallWindow) {
        for (int64_t y = rows.begin; y < rows.end; ++y) {
          for (int64_t x = columns.begin; x < columns.end; ++x) {
            const int64_t position = y * w.width + x;
            AddWhere(maximum.cell(), static_cast<int32_t>(position), dy, w.channels,
                     dx + position * w.channels);
          }
        }
        continue;
      }
      for (int64_t i = 0; i < w.channels; ++i) {
        const int64_t position = maximum.cell()[i];
        if (position < 0) continue;
        T& to = dx[position * w.channels + i];
        to = Plus(to, dy[i]);
      }
    }
  }
}

template <typename T>
void CollectImage(const PoolWindow& w, const T* image, const T* ddx, T* out) {
  WindowMaximum<T> maximum(w);
  for (int64_t row = 0; row < w.out_height; ++row) {
    for (int64_t column = 0; column < w.out_width; ++column, out += w.channels) {
      maximum.Find(image, w.Rows(row), w.Columns(column));
      for (int64_t i = 0; i < w.channels; ++i) {
        const int64_t position = maximum.cell()[i];
        out[i] = position < 0 ? static_cast<T>(0) : ddx[position * w.channels + i];
      }
    }
  }
}

absl::Status CheckWindow(const PoolWindow& w) {
  RETURN_IF_ERROR(CheckWindowIsPositive(w));
  if (w.window_channels != 1)
    return Unimplemented("MaxPoolingGrad is not yet supported on the depth dimension.");
  if (w.height * w.width > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("Pooling gradients need images of fewer than 2^31 cells, but got ",
                           w.height, "x", w.width);
  }
  return absl::OkStatus();
}

// MaxPoolGrad (kBackward: from outputs to inputs) and MaxPoolGradGrad, with the window as
// attributes or inputs.
template <typename T, bool kBackward>
class MaxPoolGradient : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadPoolAttrs(setup.node()));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const PoolWindow w, CheckedMaxPoolGradient(c, attrs_, kBackward));
    const Tensor input = c.input(0);
    const Tensor grad = c.input(2);
    ASSIGN_OR_RETURN(Tensor * output,
                     c.AllocateOutput(0, kBackward ? input.shape() : w.output_shape()));
    if (output->num_elements() == 0) return absl::OkStatus();
    const int64_t image = w.height * w.width * w.channels;
    const int64_t small = w.out_height * w.out_width * w.channels;
    const T* const in = input.data<T>();
    const T* const from = grad.data<T>();
    T* const to = output->data<T>();
    c.ParallelFor(w.batch, 0.5 * static_cast<double>(image), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        if constexpr (kBackward) {
          SpreadImage(w, in + n * image, from + n * small, to + n * image);
        } else {
          CollectImage(w, in + n * image, from + n * image, to + n * small);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  PoolAttrs attrs_;
};

template <typename T, typename Index>
class MaxPoolWithArgmax : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadPoolAttrs(setup.node()));
    ASSIGN_OR_RETURN(batch_in_index_, setup.Attr<bool>("include_batch_in_index"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor input = c.input(0);
    ASSIGN_OR_RETURN(const PoolWindow w, CheckedMaxPoolWithArgmax(c, attrs_));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, w.output_shape()));
    ASSIGN_OR_RETURN(Tensor * argmax, c.AllocateOutput(1, w.output_shape()));
    if (output->num_elements() == 0) return absl::OkStatus();
    const int64_t image = w.height * w.width * w.channels;
    const int64_t small = w.out_height * w.out_width * w.channels;
    if (static_cast<uint64_t>(batch_in_index_ ? input.num_elements() : image) >
        static_cast<uint64_t>(std::numeric_limits<Index>::max())) {
      return InvalidArgument("The indices of input ", input.shape().ToString(),
                             " do not fit into Targmax");
    }
    const T* const in = input.data<T>();
    c.ParallelFor(w.batch, static_cast<double>(image), [&](int64_t begin, int64_t end) {
      WindowMaximum<T> maximum(w);
      for (int64_t n = begin; n < end; ++n) {
        T* to = output->data<T>() + n * small;
        Index* at = argmax->data<Index>() + n * small;
        const int64_t base = batch_in_index_ ? n * image : 0;
        for (int64_t row = 0; row < w.out_height; ++row) {
          for (int64_t column = 0; column < w.out_width;
               ++column, to += w.channels, at += w.channels) {
            maximum.Find(in + n * image, w.Rows(row), w.Columns(column));
            std::copy(maximum.best(), maximum.best() + w.channels, to);
            for (int64_t i = 0; i < w.channels; ++i) {
              at[i] = static_cast<Index>(base + maximum.cell()[i] * w.channels + i);
            }
          }
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  PoolAttrs attrs_;
  bool batch_in_index_ = false;
};

template <typename T, typename Index>
class MaxPoolGradWithArgmax : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadPoolAttrs(setup.node()));
    ASSIGN_OR_RETURN(batch_in_index_, setup.Attr<bool>("include_batch_in_index"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    const Tensor& grad = c.input(1);
    const Tensor& argmax = c.input(2);
    ASSIGN_OR_RETURN(const PoolWindow w, CheckedMaxPoolGradWithArgmax(c, attrs_));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, input.shape()));
    T* const to = output->data<T>();
    std::fill(to, to + output->num_elements(), static_cast<T>(0));
    const int64_t image = w.height * w.width * w.channels;
    const int64_t small = w.out_height * w.out_width * w.out_channels;
    const T* const dy = grad.data<T>();
    const Index* const at = argmax.data<Index>();
    for (int64_t n = 0; n < w.batch; ++n) {
      for (int64_t i = n * small; i < (n + 1) * small; ++i) {
        const int64_t position = static_cast<int64_t>(at[i]) + (batch_in_index_ ? 0 : n * image);
        if (position < n * image || position >= (n + 1) * image) {
          return InvalidArgument("Invalid output index: argmax[", i, "] = ", at[i],
                                 " is outside image ", n, " of input ", input.shape().ToString());
        }
        to[position] = Plus(to[position], dy[i]);
      }
    }
    return absl::OkStatus();
  }

 private:
  PoolAttrs attrs_;
  bool batch_in_index_ = false;
};

absl::Status InferLikeInput(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.WithRank(c.input(0), 4));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferGradGrad(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PoolAttrs attrs, ReadPoolAttrs(c.node()));
  ASSIGN_OR_RETURN(PartialShape shape, InferPool(c, c.input(0), attrs, "MaxPool", true));
  RETURN_IF_ERROR(c.input(0).Merge(c.input(2)).status());
  RETURN_IF_ERROR(c.input(1).Merge(shape).status());
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferGradGradV2(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, InferInputWindow(c));
  RETURN_IF_ERROR(c.input(0).Merge(c.input(2)).status());
  ASSIGN_OR_RETURN(shape, c.input(1).Merge(shape));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferWithArgmax(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PoolAttrs attrs, ReadPoolAttrs(c.node()));
  for (const int64_t size : attrs.ksize)
    if (size <= 0) return InvalidArgument("ksize must be a positive int32 value, got:", size);
  ASSIGN_OR_RETURN(const PartialShape shape, InferPool(c, c.input(0), attrs, "MaxPool", true));
  c.SetOutput(0, shape);
  c.SetOutput(1, shape);
  return absl::OkStatus();
}

// Of MaxPoolGrad and MaxPoolGradGrad: `op` of the received gradient, with the same window.
GradientFunction Through(const char* op) {
  return [op](GradientContext& c) {
    c.SetDx(0, ZerosLike(c, c.input(0)));
    c.SetDx(1, ZerosLike(c, c.input(1)));
    c.SetDx(2, c.Op(op, {c.input(0), c.input(1), c.dy()},
                    CopyAttrs(c, {"ksize", "strides", "padding", "data_format"})));
    return absl::OkStatus();
  };
}

absl::Status DifferentiateGradV2(GradientContext& c) {
  c.SetDx(0, ZerosLike(c, c.input(0)));
  c.SetDx(1, ZerosLike(c, c.input(1)));
  c.SetDx(2, c.Op("MaxPoolGradGradV2", {c.input(0), c.input(1), c.dy(), c.input(3), c.input(4)},
                  CopyAttrs(c, {"padding", "data_format"})));
  return absl::OkStatus();
}

absl::Status DifferentiateWithArgmax(GradientContext& c) {
  c.SetDx(0, c.Op("MaxPoolGradWithArgmax", {c.input(0), c.dy(), c.output(1)},
                  CopyAttrs(c, {"ksize", "strides", "padding", "include_batch_in_index"})));
  return absl::OkStatus();
}

constexpr char kRealTypes[] =
    "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}";
constexpr char kRealTypesDefaultFloat[] =
    "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64} "
    "= DT_FLOAT";

}  // namespace

absl::StatusOr<PoolWindow> CheckedMaxPoolGradient(const KernelContext& c, PoolAttrs attrs,
                                                  bool is_backward) {
  const bool of_inputs = c.num_inputs() == 5;
  // TensorFlow names the first gradient in both where the window is an input.
  const PoolKernel kernel = {is_backward ? "MaxPoolingGradOp" : "MaxPoolingGradGradOp", "strides",
                             is_backward || of_inputs ? "MaxPoolingGrad" : "MaxPoolingGradGrad"};
  if (of_inputs) {
    ASSIGN_OR_RETURN(attrs, WithInputWindow(attrs, c.input(3), c.input(4)));
  } else {
    RETURN_IF_ERROR(CheckPoolAttrs(attrs, kernel));
    RETURN_IF_ERROR(CheckExplicitPadding(attrs.padding, attrs.explicit_paddings, ImageAxes()));
  }
  const Shape& input = c.input(0).shape();
  const Shape& orig_output = c.input(1).shape();
  const Shape& grad = c.input(2).shape();
  if (input.rank() != 4) return InvalidArgument("tensor_in must be 4-dimensional");
  if (orig_output.rank() != 4) return InvalidArgument("tensor_out must be 4-dimensional");
  if (grad.rank() != 4) {
    return InvalidArgument(is_backward ? "out_backprop" : "out_grad_backprop",
                           " must be 4-dimensional");
  }
  if (of_inputs) RETURN_IF_ERROR(CheckPoolAttrs(attrs, kernel));
  ASSIGN_OR_RETURN(const PoolWindow w, MakePoolWindow(attrs, attrs.ToLast(input)));
  const Shape pooled = attrs.FromLast(w.output_shape());
  RETURN_IF_ERROR(CheckShapeIs(orig_output, pooled, "orig_output"));
  RETURN_IF_ERROR(CheckShapeIs(grad, is_backward ? pooled : input, "grad"));
  RETURN_IF_ERROR(CheckWindow(w));
  return w;
}

absl::StatusOr<PoolWindow> CheckedMaxPoolWithArgmax(const KernelContext& c,
                                                    const PoolAttrs& attrs) {
  const Shape& input = c.input(0).shape();
  RETURN_IF_ERROR(CheckPoolAttrs(attrs, {"MaxPoolingWithArgmaxOp"}));
  if (input.rank() != 4) return InvalidArgument("tensor_in must be 4-dimensional (2)");
  ASSIGN_OR_RETURN(const PoolWindow w, MakePoolWindow(attrs, input));
  RETURN_IF_ERROR(CheckWindow(w));
  return w;
}

absl::StatusOr<PoolWindow> CheckedMaxPoolGradWithArgmax(const KernelContext& c,
                                                        const PoolAttrs& attrs) {
  RETURN_IF_ERROR(CheckPoolAttrs(attrs, {"MaxPoolingGradWithArgmaxOp"}));
  ASSIGN_OR_RETURN(const PoolWindow w, MakePoolWindow(attrs, c.input(0).shape()));
  const Shape pooled = w.output_shape();
  RETURN_IF_ERROR(CheckShapeIs(c.input(1).shape(), pooled, "grad"));
  RETURN_IF_ERROR(CheckShapeIs(c.input(2).shape(), pooled, "argmax"));
  return w;
}

DEFINE_OP(MaxPoolGrad) {
  op.Attr("ksize: list(int) >= 4")
      .Attr("strides: list(int) >= 4")
      .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
      .Attr2x("explicit_paddings: list(int) = []")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Attr(kRealTypesDefaultFloat)
      .Input("orig_input: T")
      .Input("orig_output: T")
      .Input("grad: T")
      .Output("output: T")
      .Doc("Gradient of MaxPool: goes to the first maximum of each window.")
      .Shape(InferLikeInput)
      .Gradient(Through("MaxPoolGradGrad"))
      .CpuTypes<Reals>("T", []<typename T>() { return New<MaxPoolGradient<T, true>>(); })
      .GpuTypes("T", GpuFloats(), MakeGpuMaxPoolGrad);
}

DEFINE_OP(MaxPoolGradV2) {
  op.Attr("padding: {'SAME', 'VALID'}")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Attr(kRealTypesDefaultFloat)
      .Input("orig_input: T")
      .Input("orig_output: T")
      .Input("grad: T")
      .Input("ksize: int32")
      .Input("strides: int32")
      .Output("output: T")
      .Doc("MaxPoolGrad whose window is an input.")
      .Shape(InferLikeInput)
      .Gradient(DifferentiateGradV2)
      .HostMemory({"ksize", "strides"})
      .CpuTypes<Reals>("T", []<typename T>() { return New<MaxPoolGradient<T, true>>(); })
      .GpuTypes("T", GpuFloats(), MakeGpuMaxPoolGrad);
}

DEFINE_OP(MaxPoolGradGrad) {
  op.Attr("ksize: list(int) >= 4")
      .Attr("strides: list(int) >= 4")
      .Attr("padding: {'SAME', 'VALID'}")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Attr(kRealTypes)
      .Input("orig_input: T")
      .Input("orig_output: T")
      .Input("grad: T")
      .Output("output: T")
      .Doc("Gradient of MaxPoolGrad: the values at the first maximum of each window.")
      .Shape(InferGradGrad)
      .Gradient(Through("MaxPoolGrad"))
      .CpuTypes<Reals>("T", []<typename T>() { return New<MaxPoolGradient<T, false>>(); })
      .GpuTypes("T", GpuFloats(), MakeGpuMaxPoolGradGrad);
}

DEFINE_OP(MaxPoolGradGradV2) {
  op.Attr("padding: {'SAME', 'VALID'}")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Attr(kRealTypes)
      .Input("orig_input: T")
      .Input("orig_output: T")
      .Input("grad: T")
      .Input("ksize: int32")
      .Input("strides: int32")
      .Output("output: T")
      .Doc("MaxPoolGradGrad whose window is an input.")
      .Shape(InferGradGradV2)
      .HostMemory({"ksize", "strides"})
      .CpuTypes<Reals>("T", []<typename T>() { return New<MaxPoolGradient<T, false>>(); })
      .GpuTypes("T", GpuFloats(), MakeGpuMaxPoolGradGrad);
}

DEFINE_OP(MaxPoolWithArgmax) {
  op.Attr("ksize: list(int) >= 4")
      .Attr("strides: list(int) >= 4")
      .Attr("Targmax: {int32, int64} = DT_INT64")
      .Attr("padding: {'SAME', 'VALID'}")
      .Attr("include_batch_in_index: bool = false")
      .Attr(kRealTypes)
      .Input("input: T")
      .Output("output: T")
      .Output("argmax: Targmax")
      .Doc("MaxPool, and where in the flattened image (or batch) each maximum was.")
      .Shape(InferWithArgmax)
      .Gradient(DifferentiateWithArgmax)
      .CpuTypes<Reals>("T", []<typename T>() { return New<MaxPoolWithArgmax<T, int64_t>>(); },
                       {{"Targmax", DType::kInt64}})
      .CpuTypes<Reals>("T", []<typename T>() { return New<MaxPoolWithArgmax<T, int32_t>>(); },
                       {{"Targmax", DType::kInt32}})
      .GpuTypes("T", GpuFloats(), MakeGpuMaxPoolWithArgmax, {}, {{"Targmax", DType::kInt64}});
}

DEFINE_OP(MaxPoolGradWithArgmax) {
  op.Attr("ksize: list(int) >= 4")
      .Attr("strides: list(int) >= 4")
      .Attr("padding: {'SAME', 'VALID'}")
      .Attr("include_batch_in_index: bool = false")
      .Attr("Targmax: {int32, int64}")
      .Attr(kRealTypes)
      .Input("input: T")
      .Input("grad: T")
      .Input("argmax: Targmax")
      .Output("output: T")
      .Doc("Gradient of MaxPoolWithArgmax.")
      .Shape(InferLikeInput)
      .CpuTypes<Reals>("T", []<typename T>() { return New<MaxPoolGradWithArgmax<T, int64_t>>(); },
                       {{"Targmax", DType::kInt64}})
      .GpuTypes("T", GpuFloats(), MakeGpuMaxPoolGradWithArgmax, {}, {{"Targmax", DType::kInt64}});
}

}  // namespace muster
