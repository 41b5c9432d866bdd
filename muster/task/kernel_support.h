// For masters and clients, which place nodes of whole graphs and do not know kernels.
#pragma once

#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "muster/graph/graph.h"

namespace muster {

// PlaceOptions::supports: whether a type of device has a kernel for a node. The tasks of other
// processes are taken to have the kernels of this one. Null where `devices`, given by name, are of
// one type, so that kernels do not decide.
std::function<int(const Node&, absl::string_view)> KernelSupport(
    absl::Span<const std::string> devices);

// PlaceOptions::why_not.
std::string WhyNoKernel(const Node& node, absl::string_view type);

}  // namespace muster
