// Bands and diagonals of the innermost matrices.
#include <algorithm>
#include <cstring>

#include "muster/ops/array/gradients.h"
#include "muster/ops/indexing/strided_copy.h"
#include "muster/ops/linalg/matrix_bands.h"
#include "muster/ops/nn/packs.h"

namespace muster {
namespace {

// The front end writes zeros as a Const below this many elements, and as a Fill from here on.
constexpr int64_t kMaxConstElements = 1000;

Output Zeros(GradientContext& c, const Shape& shape, DType dtype, const std::string& name) {
  if (shape.num_elements() < kMaxConstElements)
    return c.scope().Const(Tensor::Zeros(dtype, shape), name);
  std::vector<int32_t> dims(shape.dims().begin(), shape.dims().end());
  const Output dims_value = c.scope().ConstVector(dims, name + "/shape_as_tensor");
  const Output zero = c.scope().Const(Tensor::Zeros(dtype, Shape()), name + "/Const");
  return c.Op("Fill", {dims_value, zero}, {}, name);
}

// --- Band --------------------------------------------------------------------------------------

absl::Status BandPart(KernelContext& c) {
  // No reference to the input is kept: its memory may become the output's.
  const Shape shape = c.input(0).shape();
  const char* const from = c.input(0).raw();
  ASSIGN_OR_RETURN(const BandWidths band, CheckedBandPart(c));
  const int64_t rows = band.rows, columns = band.columns;
  ASSIGN_OR_RETURN(Tensor* const output, c.ForwardOrAllocate({0}, 0, shape));
  const int64_t size = static_cast<int64_t>(DTypeSize(output->dtype()));
  char* const to = output->raw();
  const int64_t all_rows = columns == 0 ? 0 : shape.num_elements() / columns;
  c.ParallelFor(
      all_rows, 0.1 * static_cast<double>(columns * size), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const int64_t at = row % rows;
          const int64_t first = std::clamp<int64_t>(at - band.lower, 0, columns);
          const int64_t last = std::clamp<int64_t>(at + band.upper + 1, first, columns);
          const char* const source = from + row * columns * size;
          char* const target = to + row * columns * size;
          std::memset(target, 0, static_cast<size_t>(first * size));
          if (source != target) {
            std::memcpy(target + first * size, source + first * size,
                        static_cast<size_t>((last - first) * size));
          }
          std::memset(target + last * size, 0, static_cast<size_t>((columns - last) * size));
        }
      });
  return absl::OkStatus();
}

absl::Status BandPartGradient(GradientContext& c) {
  c.SetDx(0, c.Op("MatrixBandPart", {c.dy(), c.input(1), c.input(2)}));
  return absl::OkStatus();
}

// --- Diagonals ---------------------------------------------------------------------------------

absl::Status MatrixDiagShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.WithRankAtLeast(c.input(0), 1));
  if (shape.known_rank()) shape.Append(shape.dim(shape.rank() - 1));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status MatrixDiag(KernelContext& c) {
  const Tensor input = c.input(0);
  ASSIGN_OR_RETURN(const BandPlan plan, PlanMatrixDiag(c));
  const int64_t size = plan.geometry.longest();
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, plan.output));
  ZeroElements(output->dtype(), output->raw(), output->num_elements());
  StridedBox box;
  box.Add(plan.matrices, size, size * size);
  box.Add(size, 1, size + 1);
  CopyBox(c, input.dtype(), std::move(box), input.raw(), output->raw());
  return absl::OkStatus();
}

absl::Status MatrixDiagPartShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape shape, c.WithRankAtLeast(c.input(0), 2));
  if (!shape.known_rank()) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  const int64_t rows = shape.dim(shape.rank() - 2), columns = shape.dim(shape.rank() - 1);
  int64_t size = rows < 0 || columns < 0 ? -1 : std::min(rows, columns);
  if (rows == 0 || columns == 0) size = 0;
  c.SetOutput(0, c.Concatenate(c.Subshape(shape, 0, -2), PartialShape::Vector(size)));
  return absl::OkStatus();
}

