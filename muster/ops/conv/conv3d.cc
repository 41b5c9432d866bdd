// Conv3D and its two gradients: the cells below each window become rows of a matrix.
#include <algorithm>
#include <string>
#include <utility>

#include "muster/graph/build/emit.h"
#include "muster/ops/conv/conv3d_geometry.h"
#include "muster/ops/conv/conv_geometry.h"
#include "muster/ops/conv/conv_gpu.h"
#include "muster/ops/linalg/matmul.h"
#include "muster/ops/nn/gradient_support.h"

namespace muster {
namespace {

struct Conv3DGeometry {
  VolumeWindows windows;
  int64_t out_channels = 0;
  int64_t patch = 0;  // numbers below one window
  int64_t rows() const { return windows.batch * windows.out_cells(); }
};

absl::Status EmptyFilter() {
  return InvalidArgument(
      "filter must not have zero elements (i.e. all dimensions must be non-zero)");
}

// Of an NDHWC volume and a filter of its depth.
absl::StatusOr<Conv3DGeometry> MakeGeometry(const VolumeAttrs& attrs, const Shape& input,
                                            const Shape& filter) {
  if (filter.num_elements() == 0) return EmptyFilter();
  Conv3DGeometry g;
  const int64_t window[] = {filter.dim(0), filter.dim(1), filter.dim(2)};
  ASSIGN_OR_RETURN(g.windows, MakeVolumeWindows(attrs, input, window));
  g.out_channels = filter.dim(4);
  g.patch = filter.ElementsIn(0, 4);
  RETURN_IF_ERROR(Shape::Make({g.windows.batch, g.windows.axes[0].out, g.windows.axes[1].out,
                               g.windows.axes[2].out, g.out_channels})
                      .status());
  return g;
}

// Calls visit(volume offset or -1, patch offset) for every cell below output row `row`, in the
// order of the filter; a cell has windows.channels numbers.
template <typename Visit>
void ForEachCell(const Conv3DGeometry& g, int64_t row, Visit visit) {
  const auto& [depth, height, width] = g.windows.axes;
  const int64_t x = row % width.out;
  const int64_t y = row / width.out % height.out;
  const int64_t z = row / (width.out * height.out) % depth.out;
  const int64_t n = row / g.windows.out_cells();
  const int64_t channels = g.windows.channels;
  int64_t patch = 0;
  for (int64_t a = z * depth.stride - depth.pad, i = 0; i < depth.window; ++i, ++a) {
    for (int64_t b = y * height.stride - height.pad, j = 0; j < height.window; ++j, ++b) {
      for (int64_t d = x * width.stride - width.pad, k = 0; k < width.window; ++k, ++d) {
        const bool inside =
            a >= 0 && a < depth.size && b >= 0 && b < height.size && d >= 0 && d < width.size;
        visit(inside ? (((n * depth.size + a) * height.size + b) * width.size + d) * channels : -1,
              patch);
        patch += channels;
      }
    }
  }
}

template <typename V>
void ReadPatches(const Conv3DGeometry& g, const V* volume, int64_t begin, int64_t end, V* out) {
  const int64_t channels = g.windows.channels;
  for (int64_t row = begin; row < end; ++row, out += g.patch) {
    ForEachCell(g, row, [&](int64_t from, int64_t to) {
      if (from < 0) {
        std::fill_n(out + to, channels, V(0));
      } else {
        std::copy_n(volume + from, channels, out + to);
      }
    });
  }
}

// Rows of the matrix of patches that are held at a time.
int64_t RowsPerPart(const Conv3DGeometry& g) {
  constexpr int64_t kNumbers = int64_t{1} << 18;
  return std::max<int64_t>(1, std::min(g.rows(), kNumbers / std::max<int64_t>(g.patch, 1)));
}

template <typename V>
absl::Status Forward(KernelContext& c, const Conv3DGeometry& g, const V* volume, const V* filter,
                     V* out) {
  const int64_t part = RowsPerPart(g);
  ASSIGN_OR_RETURN(Tensor patches, c.AllocateTemporary(kDTypeOf<V>, Shape({part, g.patch})));
  for (int64_t begin = 0; begin < g.rows(); begin += part) {
    const int64_t end = std::min(begin + part, g.rows());
    ReadPatches(g, volume, begin, end, patches.data<V>());
    GemmShape shape;
    shape.m = end - begin;
    shape.n = g.out_channels;
    shape.k = g.patch;
    RETURN_IF_ERROR(
        Gemm<V>(shape, patches.data<V>(), filter, out + begin * g.out_channels, Threads(c)));
  }
  return absl::OkStatus();
}

template <typename V>
absl::Status BackwardInput(KernelContext& c, const Conv3DGeometry& g, const V* dy, const V* filter,
                           V* dx) {
  const int64_t part = RowsPerPart(g);
  ASSIGN_OR_RETURN(Tensor patches, c.AllocateTemporary(kDTypeOf<V>, Shape({part, g.patch})));
  const int64_t channels = g.windows.channels;
  std::fill_n(dx, g.windows.batch * g.windows.cells() * channels, V(0));
  for (int64_t begin = 0; begin < g.rows(); begin += part) {
    const int64_t end = std::min(begin + part, g.rows());
    GemmShape shape;
    shape.m = end - begin;
    shape.n = g.patch;
    shape.k = g.out_channels;
    shape.transpose_b = true;
    RETURN_IF_ERROR(
        Gemm<V>(shape, dy + begin * g.out_channels, filter, patches.data<V>(), Threads(c)));
    for (int64_t row = begin; row < end; ++row) {
      const V* const from = patches.data<V>() + (row - begin) * g.patch;
      ForEachCell(g, row, [&](int64_t to, int64_t at) {
        if (to < 0) return;
        for (int64_t i = 0; i < channels; ++i) dx[to + i] += from[at + i];
      });
    }
  }
  return absl::OkStatus();
}

template <typename V>
absl::Status BackwardFilter(KernelContext& c, const Conv3DGeometry& g, const V* volume, const V* dy,
                            V* out) {
  const int64_t part = RowsPerPart(g);
  ASSIGN_OR_RETURN(Tensor patches, c.AllocateTemporary(kDTypeOf<V>, Shape({part, g.patch})));
  std::fill_n(out, g.patch * g.out_channels, V(0));
  for (int64_t begin = 0; begin < g.rows(); begin += part) {
    const int64_t end = std::min(begin + part, g.rows());
    ReadPatches(g, volume, begin, end, patches.data<V>());
    GemmShape shape;
    shape.m = g.patch;
    shape.n = g.out_channels;
    shape.k = end - begin;
    shape.transpose_a = true;
    shape.accumulate = true;
    RETURN_IF_ERROR(
        Gemm<V>(shape, patches.data<V>(), dy + begin * g.out_channels, out, Threads(c)));
  }
  return absl::OkStatus();
}

// Runs `body` on numbers of the type that is computed in, and rounds what it wrote to `output`.
template <typename T, typename Body>
absl::Status InComputeType(KernelContext& c, const Tensor& a, const Tensor& b, Tensor& output,
                           Body body) {
  if constexpr (sizeof(T) > 2) {
    return body(a.data<T>(), b.data<T>(), output.data<T>());
  } else {
    ASSIGN_OR_RETURN(const Tensor wide_a, AsFloat(c, a));
    ASSIGN_OR_RETURN(const Tensor wide_b, AsFloat(c, b));
    ASSIGN_OR_RETURN(Tensor wide, c.AllocateTemporary(DType::kFloat, output.shape()));
    RETURN_IF_ERROR(body(wide_a.data<float>(), wide_b.data<float>(), wide.data<float>()));
    std::transform(wide.data<float>(), wide.data<float>() + wide.num_elements(), output.data<T>(),
                   [](float value) { return static_cast<T>(value); });
    return absl::OkStatus();
  }
}

template <typename T>
class Conv3D : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadVolumeAttrs(setup.node()));
    return CheckConv3DAttrs(attrs_);
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    const Tensor& filter = c.input(1);
    ASSIGN_OR_RETURN(const Shape shape, Conv3DOutputShape(attrs_, input.shape(), filter.shape()));
    if (shape.num_elements() == 0) return c.AllocateOutput(0, shape).status();
    // What TensorFlow's CPU kernel leaves to GPUs.
    if (attrs_.data_format != "NDHWC") {
      return InvalidArgument(
          "CPU implementation of Conv3D currently only supports the NHWC tensor format.");
    }
    if (!AreOneInSpace(attrs_, attrs_.dilations)) {
      return InvalidArgument(
          "CPU implementation of Conv3D currently only supports dilated rates of 1.");
    }
    if (input.dim(4) != filter.dim(3)) {
      return InvalidArgument("Number of channels in filter (", filter.dim(3),
                             ") must match last dimension of input (", input.dim(4), ")");
    }
    ASSIGN_OR_RETURN(const Conv3DGeometry g, MakeGeometry(attrs_, input.shape(), filter.shape()));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    return InComputeType<T>(c, input, filter, *output, [&](auto* in, auto* w, auto* out) {
      return Forward(c, g, in, w, out);
    });
  }

 private:
  VolumeAttrs attrs_;
};

