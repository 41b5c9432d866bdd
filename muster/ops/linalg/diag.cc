// Diagonals of whole tensors: the index appears twice.
#include "muster/ops/indexing/strided_copy.h"
#include "muster/ops/linalg/matrix_bands.h"

namespace muster {
namespace {

absl::Status DiagShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape shape, c.WithRankAtLeast(c.input(0), 1));
  c.SetOutput(0, c.Concatenate(shape, shape));
  return absl::OkStatus();
}

absl::Status Diag(KernelContext& c) {
  const Tensor input = c.input(0);
  ASSIGN_OR_RETURN(const BandPlan plan, PlanDiag(c));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, plan.output));
  ZeroElements(output->dtype(), output->raw(), output->num_elements());
  StridedBox box;
  box.Add(input.num_elements(), 1, input.num_elements() + 1);
  CopyBox(c, input.dtype(), std::move(box), input.raw(), output->raw());
  return absl::OkStatus();
}

absl::Status DiagPartShape(ShapeContext& c) {
  const PartialShape& input = c.input(0);
  if (!input.known_rank()) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  if (input.rank() % 2 != 0 || input.rank() <= 0) {
    return InvalidArgument("Input must have even and non-zero rank, input rank is ", input.rank());
  }
  PartialShape shape = PartialShape::Scalar();
  const int half = input.rank() / 2;
  for (int i = 0; i < half; ++i) {
    ASSIGN_OR_RETURN(const int64_t size, c.MergeDims(input.dim(i), input.dim(i + half)));
    shape.Append(size);
  }
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status DiagPart(KernelContext& c) {
  const Tensor input = c.input(0);
  ASSIGN_OR_RETURN(const BandPlan plan, PlanDiagPart(c));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, plan.output));
  StridedBox box;
  box.Add(plan.geometry.longest(), plan.geometry.longest() + 1, 1);
  CopyBox(c, input.dtype(), std::move(box), input.raw(), output->raw());
  return absl::OkStatus();
}

absl::Status DiagGradient(GradientContext& c) {
  c.SetDx(0, c.Op("DiagPart", {c.dy()}));
  return absl::OkStatus();
}

absl::Status DiagPartGradient(GradientContext& c) {
  c.SetDx(0, c.Op("Diag", {c.dy()}));
  return absl::OkStatus();
}

std::vector<DType> GpuDiagonalTypes() {
  return {DType::kFloat, DType::kDouble,    DType::kInt32,
          DType::kInt64, DType::kComplex64, DType::kComplex128};
}

DEFINE_OP(Diag) {
  op.Attr("T: {bfloat16, half, float, double, int32, int64, complex64, complex128}")
      .Input("diagonal: T")
      .Output("output: T")
      .Doc("A tensor of twice the rank with the elements where both halves of the index agree.")
      .Shape(DiagShape)
      .Gradient(DiagGradient)
      .Cpu(Diag)
      .GpuTypes("T", GpuDiagonalTypes(),
                [](DType dtype) { return MakeGpuMatrixDiag(dtype, PlanDiag); });
}

DEFINE_OP(DiagPart) {
  op.Attr("T: {bfloat16, half, float, double, int32, int64, complex64, complex128}")
      .Input("input: T")
      .Output("diagonal: T")
      .Doc("The elements where both halves of the index agree.")
      .Shape(DiagPartShape)
      .Gradient(DiagPartGradient)
      .Cpu(DiagPart)
      .GpuTypes("T", GpuDiagonalTypes(),
                [](DType dtype) { return MakeGpuMatrixDiagPart(dtype, PlanDiagPart); });
}

}  // namespace
}  // namespace muster