absl::Status MatrixDiagPart(KernelContext& c) {
  const Tensor input = c.input(0);
  ASSIGN_OR_RETURN(const BandPlan plan, PlanMatrixDiagPart(c));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, plan.output));
  StridedBox box;
  const BandGeometry& g = plan.geometry;
  box.Add(plan.matrices, g.matrix_elements(), g.longest());
  box.Add(g.longest(), g.columns() + 1, 1);
  CopyBox(c, input.dtype(), std::move(box), input.raw(), output->raw());
  return absl::OkStatus();
}

absl::Status MatrixSetDiagShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape input, c.WithRankAtLeast(c.input(0), 2));
  ASSIGN_OR_RETURN(PartialShape diagonal, c.WithRankAtLeast(c.input(1), 1));
  if (input.known_rank()) {
    ASSIGN_OR_RETURN(diagonal, c.WithRank(diagonal, input.rank() - 1));
    const int64_t rows = input.dim(input.rank() - 2), columns = input.dim(input.rank() - 1);
    if (diagonal.known_rank() && rows >= 0 && columns >= 0) {
      RETURN_IF_ERROR(
          c.MergeDims(std::min(rows, columns), diagonal.dim(diagonal.rank() - 1)).status());
    }
    ASSIGN_OR_RETURN(const PartialShape batch,
                     c.Merge(c.Subshape(input, 0, -2), c.Subshape(diagonal, 0, -1)));
    input = c.Concatenate(batch, c.Subshape(input, -2));
  } else if (diagonal.known_rank()) {
    input = c.Concatenate(c.Subshape(diagonal, 0, -1), PartialShape::OfRank(2));
  }
  c.SetOutput(0, std::move(input));
  return absl::OkStatus();
}

absl::Status MatrixSetDiag(KernelContext& c) {
  const Tensor diagonal = c.input(1);
  ASSIGN_OR_RETURN(const BandPlan plan, PlanMatrixSetDiag(c));
  const char* const from = c.input(0).raw();
  ASSIGN_OR_RETURN(Tensor* const output, c.ForwardOrAllocate({0}, 0, plan.output));
  if (from != output->raw())
    CopyElements(output->dtype(), from, output->raw(), output->num_elements());
  StridedBox box;
  const BandGeometry& g = plan.geometry;
  box.Add(plan.matrices, g.longest(), g.matrix_elements());
  box.Add(g.longest(), 1, g.columns() + 1);
  CopyBox(c, diagonal.dtype(), std::move(box), diagonal.raw(), output->raw());
  return absl::OkStatus();
}

absl::Status MatrixDiagGradient(GradientContext& c) {
  c.SetDx(0, c.Op("MatrixDiagPart", {c.dy()}, {}, "diag_part"));
  return absl::OkStatus();
}

absl::Status MatrixDiagPartGradient(GradientContext& c) {
  const Output x = c.input(0);
  const Output dy = c.dy();
  const PartialShape& shape = x.shape();
  const int rank = shape.rank();
  if (rank >= 2 && shape.dim(rank - 1) >= 0 && shape.dim(rank - 1) == shape.dim(rank - 2)) {
    c.SetDx(0, c.Op("MatrixDiag", {dy}, {}, "diag"));
    return absl::OkStatus();
  }
  const std::optional<Shape> known = shape.ToShape();
  const Output zeros = known ? Zeros(c, *known, x.base_dtype(), "zeros_like")
                             : c.Op("ZerosLike", {x}, {}, "zeros_like");
  c.SetDx(0, c.Op("MatrixSetDiag", {zeros, dy}, {}, "set_diag"));
  return absl::OkStatus();
}

