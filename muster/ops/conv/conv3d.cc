// Conv3D and its two gradients: the cells below each window become rows of a matrix.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "muster/graph/build/emit.h"
#include "muster/ops/conv/conv_geometry.h"
#include "muster/ops/linalg/matmul.h"
#include "muster/ops/nn/gradient_support.h"
#include "muster/ops/nn/volume.h"

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

absl::Status CheckLengths(const VolumeAttrs& attrs) {
  if (attrs.dilations.size() != 5)
    return InvalidArgument("Dilation rates field must specify 5 dimensions");
  if (attrs.strides.size() != 5)
    return InvalidArgument("Sliding window strides field must specify 5 dimensions");
  return absl::OkStatus();
}

absl::Status CheckOnlyInSpace(const VolumeAttrs& attrs, const std::vector<int64_t>& steps,
                              absl::string_view what) {
  if (steps[0] == 1 && steps[attrs.channels()] == 1) return absl::OkStatus();
  return InvalidArgument("Current implementation does not yet support ", what,
                         " in the batch and depth dimensions.");
}

// Of the three axes of space.
bool AreOne(const VolumeAttrs& attrs, const std::vector<int64_t>& steps) {
  const auto first = steps.begin() + attrs.space();
  return std::all_of(first, first + 3, [](int64_t step) { return step == 1; });
}

template <typename T>
class Conv3D : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadVolumeAttrs(setup.node()));
    RETURN_IF_ERROR(CheckLengths(attrs_));
    RETURN_IF_ERROR(CheckOnlyInSpace(attrs_, attrs_.strides, "strides"));
    RETURN_IF_ERROR(CheckOnlyInSpace(attrs_, attrs_.dilations, "dilation rates"));
    for (int i = 0; i < 3; ++i) {
      if (attrs_.dilations[attrs_.space() + i] <= 0)
        return InvalidArgument("Dilated rates should be larger than 0.");
      if (attrs_.strides[attrs_.space() + i] <= 0)
        return InvalidArgument("Spatial strides should be larger than 0.");
    }
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    const Tensor& filter = c.input(1);
    ASSIGN_OR_RETURN(const Shape shape, OutputShape(input.shape(), filter.shape()));
    if (shape.num_elements() == 0) return c.AllocateOutput(0, shape).status();
    // What TensorFlow's CPU kernel leaves to GPUs.
    if (attrs_.data_format != "NDHWC") {
      return InvalidArgument(
          "CPU implementation of Conv3D currently only supports the NHWC tensor format.");
    }
    if (!AreOne(attrs_, attrs_.dilations)) {
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
  // Of any layout and dilation.
  absl::StatusOr<Shape> OutputShape(const Shape& input, const Shape& filter) const {
    if (input.rank() != 5) return InvalidArgument("input must be 5-dimensional");
    if (filter.rank() != 5) return InvalidArgument("filter must be 5-dimensional");
    const int64_t depth = input.dim(attrs_.channels());
    if (filter.dim(3) == 0) return InvalidArgument("filter_depth must be non-zero");
    if (depth % filter.dim(3) != 0) {
      return InvalidArgument("Input depth must be evenly divisible by filter depth: ", depth,
                             " vs ", filter.dim(3));
    }
    if (filter.num_elements() == 0) return EmptyFilter();
    Dims dims(5);
    dims[0] = input.dim(0);
    dims[attrs_.channels()] = filter.dim(4);
    for (int i = 0; i < 3; ++i) {
      const int axis = attrs_.space() + i;
      ASSIGN_OR_RETURN(const WindowSize size,
                       WindowedOutputSize(input.dim(axis), filter.dim(i), attrs_.dilations[axis],
                                          attrs_.strides[axis], attrs_.padding));
      dims[axis] = size.output;
    }
    return Shape::Make(dims);
  }

  VolumeAttrs attrs_;
};

