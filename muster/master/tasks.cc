#include "muster/master/tasks.h"

#include "absl/strings/str_join.h"

#include "muster/base/cancel_callback.h"
#include "muster/base/log.h"
#include "muster/device/device_name.h"
#include "muster/transport/api/peer.h"

namespace muster {
namespace {

constexpr absl::Duration kAskAgain = absl::Milliseconds(100);

template <typename T>
bool Differ(const std::optional<T>& a, const std::optional<T>& b) {
  return a && b && *a != *b;
}

DeviceName NameOf(const TaskName& task) {
  DeviceName name;
  name.job = task.job;
  name.replica = task.replica;
  name.task = task.task;
  return name;
}

// One question to all tasks.
class Inquiry : public std::enable_shared_from_this<Inquiry> {
 public:
  Inquiry(std::shared_ptr<const MasterOptions> options, std::string purpose,
          std::vector<SessionTask> tasks, DeviceFilters filters,
          CallDone<std::vector<SessionTask>> done)
      : options_(std::move(options)),
        scheduler_(*options_->scheduler),
        purpose_(std::move(purpose)),
        filters_(std::move(filters)),
        started_(scheduler_.clock().Now()),
        interval_(options_->missing_first_report),
        tasks_(std::move(tasks)),
        answered_(tasks_.size(), false),
        left_(tasks_.size()),
        done_(std::move(done)) {}

  void Start(const std::shared_ptr<Cancellation>& parent) {
    calls_ = Follow(parent, scheduler_);
    ReportLater();
    std::vector<std::shared_ptr<WorkerApi>> workers;
    {
      MutexLock lock(mutex_);
      for (const SessionTask& task : tasks_) workers.push_back(task.worker);
    }
    for (size_t i = 0; i < workers.size(); ++i) Ask(i, workers[i]);
  }

 private:
  void Ask(size_t i, const std::shared_ptr<WorkerApi>& worker) {
    CallOptions call;
    call.cancellation = calls_;
    call.wait_for_ready = true;
    worker->GetStatus(call, [self = shared_from_this(), i,
                             worker](absl::StatusOr<std::vector<DeviceAttributes>> devices) {
      // One that stops is waited for as one that is not there yet.
      const bool is_away = absl::IsUnavailable(devices.status()) && i != 0;
      if (!is_away || self->calls_->cancelled()) return self->Answer(i, std::move(devices));
      self->scheduler_.ScheduleAfter(kAskAgain, [self, i, worker] { self->Ask(i, worker); });
    });
  }

  void Answer(size_t i, absl::StatusOr<std::vector<DeviceAttributes>> devices) {
    absl::StatusOr<std::vector<SessionTask>> result = std::vector<SessionTask>();
    {
      MutexLock lock(mutex_);
      if (!done_) return;
      answered_[i] = true;
      absl::Status status =
          devices.ok() ? Keep(tasks_[i], i == 0, *std::move(devices)) : std::move(devices).status();
      if (status.ok() && --left_ > 0) return;
      if (status.ok()) {
        result = std::move(tasks_);
      } else {
        result = std::move(status);
      }
    }
    Finish(std::move(result));
  }

  absl::Status Keep(SessionTask& task, bool is_self, std::vector<DeviceAttributes> devices) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    // In a cluster that the client brought tasks have other names than they know.
    const bool has_own_names = tasks_.front().name == options_->self;
    if (has_own_names && !devices.empty() && TaskOf(devices[0].name) != task.text) {
      LOG(WARNING) << purpose_ << ": at the address of " << task.text << " there is "
                   << TaskOf(devices[0].name) << ", perhaps of another cluster";
    }
    for (DeviceAttributes& device : devices) {
      ASSIGN_OR_RETURN(const DeviceName name, DeviceName::Parse(device.name));
      DeviceName renamed = NameOf(task.name);
      renamed.type = name.type;
      renamed.index = name.index;
      device.name = renamed.ToString();
      if (is_self || filters_.Match(device.name)) task.devices.push_back(std::move(device));
    }
    if (is_self && task.devices.empty()) return Internal(task.text, " has no devices");
    return absl::OkStatus();
  }

  void Finish(absl::StatusOr<std::vector<SessionTask>> result) {
    CallDone<std::vector<SessionTask>> done;
    Scheduler::TimerId timer;
    {
      MutexLock lock(mutex_);
      if (!done_) return;
      done = std::move(done_);
      done_ = nullptr;
      timer = timer_;
    }
    scheduler_.CancelTimer(timer);
    if (!result.ok()) {
      CancelSoon(calls_, scheduler_, Derived(absl::CancelledError("Another task gave an error")));
    }
    std::move(done)(std::move(result));
  }

