// Moving blocks of space into the batch and back, as dilated convolutions need it.
#include <algorithm>

#include "muster/ops/indexing/gpu_mover.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

// Block sizes and, per block dimension, padding (or cropping) before and after.
struct Blocks {
  Dims sizes;
  Dims before;
  Dims after;
  int64_t per_batch = 1;
};

absl::StatusOr<Blocks> MakeBlocks(Dims sizes, const Dims& borders, absl::string_view name) {
  if (borders.size() != 2 * sizes.size()) {
    return InvalidArgument("Expected borders for ", sizes.size(), " dimensions, but got ",
                           borders.size(), " values");
  }
  Blocks blocks;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1)
      return InvalidArgument("All values in block_shape must be positive, got value, ", sizes[i],
                             " at index ", i, ".");
    if (borders[2 * i] < 0 || borders[2 * i + 1] < 0) {
      return InvalidArgument(name == "crops" ? "Crops" : "Paddings", " must be non-negative");
    }
    const std::optional<int64_t> product = MultiplyWithoutOverflow(blocks.per_batch, sizes[i]);
    if (!product) return InvalidArgument("The product of block_shape overflows");
    blocks.per_batch = *product;
    blocks.before.push_back(borders[2 * i]);
    blocks.after.push_back(borders[2 * i + 1]);
  }
  blocks.sizes = std::move(sizes);
  return blocks;
}

absl::Status NotDivisible(int64_t divisor, int64_t size) {
  return InvalidArgument("Dimension size must be evenly divisible by ", divisor, " but is ", size);
}

// a / b rounded up, for b > 0.
int64_t CeilDivide(int64_t a, int64_t b) {
  return a >= 0 ? (a + b - 1) / b : -(-a / b);
}

absl::StatusOr<PartialShape> SpaceToBatchResult(const PartialShape& input, const Blocks& blocks,
                                                bool in_rule) {
  PartialShape shape = input;
  shape.Set(0, ShapeContext::MultiplyDims(input.dim(0), blocks.per_batch));
  for (size_t i = 0; i < blocks.sizes.size(); ++i) {
    const int dim = static_cast<int>(i) + 1;
    if (input.dim(dim) < 0) continue;
    int64_t padded = 0;
    if (__builtin_add_overflow(input.dim(dim), blocks.before[i], &padded) ||
        __builtin_add_overflow(padded, blocks.after[i], &padded)) {
      return InvalidArgument("Padding dimension ", dim, " overflows");
    }
    if (padded % blocks.sizes[i] != 0) {
      if (in_rule) return NotDivisible(blocks.sizes[i], padded);
      return InvalidArgument("padded_shape[", i, "]=", padded, " is not divisible by block_shape[",
                             i, "]=", blocks.sizes[i]);
    }
    shape.Set(dim, padded / blocks.sizes[i]);
  }
  return shape;
}

absl::StatusOr<PartialShape> BatchToSpaceResult(const PartialShape& input, const Blocks& blocks,
                                                bool in_rule) {
  PartialShape shape = input;
  if (input.dim(0) >= 0) {
    if (input.dim(0) % blocks.per_batch != 0) {
      if (in_rule) return NotDivisible(blocks.per_batch, input.dim(0));
      return InvalidArgument("Input batch dimension (", input.dim(0),
                             ") is not divisible by product of block sizes (", blocks.per_batch,
                             ")");
    }
    shape.Set(0, input.dim(0) / blocks.per_batch);
  }
  for (size_t i = 0; i < blocks.sizes.size(); ++i) {
    const int dim = static_cast<int>(i) + 1;
    if (input.dim(dim) < 0) continue;
    const std::optional<int64_t> whole = MultiplyWithoutOverflow(input.dim(dim), blocks.sizes[i]);
    if (!whole) return InvalidArgument("Dimension ", dim, " overflows");
    if (blocks.before[i] > *whole || blocks.after[i] > *whole - blocks.before[i]) {
      if (in_rule) {
        const bool first = blocks.before[i] > *whole;
        return InvalidArgument("Negative dimension size caused by subtracting ",
                               first ? blocks.before[i] : blocks.after[i], " from ",
                               first ? *whole : *whole - blocks.before[i]);
      }
      return InvalidArgument("cropped_shape[", i, "]=", *whole - blocks.before[i] - blocks.after[i],
                             " must be non-negative");
    }
    shape.Set(dim, *whole - blocks.before[i] - blocks.after[i]);
  }
  return shape;
}

