// Bands of diagonals of the innermost matrices: MatrixDiag, MatrixDiagPart and MatrixSetDiag in
// their later forms.
#include <algorithm>

#include "absl/strings/match.h"

#include "muster/ops/emit.h"
#include "muster/ops/indexing/strided_copy.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

// Diagonals lower to upper; 0 is the main one, positive ones are above it.
struct Band {
  int64_t lower = 0;
  int64_t upper = 0;
  int64_t count() const { return upper - lower + 1; }
};

absl::StatusOr<Band> ReadBand(const Tensor& k) {
  if (k.rank() > 1) {
    return InvalidArgument("diag_index must be a scalar or vector, received shape: ",
                           k.shape().ToString());
  }
  ASSIGN_OR_RETURN(const Dims values, IntegerValues(k));
  if (values.empty() || values.size() > 2) {
    return InvalidArgument("diag_index must have only one or two elements, received ",
                           values.size(), " elements.");
  }
  const Band band{values.front(), values.back()};
  if (band.lower > band.upper) {
    return InvalidArgument("lower_diag_index must not be larger than upper_diag_index: ",
                           band.lower, " > ", band.upper);
  }
  return band;
}

// Where the elements of a band are in a matrix and in the tensor of diagonals, in which shorter
// diagonals are padded to the length of the longest.
class Geometry {
 public:
  Geometry(Band band, int64_t rows, int64_t columns, absl::string_view align)
      : band_(band),
        rows_(rows),
        columns_(columns),
        longest_(std::min(rows + std::min<int64_t>(band.upper, 0),
                          columns - std::max<int64_t>(band.lower, 0))),
        above_is_left_(absl::StartsWith(align, "LEFT")),
        below_is_left_(absl::EndsWith(align, "LEFT")) {}

  int64_t longest() const { return longest_; }
  int64_t matrix_elements() const { return rows_ * columns_; }
  int64_t diagonal_elements() const { return band_.count() * longest_; }

  // Calls visit(place of the first in the matrix, place in the diagonals, count); both places are
  // of one matrix, elements follow each other every columns + 1 and every 1.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (int64_t d = band_.upper; d >= band_.lower; --d) {
      const int64_t length =
          std::min(rows_ + std::min<int64_t>(d, 0), columns_ - std::max<int64_t>(d, 0));
      if (length <= 0) continue;
      const bool left = (d >= 0 && above_is_left_) || (d <= 0 && below_is_left_);
      const int64_t row = -std::min<int64_t>(d, 0), column = std::max<int64_t>(d, 0);
      visit(row * columns_ + column, (band_.upper - d) * longest_ + (left ? 0 : longest_ - length),
            length);
    }
  }

 private:
  Band band_;
  int64_t rows_;
  int64_t columns_;
  int64_t longest_;
  bool above_is_left_;
  bool below_is_left_;
};

absl::Status CheckBand(const Band& band, int64_t rows, int64_t columns) {
  for (const auto& [name, index] :
       {std::pair("lower", band.lower), std::pair("upper", band.upper)}) {
    if (index != 0 && (index <= -rows || index >= columns)) {
      return InvalidArgument(name, "_diag_index is out of bound: ", index, ". It must be between ",
                             -rows, " and ", columns);
    }
  }
  return absl::OkStatus();
}

class BandKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    // The second forms, which lack the attribute, pad at the end.
    align_ = "LEFT_LEFT";
    if (setup.node().FindAttr("align") != nullptr) {
      ASSIGN_OR_RETURN(align_, setup.Attr<std::string>("align"));
    }
    return absl::OkStatus();
  }

 protected:
  // [batch..., diagonals, longest]: without the second to last for a single diagonal.
  static Dims DiagonalDims(const Dims& batch, const Band& band, int64_t longest) {
    Dims dims = batch;
    if (band.count() > 1) dims.push_back(band.count());
    dims.push_back(longest);
    return dims;
  }
  static void Copy(const KernelContext& c, DType dtype, const Geometry& geometry, int64_t matrices,
                   int64_t columns, bool into_matrix, const char* from, char* to) {
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
    ASSIGN_OR_RETURN(const Band band, ReadBand(c.input(1)));
    const int rank = diagonals.rank();
    const int needed = band.count() > 1 ? 2 : 1;
    if (rank < needed) {
      return InvalidArgument("diagonal must be at least ", needed,
                             "-dim, received shape: ", diagonals.shape().ToString());
    }
    if (band.count() > 1 && diagonals.dim(rank - 2) != band.count()) {
      return InvalidArgument(
          "The number of diagonals provided in the input does not match the lower_diag_index and "
          "upper_diag_index range.");
    }
    if (c.input(4).rank() != 0) return InvalidArgument("padding_value must be a scalar");
    ASSIGN_OR_RETURN(int64_t rows, ScalarInteger(c.input(2), "num_rows"));
    ASSIGN_OR_RETURN(int64_t columns, ScalarInteger(c.input(3), "num_cols"));
    const int64_t longest = diagonals.dim(rank - 1);
    const int64_t least_rows = longest - std::min<int64_t>(band.upper, 0);
    const int64_t least_columns = longest + std::max<int64_t>(band.lower, 0);
    if (rows != -1 && rows < least_rows) return InvalidArgument("The number of rows is too small.");
    if (columns != -1 && columns < least_columns)
      return InvalidArgument("The number of columns is too small.");
    if (rows == -1 && columns == -1) {
      rows = columns = std::max(least_rows, least_columns);
    } else if (rows == -1) {
      rows = least_rows;
    } else if (columns == -1) {
      columns = least_columns;
    }
    if (rows != least_rows && columns != least_columns) {
      return InvalidArgument(
          "The number of rows or columns is not consistent with the specified d_lower, d_upper, "
          "and diagonal.");
    }
    Dims dims(diagonals.shape().dims().begin(), diagonals.shape().dims().end() - needed);
    ASSIGN_OR_RETURN(const Shape batch, Shape::Make(dims));
    dims.insert(dims.end(), {rows, columns});
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    FillElements(c, output->dtype(), c.input(4).raw(), output->raw(), output->num_elements());
    const Geometry geometry(band, rows, columns, align_);
    Copy(c, output->dtype(), geometry, batch.num_elements(), columns, true, diagonals.raw(),
         output->raw());
    return absl::OkStatus();
  }
};

