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
#include "muster/master/step_names.h"

namespace muster {

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

// What the names of feeds and fetches stand for.
struct StepEnds {
  std::vector<Output> feeds;
  std::vector<Output> fetches;
};
absl::StatusOr<StepEnds> FindEnds(const Graph& graph, const MovedOutputs& moved,
                                  const StepNames& names);

}  // namespace muster
