// Graphs as files that people and other programs read.
#pragma once

#include <string>

#include "muster/base/status.h"
#include "muster/graph/graph.h"
#include "muster/train/saving/saver.h"

namespace muster {

// A GraphDef with the attribute _output_shapes on every node: as text, and serialized.
absl::StatusOr<std::string> GraphText(const Graph& graph);
absl::StatusOr<std::string> SerializeGraphWithShapes(const Graph& graph);
// A MetaGraphDef of that graph and the saver; C++ programs have no collections.
absl::StatusOr<std::string> SerializeMetaGraph(const Graph& graph, const SaverDef& saver);

}  // namespace muster
