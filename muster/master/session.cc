#include "muster/master/session.h"

#include "muster/base/cancel_callback.h"
#include "muster/base/in_order.h"
#include "muster/base/log.h"
#include "muster/device/device_name.h"
#include "muster/master/farewells.h"
#include "muster/master/gather.h"

namespace muster {
namespace {

constexpr absl::Duration kIdleClient = absl::Minutes(25);

SessionGraph::Options GraphOptions(const SessionConfig& config, int64_t max_nodes) {
  SessionGraph::Options options;
  options.allow_soft_placement = config.allow_soft_placement;
  options.log_device_placement = config.log_device_placement;
  options.split.optimize = config.optimize_graph;
  options.split.bfloat16 = config.bfloat16_sendrecv;
  options.max_nodes = max_nodes;
  return options;
}

}  // namespace

absl::Status ClosedByCall() {
  return absl::CancelledError("Step was cancelled by an explicit call to `Session::Close()`.");
}

MasterSession::MasterSession(Options options, std::shared_ptr<const Caller> owner,
                             SessionConfig config, std::string handle, Expired expired)
    : options_(std::move(options)),
      owner_(std::move(owner)),
      scheduler_(*options_->scheduler),
      config_(std::move(config)),
      handle_(std::move(handle)),
      sequences_(options_->step_sequences),
      finished_steps_(std::make_shared<FinishedSteps>(scheduler_)),
      graph_(GraphOptions(config_, owner_->limits.session_nodes)),
      expired_(std::move(expired)) {}

std::vector<SessionTask> MasterSession::tasks() const {
  MutexLock lock(mutex_);
  return tasks_;
}

std::vector<std::shared_ptr<ClusterStep>> MasterSession::RunsLocked() const {
  std::vector<std::shared_ptr<ClusterStep>> runs;
  for (const auto& [key, run] : runs_) runs.push_back(run);
  std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) {
    return a->options().step_id < b->options().step_id;
  });
  return runs;
}

ListDevicesReply MasterSession::Devices() const {
  ListDevicesReply reply;
  const std::vector<DeviceAttributes> devices = graph_.devices();
  for (size_t i = 0; i < devices.size(); ++i) {
    // With a cluster of its own, only the client's device counts as local.
    const bool is_local =
        has_own_cluster_ ? i == 0 : TaskOf(devices[i].name) == TaskOf(devices[0].name);
    (is_local ? reply.local : reply.remote).push_back(devices[i]);
  }
  return reply;
}

void MasterSession::BeginCall(const std::shared_ptr<Cancellation>& connection) {
  std::optional<Scheduler::TimerId> timer;
  bool is_new;
  {
    MutexLock lock(mutex_);
    ++open_calls_;
    client_lost_ = false;
    last_call_ = scheduler_.clock().Now();
    timer = std::exchange(orphan_timer_, std::nullopt);
    is_new = connection != nullptr && connection != connection_ && closed_.ok();
  }
  if (timer) scheduler_.CancelTimer(*timer);
  if (!is_new) return;
  MutexLock lock(mutex_);
  connection_ = connection;
  connection_ended_ = std::make_unique<CancelCallback>();
  connection_ended_->StartScheduled(
      connection, scheduler_, weak_from_this(),
      [from = connection.get()](MasterSession& self, const absl::Status&) {
        self.ConnectionEnded(from);
      });
}

void MasterSession::LeaveConnection() {
  MutexLock lock(mutex_);
  connection_ = nullptr;
  connection_ended_ = nullptr;
}

void MasterSession::ConnectionEnded(const Cancellation* connection) {
  MutexLock lock(mutex_);
  if (connection_.get() != connection) return;
  connection_ = nullptr;
  // gRPC's clients hang up after half an hour without calls, and come back with the next.
  if (open_calls_ == 0 && scheduler_.clock().Now() - last_call_ > kIdleClient) return;
  client_lost_ = true;
  AwaitClientLocked();
}

void MasterSession::EndCall(bool lost) {
  MutexLock lock(mutex_);
  --open_calls_;
  last_call_ = scheduler_.clock().Now();
  client_lost_ |= lost;
  AwaitClientLocked();
}

