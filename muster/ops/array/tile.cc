// Repeating a tensor along its axes.
#include "absl/strings/str_cat.h"

#include "muster/ops/array/gradients.h"
#include "muster/ops/array/wrapping.h"
#include "muster/ops/indexing/gpu_mover.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

absl::Status TileShape(ShapeContext& c) {
  PartialShape input = c.input(0);
  ASSIGN_OR_RETURN(PartialShape multiples, c.InputAsShape(1));
  if (input.known_rank()) {
    ASSIGN_OR_RETURN(multiples, c.WithRank(multiples, input.rank()));
  }
  if (!multiples.known_rank()) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(input, c.WithRank(input, multiples.rank()));
  PartialShape output = PartialShape::OfRank(multiples.rank());
  for (int i = 0; i < multiples.rank() && input.known_rank(); ++i) {
    output.Set(i, c.MultiplyDims(input.dim(i), multiples.dim(i)));
  }
  c.SetOutput(0, std::move(output));
  return absl::OkStatus();
}

absl::StatusOr<Dims> CheckedMultiples(const Tensor& multiples, int rank) {
  if (multiples.rank() != 1) {
    return InvalidArgument("Expected multiples to be 1-D, but got shape ",
                           multiples.shape().ToString());
  }
  if (multiples.num_elements() != rank) {
    return InvalidArgument("Expected multiples argument to be a vector of length ", rank,
                           " but got length ", multiples.num_elements());
  }
  ASSIGN_OR_RETURN(Dims values, IntegerValues(multiples));
  for (int i = 0; i < rank; ++i) {
    if (values[i] < 0)
      return InvalidArgument("Expected multiples[", i, "] >= 0, but got ", values[i]);
  }
  return values;
}

absl::Status Tile(KernelContext& c, const Mover& mover) {
  const Tensor input = c.input(0);
  ASSIGN_OR_RETURN(const Dims multiples, CheckedMultiples(c.input(1), input.rank()));
  Dims dims;
  bool same = true;
  for (int i = 0; i < input.rank(); ++i) {
    const std::optional<int64_t> size = MultiplyWithoutOverflow(input.dim(i), multiples[i]);
    if (!size)
      return InvalidArgument("Tiling dimension ", i, " of size ", input.dim(i), " by ",
                             multiples[i], " overflows");
    dims.push_back(*size);
    same = same && multiples[i] == 1;
  }
  if (same) {
    c.SetOutput(0, c.TakeInput(0));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
  const Dims from = RowMajorStrides(input.shape().dims()), to = RowMajorStrides(dims);
  StridedBox box;
  for (int i = 0; i < input.rank(); ++i) {
    box.Add(multiples[i], 0, to[i] * input.dim(i));
    box.Add(input.dim(i), from[i], to[i]);
  }
  return mover.Copy(c, std::move(box), input, *output);
}

// Sums of what a Tile made from each element of its input.
absl::StatusOr<Shape> UntiledShape(const Tensor& input, const Dims& multiples) {
  Dims dims;
  for (int i = 0; i < input.rank(); ++i) {
    if (multiples[i] == 0 || input.dim(i) % multiples[i] != 0) {
      return InvalidArgument("Expected input_dim[", i, "] to be divisible by multiples[", i,
                             "], but ", input.dim(i), " % ", multiples[i], " != 0");
    }
    dims.push_back(input.dim(i) / multiples[i]);
  }
  return Shape(absl::Span<const int64_t>(dims));
}

template <typename T>
absl::Status TileGrad(KernelContext& c) {
  const Tensor& input = c.input(0);
  ASSIGN_OR_RETURN(const Dims multiples, CheckedMultiples(c.input(1), input.rank()));
  ASSIGN_OR_RETURN(const Shape shape, UntiledShape(input, multiples));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
  const Dims& dims = shape.dims();
  const Dims strides = RowMajorStrides(dims);
  std::vector<Compute<T>> sums(static_cast<size_t>(shape.num_elements()), Compute<T>{});
  Dims index(input.rank(), 0);
  const T* const values = input.data<T>();
  for (int64_t i = 0; i < input.num_elements(); ++i) {
    int64_t at = 0;
    for (int k = 0; k < input.rank(); ++k) at += index[k] % dims[k] * strides[k];
    sums[at] = AddWrapping(sums[at], static_cast<Compute<T>>(values[i]));
    for (int k = input.rank() - 1; k >= 0 && ++index[k] == input.dim(k); --k) index[k] = 0;
  }
  for (int64_t i = 0; i < shape.num_elements(); ++i) output->data<T>()[i] = static_cast<T>(sums[i]);
  return absl::OkStatus();
}

// The structs of tile.cu.
constexpr int kMostTileAxes = 8;
struct TileAxis {
  int64_t size, times;
};
struct TileAxes {
  int rank;
  TileAxis axes[kMostTileAxes];
};

class GpuTileGrad : public GpuKernel {
 public:
  explicit GpuTileGrad(DType dtype)
      : run_(*this, "array/tile.cu", absl::StrCat("TileGrad<", GpuTypeName(dtype), ">")) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(const Dims multiples, CheckedMultiples(c.input(1), input.rank()));
    ASSIGN_OR_RETURN(const Shape shape, UntiledShape(input, multiples));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    TileAxes tiled{};
    for (int i = 0; i < shape.rank(); ++i) {
      if (tiled.rank > 0 && multiples[i] == 1) {
        tiled.axes[tiled.rank - 1].size *= shape.dim(i);
      } else if (tiled.rank < kMostTileAxes) {
        tiled.axes[tiled.rank++] = {shape.dim(i), multiples[i]};
      } else {
        return Unimplemented("TileGrad of more than ", kMostTileAxes, " axes on a GPU");
      }
    }
    const int64_t count = shape.num_elements();
    return run_.LaunchForEach(count, GpuIn(input), GpuOut(*output), tiled, count);
  }

 private:
  const GpuFunction run_;
};

