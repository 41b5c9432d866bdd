// Control flow of TensorFlow 1.x while a graph is built: a context watches the nodes made inside a branch or a loop
// body and routes what they take from outside through Switch or Enter.
#pragma once

#include "muster/base/status.h"
#include "muster/graph/graph.h"

namespace muster {

class ControlFlowContext {
 public:
  virtual ~ControlFlowContext() = default;
  // Called by Scope right after it made `node` inside this context: rewires inputs that come from outside (the Switch
  // or Enter nodes are therefore made after their consumer) and adds control edges where the node has no inputs.
  virtual absl::Status AddOp(Node& node) = 0;
};

}  // namespace muster
