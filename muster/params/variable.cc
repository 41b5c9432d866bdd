#include "muster/params/variable.h"

#include <algorithm>
#include <utility>

#include "muster/params/change_log.h"

namespace muster {

void TouchedRows::NoteInLog(absl::Span<const int64_t> rows) {
  log_->NoteRows(epoch_, rows, num_rows_);
}

Variable::Variable(std::string name, DType dtype, PartialShape shape)
    : name_(std::move(name)), dtype_(dtype), shape_(std::move(shape)) {}

Variable::~Variable() = default;

bool Variable::initialized() const {
  MutexLock lock(mutex_);
  return value_.valid();
}

Tensor Variable::Snapshot() const {
  MutexLock lock(mutex_);
  return value_;
}

int64_t Variable::epoch() const {
  MutexLock lock(mutex_);
  return epoch_;
}

void Variable::Assign(Tensor value) {
  Tensor old;  // freed outside the lock
  MutexLock lock(mutex_);
  old = std::move(value_);
  value_ = std::move(value);
  CountWholeLocked();
}

void Variable::NoteWholeLocked() {
  log_->NoteWhole(epoch_);
}

void Variable::MakeExclusiveLocked(bool keep_elements) {
  if (!value_.valid() || value_.exclusive() || value_.num_elements() == 0) return;
  const bool copies = keep_elements || value_.is_on_device();
  value_ = copies ? value_.Clone() : Tensor(value_.dtype(), value_.shape());
}

absl::Status Variable::AssignElements(
    Tensor value, absl::FunctionRef<absl::Status(Tensor& to, const Tensor& from)> copy) {
  MutexLock lock(mutex_);
  CountWholeLocked();
  if (value_.valid() && value_.exclusive() && value_.shape() == value.shape())
    return copy(value_, value);
  // What it held is freed when the lock is gone.
  std::swap(value_, value);
  return absl::OkStatus();
}

absl::Status Variable::Update(UpdateOptions options,
                              absl::FunctionRef<absl::Status(Tensor&)> change) {
  MutexLock lock(mutex_);
  if (!value_.valid() && !options.allow_uninitialized) return Uninitialized();
  MakeExclusiveLocked(!options.discards_old);
  CountWholeLocked();
  return change(value_);
}

absl::Status Variable::UpdateRows(absl::FunctionRef<absl::Status(Tensor&, TouchedRows&)> change) {
  MutexLock lock(mutex_);
  if (!value_.valid()) return Uninitialized();
  MakeExclusiveLocked(true);
  TouchedRows touched(log_.get(), ++epoch_, NumRowsLocked());
  const absl::Status status = change(value_, touched);
  if (!status.ok() && log_ != nullptr) NoteWholeLocked();
  return status;
}

absl::Status Variable::Uninitialized() const {
  return FailedPrecondition("Attempting to use uninitialized value ", name_);
}

absl::StatusOr<VariableUpdate> VariableUpdate::Begin(
    absl::Span<Variable* const> variables, Changes changes) ABSL_NO_THREAD_SAFETY_ANALYSIS {
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
    ++variable->epoch_;
    if (variable->log_ == nullptr) continue;
    update.watched_ = true;
    if (changes == Changes::kWhole) variable->NoteWholeLocked();
  }
  return update;
}

VariableUpdate::~VariableUpdate() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  for (Variable* variable : locked_) variable->mutex_.Unlock();
}

void VariableUpdate::NoteRows(absl::Span<const int64_t> rows) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  for (Variable* variable : locked_) {
    if (variable->log_ != nullptr)
      variable->log_->NoteRows(variable->epoch_, rows, variable->NumRowsLocked());
  }
}

Tensor& VariableUpdate::value(int i) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  return variables_[i]->value_;
}

}  // namespace muster
