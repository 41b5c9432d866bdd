// Averages of variables and tensors over steps, in which older values count less and less.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"

#include "muster/train/model/operand.h"
#include "muster/train/model/variables.h"

namespace muster {

// Makes the variables that averages are kept in, as the front end does.
class AverageMaker {
 public:
  struct Average {
    TrainVariable variable;
    bool is_new = false;
  };
  struct Debiasing {
    TrainVariable biased;      // the average as it is, drawn to zero
    TrainVariable local_step;  // how often it was updated
  };
  virtual ~AverageMaker() = default;
  // The average of a variable or tensor: "<its name>/<name>".
  virtual absl::StatusOr<Average> GetOrMake(const Scope& scope, const Operand& averaged,
                                            absl::string_view name) = 0;
  virtual absl::StatusOr<Debiasing> MakeDebiasing(const Scope& scope,
                                                  const TrainVariable& average) = 0;
};

// variable -= (1 - decay) * (variable - value). A variable that starts at 0 is drawn to 0; with
// `debias` that is divided out with the help of two more variables. Gives the node that changes
// the variable.
absl::StatusOr<Assigned> AssignMovingAverage(const Scope& scope, const TrainVariable& variable,
                                             const Operand& value, const Operand& decay,
                                             AverageMaker* debias = nullptr,
                                             absl::string_view name = "AssignMovingAvg");

struct MovingAverageOptions {
  // The decay is at most (1 + num_updates) / (10 + num_updates), so that averages start fast.
  std::optional<Operand> num_updates = {};
  // Averages of tensors start at zero; corrects for it.
  bool zero_debias = false;
  std::string name = "ExponentialMovingAverage";
};

// One update of the averages of `averaged`, which are variables and tensors of floating point.
// TypeError otherwise.
absl::StatusOr<Node*> ApplyMovingAverages(const Scope& scope, absl::Span<const Operand> averaged,
                                          const Operand& decay, const MovingAverageOptions& options,
                                          AverageMaker& maker);

// Keeps the averages as nodes of the graph, which must outlive it.
class ExponentialMovingAverage {
 public:
  explicit ExponentialMovingAverage(Operand decay, MovingAverageOptions options = {});
  ~ExponentialMovingAverage();

  absl::StatusOr<Node*> Apply(const Scope& scope, absl::Span<const Operand> averaged);
  // NotFound where Apply has not seen it.
  absl::StatusOr<TrainVariable> Average(const Operand& averaged) const;
  // All variables made so far.
  const std::vector<TrainVariable>& variables() const;

 private:
  class GraphAverages;
  const Operand decay_;
  const MovingAverageOptions options_;
  std::unique_ptr<GraphAverages> averages_;
};

}  // namespace muster
