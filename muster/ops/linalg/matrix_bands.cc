#include "muster/ops/linalg/matrix_bands.h"

namespace muster {
namespace {

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

// [batch..., diagonals, longest]: without the second to last for a single diagonal.
Dims DiagonalDims(const Dims& batch, const Band& band, int64_t longest) {
  Dims dims = batch;
  if (band.count() > 1) dims.push_back(band.count());
  dims.push_back(longest);
  return dims;
}

absl::StatusOr<int64_t> BandWidth(const Tensor& tensor, absl::string_view name) {
  if (tensor.rank() != 0) {
    return InvalidArgument(name, " must be scalar, got shape ", tensor.shape().ToString());
  }
  return ScalarInteger(tensor, name);
}

}  // namespace

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

absl::StatusOr<BandPlan> PlanMatrixDiagOfBands(const KernelContext& c, absl::string_view align) {
  const Tensor& diagonals = c.input(0);
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
  return BandPlan{BandGeometry(band, rows, columns, align), batch.num_elements(), shape};
}

absl::StatusOr<BandPlan> PlanMatrixDiagPartOfBands(const KernelContext& c,
                                                   absl::string_view align) {
  const Tensor& input = c.input(0);
  const int rank = input.rank();
  if (rank < 2) {
    return InvalidArgument("input must be at least 2-dim, received shape: ",
                           input.shape().ToString());
  }
  ASSIGN_OR_RETURN(const Band band, ReadBand(c.input(1)));
  const int64_t rows = input.dim(rank - 2), columns = input.dim(rank - 1);
  RETURN_IF_ERROR(CheckBand(band, rows, columns));
  if (c.input(2).rank() != 0) return InvalidArgument("padding_value must be a scalar");
  const BandGeometry geometry(band, rows, columns, align);
  const Dims batch(input.shape().dims().begin(), input.shape().dims().end() - 2);
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(DiagonalDims(batch, band, geometry.longest())));
  return BandPlan{geometry, input.shape().ElementsIn(0, rank - 2), shape};
}

absl::StatusOr<BandPlan> PlanMatrixSetDiagOfBands(const KernelContext& c, absl::string_view align) {
  const Tensor& diagonals = c.input(1);
  const Shape& shape = c.input(0).shape();
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
  const BandGeometry geometry(band, rows, columns, align);
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
  return BandPlan{geometry, shape.ElementsIn(0, rank - 2), shape};
}

absl::StatusOr<BandPlan> PlanMatrixDiag(const KernelContext& c, absl::string_view) {
  const Tensor& input = c.input(0);
  if (input.rank() < 1) {
    return InvalidArgument("diagonal must be at least 1-dim, received shape: ",
                           input.shape().ToString());
  }
  const int64_t size = input.dim(input.rank() - 1);
  Dims dims = input.shape().dims();
  dims.push_back(size);
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  return BandPlan{BandGeometry({}, size, size, ""), input.shape().ElementsIn(0, input.rank() - 1),
                  shape};
}

namespace {

// The main diagonals of the innermost matrices.
BandPlan PlanMainDiagonals(const Shape& shape) {
  const int rank = shape.rank();
  return {BandGeometry({}, shape.dim(rank - 2), shape.dim(rank - 1), ""),
          shape.ElementsIn(0, rank - 2), shape};
}

}  // namespace

absl::StatusOr<BandPlan> PlanMatrixDiagPart(const KernelContext& c, absl::string_view) {
  const Tensor& input = c.input(0);
  if (input.rank() < 2) {
    return InvalidArgument("input must be at least 2-dim, received shape: ",
                           input.shape().ToString());
  }
  const BandPlan plan = PlanMainDiagonals(input.shape());
  Dims dims(input.shape().dims().begin(), input.shape().dims().end() - 2);
  dims.push_back(plan.geometry.longest());
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  return BandPlan{plan.geometry, plan.matrices, shape};
}

absl::StatusOr<BandPlan> PlanMatrixSetDiag(const KernelContext& c, absl::string_view) {
  const Tensor& diagonal = c.input(1);
  const Shape& shape = c.input(0).shape();
  if (shape.rank() < 2) {
    return InvalidArgument("input must be at least 2-dim, received shape: ", shape.ToString());
  }
  BandPlan plan = PlanMainDiagonals(shape);
  Dims dims(shape.dims().begin(), shape.dims().end() - 2);
  dims.push_back(plan.geometry.longest());
  if (diagonal.shape() != Shape(absl::Span<const int64_t>(dims))) {
    return InvalidArgument(
        "Either first dimensions of diagonal don't match input.shape[:-2], or diagonal.shape[:-1] "
        "is not equal to the "
        "longests diagonal in range [lower_diag_index:upper_diag_index].\nInput shape: ",
        shape.ToString(), "\nDiagonal shape: ", diagonal.shape().ToString(),
        "\nExpected diagonal shape: ", Shape(absl::Span<const int64_t>(dims)).ToString());
  }
  return plan;
}

absl::StatusOr<BandPlan> PlanDiag(const KernelContext& c, absl::string_view) {
  const Tensor& input = c.input(0);
  if (input.rank() < 1) {
    return InvalidArgument("Input must be at least rank 1, got ", input.rank());
  }
  Dims dims = input.shape().dims();
  dims.insert(dims.end(), input.shape().dims().begin(), input.shape().dims().end());
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  const int64_t size = input.num_elements();
  return BandPlan{BandGeometry({}, size, size, ""), 1, shape};
}

absl::StatusOr<BandPlan> PlanDiagPart(const KernelContext& c, absl::string_view) {
  const Tensor& input = c.input(0);
  const int half = input.rank() / 2;
  if (input.rank() % 2 != 0 || input.rank() <= 0) {
    return InvalidArgument("The rank of the tensor should be even and positive, got shape ",
                           input.shape().ToString());
  }
  for (int i = 0; i < half; ++i) {
    if (input.dim(i) != input.dim(i + half)) {
      return InvalidArgument("Invalid shape ", input.shape().ToString(), ": dimensions ", i,
                             " and ", i + half, " do not match.");
    }
  }
  Dims dims(input.shape().dims().begin(), input.shape().dims().begin() + half);
  const Shape shape{absl::Span<const int64_t>(dims)};
  const int64_t size = shape.num_elements();
  return BandPlan{BandGeometry({}, size, size, ""), 1, shape};
}

absl::StatusOr<std::string> BandAlignment(const Node& node) {
  // The second forms, which lack the attribute, pad at the end.
  if (node.FindAttr("align") == nullptr) return std::string("LEFT_LEFT");
  return node.Attr<std::string>("align");
}

absl::StatusOr<BandWidths> CheckedBandPart(const KernelContext& c) {
  const Shape& shape = c.input(0).shape();
  if (shape.rank() < 2) {
    return InvalidArgument("input must be at least 2-dim, received shape: ", shape.ToString());
  }
  const int64_t rows = shape.dim(shape.rank() - 2), columns = shape.dim(shape.rank() - 1);
  ASSIGN_OR_RETURN(int64_t lower, BandWidth(c.input(1), "num_lower"));
  ASSIGN_OR_RETURN(int64_t upper, BandWidth(c.input(2), "num_upper"));
  if (lower > rows) {
    return InvalidArgument("num_lower must be negative or less or equal to number of rows (", rows,
                           ") got: ", lower);
  }
  if (upper > columns) {
    return InvalidArgument("num_upper must be negative or less or equal to number of columns (",
                           columns, ") got: ", upper);
  }
  if (lower < 0) lower = rows;
  if (upper < 0) upper = columns;
  return BandWidths{rows, columns, lower, upper};
}

}  // namespace muster
