#include "muster/master/cluster_watch.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_format.h"

#include "muster/base/log.h"
#include "muster/master/gather.h"

namespace muster {
namespace {

constexpr absl::Duration kWanted = absl::Minutes(1);
constexpr absl::Duration kAskAgain = absl::Milliseconds(300);
constexpr absl::Duration kGoodbyeTime = absl::Seconds(1);
// Rates are those of the last few seconds, once there are some.
constexpr absl::Duration kRateTime = absl::Seconds(5);
constexpr absl::Duration kFirstRate = absl::Seconds(1);
constexpr double kBehindMedian = 0.5;
// Further ones notice by themselves that the task is gone.
constexpr size_t kMaxAskers = 64;

bool IsRefusal(const absl::Status& status) {
  return !absl::IsDeadlineExceeded(status) && !absl::IsCancelled(status);
}

bool IsBefore(const TaskName& a, const TaskName& b) {
  return std::tie(a.job, a.task) < std::tie(b.job, b.task);
}

std::string Seconds(absl::Duration time) {
  return absl::StrFormat("%.1f s", absl::ToDoubleSeconds(time));
}

}  // namespace

std::shared_ptr<ClusterWatch> ClusterWatch::Create(ClusterWatchOptions options) {
  return std::make_shared<ClusterWatch>(std::move(options));
}

ClusterWatch::ClusterWatch(ClusterWatchOptions options)
    : options_(std::move(options)),
      scheduler_(*options_.scheduler),
      started_nanos_(scheduler_.clock().NowNanos()) {
  self_.name = options_.self;
  self_.since_nanos = started_nanos_;
  self_.view.status.task = options_.self;
}

void ClusterWatch::KnowPeersLocked() const {
  if (std::exchange(knows_peers_, true)) return;
  for (TaskName& name : options_.peers->Tasks()) {
    if (name == options_.self) continue;
    Peer peer;
    peer.since_nanos = peer.heard_nanos = started_nanos_;
    peer.view.status.task = name;
    peer.name = std::move(name);
    peers_.push_back(std::move(peer));
  }
}

void ClusterWatch::Start() {
  {
    MutexLock lock(mutex_);
    if (running_ || leaving_) return;
    running_ = true;
    const std::vector<TaskName> tasks = options_.peers->Tasks();
    is_watcher_ =
        !tasks.empty() && tasks.size() <= options_.max_watched && tasks.front() == options_.self;
    self_.view.health = TaskHealth::kHealthy;
    self_.since_nanos = scheduler_.clock().NowNanos();
  }
  TickLater();
}

void ClusterWatch::TickLater() {
  scheduler_.ScheduleAfter(options_.liveness.heartbeat, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Tick();
  });
}

bool ClusterWatch::IsWantedLocked() const {
  const int64_t now = scheduler_.clock().NowNanos();
  return wanted_nanos_.has_value() && absl::Nanoseconds(now - *wanted_nanos_) < kWanted;
}

bool ClusterWatch::WatchesLocked() const {
  return is_watcher_ || IsWantedLocked();
}

bool ClusterWatch::IsDueLocked(bool has_sessions) {
  ++beats_;
  if (IsWantedLocked()) return true;
  if (!is_watcher_) return false;
  for (const Peer& peer : peers_) has_sessions = has_sessions || peer.view.status.sessions > 0;
  // At first the tasks start one after the other.
  const bool is_young = absl::Nanoseconds(scheduler_.clock().NowNanos() - started_nanos_) < kWanted;
  return has_sessions || is_young || beats_ >= kIdleBeats;
}

void ClusterWatch::Tick() {
  TaskPulse pulse;
  if (options_.pulse != nullptr) {
    pulse = options_.pulse();
  } else {
    const TaskStatus own = options_.own();
    pulse = {own.steps, own.sessions};
  }
  bool is_due;
  {
    MutexLock lock(mutex_);
    if (!running_) return;
    SampleLocked(pulse.steps);
    is_due = IsDueLocked(pulse.sessions > 0);
    if (is_due) beats_ = 0;
  }
  TickLater();
  if (!is_due) return;
  AskAll([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->CompareRates();
  });
}

