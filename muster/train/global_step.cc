#include "muster/train/global_step.h"

#include <utility>

#include "muster/graph/cond_context.h"
#include "muster/graph/emit.h"
#include "muster/train/notice.h"

namespace muster {
namespace {

// "IsVariableInitialized", then a conditional that reads the variable or takes its initial value.
absl::StatusOr<Output> InitializedValue(const Scope& scope, Output variable, Output initial_value) {
  const bool is_handle = variable.base_dtype() == DType::kResource;
  const Output initialized =
      scope.Op(is_handle ? "VarIsInitializedOp" : "IsVariableInitialized", {variable});
  RETURN_IF_ERROR(scope.status());
  const auto read = [&](const Scope& branch) -> absl::StatusOr<std::vector<BranchResult>> {
    Output value;
    if (is_handle) {
      const Scope own = branch.NameScope("Read");
      value = own.Op("ReadVariableOp", {variable}, {{"dtype", initial_value.base_dtype()}});
      value = branch.Op("Identity", {value});
    } else {
      value = branch.Op("Identity", {variable}, {}, "read");
    }
    RETURN_IF_ERROR(branch.status());
    return std::vector<BranchResult>{value};
  };
  const auto initial = [&](const Scope&) -> absl::StatusOr<std::vector<BranchResult>> {
    return std::vector<BranchResult>{initial_value};
  };
  ASSIGN_OR_RETURN(const std::vector<Output> merged, Cond(scope, initialized, read, initial));
  return merged[0];
}

}  // namespace

absl::StatusOr<GlobalStep> ReadGlobalStep(const Scope& scope, Output variable,
                                          Output initial_value) {
  const std::string& name = variable.node->name();
  const Scope own =
      scope.WithFreshStatus().WithoutControlDependencies().WithPrefix(absl::StrCat(name, "/"));
  Output value = variable;
  if (initial_value.node != nullptr) {
    ASSIGN_OR_RETURN(value, InitializedValue(own, variable, initial_value));
  }
  // The sum is a copy: what is fetched does not change while others count.
  const Scope add = own.NameScope("add");
  const Output zero = EmitScalar(add, value.base_dtype(), 0, "y");
  const Output copy = OpNamed(add, "AddV2", {value, zero});
  RETURN_IF_ERROR(own.status());
  return GlobalStep{copy, name};
}

absl::StatusOr<GlobalStep> RequireGlobalStep(const GlobalStepSource& source,
                                             absl::string_view user) {
  GlobalStep step;
  if (source) {
    ASSIGN_OR_RETURN(step, source());
  }
  if (step.read.node == nullptr)
    return RuntimeError("Global step should be created to use ", user, ".");
  return step;
}

absl::StatusOr<int64_t> StepFromTensor(const Tensor& value) {
  ASSIGN_OR_RETURN(const Dims values, IntegerValues(value));
  if (values.size() != 1)
    return InvalidArgument("The global step is not a scalar: ", value.shape().ToString());
  return values[0];
}

absl::StatusOr<int64_t> GlobalStepValue(Session& session, const GlobalStep& step) {
  ASSIGN_OR_RETURN(const std::vector<Tensor> values,
                   session.Run(std::vector<std::pair<Output, Tensor>>(), {step.read}));
  return StepFromTensor(values[0]);
}

}  // namespace muster
