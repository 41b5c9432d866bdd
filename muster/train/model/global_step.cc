#include "muster/train/model/global_step.h"

#include <cmath>
#include <utility>

#include "muster/graph/build/emit.h"
#include "muster/train/loop/notice.h"

namespace muster {
absl::StatusOr<GlobalStep> ReadGlobalStep(const Scope& scope, const TrainVariable& variable) {
  const Scope own = scope.WithFreshStatus().WithPrefix(absl::StrCat(variable.name(), "/"));
  ASSIGN_OR_RETURN(const Output value, InitializedValue(own, variable));
  return ReadGlobalStep(scope, value, variable.name());
}

absl::StatusOr<GlobalStep> ReadGlobalStep(const Scope& scope, Output value, std::string name) {
  const Scope own = scope.WithFreshStatus().WithPrefix(absl::StrCat(name, "/"));
  // The sum is a copy: what is fetched does not change while others count.
  const Scope add = own.NameScope("add");
  const Output zero = EmitScalar(add, value.base_dtype(), 0, "y");
  const Output copy = OpNamed(add, "AddV2", {value, zero});
  RETURN_IF_ERROR(own.status());
  return GlobalStep{copy, std::move(name)};
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
  if (value.num_elements() != 1)
    return InvalidArgument("The global step is not a scalar: ", value.shape().ToString());
  // Programs with tf.get_variable("global_step", [], initializer=tf.constant_initializer(0)) count
  // in floats.
  if (value.dtype() == DType::kFloat || value.dtype() == DType::kDouble) {
    const double step =
        value.dtype() == DType::kFloat ? value.data<float>()[0] : value.data<double>()[0];
    if (!(std::abs(step) < 9e15))
      return InvalidArgument("The global step must be a number below 9e15, but is ", step);
    return static_cast<int64_t>(step);
  }
  ASSIGN_OR_RETURN(const Dims values, IntegerValues(value));
  return values[0];
}

absl::StatusOr<int64_t> GlobalStepValue(Session& session, const GlobalStep& step) {
  ASSIGN_OR_RETURN(const std::vector<Tensor> values,
                   session.Run(std::vector<std::pair<Output, Tensor>>(), {step.read}));
  return StepFromTensor(values[0]);
}

}  // namespace muster
