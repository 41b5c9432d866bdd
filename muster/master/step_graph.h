// The part of a session's graph that one step runs, with the nodes through which the client's
// values come in and go out.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

#include "muster/device/device.h"
#include "muster/graph/graph.h"

namespace muster {

// What a client asks of a step. Tensors are "node:k".
struct StepNames {
  std::vector<std::string> feeds;
  std::vector<std::string> fetches;
  std::vector<std::string> targets;
  // The second is replaced by the first.
  std::vector<std::pair<std::string, std::string>> connections;
  // Feeds and fetches come and go while the step runs.
  bool is_partial = false;

  // Sorted, tensor names in full ("y" is "y:0"), each fetch and target once. Steps with equal texts
  // share a plan.
  StepNames Canonical() const;
  std::string ToString() const;
};

// "y:0" for "y" and for "y:0".
std::string FullTensorName(absl::string_view name);

// The rendezvous key under which the client's end of a tensor is known.
std::string ClientKey(const DeviceAttributes& client, absl::string_view tensor);

// Outputs that are read in the place of others: feeding those must feed these.
using MovedOutputs = absl::flat_hash_map<Output, Output>;

// `devices` by node id: where each node of `graph` runs. Fed tensors come from `_recv_x_k` nodes
// and fetched ones go to `_send_y_k` nodes, all on the client's device. Errors in TensorFlow's
// words.
absl::StatusOr<std::unique_ptr<Graph>> BuildStepGraph(const Graph& graph,
                                                      absl::Span<const std::string> devices,
                                                      const MovedOutputs& moved,
                                                      const StepNames& names,
                                                      const DeviceAttributes& client);

// For each fetch the feeds that it is computed from.
absl::StatusOr<std::vector<std::vector<std::string>>> FeedsBehindFetches(const Graph& graph,
                                                                         const MovedOutputs& moved,
                                                                         const StepNames& names);

}  // namespace muster