// What the two gradients refuse, in the order in which TensorFlow looks.
class Conv3DGradient : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadVolumeAttrs(setup.node()));
    label_ = Conv3DGradientLabel(setup.node());
    if (attrs_.data_format != "NDHWC")
      return InvalidArgument(label_, "V2 only supports NDHWC on the CPU.");
    RETURN_IF_ERROR(CheckConv3DLengths(attrs_));
    RETURN_IF_ERROR(CheckConv3DSteps(attrs_, attrs_.dilations, "dilation rates"));
    if (!AreOneInSpace(attrs_, attrs_.dilations)) {
      return InvalidArgument(
          "Current CPU implementation does not yet support dilation rates larger than 1.");
    }
    return CheckConv3DSteps(attrs_, attrs_.strides, "strides");
  }

 protected:
  absl::Status Check(const Shape& input, const Shape& filter, const Shape& dy) const {
    return CheckConv3DGradient(attrs_, label_, input, filter, dy, /*in_groups=*/false);
  }
  const VolumeAttrs& attrs() const { return attrs_; }

 private:
  VolumeAttrs attrs_;
  std::string label_;
};

template <typename T>
class Conv3DBackpropInput : public Conv3DGradient {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& filter = c.input(1);
    const Tensor& dy = c.input(2);
    ASSIGN_OR_RETURN(const Shape shape, Conv3DInputShape(c.input(0)));
    RETURN_IF_ERROR(Check(shape, filter.shape(), dy.shape()));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    if (filter.num_elements() == 0) {
      std::fill_n(output->data<T>(), output->num_elements(), static_cast<T>(0));
      return absl::OkStatus();
    }
    if (output->num_elements() == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(const Conv3DGeometry g, MakeGeometry(attrs(), shape, filter.shape()));
    return InComputeType<T>(c, dy, filter, *output, [&](auto* gradient, auto* w, auto* out) {
      return BackwardInput(c, g, gradient, w, out);
    });
  }
};