void ClusterWatch::SampleLocked(int64_t steps) {
  const int64_t now = scheduler_.clock().NowNanos();
  samples_.emplace_back(now, steps);
  while (samples_.size() > 2 && absl::Nanoseconds(now - samples_[1].first) >= kRateTime)
    samples_.pop_front();
}

TaskStatus ClusterWatch::OwnWithRate() const {
  TaskStatus own = options_.own();
  MutexLock lock(mutex_);
  const int64_t now = scheduler_.clock().NowNanos();
  own.uptime = absl::Nanoseconds(now - started_nanos_);
  own.stopping = own.stopping || leaving_;
  if (samples_.empty()) return own;
  const absl::Duration time = absl::Nanoseconds(now - samples_.front().first);
  if (time < kFirstRate) return own;
  own.steps_per_second =
      static_cast<double>(own.steps - samples_.front().second) / absl::ToDoubleSeconds(time);
  return own;
}

TaskStatus ClusterWatch::Own() const {
  return OwnWithRate();
}

ClusterStatus ClusterWatch::Seen() const {
  const TaskStatus own = OwnWithRate();
  MutexLock lock(mutex_);
  return SeenLocked(own);
}

ClusterStatus ClusterWatch::SeenLocked(const TaskStatus& own) const {
  ClusterStatus cluster;
  KnowPeersLocked();
  cluster.asked = options_.self;
  cluster.watches = WatchesLocked();
  const int64_t now = scheduler_.clock().NowNanos();
  const auto add = [&cluster, now](const Peer& peer) {
    TaskView view = peer.view;
    view.since = absl::Nanoseconds(now - peer.since_nanos);
    cluster.tasks.push_back(std::move(view));
  };
  for (const Peer& peer : peers_) add(peer);
  TaskView self = self_.view;
  self.status = own;
  self.heard = true;
  self.since = absl::Nanoseconds(now - self_.since_nanos);
  const auto place =
      std::find_if(cluster.tasks.begin(), cluster.tasks.end(),
                   [&](const auto& view) { return IsBefore(options_.self, view.status.task); });
  cluster.tasks.insert(place, std::move(self));
  return cluster;
}

void ClusterWatch::Status(CallOptions /*options*/, StatusRequest request,
                          CallDone<ClusterStatus> done) {
  if (request.goodbye) NoteGoodbye(*request.goodbye);
  if (request.asker) NoteAsker(request.asker->ToString());
  if (!request.whole_cluster) {
    ClusterStatus own;
    own.asked = options_.self;
    own.tasks.emplace_back();
    own.tasks[0].status = OwnWithRate();
    own.tasks[0].heard = true;
    {
      MutexLock lock(mutex_);
      own.tasks[0].health = self_.view.health;
      own.tasks[0].since = absl::Nanoseconds(scheduler_.clock().NowNanos() - self_.since_nanos);
    }
    return std::move(done)(std::move(own));
  }
  {
    MutexLock lock(mutex_);
    wanted_nanos_ = scheduler_.clock().NowNanos();
  }
  AskAll([self = shared_from_this(), done = std::move(done)]() mutable {
    std::move(done)(self->Seen());
  });
}

void ClusterWatch::NoteAsker(const std::string& task) {
  MutexLock lock(mutex_);
  const int64_t now = scheduler_.clock().NowNanos();
  std::erase_if(askers_, [now](const auto& asker) {
    return absl::Nanoseconds(now - asker.second) >= kWanted;
  });
  if (askers_.size() < kMaxAskers || askers_.contains(task)) askers_[task] = now;
}

