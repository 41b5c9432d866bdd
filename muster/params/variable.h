// Trained state: a tensor that changes. Readers take snapshots that never change; a writer changes
// memory in place when there is no snapshot and copies otherwise (copy on write), so no reader sees
// a torn value.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

#include "muster/base/mutex.h"
#include "muster/base/status.h"
#include "muster/params/state.h"
#include "muster/tensor/tensor.h"

namespace muster {

class ChangeLog;

// Where a change of some rows says which they are. Costs a branch while there is no watch.
class TouchedRows {
 public:
  // Whether it makes sense to find the rows out.
  bool wanted() const { return log_ != nullptr; }
  // The rows that the change touches, each in range; they may repeat.
  void Note(absl::Span<const int64_t> rows) {
    if (log_ != nullptr) NoteInLog(rows);
  }

 private:
  friend class Variable;
  TouchedRows(ChangeLog* log, int64_t epoch, int64_t num_rows)
      : log_(log), epoch_(epoch), num_rows_(num_rows) {}
  void NoteInLog(absl::Span<const int64_t> rows);

  ChangeLog* const log_;
  const int64_t epoch_;
  const int64_t num_rows_;
};

// Thread-safe. Serves VariableV2 (references on edges) and VarHandleOp (resources) alike. An
// optimizer's slots are variables too.
class Variable : public State {
 public:
  Variable(std::string name, DType dtype, PartialShape shape);
  ~Variable() override;

  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  const PartialShape& declared_shape() const { return shape_; }
  std::string Describe() const override { return "Var"; }

  bool initialized() const;
  // The current value, which is the one part of TakeSnapshot; an invalid tensor while
  // uninitialized.
  Tensor Snapshot() const;

  absl::string_view state_kind() const override { return "variable"; }
  MemoryKind memory_kind() const override;
  int64_t epoch() const override;
  absl::StatusOr<StateSnapshot> TakeSnapshot() const override;
  absl::Status RestoreSnapshot(const StateSnapshot& snapshot) override;
  absl::Status ApplyDelta(const StateDelta& delta) override;

  // Takes `value` as it is: shares its memory. Requires: type checked by the caller.
  void Assign(Tensor value);
  // The same, but by `copy` into the memory that the variable has, where that is of this shape and
  // nothing else sees it.
  absl::Status AssignElements(Tensor value,
                              absl::FunctionRef<absl::Status(Tensor& to, const Tensor& from)> copy);
  // Calls `change` with the value in memory that only it can see, under the variable's lock. The
  // tensor may be changed in place or replaced. FailedPrecondition while uninitialized, unless
  // `allow_uninitialized`. With `discards_old` the old elements need not be copied (every one is
  // overwritten).
  struct UpdateOptions {
    bool allow_uninitialized = false;
    bool discards_old = false;
  };
  absl::Status Update(UpdateOptions options, absl::FunctionRef<absl::Status(Tensor&)> change);
  absl::Status Update(absl::FunctionRef<absl::Status(Tensor&)> change) {
    return Update({}, change);
  }
  // The same for a change of some rows in place. Nothing is touched but what it notes, unless it
  // fails.
  absl::Status UpdateRows(absl::FunctionRef<absl::Status(Tensor&, TouchedRows&)> change);

  // "Attempting to use uninitialized value <name>".
  absl::Status Uninitialized() const;

 protected:
  absl::StatusOr<StateDelta> ChangesSince(int64_t since, uint64_t watch) override;
  void AddWatch(uint64_t watch) override;
  void RemoveWatch(uint64_t watch) override;

 private:
  friend class VariableUpdate;
  std::string Named() const;  // "Variable 'w'"
  // Of a snapshot or a whole delta; an invalid tensor when it was uninitialized.
  absl::StatusOr<Tensor> WholeValue(absl::Span<const StatePart> parts) const;
  absl::Status ApplyRowsLocked(const StateDelta& delta) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t NumRowsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return value_.rank() > 0 ? value_.dim(0) : 0;
  }
  // One more change, of the whole.
  void CountWholeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ++epoch_;
    if (log_ != nullptr) NoteWholeLocked();
  }
  void NoteWholeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeExclusiveLocked(bool keep_elements) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string name_;
  const DType dtype_;
  const PartialShape shape_;
  mutable Mutex mutex_;
  Tensor value_ ABSL_GUARDED_BY(mutex_);
  int64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<ChangeLog> log_ ABSL_GUARDED_BY(mutex_);  // while there is a watch
};

// Holds several variables at once, locked in address order, each with exclusive memory: optimizer
// kernels.
class VariableUpdate {
 public:
  enum class Changes { kWhole, kRows };
  // FailedPrecondition when one is uninitialized. The same variable may be named more than once.
  // With kRows nothing is touched but what TouchRows says.
  static absl::StatusOr<VariableUpdate> Begin(absl::Span<Variable* const> variables,
                                              Changes changes = Changes::kWhole);
  VariableUpdate(VariableUpdate&& other) noexcept = default;
  ~VariableUpdate();
  // The i-th variable's value, in memory that only this update can see.
  Tensor& value(int i);
  // The rows of every variable that are about to change, each in range; they may repeat.
  void TouchRows(absl::Span<const int64_t> rows) {
    if (watched_) NoteRows(rows);
  }

 private:
  VariableUpdate() = default;
  void NoteRows(absl::Span<const int64_t> rows);
  std::vector<Variable*> variables_;  // as given
  std::vector<Variable*> locked_;     // unique, in address order
  bool watched_ = false;              // one of them has a log
};

}  // namespace muster
