// Trained state: a tensor that changes. Readers take snapshots that never change; a writer changes
// memory in place when nobody holds a snapshot and copies otherwise, so no reader sees a torn
// value.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"

#include "muster/base/mutex.h"
#include "muster/base/status.h"
#include "muster/tensor/tensor.h"

namespace muster {

// Thread-safe. Serves VariableV2 (references on edges) and VarHandleOp (resources) alike.
class Variable : public Resource {
 public:
  Variable(std::string name, DType dtype, PartialShape shape)
      : name_(std::move(name)), dtype_(dtype), shape_(std::move(shape)) {}

  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  const PartialShape& declared_shape() const { return shape_; }
  std::string Describe() const override { return "Var"; }

  bool initialized() const;
  // The current value; an invalid tensor while uninitialized.
  Tensor Snapshot() const;
  // Counts changes; a cheap way to see that nothing happened.
  int64_t version() const;

  // Takes `value` as it is: shares its memory. Requires: type checked by the caller.
  void Assign(Tensor value);
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

  // "Attempting to use uninitialized value <name>".
  absl::Status Uninitialized() const;

 private:
  friend class VariableUpdate;
  void MakeExclusiveLocked(bool keep_elements) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string name_;
  const DType dtype_;
  const PartialShape shape_;
  mutable Mutex mutex_;
  Tensor value_ ABSL_GUARDED_BY(mutex_);
  int64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Holds several variables at once, locked in address order, each with exclusive memory: optimizer
// kernels.
class VariableUpdate {
 public:
  // FailedPrecondition when one is uninitialized. The same variable may be named more than once.
  static absl::StatusOr<VariableUpdate> Begin(absl::Span<Variable* const> variables);
  VariableUpdate(VariableUpdate&& other) noexcept = default;
  ~VariableUpdate();
  // The i-th variable's value, in memory that only this update can see.
  Tensor& value(int i);

 private:
  VariableUpdate() = default;
  std::vector<Variable*> variables_;  // as given
  std::vector<Variable*> locked_;     // unique, in address order
};

}  // namespace muster
