#include "muster/params/kept_tensor.h"

namespace muster {

Tensor KeptTensor(Tensor tensor) {
  const Region* region = tensor.buffer().region();
  return region == nullptr || region->writable() ? tensor : tensor.Clone();
}

}  // namespace muster
