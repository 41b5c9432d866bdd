// When a part of a tensor may share its memory.
#pragma once

#include "muster/tensor/tensor.h"

namespace muster {

// Every row of dimension 0 starts at an aligned address, so that rows can be handed out without
// copying.
inline bool RowsKeepAlignment(const Tensor& tensor) {
  if (!IsPlainData(tensor.dtype()) || tensor.rank() == 0 || tensor.num_elements() == 0)
    return false;
  return tensor.size_bytes() / static_cast<size_t>(tensor.dim(0)) % kBufferAlignment == 0;
}

}  // namespace muster
