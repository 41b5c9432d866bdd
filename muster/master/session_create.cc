// How a session comes to its tasks and its graph: when it is made, and when it grows.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "muster/master/gather.h"
#include "muster/master/session.h"

namespace muster {
namespace {

// "host:port" of "grpc://host:port"; other schemes that begin with grpc are fine too.
absl::string_view AddressOf(absl::string_view target) {
  const size_t scheme = target.find("://");
  if (scheme == absl::string_view::npos || !absl::StartsWith(target, "grpc")) return target;
  return target.substr(scheme + 3);
}

// // The master's own task in a cluster that the client brought.
absl::StatusOr<TaskName> FindSelf(const MasterOptions& options, const ClusterSpec& cluster,
                                  absl::string_view target) {
  RETURN_IF_ERROR(cluster.Validate());
  const absl::string_view address = AddressOf(target);
  std::optional<TaskName> self;
  for (const TaskName& task : cluster.tasks()) {
    ASSIGN_OR_RETURN(const std::string other, cluster.Address(task));
    if (other != address) continue;
    if (self) {
      return InvalidArgument(
          "Found multiple matching tasks that correspond to to the master. Master target: '",
          target, "'. ClusterDef: ", cluster.ToString());
    }
    self = task;
  }
  if (!self) {
    return InvalidArgument(
        "The master (current machine) is not included in the provided cluster_def. ",
        cluster.ToString());
  }
  if (self->job == options.self.job && self->task == options.self.task) {
    return InvalidArgument(
        "The ClusterSpec names the job and task index to be the same names that were provided when "
        "the server booted. This is currently not allowed. Job: ",
        self->job, ", task index: ", self->task);
  }
  int port = 0;
  const size_t colon = address.rfind(':');
  if (options.port != 0 && colon != absl::string_view::npos &&
      absl::SimpleAtoi(address.substr(colon + 1), &port) && port != options.port) {
    return InvalidArgument("Requested port ", port, " differs from expected port ", options.port);
  }
  return *self;
}

bool IsTask(const DeviceName& wanted, const TaskName& task) {
  return (!wanted.job || *wanted.job == task.job) &&
         (!wanted.replica || *wanted.replica == task.replica) &&
         (!wanted.task || *wanted.task == task.task);
}

}  // namespace

SessionConfig MergeConfigs(const SessionConfig& server, SessionConfig client) {
  client.device_filters.insert(client.device_filters.begin(), server.device_filters.begin(),
                               server.device_filters.end());
  client.allow_soft_placement |= server.allow_soft_placement;
  client.log_device_placement |= server.log_device_placement;
  if (client.operation_timeout == absl::ZeroDuration())
    client.operation_timeout = server.operation_timeout;
  client.isolate_session_state |= server.isolate_session_state;
  client.share_session_state_in_clusterspec_propagation |=
      server.share_session_state_in_clusterspec_propagation;
  client.optimize_graph &= server.optimize_graph;
  client.bfloat16_sendrecv |= server.bfloat16_sendrecv;
  client.lazy_tasks |= server.lazy_tasks;
  if (client.collective_group_leader.empty())
    client.collective_group_leader = server.collective_group_leader;
  return client;
}

// A session that is being made.
class SessionCreation : public std::enable_shared_from_this<SessionCreation> {
 public:
  SessionCreation(std::shared_ptr<MasterSession> session, GraphEdit edit,
                  std::shared_ptr<Cancellation> cancellation,
                  CallDone<std::shared_ptr<MasterSession>> done)
      : session_(std::move(session)),
        edit_(std::move(edit)),
        cancellation_(std::move(cancellation)),
        done_(std::move(done)) {}

  void Start(absl::string_view target) {
    absl::Status status = FindTasks(target);
    if (!status.ok()) return Finish(std::move(status));
    AskForDevices(session_->options_, "CreateSession", std::move(tasks_), session_->filters_,
                  cancellation_,
                  [self = shared_from_this()](absl::StatusOr<std::vector<SessionTask>> tasks) {
                    // Graphs are read and placed on threads that may take their time.
                    self->session_->scheduler_.Schedule([self, tasks = std::move(tasks)]() mutable {
                      self->DevicesKnown(std::move(tasks));
                    });
                  });
  }

