// Bands of diagonals of the innermost matrices: MatrixDiag, MatrixDiagPart and MatrixSetDiag in
// their later forms.
#include "muster/ops/emit.h"
#include "muster/ops/indexing/strided_copy.h"
#include "muster/ops/linalg/matrix_bands.h"

namespace muster {
namespace {

class BandKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(align_, BandAlignment(setup.node()));
    return absl::OkStatus();
  }

 protected:
  static void Copy(const KernelContext& c, DType dtype, const BandPlan& plan, bool into_matrix,
                   const char* from, char* to) {
    const BandGeometry& geometry = plan.geometry;
    const int64_t matrices = plan.matrices, columns = geometry.columns();
    geometry.ForEach([&](int64_t in_matrix, int64_t in_diagonals, int64_t length) {
      StridedBox box;
      const int64_t matrix = geometry.matrix_elements(), diagonals = geometry.diagonal_elements();
      if (into_matrix) {
        box.Add(matrices, diagonals, matrix);
        box.Add(length, 1, columns + 1);
        box.from_offset = in_diagonals;
        box.to_offset = in_matrix;
      } else {
        box.Add(matrices, matrix, diagonals);
        box.Add(length, columns + 1, 1);
        box.from_offset = in_matrix;
        box.to_offset = in_diagonals;
      }
      CopyBox(c, dtype, std::move(box), from, to);
    });
  }
  std::string align_;
};

class DiagKernel : public BandKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor diagonals = c.input(0);
    ASSIGN_OR_RETURN(const BandPlan plan, PlanMatrixDiagOfBands(c, align_));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, plan.output));
    FillElements(c, output->dtype(), c.input(4).raw(), output->raw(), output->num_elements());
    Copy(c, output->dtype(), plan, true, diagonals.raw(), output->raw());
    return absl::OkStatus();
  }
};

class DiagPartKernel : public BandKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor input = c.input(0);
    ASSIGN_OR_RETURN(const BandPlan plan, PlanMatrixDiagPartOfBands(c, align_));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, plan.output));
    FillElements(c, output->dtype(), c.input(2).raw(), output->raw(), output->num_elements());
    Copy(c, output->dtype(), plan, false, input.raw(), output->raw());
    return absl::OkStatus();
  }
};

class SetDiagKernel : public BandKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor diagonals = c.input(1);
    ASSIGN_OR_RETURN(const BandPlan plan, PlanMatrixSetDiagOfBands(c, align_));
    const char* const from = c.input(0).raw();
    ASSIGN_OR_RETURN(Tensor* const output, c.ForwardOrAllocate({0}, 0, plan.output));
    if (from != output->raw())
      CopyElements(output->dtype(), from, output->raw(), output->num_elements());
    Copy(c, output->dtype(), plan, true, diagonals.raw(), output->raw());
    return absl::OkStatus();
  }
};

// --- Shapes: what constants tell; what their values do not fit is the kernel's to report ---

std::optional<Band> ConstantBand(ShapeContext& c, int i) {
  const std::optional<Tensor> k = c.ConstantInput(i);
  if (!k) return std::nullopt;
  const absl::StatusOr<Band> band = ReadBand(*k);
  if (!band.ok()) return std::nullopt;
  return *band;
}

absl::Status DiagShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRankAtLeast(c.input(0), 1).status());
  RETURN_IF_ERROR(c.WithRankAtMost(c.input(1), 1).status());
  for (const int i : {2, 3, 4}) RETURN_IF_ERROR(c.WithRank(c.input(i), 0).status());
  const std::optional<Band> band = ConstantBand(c, 1);
  const PartialShape& input = c.input(0);
  const int used = band && band->count() > 1 ? 2 : 1;
  if (!band || !input.known_rank() || input.rank() < used) return UnknownShape(c);
  c.SetOutput(0, c.Concatenate(c.Subshape(input, 0, input.rank() - used), PartialShape::OfRank(2)));
  return absl::OkStatus();
}

absl::Status DiagPartShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape input, c.WithRankAtLeast(c.input(0), 2));
  RETURN_IF_ERROR(c.WithRankAtMost(c.input(1), 1).status());
  RETURN_IF_ERROR(c.WithRank(c.input(2), 0).status());
  const std::optional<Band> band = ConstantBand(c, 1);
  if (!band || !input.known_rank()) return UnknownShape(c);
  const int64_t rows = input.dim(input.rank() - 2), columns = input.dim(input.rank() - 1);
  PartialShape output = c.Subshape(input, 0, -2);
  if (band->count() > 1) output.Append(band->count());
  const int64_t longest = BandGeometry(*band, rows, columns, "").longest();
  output.Append(rows < 0 || columns < 0 || longest < 0 ? -1 : longest);
  c.SetOutput(0, std::move(output));
  return absl::OkStatus();
}

absl::Status SetDiagShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape input, c.WithRankAtLeast(c.input(0), 2));
  RETURN_IF_ERROR(c.WithRankAtLeast(c.input(1), 1).status());
  RETURN_IF_ERROR(c.WithRankAtMost(c.input(2), 1).status());
  c.SetOutput(0, std::move(input));
  return absl::OkStatus();
}

// --- Gradients -----------------------------------------------------------------------------------

// The front end's functions use the third forms and align as it does unless told otherwise.
AttrMap AlignOf(const GradientContext& c) {
  const AttrValue* const align = c.node().FindAttr("align");
  return {{"align", align == nullptr ? AttrValue("RIGHT_LEFT") : *align}};
}
Output Zero(const GradientContext& c, DType dtype, absl::string_view name) {
  return EmitScalar(const_cast<GradientContext&>(c).scope(), dtype, 0, name);
}

