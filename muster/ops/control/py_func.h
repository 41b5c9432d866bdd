// Functions of the front end that a graph may call, by token (the op PyFunc).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "muster/base/status.h"
#include "muster/tensor/tensor.h"

namespace muster {

// Calls the function with that token; InvalidArgument when this process has none.
using CallByToken = std::function<absl::StatusOr<std::vector<Tensor>>(const std::string& token,
                                                                      std::vector<Tensor> inputs)>;
// For the whole process; set once, before graphs run.
void SetFrontEndFunctions(CallByToken call);

}  // namespace muster
