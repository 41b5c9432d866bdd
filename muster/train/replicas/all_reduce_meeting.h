// How the tasks of an all-reduce agree on a group: a rendezvous without a fixed coordinator.
//
// Each task polls all others in the background (are they alive, which step is their model at, which
// task leads them) and joins at one of them, the host: the leader of a group that is already
// training or, if there is none, the first task that is alive. The host collects requests and
// answers once the group is complete: all members, or at least `least` once no other has come for
// `grace`, among them the newest model that is known. The answer has the ranks, the endpoints, and
// the rank whose model all others copy. A task that asked the wrong host gets the right one.
// Each request ends after half a second and is repeated with fresh knowledge, so that all tasks
// converge on the same host soon after one was lost or came back.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"

#include "muster/base/status.h"
#include "muster/client/session.h"
#include "muster/graph/build/scope.h"
#include "muster/train/model/variables.h"

namespace muster {

// A task that may take part.
struct AllReduceMember {
  std::string task;    // "/job:worker/replica:0/task:1"
  std::string target;  // "grpc://host:port"
};

struct AllReduceHookOptions {
  std::vector<AllReduceMember> members;  // the same list on all, in order of their ranks
  int index = 0;                         // of this task in it
  // A smaller group never trains. 0: half of the members, so that of three tasks none trains alone.
  int least = 0;
  // How long the others may take when a group is formed and not all have come.
  absl::Duration grace = absl::Seconds(3);
  // How long a group may take to be formed, the first time and when it was lost.
  absl::Duration patience = absl::Minutes(10);
  // Asked now and then while waiting; an error ends it.
  std::function<absl::Status()> interrupted = {};

  int LeastOrHalf() const { return least > 0 ? least : static_cast<int>(members.size() + 1) / 2; }
};

// What a task stores as its leader when it has ended: no group is formed there any more.
inline constexpr char kLeftAllReduce[] = "(left)";

// A rank in a complete group.
struct AllReducePlace {
  std::string leader;
  int32_t key = 0;
  int32_t rank = 0;
  int32_t source = 0;  // the rank whose model all take
  std::vector<std::string> members;
  std::vector<std::string> endpoints;
};

// What is known of a task.
struct SeenMember {
  bool asked = false;  // it has answered, or not answered in time
  bool lives = false;
  std::string leader;  // of its group; "" when it is in none
  int64_t step = -1;   // how far its model is; -1: it has none
};

// At which of `members` the one with index `self` asks for a place.
int ChooseHost(absl::Span<const AllReduceMember> members, absl::Span<const SeenMember> seen,
               int self);
// The step of the newest model that another living task has; the largest number while not all
// others have been asked.
int64_t NewestStep(absl::Span<const SeenMember> seen, int self);

// Used by one thread at a time.
class AllReduceMeeting {
 public:
  // `step` is the variable that counts the steps of each task's model; none when all share one.
  AllReduceMeeting(const std::string& name, const AllReduceHookOptions& options,
                   const std::optional<TrainVariable>& step);
  ~AllReduceMeeting();
  absl::Status status() const { return scope_.status(); }

  // Waits until a group has met. `step`: how far this task's model is; `endpoint`: how the others
  // reach it. DeadlineExceeded when it takes longer than options.patience.
  absl::StatusOr<AllReducePlace> Meet(int64_t step, const std::string& endpoint);

 private:
  class Survey;
  absl::StatusOr<std::unique_ptr<Session>> Open(const AllReduceMember& at, absl::Duration limit,
                                                std::function<absl::Status()> interrupted);
  // What the task does; opens `session` where it is null and drops it after an error.
  SeenMember Look(const AllReduceMember& at, std::unique_ptr<Session>& session,
                  const std::function<absl::Status()>& interrupted);
  // Asks for a place; opens and drops `session` likewise.
  absl::StatusOr<AllReducePlace> Join(const AllReduceMember& at, std::unique_ptr<Session>& session,
                                      int64_t step, const std::string& endpoint, int64_t newest);
  int FindMember(const std::string& task) const;  // -1: none

  const AllReduceHookOptions& options_;
  Graph graph_;
  Scope scope_;
  Output step_;  // of the task's model, where it has one of its own
  Output member_;
  Output index_;
  Output host_;
  Output own_step_;
  Output endpoint_;
  Output newest_;
  Node* join_ = nullptr;
  Output leader_;
  bool is_closing_ = false;  // a session whose task may not answer
};

}  // namespace muster