absl::Status MatrixSetDiagGradient(GradientContext& c) {
  const Output dy = c.dy();
  if (!c.scope().status().ok()) return c.scope().status();
  ASSIGN_OR_RETURN(const PartialShape input, c.input(0).shape().Merge(dy.shape()));
  const PartialShape& diagonal = c.input(1).shape();
  Output zeros;
  std::optional<Shape> diagonal_shape;
  if (input.known_rank() && input.rank() >= 2) {
    ASSIGN_OR_RETURN(
        PartialShape batch,
        ShapeContext::Subshape(input, 0, -2).Merge(ShapeContext::Subshape(diagonal, 0, -1)));
    const int64_t rows = input.dim(input.rank() - 2), columns = input.dim(input.rank() - 1);
    if (rows >= 0 && columns >= 0) {
      batch.Append(std::min(rows, columns));
      diagonal_shape = batch.ToShape();
    }
  }
  if (diagonal_shape) {
    zeros = Zeros(c, *diagonal_shape, dy.base_dtype(), "zeros");
  } else {
    Scope scope = c.scope().ColocatedWith(*dy.node);
    const Output shape = c.ShapeOf(dy);
    const Output rank = RankOf(c, dy);
    const Output batch_rank =
        scope.Op("Sub", {rank, scope.ConstScalar<int32_t>(2, "sub/y")}, {}, "sub");
    const Output batch_begin = scope.ConstVector({0}, "Slice/begin");
    const Output batch_size =
        scope.Op("Pack", {std::vector<Output>{batch_rank}}, {{"axis", 0}}, "Slice/size");
    const Output batch = scope.Op("Slice", {shape, batch_begin, batch_size});
    const Output matrix_at =
        scope.Op("Sub", {rank, scope.ConstScalar<int32_t>(2, "sub_1/y")}, {}, "sub_1");
    const Output matrix_begin =
        scope.Op("Pack", {std::vector<Output>{matrix_at}}, {{"axis", 0}}, "Slice_1/begin");
    const Output matrix_size = scope.ConstVector({2}, "Slice_1/size");
    const Output matrix = scope.Op("Slice", {shape, matrix_begin, matrix_size}, {}, "Slice_1");
    const Output smaller = scope.Op("Min", {matrix, scope.ConstVector({0})});
    const Output last =
        scope.Op("Pack", {std::vector<Output>{smaller}}, {{"axis", 0}}, "concat/values_1");
    const Output axis = scope.ConstScalar<int32_t>(0, "concat/axis");
    const Output dims =
        scope.Op("ConcatV2", {std::vector<Output>{batch, last}, axis}, {}, "concat");
    const Output zero = c.scope().Const(Tensor::Zeros(dy.base_dtype(), Shape()), "zeros/Const");
    zeros = c.Op("Fill", {dims, zero}, {}, "zeros");
  }
  c.SetDx(0, c.Op("MatrixSetDiag", {dy, zeros}, {}, "set_diag"));
  c.SetDx(1, c.Op("MatrixDiagPart", {dy}, {}, "diag_part"));
  return absl::OkStatus();
}

DEFINE_OP(MatrixBandPart) {
  op.Attr("T: type")
      .Attr("Tindex: {int32, int64} = DT_INT64")
      .Input("input: T")
      .Input("num_lower: Tindex")
      .Input("num_upper: Tindex")
      .Output("band: T")
      .Doc(
          "The innermost matrices with zeros outside a band; a negative width keeps that triangle "
          "whole.")
      .Shape(UnchangedShape)
      .Gradient(BandPartGradient)
      .HostMemory({"num_lower", "num_upper"})
      .CpuDTypes("T", PlainDTypes(), Stateless(BandPart))
      .GpuTypes("T", GpuMatrixTypes(), MakeGpuBandPart);
}

