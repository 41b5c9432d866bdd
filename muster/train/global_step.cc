#include "muster/train/global_step.h"

#include <utility>

#include "muster/graph/emit.h"
#include "muster/train/notice.h"

namespace muster {

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
