// Variables as a training program handles them: the nodes of one, how to make, read and initialize
// it, with TensorFlow's names.
//
//   ASSIGN_OR_RETURN(TrainVariable w, MakeVariable(scope, "w", GlorotUniform({784, 10})));
//   Output logits = ops::MatMul(scope, images, Value(scope, w));
//   Node* init = Initializer(scope, {w});
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/types/span.h"

#include "muster/base/status.h"
#include "muster/graph/build/scope.h"

namespace muster {

// Which part of a larger, partitioned variable a variable holds.
struct SaveSlice {
  std::string full_name;
  Dims full_shape;
  Dims offset;
  Dims shape;
  // "10 3 0,5:0,3", as checkpoints name slices.
  std::string Spec() const;
};

// A cheap value; the nodes belong to their graph.
struct TrainVariable {
  Output handle;  // VariableV2's reference, or VarHandleOp's resource
  bool is_resource = false;
  DType dtype = DType::kInvalid;
  PartialShape shape;
  Node* initializer = nullptr;
  Output initial_value;
  Output snapshot;  // the read that was made with the variable
  Output cached;    // read instead of a resource that has a caching device
  std::optional<SaveSlice> save_slice;

  Node& node() const { return *handle.node; }
  const std::string& name() const { return handle.node->name(); }
};

// Makes an initial value where the variable's initializers go ("<name>/Initializer/").
using InitialValueFunction = std::function<absl::StatusOr<Output>(const Scope&)>;
using InitialValue = std::variant<Tensor, Output, InitialValueFunction>;

// --- Initializers as get_variable takes them
InitialValueFunction Zeros(Shape shape, DType dtype = DType::kFloat);
InitialValueFunction Ones(Shape shape, DType dtype = DType::kFloat);
InitialValueFunction Constant(double value, Shape shape, DType dtype = DType::kFloat);
InitialValueFunction RandomUniform(Shape shape, double min, double max, DType dtype = DType::kFloat,
                                   std::optional<int64_t> seed = {});
InitialValueFunction RandomNormal(Shape shape, double mean, double stddev,
                                  DType dtype = DType::kFloat, std::optional<int64_t> seed = {});
InitialValueFunction TruncatedNormal(Shape shape, double mean, double stddev,
                                     DType dtype = DType::kFloat, std::optional<int64_t> seed = {});
// Uniform within sqrt(6 / (fan in + fan out)).
InitialValueFunction GlorotUniform(Shape shape, DType dtype = DType::kFloat,
                                   std::optional<int64_t> seed = {});

struct VariableOptions {
  bool use_resource = false;
  // Off: values of any shape may be assigned.
  bool validate_shape = true;
  // The read is cached there instead of on the variable's device.
  std::string caching_device = {};
  // The same, chosen by a function.
  DeviceFunction caching_function = {};
  // Of the values that a resource may hold: the initial value's where this is absent.
  std::optional<PartialShape> shape = {};
  // What the initializer assigns, given the initial value, where that is not the value itself; made
  // after the variable's node. Python guards against other variables without a value here.
  std::function<absl::StatusOr<Output>(const Scope&, Output)> guard = {};
};

// The nodes of a variable under `name` (relative to the scope, made unique; as it stands where it
// ends in "/"). InvalidArgument when the shape of the initial value is not known and
// validate_shape is set.
absl::StatusOr<TrainVariable> MakeVariable(const Scope& scope, absl::string_view name,
                                           const InitialValue& initial_value,
                                           const VariableOptions& options = {});

// The same in a scope that was opened for it: the variable is called like the scope.
absl::StatusOr<TrainVariable> MakeVariableIn(const Scope& own, const InitialValue& initial_value,
                                             const VariableOptions& options = {});

// --- Reading and changing. Errors go to the scope.
// What an op that takes the variable's value reads: the snapshot, or for a resource a new read.
Output Value(const Scope& scope, const TrainVariable& variable);
// A new read.
Output ReadValue(const Scope& scope, const TrainVariable& variable);
// `kind` is "Assign", "AssignAdd" or "AssignSub". Gives the node that changes the variable; the
// result of a reference's node is the variable again. For a resource a read after it is made too,
// as the front end does.
struct Assigned {
  Node* node = nullptr;
  Output value;
};
Assigned Assign(const Scope& scope, const TrainVariable& variable, Output value,
                absl::string_view kind = "Assign", bool use_locking = false);
// The variable where it is initialized, its initial value otherwise.
absl::StatusOr<Output> InitializedValue(const Scope& scope, const TrainVariable& variable);
// Bool: whether the variable has a value.
Output IsInitialized(const Scope& scope, const TrainVariable& variable);

// --- Groups
// A node that has run when all of `nodes` have; one NoOp per device first where there are several.
absl::StatusOr<Node*> Group(const Scope& scope, absl::Span<Node* const> nodes,
                            absl::string_view name = "group_deps");
// Runs all initializers: what global_variables_initializer gives for the global variables.
absl::StatusOr<Node*> Initializer(const Scope& scope, absl::Span<const TrainVariable> variables,
                                  absl::string_view name = "init");
// The names of the variables that have no value yet, as a string vector.
absl::StatusOr<Output> ReportUninitialized(
    const Scope& scope, absl::Span<const TrainVariable> variables,
    absl::string_view name = "report_uninitialized_variables");
// "global_step": int64, 0 at first.
absl::StatusOr<TrainVariable> MakeGlobalStep(const Scope& scope, bool use_resource = false);

}  // namespace muster