void ClusterWatch::AskAll(absl::AnyInvocable<void() &&> done) {
  std::vector<size_t> asked;
  {
    MutexLock lock(mutex_);
    KnowPeersLocked();
    const bool asks_nobody = peers_.empty() || leaving_;
    auto dones =
        Gather<Empty>(asks_nobody ? 0 : peers_.size(),
                      [this, self = shared_from_this(), done = std::move(done)](
                          const Replies<Empty>&) mutable { scheduler_.Schedule(std::move(done)); });
    for (size_t i = 0; i < dones.size(); ++i) {
      peers_[i].waiting.push_back(
          [end = std::move(dones[i])]() mutable { std::move(end)(Empty()); });
      if (!std::exchange(peers_[i].asking, true)) asked.push_back(i);
    }
  }
  for (const size_t i : asked) Ask(i, /*again=*/false);
}

void ClusterWatch::ConnectLocked(Peer& peer) {
  if (peer.worker != nullptr) return;
  peer.worker = options_.peers->Worker(peer.name.ToString());
  if (peer.worker != nullptr) peer.api = StatusOf(*peer.worker);
}

void ClusterWatch::Ask(size_t i, bool again) {
  std::shared_ptr<WorkerApi> worker;
  StatusApi* api;
  {
    MutexLock lock(mutex_);
    Peer& peer = peers_[i];
    ConnectLocked(peer);
    worker = peer.worker;
    api = peer.is_stock ? nullptr : peer.api;
  }
  if (worker == nullptr) return Answered(i, true, Internal("the task cannot be reached"));
  if (api == nullptr) return AskForDevices(i, again);
  CallOptions call;
  call.timeout = options_.answer_within;
  StatusRequest request;
  request.asker = options_.self;
  api->Status(
      std::move(call), std::move(request),
      [self = shared_from_this(), i, again, worker](const absl::StatusOr<ClusterStatus>& answer) {
        if (absl::IsUnimplemented(answer.status())) {
          {
            MutexLock lock(self->mutex_);
            self->peers_[i].is_stock = true;
          }
          return self->AskForDevices(i, again);
        }
        if (!answer.ok()) return self->Answered(i, again, answer.status());
        if (answer->tasks.size() != 1)
          return self->Answered(i, again, Internal("an answer without a task"));
        self->Answered(i, again, answer->tasks[0].status);
      });
}

void ClusterWatch::AskForDevices(size_t i, bool again) {
  std::shared_ptr<WorkerApi> worker;
  {
    MutexLock lock(mutex_);
    worker = peers_[i].worker;
  }
  CallOptions call;
  call.timeout = options_.answer_within;
  WorkerApi& to = *worker;
  to.GetStatus(std::move(call), [self = shared_from_this(), i, again, worker](
                                    const absl::StatusOr<std::vector<DeviceAttributes>>& devices) {
    if (!devices.ok()) return self->Answered(i, again, devices.status());
    TaskStatus status;
    status.is_muster = false;
    status.devices = static_cast<int>(devices->size());
    if (!devices->empty()) status.incarnation = devices->front().incarnation;
    self->Answered(i, again, std::move(status));
  });
}

void ClusterWatch::Answered(size_t i, bool again, const absl::StatusOr<TaskStatus>& answer) {
  // A connection that has just broken refuses the first call of a task that is well.
  if (!answer.ok() && !again && IsRefusal(answer.status())) {
    scheduler_.ScheduleAfter(kAskAgain, [weak = weak_from_this(), i] {
      if (const auto self = weak.lock()) self->Ask(i, /*again=*/true);
    });
    return;
  }
  Log log;
  Waiting waiting;
  {
    MutexLock lock(mutex_);
    Peer& peer = peers_[i];
    peer.asking = false;
    waiting.swap(peer.waiting);
    if (answer.ok()) {
      HeardLocked(peer, *answer, log);
    } else {
      UnansweredLocked(peer, answer.status(), log);
    }
    peer.heard_nanos = scheduler_.clock().NowNanos();
  }
  Write(log);
  for (auto& done : waiting) std::move(done)();
}

