// Where a random generator is in its sequence.
#pragma once

#include <string>

#include "muster/base/mutex.h"
#include "muster/base/random.h"
#include "muster/params/state.h"

namespace muster {

// Thread-safe. Each execution of a random op takes a stretch of the sequence, so that concurrent
// steps never see the same numbers.
class RandomState : public State {
 public:
  RandomState(std::string name, Philox generator) : name_(std::move(name)), generator_(generator) {}
  std::string Describe() const override { return "random generator"; }

  // A generator at the present position; this one moves on by `blocks`.
  Philox Reserve(uint64_t blocks) {
    MutexLock lock(mutex_);
    const Philox result = generator_;
    generator_.Skip(blocks);
    ++epoch_;
    return result;
  }

  absl::string_view state_kind() const override { return "random generator"; }
  int64_t epoch() const override;
  absl::StatusOr<StateSnapshot> TakeSnapshot() const override;
  absl::Status RestoreSnapshot(const StateSnapshot& snapshot) override;
  absl::Status ApplyDelta(const StateDelta& delta) override;

 private:
  std::string Named() const;
  absl::StatusOr<Philox> Whole(absl::Span<const StatePart> parts) const;

  const std::string name_;
  mutable Mutex mutex_;
  Philox generator_ ABSL_GUARDED_BY(mutex_);
  int64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The position of a generator as a part of a state, for those that hold more than that.
Tensor PositionTensor(const Philox& generator);
// InvalidArgument when it is not such a tensor.
absl::StatusOr<Philox> GeneratorAt(absl::string_view what, const StatePart& part);

}  // namespace muster