void MasterSession::AwaitClientLocked() {
  if (!client_lost_ || open_calls_ > 0 || !closed_.ok() || orphan_timer_) return;
  orphan_timer_ = scheduler_.ScheduleAfter(options_->orphan_grace, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    {
      MutexLock expire_lock(self->mutex_);
      if (!self->client_lost_ || self->open_calls_ > 0 || !self->closed_.ok()) return;
    }
    LOG(WARNING) << "Session " << self->handle_ << " of " << self->owner_->ToString()
                 << " is closed: its client vanished "
                 << absl::FormatDuration(self->options_->orphan_grace)
                 << " ago and has not come back";
    self->Expire();
  });
}

void MasterSession::Expire() {
  Expired expired;
  {
    MutexLock lock(mutex_);
    expired = std::exchange(expired_, nullptr);
  }
  if (expired) std::move(expired)(handle_);
}

int64_t MasterSession::steps_under_way() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(runs_.size());
}

int64_t MasterSession::steps_run() const {
  return steps_run_.load(std::memory_order_relaxed);
}

void MasterSession::Close(absl::Status reason, Done done) {
  std::vector<std::shared_ptr<ClusterStep>> runs;
  std::vector<PlanDone> waiting;
  absl::flat_hash_map<std::string, PlanEntry> plans;
  absl::flat_hash_map<std::string, PartialStep> partial_runs;
  absl::flat_hash_map<int64_t, Callable> callables;
  bool is_over;
  bool was_closed;
  {
    MutexLock lock(mutex_);
    was_closed = !closed_.ok();
    is_over = close_finished_;
    if (!is_over) close_done_.push_back(std::move(done));
    if (!was_closed) {
      closed_ = reason;
      runs = RunsLocked();
      for (auto* plan : InOrder(plans_)) {
        for (PlanDone& waiter : plan->second.waiting) waiting.push_back(std::move(waiter));
      }
      plans = std::move(plans_);
      plans_.clear();
      plan_uses_.clear();
      partial_runs = std::move(partial_runs_);
      partial_runs_.clear();
      callables = std::move(callables_);
      callables_.clear();
      close_timer_ = scheduler_.ScheduleAfter(options_->close_timeout, [self = shared_from_this()] {
        self->DeleteWorkerSessions([](absl::Status) {});
        self->FinishClose();
      });
    }
  }
  if (is_over) return std::move(done)(absl::OkStatus());
  if (was_closed) return;
  LeaveConnection();
  CancelSoon(calls_, scheduler_, reason);
  for (PlanDone& waiter : waiting) std::move(waiter)(reason);
  for (const auto& run : runs) run->Cancel(reason);
  for (const auto* entry : InOrder(partial_runs)) {
    const PartialStep& partial = entry->second;
    if (!partial.started) continue;
    for (const PlanPart& part : partial.plan->parts) {
      part.worker->CleanupGraph({}, partial.step_id,
                                [worker = part.worker](absl::StatusOr<Empty>) {});
    }
  }
  Leave(nullptr);
}

void MasterSession::DeleteWorkerSessions(Done done) {
  {
    MutexLock lock(mutex_);
    if (std::exchange(deleting_, true)) return;
  }
  // The steps of the session go with it.
  finished_steps_->Forget();
  const std::vector<SessionTask> all = tasks();
  auto dones = Gather<Empty>(all.size(), [done = std::move(done)](Replies<Empty> replies) mutable {
    std::move(done)(FirstError(replies));
  });
  for (size_t i = 0; i < dones.size(); ++i)
    options_->farewells->Say(all[i].worker, handle_, std::move(dones[i]));
}

void MasterSession::FinishClose() {
  std::vector<Done> dones;
  std::optional<Scheduler::TimerId> timer;
  {
    MutexLock lock(mutex_);
    if (std::exchange(close_finished_, true)) return;
    dones = std::move(close_done_);
    timer = std::exchange(close_timer_, std::nullopt);
  }
  if (timer) scheduler_.CancelTimer(*timer);
  // Tasks that are gone have nothing left to drop.
  for (Done& done : dones) std::move(done)(absl::OkStatus());
}

void MasterSession::Leave(const ClusterStep* run) {
  std::shared_ptr<ClusterStep> last;  // dropped without the lock
  {
    MutexLock lock(mutex_);
    const auto found = runs_.find(run);
    if (found != runs_.end()) {
      last = std::move(found->second);
      runs_.erase(found);
    }
    if (closed_.ok() || !runs_.empty()) return;
  }
  DeleteWorkerSessions([self = shared_from_this()](absl::Status) { self->FinishClose(); });
}

}  // namespace muster