void ClusterWatch::HeardLocked(Peer& peer, TaskStatus status, Log& log) {
  const bool is_new = peer.view.heard && status.incarnation != peer.view.status.incarnation;
  if (is_new) {
    peer.is_stock = false;  // a new process may be Muster's
    peer.view.straggler = false;
    peer.behind = 0;
  }
  status.task = peer.name;
  const bool says_so = status.stopping;
  // An answer that was in flight when the task said goodbye changes nothing.
  const bool has_left = peer.view.health == TaskHealth::kLeft && !is_new;
  peer.view.status = std::move(status);
  peer.view.heard = true;
  peer.silence = absl::ZeroDuration();
  if (says_so || has_left) return EnterLocked(peer, TaskHealth::kLeft, "has stopped", log);
  if (peer.view.straggler) return EnterLocked(peer, TaskHealth::kSlow, peer.view.explanation, log);
  // A restarted process begins a new state, even where the end of the old one was not noticed.
  if (is_new && peer.view.health == TaskHealth::kHealthy)
    peer.since_nanos = scheduler_.clock().NowNanos();
  EnterLocked(peer, TaskHealth::kHealthy, "", log);
}

void ClusterWatch::UnansweredLocked(Peer& peer, const absl::Status& why, Log& log) {
  // Time during which this process itself was stopped does not count as the task's silence.
  const absl::Duration most =
      2 * (kIdleBeats * options_.liveness.heartbeat + options_.answer_within);
  const absl::Duration since = absl::Nanoseconds(scheduler_.clock().NowNanos() - peer.heard_nanos);
  peer.silence += std::min(since, most);
  const std::string message = std::string(why.message().substr(0, why.message().find('\n')));
  if (!peer.view.heard) {
    peer.view.explanation = IsRefusal(why) ? message : "no answer yet";
    if (peer.view.health != TaskHealth::kLeft) peer.view.health = TaskHealth::kStarting;
    return;
  }
  if (peer.view.health == TaskHealth::kLeft) return;
  if (IsRefusal(why)) return EnterLocked(peer, TaskHealth::kLost, message, log);
  const std::string silent = absl::StrCat("no answer for ", Seconds(peer.silence));
  const bool is_lost =
      peer.view.health == TaskHealth::kLost || peer.silence >= options_.liveness.fail_after;
  peer.view.straggler = false;
  EnterLocked(peer, is_lost ? TaskHealth::kLost : TaskHealth::kSlow, silent, log);
}

void ClusterWatch::EnterLocked(Peer& peer, TaskHealth health, std::string explanation, Log& log) {
  const std::string name = peer.name.ToString();
  const int64_t now = scheduler_.clock().NowNanos();
  const TaskHealth before = peer.view.health;
  const absl::Duration time = absl::Nanoseconds(now - peer.since_nanos);
  peer.view.health = health;
  peer.view.explanation = std::move(explanation);
  if (health != TaskHealth::kSlow) peer.view.straggler = false;
  if (health == before) return;
  peer.since_nanos = now;
  switch (health) {
    case TaskHealth::kLost:
      peer.told = true;
      log.emplace_back(true, absl::StrCat(name, " is lost: ", peer.view.explanation));
      break;
    case TaskHealth::kSlow:
      if (!peer.view.straggler) break;
      peer.told = true;
      log.emplace_back(true, absl::StrCat(name, " is slow: ", peer.view.explanation));
      break;
    case TaskHealth::kHealthy:
      if (std::exchange(peer.told, false)) {
        log.emplace_back(false, absl::StrCat(name, " is healthy again after ", Seconds(time)));
      }
      break;
    case TaskHealth::kStarting:
    case TaskHealth::kLeft:
      peer.told = false;
      break;
  }
}

