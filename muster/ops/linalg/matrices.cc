#include "muster/ops/linalg/matrices.h"

#include <algorithm>

namespace muster {

int64_t BatchedEquations::SourceOf(int64_t index, const Shape& shape) const {
  int64_t source = 0;
  int64_t stride = 1;
  for (int d = static_cast<int>(batch.size()) - 1; d >= 0; --d) {
    const int64_t size = DimOf(shape, d);
    if (size != 1) source += index % batch[d] * stride;
    stride *= size;
    index /= batch[d];
  }
  return source;
}

absl::StatusOr<BatchedEquations> MeasureEquations(const Tensor& matrix, const Tensor& right) {
  RETURN_IF_ERROR(CheckSquare(matrix));
  if (right.rank() < 2) return InvalidArgument("In[1] ndims must be >= 2: ", right.rank());
  BatchedEquations equations;
  equations.n = matrix.dim(matrix.rank() - 1);
  equations.columns = right.dim(right.rank() - 1);
  if (right.dim(right.rank() - 2) != equations.n) {
    return InvalidArgument("Input matrix and rhs are incompatible: ", matrix.shape().ToString(),
                           " and ", right.shape().ToString());
  }
  const int rank = std::max(matrix.rank(), right.rank()) - 2;
  equations.batch = Dims(rank, 1);
  for (int d = 0; d < rank; ++d) {
    const int64_t a = equations.DimOf(matrix.shape(), d), b = equations.DimOf(right.shape(), d);
    if (a != b && a != 1 && b != 1) {
      return InvalidArgument("In[0] and In[1] must have compatible batch dimensions: ",
                             matrix.shape().ToString(), " vs. ", right.shape().ToString());
    }
    equations.batch[d] = a == 1 ? b : a;
  }
  Dims dims = equations.batch;
  dims.push_back(equations.n);
  dims.push_back(equations.columns);
  ASSIGN_OR_RETURN(equations.output, Shape::Make(dims));
  return equations;
}

}  // namespace muster
