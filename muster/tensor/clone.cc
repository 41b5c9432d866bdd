#include "muster/tensor/clone.h"

#include <cstring>

#include "muster/base/status.h"

namespace muster {

absl::StatusOr<Tensor> TryClone(const Tensor& tensor, Allocator& allocator) {
  if (!IsPlainData(tensor.dtype())) return tensor.Clone(allocator);
  ASSIGN_OR_RETURN(Tensor copy, Tensor::Make(tensor.dtype(), tensor.shape(), allocator));
  if (tensor.num_elements() > 0) std::memcpy(copy.raw(), tensor.raw(), tensor.size_bytes());
  return copy;
}

}  // namespace muster