class DiagPartKernel : public BandKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor input = c.input(0);
    const int rank = input.rank();
    if (rank < 2) {
      return InvalidArgument("input must be at least 2-dim, received shape: ",
                             input.shape().ToString());
    }
    ASSIGN_OR_RETURN(const Band band, ReadBand(c.input(1)));
    const int64_t rows = input.dim(rank - 2), columns = input.dim(rank - 1);
    RETURN_IF_ERROR(CheckBand(band, rows, columns));
    if (c.input(2).rank() != 0) return InvalidArgument("padding_value must be a scalar");
    const Geometry geometry(band, rows, columns, align_);
    const Dims batch(input.shape().dims().begin(), input.shape().dims().end() - 2);
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(DiagonalDims(batch, band, geometry.longest())));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    FillElements(c, output->dtype(), c.input(2).raw(), output->raw(), output->num_elements());
    Copy(c, output->dtype(), geometry, input.shape().ElementsIn(0, rank - 2), columns, false,
         input.raw(), output->raw());
    return absl::OkStatus();
  }
};

class SetDiagKernel : public BandKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor diagonals = c.input(1);
    const Shape shape = c.input(0).shape();
    const int rank = shape.rank();
    if (rank < 2) {
      return InvalidArgument("input must be at least 2-dim, received shape: ", shape.ToString());
    }
    ASSIGN_OR_RETURN(const Band band, ReadBand(c.input(2)));
    const int64_t rows = shape.dim(rank - 2), columns = shape.dim(rank - 1);
    RETURN_IF_ERROR(CheckBand(band, rows, columns));
    if (band.count() > 1 && diagonals.rank() >= 1 && diagonals.rank() < rank - 1) {
      return InvalidArgument(
          "Diagonal tensor rank must be large enough to contain a diagonal-count dimension. Input "
          "rank: ",
          rank, ", Expected diagonal rank >= ", rank - 1,
          ", Received diagonal rank: ", diagonals.rank());
    }
    const int needed = band.count() > 1 ? 2 : 1;
    if (diagonals.rank() < needed) {
      return InvalidArgument("diagonal must be at least ", needed,
                             "-dim, received shape: ", diagonals.shape().ToString());
    }
    const Geometry geometry(band, rows, columns, align_);
    const Dims batch(shape.dims().begin(), shape.dims().end() - 2);
    ASSIGN_OR_RETURN(const Shape expected,
                     Shape::Make(DiagonalDims(batch, band, geometry.longest())));
    if (diagonals.shape() != expected) {
      return InvalidArgument(
          "Either first dimensions of diagonal don't match input.shape[:-2], or "
          "diagonal.shape[:-1] "
          "is not equal to the longests diagonal in range [lower_diag_index:upper_diag_index].\n"
          "Input shape: ",
          shape.ToString(), "\nDiagonal shape: ", diagonals.shape().ToString(),
          "\nExpected diagonal shape: ", expected.ToString());
    }
    const char* const from = c.input(0).raw();
    ASSIGN_OR_RETURN(Tensor* const output, c.ForwardOrAllocate({0}, 0, shape));
    if (from != output->raw())
      CopyElements(output->dtype(), from, output->raw(), output->num_elements());
    Copy(c, output->dtype(), geometry, shape.ElementsIn(0, rank - 2), columns, true,
         diagonals.raw(), output->raw());
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
  const int64_t longest = Geometry(*band, rows, columns, "").longest();
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
      .CpuDTypes("T", PlainDTypes(), New<DiagKernel>());
}

void DefineDiagPart(OpBuilder& op) {
  op.Input("input: T")
      .Input("k: int32")
      .Input("padding_value: T")
      .Output("diagonal: T")
      .Shape(DiagPartShape)
      .Gradient(DiagPartGradient)
      .HostMemory({"k"})
      .CpuDTypes("T", PlainDTypes(), New<DiagPartKernel>());
}

void DefineSetDiag(OpBuilder& op) {
  op.Input("input: T")
      .Input("diagonal: T")
      .Input("k: int32")
      .Output("output: T")
      .Shape(SetDiagShape)
      .Gradient(SetDiagGradient)
      .HostMemory({"k"})
      .CpuDTypes("T", PlainDTypes(), New<SetDiagKernel>());
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
