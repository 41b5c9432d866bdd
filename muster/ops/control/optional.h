// Values that may be absent, held by variant tensors.
#pragma once

#include <vector>

#include "muster/tensor/tensor.h"

namespace muster {

// No components: there is no value.
struct OptionalValue {
  std::vector<Tensor> components;
};

}  // namespace muster