template <typename Source>
absl::StatusOr<Dims> BlockSizeAttr(const Source& source) {
  ASSIGN_OR_RETURN(const int64_t size, source.template Attr<int64_t>("block_size"));
  return Dims{size, size};
}

// The op's name for the margins that it adds to, or removes from, the spatial dimensions.
template <bool kToBatch>
constexpr absl::string_view kBorderName = kToBatch ? "paddings" : "crops";

using Result = absl::StatusOr<PartialShape> (*)(const PartialShape&, const Blocks&, bool in_rule);

// The ND form has the block sizes as input 1 and the borders as input 2; the old form has an
// attribute and input 1.
template <bool kOldForm, Result kResult>
absl::Status ShapeRule(ShapeContext& c) {
  const std::optional<Tensor> borders = c.ConstantInput(kOldForm ? 1 : 2);
  PartialShape input = c.input(0);
  std::optional<Dims> sizes;
  if (kOldForm) {
    ASSIGN_OR_RETURN(input, c.WithRank(input, 4));
    ASSIGN_OR_RETURN(sizes, BlockSizeAttr(c));
  } else {
    RETURN_IF_ERROR(c.WithRank(c.input(1), 1).status());
    if (const std::optional<Tensor> tensor = c.ConstantInput(1)) {
      ASSIGN_OR_RETURN(sizes, IntegerValues(*tensor));
      for (int64_t size : *sizes) {
        if (size < 1) return InvalidArgument("block_shape must be positive");
      }
      ASSIGN_OR_RETURN(input, c.WithRankAtLeast(input, static_cast<int>(sizes->size()) + 1));
    }
  }
  RETURN_IF_ERROR(c.WithRank(c.input(kOldForm ? 1 : 2), 2).status());
  if (!input.known_rank()) {
    c.SetOutput(0, kOldForm ? PartialShape::OfRank(4) : PartialShape());
    return absl::OkStatus();
  }
  if (!sizes || !borders) {
    PartialShape shape = PartialShape::OfRank(input.rank());
    for (int i = 1 + static_cast<int>(sizes ? sizes->size() : input.rank()); i < input.rank();
         ++i) {
      shape.Set(i, input.dim(i));
    }
    c.SetOutput(0, std::move(shape));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Dims border_values, IntegerValues(*borders));
  ASSIGN_OR_RETURN(const Blocks blocks,
                   MakeBlocks(*sizes, border_values, kBorderName<kResult == SpaceToBatchResult>));
  ASSIGN_OR_RETURN(PartialShape shape, kResult(input, blocks, /*in_rule=*/true));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

// One strided box per position inside a block. "Space" is the tensor with the whole plane, "batch"
// the other one.
template <bool kToBatch>
absl::Status Move(KernelContext& c, const Mover& mover, const Blocks& blocks) {
  const Tensor input = c.input(0);
  const int block_dims = static_cast<int>(blocks.sizes.size());
  if (input.rank() < block_dims + 1) {
    return InvalidArgument("input rank should be >= ", block_dims + 1, " instead of ",
                           input.rank());
  }
  ASSIGN_OR_RETURN(const PartialShape result,
                   kToBatch ? SpaceToBatchResult(PartialShape(input.shape()), blocks, false)
                            : BatchToSpaceResult(PartialShape(input.shape()), blocks, false));
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(result.dims()));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
  if (kToBatch) RETURN_IF_ERROR(mover.Zero(*output));
  if (output->num_elements() == 0 || input.num_elements() == 0) return absl::OkStatus();
  const Shape& space = kToBatch ? input.shape() : shape;
  const Shape& batch = kToBatch ? shape : input.shape();
  const Dims space_strides = RowMajorStrides(space.dims()),
             batch_strides = RowMajorStrides(batch.dims());
  const int64_t inner = space.ElementsIn(block_dims + 1, space.rank());
  Dims position(block_dims, 0);
  std::vector<BoxCopy> copies;
  for (int64_t n = 0; n < blocks.per_batch; ++n) {
    StridedBox box;
    int64_t space_offset = 0, batch_offset = n * space.dim(0) * batch_strides[0];
    const auto add = [&](int64_t size, int64_t space_stride, int64_t batch_stride) {
      box.Add(size, kToBatch ? space_stride : batch_stride, kToBatch ? batch_stride : space_stride);
    };
    add(space.dim(0), space_strides[0], batch_strides[0]);
    for (int i = 0; i < block_dims; ++i) {
      // Element k of the batch side is at k * block + shift of the space side, where that exists.
      const int64_t block = blocks.sizes[i], shift = position[i] - blocks.before[i];
      const int64_t first = std::max<int64_t>(CeilDivide(-shift, block), 0);
      const int64_t end = std::min(CeilDivide(space.dim(i + 1) - shift, block), batch.dim(i + 1));
      add(std::max<int64_t>(end - first, 0), space_strides[i + 1] * block, batch_strides[i + 1]);
      space_offset += (first * block + shift) * space_strides[i + 1];
      batch_offset += first * batch_strides[i + 1];
    }
    add(inner, 1, 1);
    box.from_offset = kToBatch ? space_offset : batch_offset;
    box.to_offset = kToBatch ? batch_offset : space_offset;
    copies.push_back({std::move(box), input.raw(), output->raw()});
    for (int i = block_dims - 1; i >= 0 && ++position[i] == blocks.sizes[i]; --i) position[i] = 0;
  }
  return mover.Copy(c, input.dtype(), std::move(copies));
}

