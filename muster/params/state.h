// What a task keeps between steps, seen in one way whatever it is: a variable, an accumulator, a
// queue, a table, a shard ledger, the position of a random generator. Checkpoints read and write
// states through this interface, and a copy at another task follows a state through it:
//
//   StateWatch watch(state);                                   // from here on rows are noted
//   copy->ApplyDelta(StateDelta::Whole(*state->TakeSnapshot()));
//   copy->ApplyDelta(*watch.ChangesSince(copy->epoch()));      // again and again
//
// The epoch of a state counts its changes. A delta leads from one epoch to another, and a copy
// takes it only at the epoch from which it leads, so that a delta that is lost, doubled or out of
// order is refused. Which rows have changed is noted only while a StateWatch exists.
//
// The identity of a state is its kind and the container and name by which ResourceManager::States
// lists it. It is the same after a restart of the task.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "muster/tensor/tensor.h"

namespace muster {

// One part of what a state holds, such as the keys of a table. Most have one tensor; a queue has
// one for each element.
struct StatePart {
  std::string name;
  std::vector<Tensor> tensors;
};

// All that a state held at an epoch. The tensors never change.
struct StateSnapshot {
  int64_t epoch = 0;
  std::vector<StatePart> parts;
};

// What leads a state from one epoch to another.
struct StateDelta {
  static constexpr int64_t kAnyEpoch = -1;
  // Turns any state of the same kind into the one of which the snapshot was taken.
  static StateDelta Whole(StateSnapshot snapshot);

  int64_t from = kAnyEpoch;
  int64_t to = 0;
  // Whether the parts are those of a snapshot. Otherwise they are what the rows `rows`, which
  // ascend, now hold; no parts and no rows: nothing changed.
  bool whole = true;
  std::vector<int64_t> rows = {};
  std::vector<StatePart> parts = {};
};

// Implementations are thread-safe.
class State : public Resource {
 public:
  // "variable", "hash table": states of one kind understand each other's snapshots.
  virtual absl::string_view state_kind() const = 0;
  // Where the elements are.
  virtual MemoryKind memory_kind() const { return MemoryKind::kHost; }
  virtual int64_t epoch() const = 0;

  // Consistent: no change is in it by half. Memory is shared where a later change copies anyway.
  virtual absl::StatusOr<StateSnapshot> TakeSnapshot() const = 0;
  // Replaces all that the state holds, as a change like any other: its epoch moves on by one. The
  // epoch in the snapshot is not used, since a checkpoint may come from another life of the task.
  // InvalidArgument for a snapshot that is not one of such a state; nothing has changed then.
  virtual absl::Status RestoreSnapshot(const StateSnapshot& snapshot) = 0;
  // Follows another state: afterwards content and epoch are those that it had at `delta.to`.
  // Operations that wait (for an element, a gradient, a shard) are not served until Flush.
  // FailedPrecondition when the delta does not lead from this state's epoch, InvalidArgument when
  // it does not fit; nothing has changed then.
  virtual absl::Status ApplyDelta(const StateDelta& delta) = 0;

 protected:
  friend class StateWatch;
  // States that do not note rows answer with the whole, and ignore watches.
  virtual absl::StatusOr<StateDelta> ChangesSince(int64_t epoch, uint64_t watch);
  virtual void AddWatch(uint64_t watch);
  virtual void RemoveWatch(uint64_t watch);
};

// While it lives, the state notes which rows change, in bounded memory. Thread-compatible.
class StateWatch {
 public:
  explicit StateWatch(RefPtr<State> state);
  ~StateWatch();
  StateWatch(const StateWatch&) = delete;
  StateWatch& operator=(const StateWatch&) = delete;

  // What leads from `epoch` to the present one: rows where they are known and few, otherwise the
  // whole. What was noted up to `epoch` is forgotten. FailedPrecondition for an epoch that the
  // state has not reached.
  absl::StatusOr<StateDelta> ChangesSince(int64_t epoch);

 private:
  const RefPtr<State> state_;
  const uint64_t id_;
};

// For implementations; `what` names the state in errors: "Variable 'w'".
//
// FailedPrecondition unless `since` is an epoch that a state at `epoch` has had.
absl::Status CheckReached(absl::string_view what, int64_t epoch, int64_t since);
// FailedPrecondition unless the delta leads from `epoch` to it or a later one.
absl::Status CheckFollows(absl::string_view what, int64_t epoch, const StateDelta& delta);
// The same for states that know only whole deltas and deltas without changes.
absl::Status CheckFollowsAsWhole(absl::string_view what, int64_t epoch, const StateDelta& delta);
// InvalidArgument unless the parts have these names, in order.
absl::Status CheckParts(absl::string_view what, absl::Span<const StatePart> parts,
                        std::initializer_list<absl::string_view> names);
// The only tensor of a part. InvalidArgument when there are more or fewer, or its type or rank is
// another; a negative rank: any.
absl::StatusOr<Tensor> OnlyTensor(absl::string_view what, const StatePart& part, DType dtype,
                                  int rank = -1);
// InvalidArgument unless the rows ascend and are in [0, limit).
absl::Status CheckRows(absl::string_view what, absl::Span<const int64_t> rows, int64_t limit);
// The rows of a tensor one after the other. ResourceExhausted when the memory is refused.
absl::StatusOr<Tensor> GatherRows(const Tensor& tensor, absl::Span<const int64_t> rows);

}  // namespace muster
