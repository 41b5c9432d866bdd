// What the decompositions of matrices share.
#pragma once

#include "muster/base/status.h"
#include "muster/tensor/tensor.h"

namespace muster {

inline absl::Status CheckMatrices(const Tensor& input) {
  if (input.rank() < 2) return InvalidArgument("Input tensor 0 must have rank >= 2");
  return absl::OkStatus();
}

inline absl::Status CheckSquare(const Tensor& input) {
  RETURN_IF_ERROR(CheckMatrices(input));
  const int rank = input.rank();
  if (input.dim(rank - 1) != input.dim(rank - 2)) {
    return InvalidArgument("Input matrix must be square, got: ", input.dim(rank - 2),
                           " != ", input.dim(rank - 1));
  }
  return absl::OkStatus();
}

// Square matrices, and right sides of equations with them.
inline absl::Status CheckEquations(const Tensor& matrix, const Tensor& right) {
  RETURN_IF_ERROR(CheckSquare(matrix));
  const int rank = matrix.rank();
  bool fits = right.rank() == rank;
  for (int d = 0; fits && d < rank - 1; ++d) fits = matrix.dim(d) == right.dim(d);
  if (fits) return absl::OkStatus();
  return InvalidArgument("Input matrix and rhs are incompatible: ", matrix.shape().ToString(),
                         " and ", right.shape().ToString());
}

// Equations with a batch of matrices, whose batch and that of the right sides are broadcast.
struct BatchedEquations {
  int64_t n = 0, columns = 0;  // of one matrix and of one right side
  Dims batch;
  Shape output;

  // Dim d of the batch in a shape of one side, right-aligned.
  int64_t DimOf(const Shape& shape, int d) const {
    const int at = d - (static_cast<int>(batch.size()) - (shape.rank() - 2));
    return at < 0 ? 1 : shape[at];
  }
  // Which matrix of `shape` belongs to number `index` of the batch.
  int64_t SourceOf(int64_t index, const Shape& shape) const;
};
absl::StatusOr<BatchedEquations> MeasureEquations(const Tensor& matrix, const Tensor& right);

}  // namespace muster