 private:
  absl::Status FindTasks(absl::string_view target) {
    const MasterOptions& options = *session_->options_;
    const SessionConfig& config = session_->config_;
    ASSIGN_OR_RETURN(session_->filters_, DeviceFilters::Parse(config.device_filters));
    session_->self_ = options.self;
    session_->peers_ = options.peers;
    if (!config.cluster.empty()) {
      ASSIGN_OR_RETURN(session_->self_, FindSelf(options, config.cluster, target));
      session_->has_own_cluster_ = true;
      session_->peers_ =
          options.transport->Connect(config.cluster, session_->self_, options.local_worker);
    }
    tasks_ = SelectTasks(*session_->peers_, session_->self_, session_->filters_);
    if (tasks_.empty() || tasks_.front().name != session_->self_)
      return Internal("The cluster has no task ", session_->self_.ToString());
    if (config.lazy_tasks) {
      graph_status_ = session_->graph_.Extend(std::move(edit_));
      edit_ = nullptr;
      tasks_ = session_->NewTasks(std::move(tasks_));
    }
    return absl::OkStatus();
  }

  void DevicesKnown(absl::StatusOr<std::vector<SessionTask>> tasks) {
    if (!tasks.ok()) return Finish(tasks.status());
    const SessionConfig& config = session_->config_;
    if (config.use_per_session_threads || config.has_session_inter_op_threads) {
      return Finish(
          InvalidArgument("Distributed session does not support session thread pool options."));
    }
    if (edit_) graph_status_ = session_->graph_.Extend(std::move(edit_));
    if (!graph_status_.ok()) return Finish(graph_status_);
    session_->AddTasks(
        *std::move(tasks), cancellation_,
        [self = shared_from_this()](absl::Status status) { self->Finish(std::move(status)); });
  }

  void Finish(absl::Status status) {
    // No client is left to close a session whose client has gone meanwhile.
    if (status.ok() && cancellation_ != nullptr && cancellation_->cancelled())
      status = cancellation_->reason();
    if (status.ok()) return std::move(done_)(session_);
    session_->Close(status, [self = shared_from_this(), status](absl::Status) {
      std::move(self->done_)(status);
    });
  }

