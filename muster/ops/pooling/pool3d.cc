// Pooling over three axes: maxima, means and their gradients.
#include <algorithm>
#include <limits>
#include <utility>

#include "muster/ops/nn/gradient_support.h"
#include "muster/ops/pooling/gpu_pool.h"
#include "muster/ops/pooling/pool3d_attrs.h"

namespace muster {
namespace {

class Pool3DKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, Pool3DAttrs::Make(setup.node(), false));
    return absl::OkStatus();
  }

 protected:
  Pool3DAttrs attrs_;
};

// Calls each(first number) for the cells inside the window of an output cell; gives their number.
template <typename Each>
int64_t ForEachCell(const VolumeWindows& w, int64_t out_cell, Each each) {
  const auto& [depth, height, width] = w.axes;
  const int64_t x = out_cell % width.out;
  const int64_t y = out_cell / width.out % height.out;
  const int64_t z = out_cell / (width.out * height.out);
  int64_t count = 0;
  for (int64_t a = depth.begin(z); a < depth.end(z); ++a) {
    for (int64_t b = height.begin(y); b < height.end(y); ++b) {
      for (int64_t d = width.begin(x); d < width.end(x); ++d, ++count)
        each(((a * height.size + b) * width.size + d) * w.channels);
    }
  }
  return count;
}

double CostOf(const VolumeWindows& w) {
  return static_cast<double>(w.axes[0].window * w.axes[1].window * w.axes[2].window * w.channels);
}

template <typename T>
class MaxPool3D : public Pool3DKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(const VolumeWindows w, attrs_.ForForward(input.shape()));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, attrs_.OutputShape(w)));
    const T* const in = input.data<T>();
    T* const out = output->data<T>();
    c.ParallelFor(w.batch * w.out_cells(), CostOf(w), [&](int64_t begin, int64_t end) {
      for (int64_t cell = begin; cell < end; ++cell) {
        const T* const volume = in + cell / w.out_cells() * w.cells() * w.channels;
        T* const to = out + cell * w.channels;
        std::fill_n(to, w.channels, static_cast<T>(-std::numeric_limits<float>::infinity()));
        ForEachCell(w, cell % w.out_cells(), [&](int64_t from) {
          for (int64_t i = 0; i < w.channels; ++i)
            to[i] = static_cast<T>(
                std::max(static_cast<float>(to[i]), static_cast<float>(volume[from + i])));
        });
      }
    });
    return absl::OkStatus();
  }
};

// Every cell that holds its window's maximum gets the whole gradient, as in TensorFlow.
template <typename T>
class MaxPool3DGrad : public Pool3DKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(const VolumeWindows w, attrs_.ForMaxGrad(c, false));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, input.shape()));
    const int64_t size = w.cells() * w.channels;
    const double cost = CostOf(w) * static_cast<double>(w.out_cells());
    c.ParallelFor(w.batch, cost, [&](int64_t begin, int64_t end) {
      std::vector<float> sums(static_cast<size_t>(size));
      for (int64_t n = begin; n < end; ++n) {
        std::fill(sums.begin(), sums.end(), 0.0f);
        const T* const volume = input.data<T>() + n * size;
        for (int64_t cell = 0; cell < w.out_cells(); ++cell) {
          const int64_t at = (n * w.out_cells() + cell) * w.channels;
          const T* const maximum = c.input(1).data<T>() + at;
          const T* const dy = c.input(2).data<T>() + at;
          ForEachCell(w, cell, [&](int64_t from) {
            for (int64_t i = 0; i < w.channels; ++i) {
              if (static_cast<float>(volume[from + i]) == static_cast<float>(maximum[i]))
                sums[from + i] += static_cast<float>(dy[i]);
            }
          });
        }
        std::transform(sums.begin(), sums.end(), output->data<T>() + n * size,
                       [](float sum) { return static_cast<T>(sum); });
      }
    });
    return absl::OkStatus();
  }
};

// The values at the first maximum of each window.
template <typename T>
class MaxPool3DGradGrad : public Pool3DKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(const VolumeWindows w, attrs_.ForMaxGrad(c, true));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, w.output_shape(w.channels)));
    const int64_t size = w.cells() * w.channels;
    c.ParallelFor(w.batch * w.out_cells(), CostOf(w), [&](int64_t begin, int64_t end) {
      std::vector<bool> found(static_cast<size_t>(w.channels));
      for (int64_t cell = begin; cell < end; ++cell) {
        const int64_t n = cell / w.out_cells();
        const T* const volume = input.data<T>() + n * size;
        const T* const dy = c.input(2).data<T>() + n * size;
        const T* const maximum = c.input(1).data<T>() + cell * w.channels;
        T* const to = output->data<T>() + cell * w.channels;
        std::fill_n(to, w.channels, static_cast<T>(0.0f));
        std::fill(found.begin(), found.end(), false);
        ForEachCell(w, cell % w.out_cells(), [&](int64_t from) {
          for (int64_t i = 0; i < w.channels; ++i) {
            if (found[i] || static_cast<float>(volume[from + i]) != static_cast<float>(maximum[i]))
              continue;
            found[i] = true;
            to[i] = dy[from + i];
          }
        });
      }
    });
    return absl::OkStatus();
  }
};

