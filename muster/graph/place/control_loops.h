// Prepares a placed graph for the cut. A loop that spans devices: every device that takes part must
// learn in each iteration whether the loop continues. A reference that is read on another device:
// it must be read at the right time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "muster/graph/graph.h"

namespace muster {

// Names of nodes of a control loop begin with this: workers that cut their part of a graph once
// more find the loops by it.
inline constexpr absl::string_view kControlLoopPrefix = "_cloop";

// Whether the node is the Merge of a control loop, which starts what a device receives in an
// iteration.
bool IsControlLoopMerge(const Node& node);

// A copy of a placed graph (all nodes have the names of their devices) that can be cut at any
// device:
//  - Switch goes to its data, Exit to what it leaves with, Enter and NextIteration to their first
//    reader, so that deciding costs no transfer;
//  - for each loop and device that gets a value from another device inside the loop there is a
//    control loop: Enter, Merge, Switch on the loop's condition, NextIteration. Those of nested
//    loops are chained;
//  - a reference that is read on another device is read where it is after all else that the reader
//    waits for, which may be what changes it.
// `new_name` makes the name of an added node from that of an existing one. InvalidArgument where
// such a loop has no LoopCond. Null where the graph can be cut as it is.
absl::StatusOr<std::unique_ptr<Graph>> PrepareCut(
    const Graph& graph, const std::function<std::string(absl::string_view)>& new_name);

}  // namespace muster