  const std::shared_ptr<MasterSession> session_;
  GraphEdit edit_;
  const std::shared_ptr<Cancellation> cancellation_;
  CallDone<std::shared_ptr<MasterSession>> done_;
  std::vector<SessionTask> tasks_;
  absl::Status graph_status_;
};

void MasterSession::Create(Options options, std::shared_ptr<const Caller> owner,
                           std::shared_ptr<Cancellation> cancellation, CreateSessionRequest request,
                           Expired expired, CallDone<std::shared_ptr<MasterSession>> done) {
  SessionConfig config = MergeConfigs(options->default_config, std::move(request.config));
  std::string handle = absl::StrFormat("%016x", static_cast<uint64_t>(NewRequestId()));
  std::shared_ptr<MasterSession> session(new MasterSession(std::move(options), std::move(owner),
                                                           std::move(config), std::move(handle),
                                                           std::move(expired)));
  const std::weak_ptr<MasterSession> weak = session;
  StepWatch::Options watch;
  watch.scheduler = &session->scheduler_;
  watch.liveness = session->options_->liveness;
  watch.under_way = [weak] {
    StepWatch::UnderWay under_way;
    const auto self = weak.lock();
    if (self == nullptr) return under_way;
    MutexLock lock(self->mutex_);
    under_way.runs = self->RunsLocked();
    under_way.tasks = self->tasks_;
    return under_way;
  };
  session->watch_ = std::make_shared<StepWatch>(std::move(watch));
  std::make_shared<SessionCreation>(std::move(session), std::move(request.graph),
                                    std::move(cancellation), std::move(done))
      ->Start(request.target);
}

std::vector<SessionTask> MasterSession::NewTasks(std::vector<SessionTask> all) const {
  const std::vector<SessionTask> known = tasks();
  const auto is_in = [](const std::vector<SessionTask>& list, const SessionTask& task) {
    return std::any_of(list.begin(), list.end(),
                       [&task](const SessionTask& other) { return other.name == task.name; });
  };
  std::vector<SessionTask> result;
  const auto add = [&](const SessionTask& task) {
    if (!is_in(known, task) && !is_in(result, task)) result.push_back(task);
  };
  add(all.front());
  for (const std::string& requested : graph_.RequestedDevices()) {
    const absl::StatusOr<DeviceName> name = DeviceName::Parse(requested);
    if (!name.ok()) continue;  // placement says what is wrong with it
    const auto task = std::find_if(all.begin(), all.end(), [&name](const SessionTask& other) {
      return IsTask(*name, other.name);
    });
    if (task != all.end()) add(*task);
  }
  return result;
}

void MasterSession::AddTasks(std::vector<SessionTask> added,
                             std::shared_ptr<Cancellation> cancellation, Done done) {
  std::vector<SessionTask> all = tasks();
  all.insert(all.end(), added.begin(), added.end());
  std::vector<DeviceAttributes> devices;
  for (const SessionTask& task : all)
    devices.insert(devices.end(), task.devices.begin(), task.devices.end());
  // The master's own first, its first one being the client's.
  std::sort(devices.begin() + static_cast<std::ptrdiff_t>(all.front().devices.size()),
            devices.end(),
            [](const DeviceAttributes& a, const DeviceAttributes& b) { return a.name < b.name; });
  const uint64_t incarnation = devices.front().incarnation;
  std::vector<DeviceAttributes> before = graph_.devices();
  graph_.SetDevices(std::move(devices));
  if (absl::Status status = graph_.Place(); !status.ok()) {
    graph_.SetDevices(std::move(before));
    return std::move(done)(std::move(status));
  }
  {
    MutexLock lock(mutex_);
    tasks_ = std::move(all);
  }
  auto dones =
      Gather<Empty>(added.size(), [done = std::move(done)](Replies<Empty> replies) mutable {
        std::move(done)(FirstError(replies));
      });
  for (size_t i = 0; i < dones.size(); ++i) {
    CreateWorkerSessionRequest request;
    request.session = handle_;
    request.isolate_state = config_.isolate_session_state;
    if (has_own_cluster_) {
      request.identity = {config_.cluster, added[i].name};
      request.isolate_state |= !config_.share_session_state_in_clusterspec_propagation;
    }
    request.task = added[i].name;
    request.master_task = self_.ToString();
    request.master_incarnation = incarnation;
    request.owner = owner_;
    CallOptions call;
    call.cancellation = cancellation;
    added[i].worker->CreateWorkerSession(std::move(call), std::move(request), std::move(dones[i]));
  }
}

void MasterSession::Extend(const CallOptions& call, ExtendSessionRequest request,
                           CallDone<int64_t> done) {
  absl::StatusOr<int64_t> answer = 0;
  {
    MutexLock lock(mutex_);
    // A client that lost the connection does not know how far it got.
    const bool is_again = call.peer == CallOptions::Peer::kMuster && request.fingerprint != 0 &&
                          request.fingerprint == extension_.fingerprint &&
                          request.current_version == extension_.from_version;
    if (!closed_.ok()) {
      answer = FailedPrecondition("Session is closed.");
    } else if (is_again && extending_) {
      extension_.done.push_back(std::move(done));
      return;
    } else if (is_again && version_ == extension_.from_version + 1) {
      answer = version_;
    } else if (request.current_version != version_) {
      answer = absl::AbortedError(absl::StrCat(
          "Current version is ", version_, " but caller expected ", request.current_version, "."));
    } else if (extending_) {
      answer = absl::AbortedError("The session is being extended by another call.");
    } else {
      extending_ = true;
      extension_.from_version = request.current_version;
      extension_.fingerprint = request.fingerprint;
      extension_.done.push_back(std::exchange(done, nullptr));
    }
  }
  if (done != nullptr) return std::move(done)(std::move(answer));
  scheduler_.Schedule([self = shared_from_this(), cancellation = call.cancellation,
                       edit = std::move(request.graph)]() mutable {
    self->ExtendTasks(self->graph_.Extend(std::move(edit)), std::move(cancellation));
  });
}

void MasterSession::ExtendTasks(absl::Status status, std::shared_ptr<Cancellation> cancellation) {
  std::vector<SessionTask> added;
  if (status.ok() && config_.lazy_tasks) {
    added = NewTasks(SelectTasks(*peers_, self_, filters_));
  }
  if (added.empty()) {
    if (status.ok()) status = graph_.Place();
    return ExtendPlaced(status);
  }
  AskForDevices(
      options_, "ExtendSession", std::move(added), filters_, cancellation,
      [self = shared_from_this(), cancellation](absl::StatusOr<std::vector<SessionTask>> tasks) {
        if (!tasks.ok()) {
          self->graph_.Revert();
          return self->ExtendPlaced(tasks.status());
        }
        self->AddTasks(*std::move(tasks), cancellation, [self](absl::Status opened) {
          // Part of the tasks may have the session by now: as when it is made, an error ends it.
          if (!opened.ok()) self->Expire();
          self->ExtendPlaced(opened);
        });
      });
}

void MasterSession::ExtendPlaced(const absl::Status& status) {
  int64_t version;
  std::vector<CallDone<int64_t>> asked;
  {
    MutexLock lock(mutex_);
    extending_ = false;
    if (status.ok()) ++version_;
    version = version_;
    asked.swap(extension_.done);
  }
  for (CallDone<int64_t>& done : asked) {
    if (status.ok()) {
      std::move(done)(version);
    } else {
      std::move(done)(status);
    }
  }
}

}  // namespace muster
