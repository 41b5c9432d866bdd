#pragma once

#include "muster/tensor/tensor.h"

namespace muster {

// A tensor that may be kept beyond the step: memory that others may write is copied.
Tensor KeptTensor(Tensor tensor);

}  // namespace muster
