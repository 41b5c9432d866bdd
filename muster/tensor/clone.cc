#include "muster/tensor/clone.h"

#include <algorithm>
#include <cstring>

#include "muster/base/status.h"

namespace muster {

absl::StatusOr<Tensor> TryClone(const Tensor& tensor, Allocator& allocator) {
  if (!IsPlainData(tensor.dtype())) return tensor.Clone(allocator);
  ASSIGN_OR_RETURN(Tensor copy, Tensor::Make(tensor.dtype(), tensor.shape(), allocator));
  if (tensor.num_elements() > 0) std::memcpy(copy.raw(), tensor.raw(), tensor.size_bytes());
  return copy;
}

void CopyElements(DType dtype, const char* from, char* to, int64_t count) {
  switch (dtype) {
    case DType::kString:
      std::copy_n(reinterpret_cast<const std::string*>(from), count,
                  reinterpret_cast<std::string*>(to));
      return;
    case DType::kResource:
      std::copy_n(reinterpret_cast<const ResourceHandle*>(from), count,
                  reinterpret_cast<ResourceHandle*>(to));
      return;
    case DType::kVariant:
      std::copy_n(reinterpret_cast<const Variant*>(from), count, reinterpret_cast<Variant*>(to));
      return;
    default:
      if (count > 0) std::memcpy(to, from, static_cast<size_t>(count) * DTypeSize(dtype));
  }
}

}  // namespace muster
