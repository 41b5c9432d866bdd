// The members of an all-reduce. Tasks gather at one of them, the leader, which gives each its rank;
// a task that comes later, or comes back, is noticed by the members that already train.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/base/status.h"
#include "muster/tensor/handles.h"

namespace muster {

// The request of a task that wants to take part.
struct JoinRequest {
  std::string member;    // the asking task
  int index = 0;         // members are ranked by it
  std::string host;      // the member at whose task this is
  std::string endpoint;  // how the others reach it
  int64_t step = 0;      // how far its model has come
  int expected = 1;      // a group of this many is formed at once
  int least = 1;         // a smaller one never
  absl::Duration grace;  // how long others may take after the last arrival
  // Of the host: the highest step of any task that it knows to be alive. Unless all are here, a
  // group whose models are older is not formed: it would lose the updates of that task.
  int64_t newest = std::numeric_limits<int64_t>::min();
  // The answer comes within this time, so that requests of tasks that have died do not wait for
  // long.
  absl::Duration wait = absl::InfiniteDuration();
};

struct GroupPlace {
  // Not the host: nothing was formed here, ask there. Nothing: not enough have come so far.
  std::string leader;
  int32_t key = 0;  // of the group; never the same twice
  int rank = 0;
  int source = 0;  // the rank whose model is the newest
  std::vector<std::string> members;
  std::vector<std::string> endpoints;
};

// Thread-safe. Every task has one: the leader's forms groups, the others' name the leader.
class Membership : public Resource {
 public:
  static constexpr const char* kTypeName = "N6muster10MembershipE";
  using Joined = absl::AnyInvocable<void(absl::StatusOr<GroupPlace>) &&>;
  // Told the ticket of a request before it waits; false: it is not wanted any more.
  using Accept = absl::FunctionRef<bool(uint64_t ticket)>;

  Membership();
  std::string Describe() const override { return "Membership"; }

  // `joined` runs when a group is formed, in this call or another. The host must be one of it:
  // a task that comes while the host is training waits until the host has noticed it.
  void Join(JoinRequest request, Scheduler& scheduler, Accept accept, Joined joined);
  // Withdraws a request: `joined` runs with Cancelled in the next Flush. False when it is too late.
  bool Cancel(uint64_t ticket);
  void Flush();

  // Where the task `host` is training now: "" when it is in no group. Requests that wait for it
  // here are sent there.
  void NoteLeader(const std::string& host, std::string leader);
  std::string leader() const;
  // Whether a task waits to take part.
  bool is_awaited() const;

 private:
  struct Waiter {
    uint64_t ticket;
    JoinRequest request;
    Joined joined;
  };
  struct Answer {
    Joined joined;
    absl::StatusOr<GroupPlace> place;
  };
  static void Give(std::vector<Answer> answers);
  void Expire(uint64_t round, absl::Time due);
  void AnswerThatNotEnoughCame(uint64_t ticket);
  // The host's own request, or null.
  const JoinRequest* FindHostLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool FurthestIsHereLocked(const JoinRequest& host) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitForOthersLocked(const JoinRequest& newest, Scheduler& scheduler)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Answer> FormLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::string leader_ ABSL_GUARDED_BY(mutex_);
  int32_t next_key_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t round_ ABSL_GUARDED_BY(mutex_) = 0;  // of groups formed
  // The tasks of this round and until when each waits. A task that asks again in time does not
  // extend the grace period.
  absl::flat_hash_map<std::string, absl::Time> seen_ ABSL_GUARDED_BY(mutex_);
  absl::Time closes_ ABSL_GUARDED_BY(mutex_);
  std::vector<Waiter> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<Joined> withdrawn_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
