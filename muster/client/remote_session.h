// A session whose steps a master runs, in this process or elsewhere.
#pragma once

#include <memory>

#include "muster/client/session.h"
#include "muster/transport/api/master_api.h"

namespace muster {

// `options.master` is set. The session is made at the master with the first run, and grows with the
// graph before later ones. Waiting for a master that is not there yet ends with the timeout, if
// there is one.
absl::StatusOr<std::unique_ptr<Session>> NewRemoteSession(const Graph& graph,
                                                          SessionOptions options);

// Some nodes of a graph, by themselves: the graph may change or go while an edit that adds them
// elsewhere is still on its way.
class GraphPiece {
 public:
  // The nodes from number `first` on, and all functions.
  static std::shared_ptr<const GraphPiece> Take(const Graph& graph, int first);
  // Adds the nodes. What they read must be there by name.
  absl::Status AddTo(Graph& graph) const;

 private:
  struct Links {
    std::vector<std::pair<std::string, int>> inputs;
    std::vector<std::string> control_inputs;
  };
  Graph nodes_;
  std::vector<Links> links_;  // by node id
};

}  // namespace muster
