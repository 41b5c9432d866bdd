// Sums the gradients of several workers until enough have arrived: what synchronous training waits
// for.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"

#include "muster/base/mutex.h"
#include "muster/base/status.h"
#include "muster/params/state.h"
#include "muster/tensor/tensor.h"

namespace muster {

// A gradient of some rows; `dense_shape` may be empty.
struct SparseGradient {
  Tensor indices;      // int64 vector
  Tensor values;       // one row per index
  Tensor dense_shape;  // int64 vector, or without elements
};

// Thread-safe. Never blocks: a take that has to wait is called back.
class Accumulator : public State {
 public:
  static constexpr const char* kTypeName = "N10tensorflow26ConditionalAccumulatorBaseE";
  enum class Reduction { kMean, kSum };
  using Ticket = uint64_t;
  using Tuple = std::vector<Tensor>;
  using TakeDone = absl::AnyInvocable<void(absl::StatusOr<Tuple>) &&>;
  // Called under the accumulator's lock when a take has to wait; from then on Cancel(ticket) may be
  // called at any time. Returns false when the take is cancelled already and must not wait.
  using OnWait = absl::FunctionRef<bool(Ticket)>;

  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  const PartialShape& shape() const { return shape_; }

  // Waits for `required` gradients, after the takes that already wait; gives their reduction over
  // the actual count, and increments the accumulator's step.
  void Take(int64_t required, OnWait on_wait, TakeDone done);
  // Withdraws a waiting take: its callback gets Cancelled. False: it was over already. Flush
  // afterwards.
  bool Cancel(Ticket ticket);
  void Flush();

  int64_t num_accumulated() const;
  int64_t global_step() const;
  // Also backwards. The gradients so far stay.
  void SetGlobalStep(int64_t step);

  // Takes that wait are no part of the state.
  int64_t epoch() const override;
  absl::StatusOr<StateSnapshot> TakeSnapshot() const override;
  absl::Status RestoreSnapshot(const StateSnapshot& snapshot) override;
  absl::Status ApplyDelta(const StateDelta& delta) override;

 protected:
  Accumulator(std::string name, DType dtype, PartialShape shape, Reduction reduction)
      : name_(std::move(name)), dtype_(dtype), shape_(std::move(shape)), reduction_(reduction) {}

  // Calls `add` when the gradient is not stale; it then counts unless `add` fails.
  absl::Status Accept(int64_t local_step, absl::FunctionRef<absl::Status()> add)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The reduction of `count_` gradients, which are gone afterwards. Elements may be divided in
  // place.
  virtual absl::StatusOr<Tuple> ReduceLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // The gradients as parts of a snapshot, and back; nothing has changed when that fails.
  virtual absl::StatusOr<std::vector<StatePart>> PartsLocked() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  virtual absl::Status SetPartsLocked(int64_t count, absl::Span<const StatePart> parts)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  std::string Named() const;  // "Accumulator 'a'"

  // Whether the gradient that is being added is the last that a take waits for: reduced right
  // after.
  bool IsLastLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !waiting_.empty() && count_ + 1 >= waiting_.front().required;
  }

  const std::string name_;
  const DType dtype_;
  const PartialShape shape_;
  const Reduction reduction_;
  mutable Mutex mutex_;
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;

 private:
  struct Attempt {
    Ticket ticket = 0;
    int64_t required = 1;
    TakeDone done;
  };
  struct Finished {
    TakeDone done;
    absl::StatusOr<Tuple> result;
  };
  void AdvanceLocked(std::vector<Finished>& finished) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status SetWholeLocked(absl::Span<const StatePart> parts)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  int64_t global_step_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  Ticket last_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  std::list<Attempt> waiting_ ABSL_GUARDED_BY(mutex_);
};

// Takes give {average}.
class DenseAccumulator : public Accumulator {
 public:
  DenseAccumulator(std::string name, DType dtype, PartialShape shape, Reduction reduction)
      : Accumulator(std::move(name), dtype, std::move(shape), reduction) {}
  std::string Describe() const override { return "dense accumulator"; }
  absl::string_view state_kind() const override { return "dense accumulator"; }
  // A gradient older than the accumulator's step is dropped silently, whatever its shape. Memory
  // that has no other owner is taken over. The first gradient is copied if others may write to it,
  // or, when the second arrives, if others may read it. Requires: the type checked by the caller.
  absl::Status Apply(int64_t local_step, Tensor gradient);

 private:
  absl::Status AddLocked(Tensor gradient) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Tuple> ReduceLocked() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::vector<StatePart>> PartsLocked() const override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status SetPartsLocked(int64_t count, absl::Span<const StatePart> parts) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Tensor sum_ ABSL_GUARDED_BY(mutex_);
  bool is_mean_ ABSL_GUARDED_BY(mutex_) = false;  // divided already
};

// Takes give {indices, values, shape}.
class SparseAccumulator : public Accumulator {
 public:
  SparseAccumulator(std::string name, DType dtype, PartialShape shape, Reduction reduction)
      : Accumulator(std::move(name), dtype, std::move(shape), reduction) {}
  std::string Describe() const override { return "sparse accumulator"; }
  absl::string_view state_kind() const override { return "sparse accumulator"; }
  // Rows are merged by a walk over both lists of indices, which assumes that they ascend; rows of
  // equal index that the walk does not meet together stay separate.
  absl::Status Apply(int64_t local_step, bool has_known_shape, const SparseGradient& gradient);

 private:
  absl::Status CheckLocked(bool has_known_shape, const SparseGradient& gradient) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MergeLocked(const SparseGradient& gradient) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Tuple> ReduceLocked() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::vector<StatePart>> PartsLocked() const override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status SetPartsLocked(int64_t count, absl::Span<const StatePart> parts) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::vector<int64_t> indices_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> counts_ ABSL_GUARDED_BY(mutex_);
  Tensor values_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