// Reshapes dy so that each tiled axis becomes two, and sums over the outer one of each pair.
absl::Status TileGradient(GradientContext& c) {
  const Output multiples = c.input(1);
  const DType index_type = multiples.base_dtype();
  const Output input_shape = c.ShapeOf(c.input(0), "Shape", index_type);
  const Output stacked =
      c.Op("Pack", {std::vector<Output>{multiples, input_shape}}, {{"axis", 0}}, "stack");
  const Output perm = c.scope().ConstVector({1, 0}, "transpose/perm");
  const Output pairs = c.Op("Transpose", {stacked, perm}, {}, "transpose");
  const Output flat = c.scope().ConstVector({-1}, "Reshape/shape");
  Output split_shape = c.Op("Reshape", {pairs, flat});
  if (!c.scope().status().ok()) return c.scope().status();
  const int64_t length = split_shape.shape().num_elements();
  const Output size = length >= 0
                          ? c.scope().ConstScalar<int32_t>(static_cast<int32_t>(length), "Size")
                          : c.Op("Size", {split_shape});
  const Output start = c.scope().ConstScalar<int32_t>(0, "range/start");
  const Output delta = c.scope().ConstScalar<int32_t>(2, "range/delta");
  const Output axes = c.Op("Range", {start, size, delta}, {}, "range");
  Output dy;
  if (const IndexedSlices* slices = std::get_if<IndexedSlices>(&c.gradient(0))) {
    const Output begin = c.scope().ConstVector({0}, "strided_slice/stack");
    const Output end = c.scope().ConstVector({1}, "strided_slice/stack_1");
    const Output step = c.scope().ConstVector({1}, "strided_slice/stack_2");
    Output rows = c.Op("StridedSlice", {input_shape, begin, end, step}, {{"shrink_axis_mask", 1}},
                       "strided_slice");
    const DType slice_type = slices->indices.base_dtype();
    if (slice_type != index_type) rows = c.Op("Cast", {rows}, {{"DstT", slice_type}});
    const Output folded = c.Op("FloorMod", {slices->indices, rows}, {}, "mod");
    dy = c.Op("UnsortedSegmentSum", {slices->values, folded, rows});
    const Output tail_begin = c.scope().ConstVector({1}, "strided_slice_1/stack");
    const Output tail_end = c.scope().ConstVector({0}, "strided_slice_1/stack_1");
    const Output tail_step = c.scope().ConstVector({1}, "strided_slice_1/stack_2");
    const Output tail = c.Op("StridedSlice", {split_shape, tail_begin, tail_end, tail_step},
                             {{"end_mask", 1}}, "strided_slice_1");
    const Output one = index_type == DType::kInt64
                           ? c.scope().Const(Tensor::Vector<int64_t>({1}), "concat/values_0")
                           : c.scope().ConstVector({1}, "concat/values_0");
    split_shape = ConcatOf(c, {one, tail}, 0, "concat");
  } else {
    dy = c.dy();
  }
  const Output reshaped = c.Op("Reshape", {dy, split_shape});
  const Output dx = c.Op("Sum", {reshaped, axes});
  if (dx) dx.node->set_output_shape(0, c.input(0).shape());
  c.SetDx(0, dx);
  return absl::OkStatus();
}

DEFINE_OP(Tile) {
  op.Attr("T: type")
      .Attr("Tmultiples: {int32, int64} = DT_INT32")
      .Input("input: T")
      .Input("multiples: Tmultiples")
      .Output("output: T")
      .Doc("A tensor repeated multiples[i] times along axis i.")
      .Shape(TileShape)
      .Gradient(TileGradient)
      .HostMemory({"multiples"})
      .CpuDTypes("T", AllDTypes(), MovesOnHost<MoveBy<Tile>>())
      .GpuTypes("T",
                GpuFloatsAnd({DType::kBool, DType::kInt16, DType::kInt32, DType::kInt64,
                              DType::kComplex64, DType::kComplex128}),
                MovesOnGpu<MoveBy<Tile>>);
}

DEFINE_OP(TileGrad) {
  op.Attr("T: type")
      .Input("input: T")
      .Input("multiples: int32")
      .Output("output: T")
      .Deprecated(3, "TileGrad has been replaced with reduce_sum")
      .Doc("The sum of the copies that Tile made.")
      .Shape(UnknownShape)
      .HostMemory({"multiples"})
      .CpuTypes<Join<Floats, Join<Types<int16_t, int32_t, int64_t>, Complexes>>>(
          "T", []<typename T>() { return Stateless(TileGrad<T>); })
      .GpuTypes("T",
                GpuFloatsAnd({DType::kInt16, DType::kInt32, DType::kInt64, DType::kComplex64,
                              DType::kComplex128}),
                [](DType dtype) { return [=] { return std::make_unique<GpuTileGrad>(dtype); }; });
}

}  // namespace
}  // namespace muster
