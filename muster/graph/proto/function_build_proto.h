// Functions made from graphs: what a front end does to a piece of Python or C++ that a dataset, a
// loop or a call is to run.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "muster/graph/graph.h"

namespace muster {

// Identity nodes over `results`, to be returned. Nodes with effects inside the body (stateful ops
// that only make random numbers or handles have none) run in the order in which they were made,
// those on different resources independently, and all of them before anything is returned. Effects
// inside conditionals and loops are left to what reads them.
absl::StatusOr<std::vector<Output>> ReturnAfterEffects(Graph& body,
                                                       const std::vector<Output>& results);

struct FunctionSpec {
  std::string name;
  std::vector<Output> arguments;  // outputs of nodes without inputs, e.g. placeholders
  std::vector<Output> results;
  // The name gets "_" and a digest of the function, so that equal functions share a name.
  bool append_digest = false;
};
// Turns `body` into a function of the library of `into`, the functions that it calls with it, and
// returns its name.
absl::StatusOr<std::string> DefineFunction(const Graph& body, const FunctionSpec& spec,
                                           Graph& into);

// Copies the nodes that an output of another graph depends on into `body`.
class ByValueCapture {
 public:
  explicit ByValueCapture(Graph& body) : body_(body) {}
  // InvalidArgument for placeholders, and for stateful nodes other than those of datasets: a copy
  // would not have the state.
  absl::StatusOr<Output> Capture(Output outer);

 private:
  Graph& body_;
  absl::flat_hash_map<const Node*, Node*> copies_;
};

}  // namespace muster