template <typename T>
class Conv3DBackpropFilter : public Conv3DGradient {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    const Tensor& dy = c.input(2);
    ASSIGN_OR_RETURN(const Shape shape, Conv3DFilterShape(c.input(1)));
    RETURN_IF_ERROR(Check(input.shape(), shape, dy.shape()));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    if (output->num_elements() == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(const Conv3DGeometry g, MakeGeometry(attrs(), input.shape(), shape));
    return InComputeType<T>(c, input, dy, *output, [&](auto* in, auto* gradient, auto* out) {
      return BackwardFilter(c, g, in, gradient, out);
    });
  }
};

// --- Shapes, gradients, definitions --------------------------------------------------------------

absl::Status InferConv3D(ShapeContext& c) {
  ASSIGN_OR_RETURN(const VolumeAttrs attrs, ReadVolumeAttrs(c.node()));
  ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(c.input(0), 5));
  ASSIGN_OR_RETURN(const PartialShape filter, c.WithRank(c.input(1), 5));
  if (attrs.dilations.size() != 5) {
    return InvalidArgument("Conv3D requires the dilation attribute to contain 5 values, but got: ",
                           attrs.dilations.size());
  }
  if (attrs.strides.size() != 5) {
    return InvalidArgument("Conv3D requires the stride attribute to contain 5 values, but got: ",
                           attrs.strides.size());
  }
  RETURN_IF_ERROR(CheckDepths(input.dim(attrs.channels()), filter.dim(3), filter.dim(4)));
  const int64_t window[] = {filter.dim(0), filter.dim(1), filter.dim(2)};
  ASSIGN_OR_RETURN(PartialShape shape, InferVolume(c, input, attrs, window, filter.dim(4)));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

