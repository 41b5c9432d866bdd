// Moving blocks of an image's plane into its channels and back.
#include "muster/ops/indexing/gpu_mover.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

struct Layout {
  int64_t block = 0;
  // Which dimension is which.
  int rows = 1;
  int columns = 2;
  int depth = 3;
};

template <typename Source>
absl::StatusOr<Layout> ReadLayout(const Source& source) {
  Layout layout;
  ASSIGN_OR_RETURN(layout.block, source.template Attr<int64_t>("block_size"));
  ASSIGN_OR_RETURN(const std::string format, source.template Attr<std::string>("data_format"));
  if (layout.block < 2) return InvalidArgument("Block size should be > 1, but was: ", layout.block);
  if (layout.block > 1 << 20) return InvalidArgument("Block size ", layout.block, " is too large");
  if (format == "NCHW") {
    layout = {layout.block, 2, 3, 1};
  } else if (format != "NHWC") {
    return Unimplemented("data_format ", format, " of images is not supported on the CPU");
  }
  return layout;
}

// Sizes of the result; unknown ones stay unknown.
absl::StatusOr<PartialShape> ToDepth(PartialShape shape, const Layout& layout) {
  for (int dim : {layout.rows, layout.columns}) {
    if (shape.dim(dim) < 0) continue;
    if (shape.dim(dim) % layout.block != 0) {
      return InvalidArgument("Dimension size must be evenly divisible by ", layout.block,
                             " but is ", shape.dim(dim));
    }
    shape.Set(dim, shape.dim(dim) / layout.block);
  }
  shape.Set(layout.depth,
            ShapeContext::MultiplyDims(shape.dim(layout.depth), layout.block * layout.block));
  return shape;
}

absl::StatusOr<PartialShape> ToSpace(PartialShape shape, const Layout& layout) {
  const int64_t block_elements = layout.block * layout.block;
  for (int dim : {layout.rows, layout.columns}) {
    shape.Set(dim, ShapeContext::MultiplyDims(shape.dim(dim), layout.block));
  }
  if (shape.dim(layout.depth) >= 0) {
    if (shape.dim(layout.depth) % block_elements != 0) {
      return InvalidArgument("Dimension size must be evenly divisible by ", block_elements,
                             " but is ", shape.dim(layout.depth));
    }
    shape.Set(layout.depth, shape.dim(layout.depth) / block_elements);
  }
  return shape;
}

template <absl::StatusOr<PartialShape> (*kResult)(PartialShape, const Layout&)>
absl::Status ShapeRule(ShapeContext& c) {
  ASSIGN_OR_RETURN(const std::string format, c.Attr<std::string>("data_format"));
  if (format == "NCHW_VECT_C") {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Layout layout, ReadLayout(c));
  ASSIGN_OR_RETURN(PartialShape shape, c.WithRank(c.input(0), 4));
  if (shape.known_rank()) {
    ASSIGN_OR_RETURN(shape, kResult(std::move(shape), layout));
  } else {
    shape = PartialShape::OfRank(4);
  }
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

// Both ops visit (batch, row, row in block, column, column in block, channel); only the direction
// differs.
template <bool kToDepth>
class SpaceDepthMove {
 public:
  absl::Status Init(KernelSetup& setup) {
    ASSIGN_OR_RETURN(layout_, ReadLayout(setup));
    // TensorFlow has none for the CPU either.
    ASSIGN_OR_RETURN(const std::string format, setup.Attr<std::string>("data_format"));
    if (format == "NHWC" || setup.device().gpu() != nullptr) return absl::OkStatus();
    return InvalidArgument("No OpKernel was registered to support Op '", setup.node().op(),
                           "' used by {{node ", setup.node().name(), "}} with data_format=\"",
                           format, "\" on the CPU");
  }
  absl::Status Run(KernelContext& c, const Mover& mover) const {
    const Tensor input = c.input(0);
    if (input.rank() != 4)
      return InvalidArgument("Input rank should be: ", 4, " instead of: ", input.rank());
    const int64_t rows = input.dim(layout_.rows), columns = input.dim(layout_.columns);
    if (kToDepth && (rows % layout_.block != 0 || columns % layout_.block != 0)) {
      return InvalidArgument("Image width ", columns, " and height ", rows,
                             " should be divisible by block_size: ", layout_.block);
    }
    const int64_t block_elements = layout_.block * layout_.block;
    if (!kToDepth && input.dim(layout_.depth) % block_elements != 0) {
      return InvalidArgument("Input depth dimension ", input.dim(layout_.depth),
                             " should be divisible by: ", block_elements);
    }
    ASSIGN_OR_RETURN(const PartialShape result,
                     kToDepth ? ToDepth(PartialShape(input.shape()), layout_)
                              : ToSpace(PartialShape(input.shape()), layout_));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(result.dims()));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    const Shape& deep = kToDepth ? shape : input.shape();
    const Shape& flat = kToDepth ? input.shape() : shape;
    const Dims deep_strides = RowMajorStrides(deep.dims()),
               flat_strides = RowMajorStrides(flat.dims());
    const int64_t block = layout_.block, depth = flat.dim(layout_.depth);
    StridedBox box;
    const auto add = [&](int64_t size, int64_t deep_stride, int64_t flat_stride) {
      box.Add(size, kToDepth ? flat_stride : deep_stride, kToDepth ? deep_stride : flat_stride);
    };
    const int64_t channel = deep_strides[layout_.depth];
    add(deep.dim(0), deep_strides[0], flat_strides[0]);
    add(deep.dim(layout_.rows), deep_strides[layout_.rows], flat_strides[layout_.rows] * block);
    add(block, channel * depth * block, flat_strides[layout_.rows]);
    add(deep.dim(layout_.columns), deep_strides[layout_.columns],
        flat_strides[layout_.columns] * block);
    add(block, channel * depth, flat_strides[layout_.columns]);
    add(depth, channel, flat_strides[layout_.depth]);
    return mover.Copy(c, std::move(box), input, *output);
  }

 private:
  Layout layout_;
};

absl::Status Opposite(GradientContext& c, const char* op) {
  c.SetDx(0, c.Op(op, {c.dy()},
                  {{"block_size", c.Attr<int64_t>("block_size")},
                   {"data_format", c.Attr<std::string>("data_format")}}));
  return absl::OkStatus();
}

DEFINE_OP(SpaceToDepth) {
  op.Attr("T: type")
      .Attr("block_size: int >= 2")
      .Attr("data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'")
      .Input("input: T")
      .Output("output: T")
      .Doc("Each block of an image's plane becomes one pixel with more channels.")
      .Shape(ShapeRule<ToDepth>)
      .Gradient([](GradientContext& c) { return Opposite(c, "DepthToSpace"); })
      .CpuDTypes("T", AllDTypes(), MovesOnHost<SpaceDepthMove<true>>())
      .GpuTypes("T", {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kUint8, DType::kQint8},
                MovesOnGpu<SpaceDepthMove<true>>);
}

DEFINE_OP(DepthToSpace) {
  op.Attr("T: type")
      .Attr("block_size: int >= 2")
      .Attr("data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'")
      .Input("input: T")
      .Output("output: T")
      .Doc("Channels of a pixel become a block of the image's plane.")
      .Shape(ShapeRule<ToSpace>)
      .Gradient([](GradientContext& c) { return Opposite(c, "SpaceToDepth"); })
      .CpuDTypes("T", AllDTypes(), MovesOnHost<SpaceDepthMove<false>>())
      .GpuTypes("T", {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kQint8},
                MovesOnGpu<SpaceDepthMove<false>>);
}

}  // namespace
}  // namespace muster
