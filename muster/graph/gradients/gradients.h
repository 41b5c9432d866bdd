// tf.gradients: extends a graph by the nodes that compute derivatives of ys with respect to xs.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"

#include "muster/base/status.h"
#include "muster/graph/gradients/gradient_context.h"

namespace muster {

enum class AggregationMethod { kAddN = 0, kTree = 1, kAccumulateN = 2 };
enum class UnconnectedGradients { kNone, kZero };

struct GradientOptions {
  // One per y, or empty: ones. Entries may be None.
  std::vector<Gradient> grad_ys;
  // Treated as constants.
  std::vector<Output> stop_gradients;
  std::string name = "gradients";
  bool colocate_gradients_with_ops = false;
  // Gradients of one node become available together.
  bool gate_gradients = false;
  AggregationMethod aggregation_method = AggregationMethod::kAddN;
  UnconnectedGradients unconnected_gradients = UnconnectedGradients::kNone;
};

// One gradient per x: None where no y depends on it. A resource variable as x is the handle (the
// output of VarHandleOp), its gradient that of the value. Errors carry their kind: see ErrorKind.
absl::StatusOr<std::vector<Gradient>> Gradients(const Scope& scope, absl::Span<const Output> ys,
                                                absl::Span<const Output> xs,
                                                GradientOptions options = {});

// Adds a gradient function at run time. A node uses it when its op or its attribute
// _gradient_op_type has that name. An empty function means: not differentiable. AlreadyExists when
// the name is taken. Thread-safe.
absl::Status RegisterGradient(absl::string_view name, GradientFunction function);

// What the Python front end raises for an error: a payload of the status.
inline constexpr char kErrorKindUrl[] = "muster/error_kind";
inline constexpr char kLookupError[] = "LookupError";
inline constexpr char kTypeError[] = "TypeError";
absl::Status WithErrorKind(absl::Status status, absl::string_view kind);
// "LookupError", "TypeError", or "" when the code of the status decides.
std::string ErrorKind(const absl::Status& status);

}  // namespace muster