// What the two gradients refuse, in the order in which TensorFlow looks.
class Conv3DGradient : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadVolumeAttrs(setup.node()));
    RETURN_IF_ERROR(CheckLengths(attrs_));
    // "Conv3DBackpropInputV2": TensorFlow's kernel is "Conv3DBackpropInputOp".
    const absl::string_view op = setup.node().def().name;
    label_ = absl::StrCat(absl::StripSuffix(op, "V2"), "Op");
    if (attrs_.data_format != "NDHWC")
      return InvalidArgument(label_, "V2 only supports NDHWC on the CPU.");
    RETURN_IF_ERROR(CheckOnlyInSpace(attrs_, attrs_.dilations, "dilation rates"));
    if (!AreOne(attrs_, attrs_.dilations)) {
      return InvalidArgument(
          "Current CPU implementation does not yet support dilation rates larger than 1.");
    }
    return CheckOnlyInSpace(attrs_, attrs_.strides, "strides");
  }

 protected:
  absl::StatusOr<Conv3DGeometry> Geometry(const Shape& input, const Shape& filter,
                                          const Shape& dy) const {
    for (const auto& [shape, what] :
         {std::pair(&input, "input"), std::pair(&filter, "filter_sizes"),
          std::pair(&dy, "out_backprop")}) {
      if (shape->rank() != 5) return InvalidArgument(what, " tensor must have 5 dimensions");
    }
    RETURN_IF_ERROR(CheckChannels("input", input.dim(4), filter.dim(3)));
    RETURN_IF_ERROR(CheckChannels("out_backprop", dy.dim(4), filter.dim(4)));
    if (input.dim(0) != dy.dim(0)) {
      return InvalidArgument(
          label_,
          ": input and out_backprop must have the same batch size. Input batch: ", input.dim(0),
          ", outbackprop batch: ", dy.dim(0), ", batch_dim: 0");
    }
    if (filter.dim(3) == 0) {
      return InvalidArgument(label_, ": filter depth must be strictly greated than zero");
    }
    for (int i = 0; i < 3; ++i) {
      const int axis = i + 1;
      const int64_t stride = attrs_.strides[axis];
      ASSIGN_OR_RETURN(const WindowSize size, WindowedOutputSize(input.dim(axis), filter.dim(i), 1,
                                                                 stride, attrs_.padding));
      if (dy.dim(axis) == size.output) continue;
      return InvalidArgument(label_, ": Size of out_backprop doesn't match computed: actual = ",
                             dy.dim(axis), ", computed = ", size.output, " spatial_dim: ", axis,
                             " input: ", input.dim(axis), " filter: ", filter.dim(i),
                             " output: ", dy.dim(axis), " stride: ", stride, " dilation: 1");
    }
    return MakeGeometry(attrs_, input, filter);
  }

 private:
  static absl::Status CheckChannels(absl::string_view what, int64_t channels, int64_t of_filter) {
    if (channels == of_filter) return absl::OkStatus();
    return InvalidArgument(what, " and filter_sizes must have the same number of channels. Got ",
                           channels, " for ", what, " and ", of_filter, " for filter_sizes");
  }

  VolumeAttrs attrs_;
  std::string label_;
};

absl::StatusOr<Shape> ShapeIn(const Tensor& sizes) {
  if (sizes.rank() != 1) {
    return InvalidArgument("shape must be a vector of {int32,int64}, got shape ",
                           sizes.shape().ToString());
  }
  ASSIGN_OR_RETURN(const Dims dims, IntegerValues(sizes));
  return Shape::Make(dims);
}

template <typename T>
class Conv3DBackpropInput : public Conv3DGradient {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& filter = c.input(1);
    const Tensor& dy = c.input(2);
    ASSIGN_OR_RETURN(const Shape shape, ShapeIn(c.input(0)));
    ASSIGN_OR_RETURN(const Conv3DGeometry g, Geometry(shape, filter.shape(), dy.shape()));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    if (output->num_elements() == 0) return absl::OkStatus();
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
    if (c.input(1).rank() != 1) {
      return InvalidArgument("filter_sizes shape must be rank 1 but is rank ", c.input(1).rank());
    }
    ASSIGN_OR_RETURN(const Shape shape, ShapeIn(c.input(1)));
    ASSIGN_OR_RETURN(const Conv3DGeometry g, Geometry(input.shape(), shape, dy.shape()));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    if (output->num_elements() == 0) return absl::OkStatus();
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
}

}  // namespace muster
