// What the ops on diagonals of matrices check, and where the elements are.
#pragma once

#include <algorithm>

#include "absl/strings/match.h"

#include "muster/ops/op.h"

namespace muster {

// Diagonals lower to upper; 0 is the main one, positive ones are above it.
struct Band {
  int64_t lower = 0;
  int64_t upper = 0;
  int64_t count() const { return upper - lower + 1; }
};

// Of the argument k.
absl::StatusOr<Band> ReadBand(const Tensor& k);

// Where the elements of a band are in a matrix and in the tensor of diagonals, in which shorter
// diagonals are padded to the length of the longest.
class BandGeometry {
 public:
  BandGeometry() = default;
  BandGeometry(Band band, int64_t rows, int64_t columns, absl::string_view align)
      : band_(band),
        rows_(rows),
        columns_(columns),
        longest_(std::min(rows + std::min<int64_t>(band.upper, 0),
                          columns - std::max<int64_t>(band.lower, 0))),
        above_is_left_(absl::StartsWith(align, "LEFT")),
        below_is_left_(absl::EndsWith(align, "LEFT")) {}

  const Band& band() const { return band_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  bool above_is_left() const { return above_is_left_; }
  bool below_is_left() const { return below_is_left_; }
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
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int64_t longest_ = 0;
  bool above_is_left_ = true;
  bool below_is_left_ = true;
};

// An op on the diagonals of so many matrices.
struct BandPlan {
  BandGeometry geometry;
  int64_t matrices = 0;
  Shape output;
};
// For the inputs of MatrixDiag, MatrixDiagPart and MatrixSetDiag in their later forms. `align` is
// that attribute, "LEFT_LEFT" of those that lack it.
using PlanOfBands = absl::StatusOr<BandPlan> (*)(const KernelContext& c, absl::string_view align);
absl::StatusOr<BandPlan> PlanMatrixDiagOfBands(const KernelContext& c, absl::string_view align);
absl::StatusOr<BandPlan> PlanMatrixDiagPartOfBands(const KernelContext& c, absl::string_view align);
absl::StatusOr<BandPlan> PlanMatrixSetDiagOfBands(const KernelContext& c, absl::string_view align);
// For those of their first forms, and of Diag and DiagPart.
absl::StatusOr<BandPlan> PlanMatrixDiag(const KernelContext& c, absl::string_view align = "");
absl::StatusOr<BandPlan> PlanMatrixDiagPart(const KernelContext& c, absl::string_view align = "");
absl::StatusOr<BandPlan> PlanMatrixSetDiag(const KernelContext& c, absl::string_view align = "");
absl::StatusOr<BandPlan> PlanDiag(const KernelContext& c, absl::string_view align = "");
absl::StatusOr<BandPlan> PlanDiagPart(const KernelContext& c, absl::string_view align = "");

// The attribute, "LEFT_LEFT" of nodes that lack it.
absl::StatusOr<std::string> BandAlignment(const Node& node);

// MatrixBandPart, with widths that are not negative.
struct BandWidths {
  int64_t rows, columns;
  int64_t lower, upper;
};
absl::StatusOr<BandWidths> CheckedBandPart(const KernelContext& c);

// Kernels for GPUs. Where an input has the padding, `padding_input` is its index.
KernelFactory MakeGpuBandPart(DType dtype);
KernelFactory MakeGpuMatrixDiag(DType dtype, PlanOfBands plan, int padding_input = -1);
KernelFactory MakeGpuMatrixDiagPart(DType dtype, PlanOfBands plan, int padding_input = -1);
KernelFactory MakeGpuMatrixSetDiag(DType dtype, PlanOfBands plan);
// The types that TensorFlow's GPU kernels on matrices have, and bfloat16.
std::vector<DType> GpuMatrixTypes();

}  // namespace muster