template <typename T>
class AvgPool3D : public Pool3DKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(const VolumeWindows w, attrs_.ForForward(input.shape()));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, attrs_.OutputShape(w)));
    c.ParallelFor(w.batch * w.out_cells(), CostOf(w), [&](int64_t begin, int64_t end) {
      std::vector<float> sums(static_cast<size_t>(w.channels));
      for (int64_t cell = begin; cell < end; ++cell) {
        const T* const volume = input.data<T>() + cell / w.out_cells() * w.cells() * w.channels;
        std::fill(sums.begin(), sums.end(), 0.0f);
        const int64_t count = ForEachCell(w, cell % w.out_cells(), [&](int64_t from) {
          for (int64_t i = 0; i < w.channels; ++i) sums[i] += static_cast<float>(volume[from + i]);
        });
        T* const to = output->data<T>() + cell * w.channels;
        for (int64_t i = 0; i < w.channels; ++i)
          to[i] = static_cast<T>(sums[i] / static_cast<float>(count));
      }
    });
    return absl::OkStatus();
  }
};

template <typename T>
class AvgPool3DGrad : public Pool3DKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const VolumeWindows w, attrs_.ForAvgGrad(c));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, attrs_.InputShape(w)));
    const int64_t size = w.cells() * w.channels;
    const double cost = CostOf(w) * static_cast<double>(w.out_cells());
    c.ParallelFor(w.batch, cost, [&](int64_t begin, int64_t end) {
      std::vector<float> sums(static_cast<size_t>(size));
      for (int64_t n = begin; n < end; ++n) {
        std::fill(sums.begin(), sums.end(), 0.0f);
        for (int64_t cell = 0; cell < w.out_cells(); ++cell) {
          const T* const dy = c.input(1).data<T>() + (n * w.out_cells() + cell) * w.channels;
          const auto count = static_cast<float>(ForEachCell(w, cell, [](int64_t) {}));
          ForEachCell(w, cell, [&](int64_t from) {
            for (int64_t i = 0; i < w.channels; ++i)
              sums[from + i] += static_cast<float>(dy[i]) / count;
          });
        }
        std::transform(sums.begin(), sums.end(), output->data<T>() + n * size,
                       [](float sum) { return static_cast<T>(sum); });
      }
    });
    return absl::OkStatus();
  }
};

// --- Shapes, gradients, definitions --------------------------------------------------------------

absl::StatusOr<PartialShape> PooledShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const VolumeAttrs attrs, ReadVolumeAttrs(c.node()));
  ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(c.input(0), 5));
  if (attrs.strides.size() != 5) {
    return InvalidArgument("Pool3D ops require the stride attribute to contain 5 values, but got: ",
                           attrs.strides.size());
  }
  if (attrs.window.size() != 5) {
    return InvalidArgument("Pool3D requires the ksize attribute to contain 5 values, but got: ",
                           attrs.window.size());
  }
  return InferVolume(
      c, input, attrs,
      absl::MakeConstSpan(attrs.window).subspan(static_cast<size_t>(attrs.space()), 3),
      input.dim(attrs.channels()));
}
absl::Status InferPool3D(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, PooledShape(c));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}
absl::Status InferMaxGrad(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.WithRank(c.input(0), 5));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}
absl::Status InferMaxGradGrad(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, PooledShape(c));
  RETURN_IF_ERROR(c.input(0).Merge(c.input(2)).status());
  RETURN_IF_ERROR(c.input(1).Merge(shape).status());
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}
absl::Status InferAvgGrad(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape sizes, c.InputAsShape(0));
  ASSIGN_OR_RETURN(PartialShape shape, c.WithRank(sizes, 5));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

