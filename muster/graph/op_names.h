// Which ops there are, without running their definitions.
#pragma once

#include <string>
#include <vector>

namespace muster {

// Sorted.
std::vector<std::string> OpNames();

}  // namespace muster