absl::Status DiagGradient(GradientContext& c) {
  const Output dy = c.dy();
  const Output padding = Zero(c, dy.base_dtype(), "diag_part/padding_value");
  c.SetDx(0, c.Op("MatrixDiagPartV3", {dy, c.input(1), padding}, AlignOf(c), "diag_part"));
  return absl::OkStatus();
}

absl::Status DiagPartGradient(GradientContext& c) {
  const Output x = c.input(0);
  const Output dy = c.dy();
  const PartialShape& shape = x.shape();
  const int rank = shape.known_rank() ? shape.rank() : 0;
  if (rank >= 2 && shape.dim(rank - 2) >= 0 && shape.dim(rank - 1) >= 0) {
    const auto size = [&](int axis, absl::string_view name) {
      return c.scope().ConstScalar(static_cast<int32_t>(shape.dim(axis)), name);
    };
    const Output rows = size(rank - 2, "diag/num_rows");
    const Output columns = size(rank - 1, "diag/num_cols");
    const Output padding = Zero(c, dy.base_dtype(), "diag/padding_value");
    c.SetDx(0, c.Op("MatrixDiagV3", {dy, c.input(1), rows, columns, padding}, AlignOf(c), "diag"));
    return absl::OkStatus();
  }
  const Output zeros = EmitZerosLike(c.scope(), x);
  c.SetDx(0, c.Op("MatrixSetDiagV3", {zeros, dy, c.input(1)}, AlignOf(c), "set_diag"));
  return absl::OkStatus();
}

absl::Status SetDiagGradient(GradientContext& c) {
  const Output dy = c.dy();
  const Output zeros = EmitZerosLike(c.scope(), c.input(1));
  c.SetDx(0, c.Op("MatrixSetDiagV3", {dy, zeros, c.input(2)}, AlignOf(c), "set_diag"));
  const Output padding = Zero(c, dy.base_dtype(), "diag_part/padding_value");
  c.SetDx(1, c.Op("MatrixDiagPartV3", {dy, c.input(2), padding}, AlignOf(c), "diag_part"));
  return absl::OkStatus();
}

// --- Definitions ---------------------------------------------------------------------------------

constexpr char kAlign[] =
    "align: {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'";

void DefineDiag(OpBuilder& op) {
  op.Input("diagonal: T")
      .Input("k: int32")
      .Input("num_rows: int32")
      .Input("num_cols: int32")
      .Input("padding_value: T")
      .Output("output: T")
      .Shape(DiagShape)
      .Gradient(DiagGradient)
      .HostMemory({"k", "num_rows", "num_cols"})
      .CpuDTypes("T", PlainDTypes(), New<DiagKernel>())
      .GpuTypes("T", GpuMatrixTypes(),
                [](DType dtype) { return MakeGpuMatrixDiag(dtype, PlanMatrixDiagOfBands, 4); },
                {"padding_value"});
}

void DefineDiagPart(OpBuilder& op) {
  op.Input("input: T")
      .Input("k: int32")
      .Input("padding_value: T")
      .Output("diagonal: T")
      .Shape(DiagPartShape)
      .Gradient(DiagPartGradient)
      .HostMemory({"k"})
      .CpuDTypes("T", PlainDTypes(), New<DiagPartKernel>())
      .GpuTypes(
          "T", GpuMatrixTypes(),
          [](DType dtype) { return MakeGpuMatrixDiagPart(dtype, PlanMatrixDiagPartOfBands, 2); },
          {"padding_value"});
}

void DefineSetDiag(OpBuilder& op) {
  op.Input("input: T")
      .Input("diagonal: T")
      .Input("k: int32")
      .Output("output: T")
      .Shape(SetDiagShape)
      .Gradient(SetDiagGradient)
      .HostMemory({"k"})
      .CpuDTypes("T", PlainDTypes(), New<SetDiagKernel>())
      .GpuTypes("T", GpuMatrixTypes(),
                [](DType dtype) { return MakeGpuMatrixSetDiag(dtype, PlanMatrixSetDiagOfBands); });
}

DEFINE_OP(MatrixDiagV2) {
  op.Attr("T: type").Doc("Matrices with the given bands of diagonals; padding is at the end.");
  DefineDiag(op);
}
DEFINE_OP(MatrixDiagV3) {
  op.Attr("T: type").Attr(kAlign).Doc("Matrices with the given bands of diagonals.");
  DefineDiag(op);
}
DEFINE_OP(MatrixDiagPartV2) {
  op.Attr("T: type").Doc("A band of diagonals of the innermost matrices, padded at the end.");
  DefineDiagPart(op);
}
DEFINE_OP(MatrixDiagPartV3) {
  op.Attr("T: type").Attr(kAlign).Doc("A band of diagonals of the innermost matrices, padded.");
  DefineDiagPart(op);
}
DEFINE_OP(MatrixSetDiagV2) {
  op.Attr("T: type").Doc("The innermost matrices with other bands, which are padded at the end.");
  DefineSetDiag(op);
}
DEFINE_OP(MatrixSetDiagV3) {
  op.Attr("T: type").Attr(kAlign).Doc("The innermost matrices with other bands of diagonals.");
  DefineSetDiag(op);
}

}  // namespace
}  // namespace muster
