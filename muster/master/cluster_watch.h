// The health of the tasks of a cluster, as one of them sees it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/device/device.h"
#include "muster/transport/api/peers.h"
#include "muster/transport/api/task_status.h"
#include "muster/transport/watch/watched_peers.h"

namespace muster {

// Two numbers of TaskStatus.
struct TaskPulse {
  int64_t steps = 0;
  int64_t sessions = 0;
};

struct ClusterWatchOptions {
  TaskName self;
  std::shared_ptr<Peers> peers;
  Scheduler* scheduler = nullptr;  // outlives the watch
  // What the task says of itself, without its rate. Called only on request, since it counts
  // variables.
  std::function<TaskStatus()> own;
  // Of that, what every heartbeat needs. Null: taken from `own`.
  std::function<TaskPulse()> pulse;
  // `heartbeat`: how often the others are asked while there are sessions; otherwise kIdleBeats
  // times as long. `fail_after`: a task that has been silent for that long is lost.
  LivenessOptions liveness;
  // The time within which a heartbeat must be answered.
  absl::Duration answer_within = absl::Seconds(1);
  // The tasks of a larger cluster are not watched all the time.
  size_t max_watched = 64;
};

// Polls the other tasks and keeps their answers: all the time at the first task of the cluster,
// which watches them for all; elsewhere for a minute after a request for the status. So tasks never
// poll each other all to all. The states, see TaskHealth:
//   starting  has not answered yet.
//   healthy   has answered the last question.
//   slow      has not answered it within `answer_within`; or is a straggler: its steps per second
//             were below half of the median of its job (of the tasks that run steps for clients, if
//             there are two at least) kBehind times in a row, and not as often since above it.
//   lost      has refused the connection twice in a row, or not answered for `fail_after`.
//   left      has said that it stops, and has not answered since.
// A line is logged when a task is lost or becomes a straggler, and when it is well again.
// Stock tasks are asked by GetStatus. Thread-safe.
class ClusterWatch : public StatusApi, public std::enable_shared_from_this<ClusterWatch> {
 public:
  static constexpr int kIdleBeats = 5;
  static constexpr int kBehind = 3;

  static std::shared_ptr<ClusterWatch> Create(ClusterWatchOptions options);
  explicit ClusterWatch(ClusterWatchOptions options);

  // Starts polling the others.
  void Start();
  // Tells the tasks that watch this one that it stops; `done` when they know, or after a moment.
  // Ends polling.
  void Leave(absl::AnyInvocable<void() &&> done);
  // Ends polling without telling the others.
  void Stop();
  // The task as it is, with its rate.
  TaskStatus Own() const;
  // What is known, without asking.
  ClusterStatus Seen() const;

  void Status(CallOptions options, StatusRequest request, CallDone<ClusterStatus> done) override;

 private:
  struct Peer {
    TaskName name;
    std::shared_ptr<WorkerApi> worker;
    StatusApi* api = nullptr;  // of the worker; null: it cannot be reached
    bool is_stock = false;     // asked by GetStatus, until it restarts
    bool asking = false;
    std::vector<absl::AnyInvocable<void() &&>> waiting;  // for the answer

    TaskView view;
    int64_t since_nanos = 0;  // when the state began
    int64_t heard_nanos = 0;  // when something was last known: an answer, or its lack
    absl::Duration silence;   // how long it has been silent
    bool told = false;        // that it is not well
    int behind = 0;           // observations in a row that speak for the other side
  };
  using Waiting = std::vector<absl::AnyInvocable<void() &&>>;
  using Log = std::vector<std::pair<bool, std::string>>;  // warning or not, and the line

  // Made when first needed: thousands of tasks may share a process.
  void KnowPeersLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteAsker(const std::string& task);
  void TickLater();
  void Tick();
  bool IsDueLocked(bool has_sessions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsWantedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool WatchesLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ConnectLocked(Peer& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SampleLocked(int64_t steps) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Asks all others; `done` when each has answered or not.
  void AskAll(absl::AnyInvocable<void() &&> done);
  void Ask(size_t i, bool again);
  void AskForDevices(size_t i, bool again);
  void Answered(size_t i, bool again, const absl::StatusOr<TaskStatus>& answer);
  void HeardLocked(Peer& peer, TaskStatus status, Log& log) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UnansweredLocked(Peer& peer, const absl::Status& why, Log& log)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EnterLocked(Peer& peer, TaskHealth health, std::string explanation, Log& log)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CompareRates();
  void NoteGoodbye(const Goodbye& goodbye);
  TaskStatus OwnWithRate() const;
  ClusterStatus SeenLocked(const TaskStatus& own) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Write(const Log& log);

  const ClusterWatchOptions options_;
  Scheduler& scheduler_;
  const int64_t started_nanos_;
  mutable Mutex mutex_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_watcher_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<int64_t> wanted_nanos_
      ABSL_GUARDED_BY(mutex_);             // when the status was last requested
  int beats_ ABSL_GUARDED_BY(mutex_) = 0;  // since the others were asked
  std::deque<std::pair<int64_t, int64_t>> samples_ ABSL_GUARDED_BY(mutex_);  // time, steps
  // Tasks that have polled this one, with the last time; each is notified when this task stops.
  std::map<std::string, int64_t> askers_ ABSL_GUARDED_BY(mutex_);
  mutable bool knows_peers_ ABSL_GUARDED_BY(mutex_) = false;
  // Sorted; once they are known, their number and names are constant.
  mutable std::vector<Peer> peers_ ABSL_GUARDED_BY(mutex_);
  Peer self_ ABSL_GUARDED_BY(mutex_);  // its state among the rates of its job
};

}  // namespace muster