absl::StatusOr<Dims> Borders(const Tensor& tensor, int64_t dims, absl::string_view name) {
  if (tensor.rank() != 2 || tensor.dim(0) != dims || tensor.dim(1) != 2) {
    return InvalidArgument(name, " should have shape [", dims, ", 2] instead of ",
                           tensor.shape().ToString());
  }
  return IntegerValues(tensor);
}

template <bool kToBatch>
absl::Status MoveND(KernelContext& c, const Mover& mover) {
  const Tensor& sizes_tensor = c.input(1);
  if (sizes_tensor.rank() != 1) {
    return InvalidArgument("block_shape rank should be 1 instead of ", sizes_tensor.rank());
  }
  ASSIGN_OR_RETURN(Dims sizes, IntegerValues(sizes_tensor));
  ASSIGN_OR_RETURN(const Dims borders,
                   Borders(c.input(2), sizes_tensor.num_elements(), kBorderName<kToBatch>));
  ASSIGN_OR_RETURN(const Blocks blocks,
                   MakeBlocks(std::move(sizes), borders, kBorderName<kToBatch>));
  return Move<kToBatch>(c, mover, blocks);
}

template <bool kToBatch>
class OldMove {
 public:
  absl::Status Init(KernelSetup& setup) {
    ASSIGN_OR_RETURN(sizes_, BlockSizeAttr(setup));
    return absl::OkStatus();
  }
  absl::Status Run(KernelContext& c, const Mover& mover) const {
    if (c.input(0).rank() != 4)
      return InvalidArgument("input rank should be 4 instead of ", c.input(0).rank());
    ASSIGN_OR_RETURN(const Dims borders, Borders(c.input(1), 2, kBorderName<kToBatch>));
    ASSIGN_OR_RETURN(const Blocks blocks, MakeBlocks(sizes_, borders, kBorderName<kToBatch>));
    return Move<kToBatch>(c, mover, blocks);
  }

 private:
  Dims sizes_;
};

