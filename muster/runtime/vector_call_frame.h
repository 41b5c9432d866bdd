// Arguments and results of one run, of a step or of a function, as lists.
#pragma once

#include <vector>

#include "muster/runtime/step.h"

namespace muster {

class VectorCallFrame : public CallFrame {
 public:
  VectorCallFrame(std::vector<Tensor> arguments, size_t num_results)
      : arguments_(std::move(arguments)), results_(num_results) {}
  absl::StatusOr<Tensor> GetArg(int index) override {
    if (index < 0 || index >= static_cast<int>(arguments_.size()))
      return InvalidArgument("No argument ", index);
    // Each argument is read once: moving it leaves the consumer as its only holder.
    return std::move(arguments_[index]);
  }
  absl::Status SetRetval(int index, Tensor value) override {
    if (index < 0 || index >= static_cast<int>(results_.size()))
      return InvalidArgument("No result ", index);
    results_[index] = std::move(value);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<Tensor>> TakeResults() {
    for (size_t i = 0; i < results_.size(); ++i) {
      if (!results_[i].valid()) return InvalidArgument("Retval[", i, "] does not have value");
    }
    return std::move(results_);
  }

 private:
  std::vector<Tensor> arguments_;
  std::vector<Tensor> results_;
};

}  // namespace muster
