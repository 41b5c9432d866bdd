#include "muster/params/variable.h"

#include <algorithm>

namespace muster {

bool Variable::initialized() const {
  MutexLock lock(mutex_);
  return value_.valid();
}

Tensor Variable::Snapshot() const {
  MutexLock lock(mutex_);
  return value_;
}

int64_t Variable::version() const {
  MutexLock lock(mutex_);
  return version_;
}

void Variable::Assign(Tensor value) {
  Tensor old;  // freed outside the lock
  MutexLock lock(mutex_);
  old = std::move(value_);
  value_ = std::move(value);
  ++version_;
}

void Variable::MakeExclusiveLocked(bool keep_elements) {
  if (!value_.valid() || value_.exclusive() || value_.num_elements() == 0) return;
  value_ = keep_elements ? value_.Clone() : Tensor(value_.dtype(), value_.shape());
}

absl::Status Variable::Update(UpdateOptions options,
                              absl::FunctionRef<absl::Status(Tensor&)> change) {
  MutexLock lock(mutex_);
  if (!value_.valid() && !options.allow_uninitialized) return Uninitialized();
  MakeExclusiveLocked(!options.discards_old);
  ++version_;
  return change(value_);
}

absl::Status Variable::Uninitialized() const {
  return FailedPrecondition("Attempting to use uninitialized value ", name_);
}

absl::StatusOr<VariableUpdate> VariableUpdate::Begin(absl::Span<Variable* const> variables)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  VariableUpdate update;
  update.variables_.assign(variables.begin(), variables.end());
  std::vector<Variable*> ordered = update.variables_;
  std::sort(ordered.begin(), ordered.end());
  ordered.erase(std::unique(ordered.begin(), ordered.end()), ordered.end());
  for (Variable* variable : ordered) {
    variable->mutex_.Lock();
    update.locked_.push_back(variable);
  }
  for (Variable* variable : update.variables_) {
    if (!variable->value_.valid()) return variable->Uninitialized();
  }
  for (Variable* variable : update.locked_) {
    variable->MakeExclusiveLocked(true);
    ++variable->version_;
  }
  return update;
}

VariableUpdate::~VariableUpdate() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  for (Variable* variable : locked_) variable->mutex_.Unlock();
}

Tensor& VariableUpdate::value(int i) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  return variables_[i]->value_;
}

}  // namespace muster
