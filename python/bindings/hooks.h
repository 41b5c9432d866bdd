// What the bindings of hooks and of the monitored session share.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "bindings.h"

namespace muster {

// A Python object that C++ may drop on any thread, with or without the interpreter's lock.
std::shared_ptr<nb::object> HoldPython(nb::object object);
// [(output, array or tensor)]
std::vector<std::pair<Output, Tensor>> FeedsFromPython(const nb::object& pairs);
// Arrays; handles and variants as they are.
nb::list TensorsToPython(std::vector<Tensor> tensors);

}  // namespace muster
