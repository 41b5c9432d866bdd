// The counter of training steps, as hooks read it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"

#include "muster/base/status.h"
#include "muster/client/session.h"
#include "muster/graph/build/scope.h"
#include "muster/train/model/variables.h"

namespace muster {

// How the value is read, and the name of the variable behind it.
struct GlobalStep {
  Output read;
  std::string name;
};

// Asked when a hook begins, since the nodes that read the step may be made only then. No node: the
// graph has no global step.
using GlobalStepSource = std::function<absl::StatusOr<GlobalStep>()>;

// Nodes that read the variable whether it is initialized or not: its initial value stands in for
// it. They are in the scope "<variable>/", as TensorFlow's: "cond/...", "add".
absl::StatusOr<GlobalStep> ReadGlobalStep(const Scope& scope, const TrainVariable& variable);
// A copy of a value that the program itself counts, in the scope "<name>/".
absl::StatusOr<GlobalStep> ReadGlobalStep(const Scope& scope, Output value, std::string name);

// Asks the source; `user` is named in the error when there is no global step.
absl::StatusOr<GlobalStep> RequireGlobalStep(const GlobalStepSource& source,
                                             absl::string_view user);
// Runs the session for its value.
absl::StatusOr<int64_t> GlobalStepValue(Session& session, const GlobalStep& step);
// The value among fetched ones.
absl::StatusOr<int64_t> StepFromTensor(const Tensor& value);

}  // namespace muster
