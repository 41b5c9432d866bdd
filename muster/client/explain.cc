#include "muster/client/explain.h"

#include "muster/graph/place/place.h"
#include "muster/task/kernel_support.h"

namespace muster {

absl::StatusOr<std::vector<std::string>> ExplainPlacement(const Graph& graph,
                                                          absl::Span<const std::string> devices,
                                                          const ExplainOptions& options) {
  const Node* only = options.node.empty() ? nullptr : graph.FindNode(options.node);
  if (only == nullptr && !options.node.empty())
    return NotFound("the graph has no node '", options.node, "'");
  PlaceOptions place;
  place.allow_soft_placement = options.allow_soft_placement;
  place.explain = true;
  place.local_task = options.local_task;
  place.supports = KernelSupport(devices);
  place.why_not = WhyNoKernel;
  ASSIGN_OR_RETURN(Placement placement, PlaceGraph(graph, devices, place));
  if (only != nullptr)
    return std::vector<std::string>{placement.reasons[static_cast<size_t>(only->id())]};
  return std::move(placement.reasons);
}

}  // namespace muster
