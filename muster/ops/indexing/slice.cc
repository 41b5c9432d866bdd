// A box of a tensor given by where it begins and how large it is.
#include "muster/ops/array/gradients.h"
#include "muster/ops/array/sharing.h"
#include "muster/ops/indexing/gpu_mover.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

absl::Status SliceShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape begin_shape, c.WithRank(c.input(1), 1));
  ASSIGN_OR_RETURN(const PartialShape size_shape, c.WithRank(c.input(2), 1));
  // Both vectors have one entry per dimension of the input.
  ASSIGN_OR_RETURN(const PartialShape vector, c.Merge(begin_shape, size_shape));
  PartialShape input = c.input(0);
  if (vector.known_rank() && vector.dim(0) >= 0) {
    if (vector.dim(0) > Shape::kMaxRank)
      return InvalidArgument("Slice of ", vector.dim(0), " dimensions");
    ASSIGN_OR_RETURN(input, c.WithRank(input, static_cast<int>(vector.dim(0))));
  }
  const std::optional<Tensor> size_tensor = c.ConstantInput(2);
  if (!size_tensor) {
    // Sizes that are known one by one; -1 means unknown and "to the end" alike.
    ASSIGN_OR_RETURN(PartialShape shape, c.InputAsShape(2));
    if (shape.known_rank()) {
      ASSIGN_OR_RETURN(input, c.WithRank(input, shape.rank()));
    } else if (input.known_rank()) {
      shape = PartialShape::OfRank(input.rank());
    } else if (vector.known_rank() && vector.dim(0) >= 0) {
      shape = PartialShape::OfRank(static_cast<int>(vector.dim(0)));
    }
    c.SetOutput(0, std::move(shape));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Dims sizes, IntegerValues(*size_tensor));
  ASSIGN_OR_RETURN(const PartialShape begin, c.InputAsShape(1));
  Dims dims;
  for (int i = 0; i < static_cast<int>(sizes.size()); ++i) {
    const int64_t dim = input.known_rank() ? input.dim(i) : -1;
    const int64_t from = begin.known_rank() ? begin.dim(i) : -1;
    if (sizes[i] < -1) {
      return InvalidArgument("Invalid value in tensor used for shape: ", sizes[i]);
    }
    if (sizes[i] == -1 && dim >= 0 && from > dim) {
      return InvalidArgument("Negative dimension size caused by subtracting ", from, " from ", dim);
    }
    if (sizes[i] >= 0) {
      dims.push_back(sizes[i]);
    } else {
      dims.push_back(dim >= 0 && from >= 0 ? dim - from : -1);
    }
  }
  c.SetOutput(0, PartialShape(std::move(dims)));
  return absl::OkStatus();
}

absl::Status Slice(KernelContext& c, const Mover& mover) {
  const Tensor input = c.input(0);
  const Tensor& begin_tensor = c.input(1);
  const Tensor& size_tensor = c.input(2);
  const int rank = input.rank();
  if (begin_tensor.rank() != 1 || size_tensor.rank() != 1 || begin_tensor.num_elements() != rank ||
      size_tensor.num_elements() != rank) {
    return InvalidArgument("Expected begin and size arguments to be 1-D tensors of size ", rank,
                           ", but got shapes ", begin_tensor.shape().ToString(), " and ",
                           size_tensor.shape().ToString(), " instead.");
  }
  ASSIGN_OR_RETURN(const Dims begin, IntegerValues(begin_tensor));
  ASSIGN_OR_RETURN(Dims size, IntegerValues(size_tensor));
  bool whole = true, rows = rank > 0;
  for (int i = 0; i < rank; ++i) {
    const int64_t dim = input.dim(i);
    if (dim == 0 && (begin[i] != 0 || (size[i] != 0 && size[i] != -1))) {
      return InvalidArgument("Expected begin[", i, "] == 0 (got ", begin[i], ") and size[", i,
                             "] == 0 (got ", size[i], ") when input.dim_size(", i, ") == 0");
    }
    if (begin[i] < 0 || begin[i] > dim) {
      return InvalidArgument("Expected begin[", i, "] in [0, ", dim, "], but got ", begin[i]);
    }
    if (size[i] == -1) size[i] = dim - begin[i];
    if (size[i] < 0 || size[i] > dim - begin[i]) {
      return InvalidArgument("Expected size[", i, "] in [0, ", dim - begin[i], "], but got ",
                             size[i]);
    }
    whole = whole && size[i] == dim;
    rows = rows && (i == 0 || size[i] == dim);
  }
  if (whole) {
    c.SetOutput(0, c.TakeInput(0));
    return absl::OkStatus();
  }
  if (rows && RowsKeepAlignment(input)) {
    c.SetOutput(0, input.Rows(begin[0], begin[0] + size[0]));
    return absl::OkStatus();
  }
  const muster::Shape shape{absl::Span<const int64_t>(size)};
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
  const Dims from = RowMajorStrides(input.shape().dims()), to = RowMajorStrides(size);
  StridedBox box;
  for (int i = 0; i < rank; ++i) {
    box.Add(size[i], from[i], to[i]);
    box.from_offset += begin[i] * from[i];
  }
  return mover.Copy(c, std::move(box), input, *output);
}

// Pads dy with zeros to the shape of the input.
absl::Status SliceGradient(GradientContext& c) {
  const Output dy = c.dy();
  const Output begin = c.input(1);
  const DType index_type = begin.base_dtype();
  const Output rank = RankOf(c, c.input(0));
  const Output size = c.ShapeOf(c.output(0), "Shape", index_type);
  const Output column = PackScalars(c, {rank, 1}, "stack");
  const Output before = c.Op("Reshape", {begin, column});
  const Output whole = c.ShapeOf(c.input(0), "Shape_1", index_type);
  const Output rest = c.Op("Sub", {whole, size}, {}, "sub");
  const Output after_vector = c.Op("Sub", {rest, begin}, {}, "sub_1");
  const Output after = c.Op("Reshape", {after_vector, column});
  const Output paddings = ConcatOf(c, {before, after}, 1, "concat");
  c.SetDx(0, c.Op("Pad", {dy, paddings}));
  return absl::OkStatus();
}

DEFINE_OP(Slice) {
  op.Attr("T: type")
      .Attr("Index: {int32, int64}")
      .Input("input: T")
      .Input("begin: Index")
      .Input("size: Index")
      .Output("output: T")
      .Doc("The box of `size` elements that starts at `begin`; a size of -1 reaches to the end.")
      .Shape(SliceShape)
      .Gradient(SliceGradient)
      .HostMemory({"begin", "size"})
      .CpuDTypes("T", AllDTypes(), MovesOnHost<MoveBy<Slice>>())
      .GpuOnHost("T")
      .GpuTypes("T",
                GpuFloatsAnd({DType::kBool, DType::kInt8, DType::kInt64, DType::kComplex64,
                              DType::kComplex128}),
                MovesOnGpu<MoveBy<Slice>>);
}

}  // namespace
}  // namespace muster