AttrMap AttrsOf(const GradientContext& c) {
  return CopyAttrs(c, {"ksize", "strides", "padding", "data_format"});
}
absl::Status DifferentiateMax(GradientContext& c) {
  c.SetDx(0, c.Op("MaxPool3DGrad", {c.input(0), c.output(), c.dy()}, AttrsOf(c)));
  return c.scope().status();
}
template <bool kOfGradient>
absl::Status DifferentiateMaxGrad(GradientContext& c) {
  for (const int i : {0, 1}) c.SetDx(i, ZerosLike(c, c.input(i)));
  c.SetDx(2, c.Op(kOfGradient ? "MaxPool3DGradGrad" : "MaxPool3DGrad",
                  {c.input(0), c.input(1), c.dy()}, AttrsOf(c)));
  return c.scope().status();
}
absl::Status DifferentiateAvg(GradientContext& c) {
  c.SetDx(0, c.Op("AvgPool3DGrad", {c.ShapeOf(c.input(0)), c.dy()}, AttrsOf(c)));
  return c.scope().status();
}
absl::Status DifferentiateAvgGrad(GradientContext& c) {
  c.SetDx(0, c.Op("StopGradient", {c.input(0)}));
  c.SetDx(1, c.Op("AvgPool3D", {c.dy()}, AttrsOf(c)));
  return c.scope().status();
}

void DefineAttrs(OpBuilder& op) {
  op.Attr("ksize: list(int) >= 5")
      .Attr("strides: list(int) >= 5")
      .Attr("padding: {'SAME', 'VALID'}")
      .Attr("data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'");
}

using PoolTypes = Types<Bfloat16, float>;

}  // namespace

DEFINE_OP(MaxPool3D) {
  DefineAttrs(op);
  op.Attr("T: {half, bfloat16, float}")
      .Input("input: T")
      .Output("output: T")
      .Doc("The largest value of each window.")
      .Shape(InferPool3D)
      .Gradient(DifferentiateMax);
  op.CpuTypes<PoolTypes>("T", []<typename T>() { return New<MaxPool3D<T>>(); });
  op.GpuTypes("T", GpuShortFloats(), MakeGpuMaxPool3D);
}

DEFINE_OP(MaxPool3DGrad) {
  DefineAttrs(op);
  op.Attr("T: {half, bfloat16, float} = DT_FLOAT")
      .Attr("TInput: {half, bfloat16, float} = DT_FLOAT")
      .Input("orig_input: TInput")
      .Input("orig_output: TInput")
      .Input("grad: T")
      .Output("output: T")
      .Doc("Gradient of MaxPool3D.")
      .Shape(InferMaxGrad)
      .Gradient(DifferentiateMaxGrad<true>);
  op.Cpu(New<MaxPool3DGrad<float>>(), {{"T", DType::kFloat}, {"TInput", DType::kFloat}});
  op.Cpu(New<MaxPool3DGrad<Bfloat16>>(), {{"T", DType::kBfloat16}, {"TInput", DType::kBfloat16}});
  for (const DType dtype : GpuShortFloats())
    op.GpuTypes("T", {dtype}, MakeGpuMaxPool3DGrad, {}, {{"TInput", dtype}});
}

DEFINE_OP(MaxPool3DGradGrad) {
  DefineAttrs(op);
  op.Attr(
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, "
        "uint64}")
      .Input("orig_input: T")
      .Input("orig_output: T")
      .Input("grad: T")
      .Output("output: T")
      .Doc("Gradient of MaxPool3DGrad: the values at the first maximum of each window.")
      .Shape(InferMaxGradGrad)
      .Gradient(DifferentiateMaxGrad<false>);
  op.CpuTypes<PoolTypes>("T", []<typename T>() { return New<MaxPool3DGradGrad<T>>(); });
  op.GpuTypes("T", GpuShortFloats(), MakeGpuMaxPool3DGradGrad);
}

DEFINE_OP(AvgPool3D) {
  DefineAttrs(op);
  op.Attr("T: {half, bfloat16, float, double}")
      .Input("input: T")
      .Output("output: T")
      .Doc("The mean of each window over its cells inside the volume.")
      .Shape(InferPool3D)
      .Gradient(DifferentiateAvg);
  op.CpuTypes<PoolTypes>("T", []<typename T>() { return New<AvgPool3D<T>>(); });
  op.GpuTypes("T", GpuShortFloats(), MakeGpuAvgPool3D);
}

DEFINE_OP(AvgPool3DGrad) {
  DefineAttrs(op);
  op.Attr("T: {half, bfloat16, float, double}")
      .Input("orig_input_shape: int32")
      .Input("grad: T")
      .Output("output: T")
      .Doc("Gradient of AvgPool3D: each window's gradient in equal shares.")
      .Shape(InferAvgGrad)
      .Gradient(DifferentiateAvgGrad)
      .HostMemory({"orig_input_shape"});
  op.CpuTypes<PoolTypes>("T", []<typename T>() { return New<AvgPool3DGrad<T>>(); });
  op.GpuTypes("T", GpuShortFloats(), MakeGpuAvgPool3DGrad);
}

}  // namespace muster