// Once for every round of questions.
void ClusterWatch::CompareRates() {
  const TaskStatus own = OwnWithRate();
  Log log;
  {
    MutexLock lock(mutex_);
    if (!running_) return;
    self_.view.status = own;
    self_.view.heard = true;
    const ClusterStatus cluster = SeenLocked(own);
    const std::vector<JobRates> jobs = RatesOfJobs(cluster);
    const auto compare = [&](Peer& peer) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      const auto job = std::find_if(jobs.begin(), jobs.end(), [&](const JobRates& each) {
        return each.job == peer.name.job;
      });
      const bool counts = job != jobs.end() && job->running >= 2 && RunsSteps(peer.view);
      const double rate = peer.view.status.steps_per_second.value_or(0);
      const bool is_behind = counts && rate < kBehindMedian * job->median;
      std::string words;
      if (is_behind) {
        words = absl::StrFormat("%.4g steps/s, less than half of the median %.4g of job %s", rate,
                                job->median, peer.name.job);
      }
      if (is_behind == peer.view.straggler) {
        peer.behind = 0;
        if (is_behind) peer.view.explanation = std::move(words);
        return;
      }
      if (++peer.behind < kBehind && counts) return;
      peer.behind = 0;
      if (!is_behind && peer.view.health != TaskHealth::kSlow) {
        peer.view.straggler = false;
        return;
      }
      peer.view.straggler = is_behind;
      EnterLocked(peer, is_behind ? TaskHealth::kSlow : TaskHealth::kHealthy, std::move(words),
                  log);
    };
    for (Peer& peer : peers_) compare(peer);
    compare(self_);
  }
  Write(log);
}

void ClusterWatch::NoteGoodbye(const Goodbye& goodbye) {
  Log log;
  {
    MutexLock lock(mutex_);
    for (Peer& peer : peers_) {
      if (peer.name != goodbye.task) continue;
      // A goodbye of an earlier process of the task says nothing about this one.
      if (peer.view.heard && peer.view.status.incarnation != goodbye.incarnation &&
          peer.view.health == TaskHealth::kHealthy) {
        continue;
      }
      peer.view.status.incarnation = goodbye.incarnation;
      peer.view.heard = true;
      EnterLocked(peer, TaskHealth::kLeft, "has stopped", log);
    }
  }
  Write(log);
}

void ClusterWatch::Leave(absl::AnyInvocable<void() &&> done) {
  StatusRequest request;
  request.goodbye = Goodbye{options_.self, options_.own().incarnation};
  std::vector<std::shared_ptr<WorkerApi>> told;
  std::map<std::string, int64_t> askers;
  {
    MutexLock lock(mutex_);
    const bool was_running = std::exchange(running_, false);
    leaving_ = true;
    self_.view.health = TaskHealth::kLeft;
    self_.since_nanos = scheduler_.clock().NowNanos();
    if (was_running) askers.swap(askers_);
  }
  const int64_t now = scheduler_.clock().NowNanos();
  for (const auto& [task, asked_nanos] : askers) {
    if (absl::Nanoseconds(now - asked_nanos) >= kWanted) continue;
    std::shared_ptr<WorkerApi> worker = options_.peers->Worker(task);
    if (worker != nullptr && StatusOf(*worker) != nullptr) told.push_back(std::move(worker));
  }
  auto dones = Gather<ClusterStatus>(
      told.size(),
      [done = std::move(done)](const Replies<ClusterStatus>&) mutable { std::move(done)(); });
  for (size_t i = 0; i < told.size(); ++i) {
    CallOptions call;
    call.timeout = kGoodbyeTime;
    StatusOf(*told[i])->Status(
        std::move(call), request,
        [worker = told[i], end = std::move(dones[i])](absl::StatusOr<ClusterStatus> reply) mutable {
          std::move(end)(std::move(reply));
        });
  }
}

void ClusterWatch::Stop() {
  MutexLock lock(mutex_);
  running_ = false;
  leaving_ = true;
}

void ClusterWatch::Write(const Log& log) {
  for (const auto& [is_warning, line] : log) {
    if (is_warning) {
      LOG(WARNING) << line;
    } else {
      LOG(INFO) << line;
    }
  }
}

}  // namespace muster