DEFINE_OP(BatchMatrixBandPart) {
  op.Attr("T: type")
      .Input("input: T")
      .Input("num_lower: int64")
      .Input("num_upper: int64")
      .Output("band: T")
      .Deprecated(14, "Use MatrixBandPart")
      .Doc("The old name of MatrixBandPart.")
      .Shape(UnchangedShape)
      .HostMemory({"num_lower", "num_upper"})
      .CpuDTypes("T", PlainDTypes(), Stateless(BandPart))
      .GpuTypes("T", GpuFloats(), MakeGpuBandPart);
}

DEFINE_OP(MatrixDiag) {
  op.Attr("T: type")
      .Input("diagonal: T")
      .Output("output: T")
      .Doc("Square matrices with the given diagonals and zeros elsewhere.")
      .Shape(MatrixDiagShape)
      .Gradient(MatrixDiagGradient)
      .CpuDTypes("T", PlainDTypes(), Stateless(MatrixDiag))
      .GpuTypes("T", GpuMatrixTypes(),
                [](DType dtype) { return MakeGpuMatrixDiag(dtype, PlanMatrixDiag); });
}

DEFINE_OP(BatchMatrixDiag) {
  op.Attr("T: type")
      .Input("diagonal: T")
      .Output("output: T")
      .Deprecated(14, "Use MatrixDiag")
      .Doc("The old name of MatrixDiag.")
      .Shape(MatrixDiagShape)
      .CpuDTypes("T", PlainDTypes(), Stateless(MatrixDiag))
      .GpuTypes("T", GpuFloats(),
                [](DType dtype) { return MakeGpuMatrixDiag(dtype, PlanMatrixDiag); });
}

DEFINE_OP(MatrixDiagPart) {
  op.Attr("T: type")
      .Input("input: T")
      .Output("diagonal: T")
      .Doc("The diagonals of the innermost matrices.")
      .Shape(MatrixDiagPartShape)
      .Gradient(MatrixDiagPartGradient)
      .CpuDTypes("T", PlainDTypes(), Stateless(MatrixDiagPart))
      .GpuTypes("T", GpuMatrixTypes(),
                [](DType dtype) { return MakeGpuMatrixDiagPart(dtype, PlanMatrixDiagPart); });
}

DEFINE_OP(BatchMatrixDiagPart) {
  op.Attr("T: type")
      .Input("input: T")
      .Output("diagonal: T")
      .Deprecated(14, "Use MatrixDiagPart")
      .Doc("The old name of MatrixDiagPart.")
      .Shape(MatrixDiagPartShape)
      .CpuDTypes("T", PlainDTypes(), Stateless(MatrixDiagPart))
      .GpuTypes("T", GpuFloats(),
                [](DType dtype) { return MakeGpuMatrixDiagPart(dtype, PlanMatrixDiagPart); });
}

DEFINE_OP(MatrixSetDiag) {
  op.Attr("T: type")
      .Input("input: T")
      .Input("diagonal: T")
      .Output("output: T")
      .Doc("The innermost matrices with other diagonals.")
      .Shape(MatrixSetDiagShape)
      .Gradient(MatrixSetDiagGradient)
      .CpuDTypes("T", PlainDTypes(), Stateless(MatrixSetDiag))
      .GpuTypes("T", GpuMatrixTypes(),
                [](DType dtype) { return MakeGpuMatrixSetDiag(dtype, PlanMatrixSetDiag); });
}

DEFINE_OP(BatchMatrixSetDiag) {
  op.Attr("T: type")
      .Input("input: T")
      .Input("diagonal: T")
      .Output("output: T")
      .Deprecated(14, "Use MatrixSetDiag")
      .Doc("The old name of MatrixSetDiag.")
      .Shape(MatrixSetDiagShape)
      .CpuDTypes("T", PlainDTypes(), Stateless(MatrixSetDiag))
      .GpuTypes("T", GpuFloats(),
                [](DType dtype) { return MakeGpuMatrixSetDiag(dtype, PlanMatrixSetDiag); });
}

}  // namespace
}  // namespace muster