  void ReportLater() {
    MutexLock lock(mutex_);
    if (!done_) return;
    timer_ = scheduler_.ScheduleAfter(interval_, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->Report();
    });
    interval_ = std::min(interval_ * 2, options_->missing_report_limit);
  }

  void Report() {
    std::vector<size_t> missing;
    {
      MutexLock lock(mutex_);
      if (!done_) return;
      for (size_t i = 0; i < tasks_.size(); ++i) {
        if (!answered_[i]) missing.push_back(i);
      }
    }
    for (const size_t i : missing) Explain(i);
    ReportLater();
  }

  // One line, once it is known what the connection's state is.
  void Explain(size_t i) {
    std::shared_ptr<WorkerApi> worker;
    std::string line;
    {
      MutexLock lock(mutex_);
      if (!done_) return;
      worker = tasks_[i].worker;
      line = absl::StrCat(purpose_, " still waiting for response from worker: ", tasks_[i].text,
                          " (GetStatus, unanswered for ",
                          absl::FormatDuration(scheduler_.clock().Now() - started_), "; ");
    }
    PeerApi* const peer = PeerOf(*worker);
    if (peer == nullptr) {
      LOG(WARNING) << line << "it waits until the task is there or the client cancels)";
      return;
    }
    peer->Probe([weak = weak_from_this(), i, worker, line](const std::string& tried) {
      const auto self = weak.lock();
      if (self == nullptr) return;
      {
        MutexLock lock(self->mutex_);
        if (!self->done_ || self->answered_[i]) return;
      }
      LOG(WARNING) << line << "tried: " << tried << ")";
    });
  }

  const std::shared_ptr<const MasterOptions> options_;
  Scheduler& scheduler_;
  const std::string purpose_;
  const DeviceFilters filters_;
  const absl::Time started_;
  absl::Duration interval_;
  std::shared_ptr<Cancellation> calls_;
  Mutex mutex_;
  std::vector<SessionTask> tasks_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> answered_ ABSL_GUARDED_BY(mutex_);
  size_t left_ ABSL_GUARDED_BY(mutex_);
  CallDone<std::vector<SessionTask>> done_ ABSL_GUARDED_BY(mutex_);
  Scheduler::TimerId timer_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

absl::StatusOr<DeviceFilters> DeviceFilters::Parse(const std::vector<std::string>& filters) {
  DeviceFilters result;
  for (const std::string& filter : filters) {
    absl::StatusOr<DeviceName> name = DeviceName::Parse(filter);
    if (!name.ok()) return InvalidArgument("Could not parse device filter: '", filter, "'");
    result.filters_.push_back(*std::move(name));
  }
  return result;
}

bool DeviceFilters::Match(const DeviceName& name) const {
  if (filters_.empty()) return true;
  for (const DeviceName& filter : filters_) {
    if (!Differ(filter.job, name.job) && !Differ(filter.replica, name.replica) &&
        !Differ(filter.task, name.task) && !Differ(filter.type, name.type) &&
        !Differ(filter.index, name.index)) {
      return true;
    }
  }
  return false;
}

bool DeviceFilters::Match(const TaskName& task) const {
  return Match(NameOf(task));
}

bool DeviceFilters::Match(absl::string_view device) const {
  const absl::StatusOr<DeviceName> name = DeviceName::Parse(device);
  return name.ok() && Match(*name);
}

std::vector<SessionTask> SelectTasks(Peers& peers, const TaskName& self,
                                     const DeviceFilters& filters) {
  std::vector<SessionTask> tasks;
  const auto add = [&](const TaskName& name) {
    SessionTask task{name, name.ToString(), nullptr, {}};
    task.worker = peers.Worker(task.text);
    if (task.worker != nullptr) tasks.push_back(std::move(task));
  };
  add(self);
  for (const TaskName& name : peers.Tasks()) {
    if (name != self && filters.Match(name)) add(name);
  }
  return tasks;
}

void AskForDevices(std::shared_ptr<const MasterOptions> options, std::string purpose,
                   std::vector<SessionTask> tasks, DeviceFilters filters,
                   std::shared_ptr<Cancellation> cancellation,
                   CallDone<std::vector<SessionTask>> done) {
  if (tasks.empty()) {
    std::move(done)(std::move(tasks));
    return;
  }
  std::make_shared<Inquiry>(std::move(options), std::move(purpose), std::move(tasks),
                            std::move(filters), std::move(done))
      ->Start(cancellation);
}

}  // namespace muster