absl::Status OppositeND(GradientContext& c, const char* op) {
  c.SetDx(0, c.Op(op, {c.dy(), c.input(1), c.input(2)}));
  return absl::OkStatus();
}

// The gradient of the old form is the ND form.
absl::Status OppositeOld(GradientContext& c, const char* op) {
  const Output dy = c.dy();
  const int64_t size = c.Attr<int64_t>("block_size");
  const Output sizes =
      c.scope().Const(Tensor::Vector<int64_t>({size, size}), absl::StrCat(op, "/block_shape"));
  c.SetDx(0, c.Op(op, {dy, sizes, c.input(1)}));
  return absl::OkStatus();
}

DEFINE_OP(SpaceToBatchND) {
  op.Attr("T: type")
      .Attr("Tblock_shape: {int32, int64} = DT_INT32")
      .Attr("Tpaddings: {int32, int64} = DT_INT32")
      .Input("input: T")
      .Input("block_shape: Tblock_shape")
      .Input("paddings: Tpaddings")
      .Output("output: T")
      .Doc("Pads, then moves each position inside a block of space to its own part of the batch.")
      .Shape(ShapeRule<false, SpaceToBatchResult>)
      .Gradient([](GradientContext& c) { return OppositeND(c, "BatchToSpaceND"); })
      .HostMemory({"block_shape", "paddings"})
      .CpuDTypes("T", PlainDTypes(), MovesOnHost<MoveBy<MoveND<true>>>())
      .GpuTypes("T", GpuFloatsAnd({}), MovesOnGpu<MoveBy<MoveND<true>>>);
}

DEFINE_OP(BatchToSpaceND) {
  op.Attr("T: type")
      .Attr("Tblock_shape: {int32, int64} = DT_INT32")
      .Attr("Tcrops: {int32, int64} = DT_INT32")
      .Input("input: T")
      .Input("block_shape: Tblock_shape")
      .Input("crops: Tcrops")
      .Output("output: T")
      .Doc("Interleaves parts of the batch into blocks of space, then crops.")
      .Shape(ShapeRule<false, BatchToSpaceResult>)
      .Gradient([](GradientContext& c) { return OppositeND(c, "SpaceToBatchND"); })
      .HostMemory({"block_shape", "crops"})
      .CpuDTypes("T", PlainDTypes(), MovesOnHost<MoveBy<MoveND<false>>>())
      .GpuTypes("T", GpuFloatsAnd({}), MovesOnGpu<MoveBy<MoveND<false>>>);
}

DEFINE_OP(SpaceToBatch) {
  op.Attr("T: type")
      .Attr("Tpaddings: {int32, int64} = DT_INT32")
      .Attr("block_size: int >= 2")
      .Input("input: T")
      .Input("paddings: Tpaddings")
      .Output("output: T")
      .Doc("SpaceToBatchND for images and square blocks.")
      .Shape(ShapeRule<true, SpaceToBatchResult>)
      .Gradient([](GradientContext& c) { return OppositeOld(c, "BatchToSpaceND"); })
      .HostMemory({"paddings"})
      .CpuDTypes("T", PlainDTypes(), MovesOnHost<OldMove<true>>())
      .GpuTypes("T", GpuFloatsAnd({}), MovesOnGpu<OldMove<true>>);
}

DEFINE_OP(BatchToSpace) {
  op.Attr("T: type")
      .Attr("block_size: int >= 2")
      .Attr("Tidx: {int32, int64} = DT_INT32")
      .Input("input: T")
      .Input("crops: Tidx")
      .Output("output: T")
      .Doc("BatchToSpaceND for images and square blocks.")
      .Shape(ShapeRule<true, BatchToSpaceResult>)
      .Gradient([](GradientContext& c) { return OppositeOld(c, "SpaceToBatchND"); })
      .HostMemory({"crops"})
      .CpuDTypes("T", PlainDTypes(), MovesOnHost<OldMove<false>>())
      .GpuTypes("T", GpuFloatsAnd({}), MovesOnGpu<OldMove<false>>);
}

}  // namespace
}  // namespace muster