template <int kInput>
absl::Status InferFromSizes3D(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape sizes, c.InputAsShape(kInput));
  ASSIGN_OR_RETURN(PartialShape shape, c.WithRank(sizes, 5));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

AttrMap AttrsOf(const GradientContext& c) {
  return CopyAttrs(c, {"dilations", "strides", "padding", "data_format"});
}

absl::Status Differentiate(GradientContext& c) {
  const Output x = c.input(0), w = c.input(1);
  Node* const shapes = c.scope().Add("ShapeN", {NodeInput(std::vector<Output>{x, w})},
                                     {{"out_type", DType::kInt32}});
  if (shapes == nullptr) return c.scope().status();
  c.SetDx(0, c.Op("Conv3DBackpropInputV2", {Output(shapes, 0), w, c.dy()}, AttrsOf(c)));
  c.SetDx(1, c.Op("Conv3DBackpropFilterV2", {x, Output(shapes, 1), c.dy()}, AttrsOf(c)));
  return c.scope().status();
}

absl::Status DifferentiateBackpropInput(GradientContext& c) {
  const Output shape = c.ShapeOf(c.input(1));
  c.SetDx(1, c.Op("Conv3DBackpropFilterV2", {c.dy(), shape, c.input(2)}, AttrsOf(c)));
  c.SetDx(2, c.Op("Conv3D", {c.dy(), c.input(1)}, AttrsOf(c)));
  return c.scope().status();
}

absl::Status DifferentiateBackpropFilter(GradientContext& c) {
  const Output shape = c.ShapeOf(c.input(0));
  c.SetDx(0, c.Op("Conv3DBackpropInputV2", {shape, c.dy(), c.input(2)}, AttrsOf(c)));
  c.SetDx(2, c.Op("Conv3D", {c.input(0), c.dy()}, AttrsOf(c)));
  return c.scope().status();
}

void DefineAttrs(OpBuilder& op) {
  op.Attr("T: {half, bfloat16, float, double}")
      .Attr("strides: list(int) >= 5")
      .Attr("padding: {'SAME', 'VALID'}")
      .Attr("data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'")
      .Attr("dilations: list(int) = [1, 1, 1, 1, 1]");
}

}  // namespace

DEFINE_OP(Conv3D) {
  DefineAttrs(op);
  op.Input("input: T")
      .Input("filter: T")
      .Output("output: T")
      .Doc("Cross-correlation of volumes with a filter [depth, height, width, channels, outputs].")
      .Shape(InferConv3D)
      .Gradient(Differentiate);
  op.CpuTypes<Floats>("T", []<typename T>() { return New<Conv3D<T>>(); });
  AddGpuConv3D(op);
}

DEFINE_OP(Conv3DBackpropInputV2) {
  DefineAttrs(op);
  op.Attr("Tshape: {int32, int64} = DT_INT32")
      .Input("input_sizes: Tshape")
      .Input("filter: T")
      .Input("out_backprop: T")
      .Output("output: T")
      .Doc("Gradient of Conv3D for its volumes.")
      .Shape(InferFromSizes3D<0>)
      .Gradient(DifferentiateBackpropInput)
      .HostMemory({"input_sizes"});
  op.CpuTypes<Floats>("T", []<typename T>() { return New<Conv3DBackpropInput<T>>(); });
  AddGpuConv3DBackpropInput(op);
}

DEFINE_OP(Conv3DBackpropFilterV2) {
  DefineAttrs(op);
  op.Input("input: T")
      .Input("filter_sizes: int32")
      .Input("out_backprop: T")
      .Output("output: T")
      .Doc("Gradient of Conv3D for its filter.")
      .Shape(InferFromSizes3D<1>)
      .Gradient(DifferentiateBackpropFilter)
      .HostMemory({"filter_sizes"});
  op.CpuTypes<Floats>("T", []<typename T>() { return New<Conv3DBackpropFilter<T>>(); });
  AddGpuConv3DBackpropFilter(op);
}

}  // namespace muster
