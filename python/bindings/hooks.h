// What the bindings of hooks and of the monitored session share.
#pragma once

#include <utility>
#include <vector>

#include "bindings.h"
#include "train_bindings.h"

namespace muster {

// [(output, array or tensor)]
std::vector<std::pair<Output, Tensor>> FeedsFromPython(const nb::object& pairs);
// Arrays; handles and variants as they are.
nb::list TensorsToPython(std::vector<Tensor> tensors);

}  // namespace muster
