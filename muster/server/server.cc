#include "muster/server/server.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "muster/base/log.h"
#include "muster/base/mutex.h"
#include "muster/base/threads/thread_pool.h"
#include "muster/collective/task_groups.h"
#include "muster/dashboard/http_server.h"
#include "muster/device/device_failure.h"
#include "muster/master/cluster_watch.h"
#include "muster/master/master.h"
#include "muster/server/core_share.h"
#include "muster/server/metrics_text.h"
#include "muster/server/status_report.h"
#include "muster/server/task_report.h"
#include "muster/tensor/memory_guard.h"
#include "muster/tensor/unused_memory.h"
#include "muster/transport/api/local_address.h"
#include "muster/transport/inproc/local_masters.h"
#include "muster/worker/worker.h"

namespace muster {
namespace {

// // The task that this process is in the cluster.
absl::StatusOr<TaskName> Self(const ServerOptions& options) {
  const auto& jobs = options.cluster.jobs();
  TaskName self{options.job, options.task};
  if (self.job.empty()) {
    if (jobs.size() != 1)
      return InvalidArgument("the job must be given: the cluster has ", jobs.size(), " jobs");
    self.job = jobs.begin()->first;
  }
  const auto job = jobs.find(self.job);
  if (job == jobs.end()) return Internal("Job \"", self.job, "\" was not defined in cluster");
  if (self.task < 0) {
    if (job->second.size() != 1) {
      return InvalidArgument("the task must be given: job \"", self.job, "\" has ",
                             job->second.size(), " tasks");
    }
    self.task = job->second.begin()->first;
  }
  if (job->second.find(self.task) == job->second.end()) {
    return InvalidArgument("Task ", self.task, " was not defined in job \"", self.job, "\"");
  }
  return self;
}

// Where a server listens, and by what name others find it.
struct Place {
  std::string bind;                    // empty: all interfaces
  std::vector<std::string> addresses;  // numeric; empty: all
  std::string host;                    // for the target
  int port = 0;
};

std::string Bracketed(const std::string& host) {
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]") : host;
}

bool IsWildcard(absl::string_view host) {
  return host == "0.0.0.0" || host == "::" || host == "*";
}

std::vector<std::string> LocalAddressesOf(const std::string& host) {
  std::vector<std::string> local;
  const absl::StatusOr<std::vector<std::string>> all = ResolveHost(host);
  if (!all.ok()) return local;
  std::copy_if(all->begin(), all->end(), std::back_inserter(local), IsLocalAddress);
  return local;
}

// Of this process, those that other processes use.
std::atomic<int> serving{0};

// No call to the process mends its device: its supervisor starts it again, and the others see what
// they see when a task is killed.
void EndWithDevices() {
  static const bool is_set = [] {
    SetDeviceFailureAction([](const absl::Status&) {
      if (serving.load() == 0) return;
      LOG(ERROR) << "this task ends, since a device has failed: exit status "
                 << kDeviceFailedExitStatus;
      std::_Exit(kDeviceFailedExitStatus);
    });
    return true;
  }();
  static_cast<void>(is_set);
}

// Addresses of a cluster inside this process are names: no machine has them, no port is taken.
bool IsInside(const ServerOptions& options) {
  return options.local_tasks != nullptr && options.local_tasks->closed();
}

// Tasks of one process need no port to reduce with each other.
absl::StatusOr<collective::TaskGroupsOptions> GroupsOf(const ServerOptions& options,
                                                       const TaskName& self) {
  collective::TaskGroupsOptions groups;
  groups.silence = options.liveness.fail_after;
  if (IsInside(options)) return groups;
  ASSIGN_OR_RETURN(const std::string address, options.cluster.Address(self));
  ASSIGN_OR_RETURN(const HostPort entry, ParseHostPort(address));
  groups.host = entry.host;
  groups.encrypted =
      !options.security.certificate_file.empty() || !options.security.ca_file.empty();
  groups.shared_memory = options.links == Links::kAll;
  return groups;
}

absl::StatusOr<Place> FindPlace(const ServerOptions& options, const TaskName& self) {
  ASSIGN_OR_RETURN(const std::string address, options.cluster.Address(self));
  ASSIGN_OR_RETURN(const HostPort entry, ParseHostPort(address));
  Place place;
  if (IsInside(options)) {
    place.host = entry.host;
    place.port = entry.port;
    place.addresses = {"none"};
    return place;
  }
  place.port = options.port >= 0 ? options.port : entry.port;
  const std::vector<std::string> own = LocalAddressesOf(entry.host);
  place.host = own.empty() ? "localhost" : entry.host;
  if (options.bind.empty()) {
    place.bind = own.empty() ? "" : entry.host;
    place.addresses = own;
    if (own.empty()) {
      LOG(WARNING) << self.ToString() << " listens on all interfaces: '" << entry.host
                   << "', which the cluster gives for it, is not an address of this machine";
    }
    return place;
  }
  const std::string bind(absl::StripSuffix(absl::StripPrefix(options.bind, "["), "]"));
  if (IsWildcard(bind)) return place;
  place.addresses = LocalAddressesOf(bind);
  if (place.addresses.empty())
    return InvalidArgument("cannot bind to '", bind, "': it is not an address of this machine");
  place.bind = place.host = bind;
  return place;
}

void WarnIfOpen(const Place& place, const SecurityOptions& security, const TaskName& self) {
  const bool loopback = !place.addresses.empty() &&
                        std::all_of(place.addresses.begin(), place.addresses.end(),
                                    [](const std::string& a) { return IsLoopbackAddress(a); });
  if (loopback || security.enabled()) return;
  LOG(WARNING) << self.ToString() << " can be used by any process that reaches "
               << (place.bind.empty() ? "this machine" : place.bind) << ", port " << place.port
               << ": neither TLS nor a token is set";
}

// Nothing that a step does keeps the master, timers and calls waiting: those have threads of their
// own, few, since they never compute.
struct Schedulers {
  Scheduler* control;
  Scheduler* compute;
};

Schedulers SchedulersOf(const ServerOptions& options, const TaskName& self) {
  if (options.scheduler != nullptr) return {options.scheduler, options.scheduler};
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  // More threads than cores would only make tasks that compute at the same time preempt each other.
  const int share = IsInside(options) ? cores : CoreShare(options.cluster, self, cores);
  // For all servers of the process; never destroyed, since sessions may outlive everything else.
  static Scheduler* const compute = NewThreadPool(cores, share).release();
  return {&Server::SharedScheduler(), compute};
}

// All that a session in this process needs of its server; lives as long as one of them.
struct Parts {
  std::unique_ptr<Transport> transport;
  std::shared_ptr<Worker> worker;
  std::shared_ptr<Master> master;
  std::shared_ptr<ClusterWatch> watch;
};

enum class Phase : uint8_t { kStarting, kServing, kStopping };

// A task that accepts no connections is not healthy, whatever else it does.
HttpPage HealthPage(Phase phase, const Acceptor& acceptor) {
  const absl::Status accepts = acceptor.Status();
  HttpPage page;
  page.code = phase == Phase::kServing && accepts.ok() ? 200 : 503;
  page.body = phase == Phase::kStarting   ? "starting\n"
              : phase == Phase::kStopping ? "stopping\n"
              : accepts.ok()              ? "ok\n"
                                          : absl::StrCat(accepts.message(), "\n");
  return page;
}

HttpPage MetricsPage(const ClusterWatch& watch, const Acceptor& acceptor) {
  return {200, "text/plain; version=0.0.4; charset=utf-8",
          MetricsText(watch.Seen(), acceptor.Counts(), GpuReports())};
}

ConnectionLimits LimitsOf(const ServerOptions& options) {
  ConnectionLimits limits = ConnectionLimitsFor(RaiseDescriptorLimit());
  if (options.max_connections > 0) {
    limits.in_all = options.max_connections;
    limits.per_peer = limits.in_all - limits.in_all / 4;
  }
  if (options.max_connections_per_peer > 0) limits.per_peer = options.max_connections_per_peer;
  return limits;
}

class TaskServer : public Server {
 public:
  TaskServer(ServerOptions options, TaskName self, std::string address, Place place,
             ReservedPort reserved, std::shared_ptr<Acceptor> acceptor, Schedulers schedulers,
             std::shared_ptr<Parts> parts, std::shared_ptr<std::atomic<Phase>> phase,
             std::unique_ptr<HttpServer> pages)
      : options_(std::move(options)),
        self_(std::move(self)),
        address_(std::move(address)),
        place_(std::move(place)),
        schedulers_(schedulers),
        parts_(std::move(parts)),
        phase_(std::move(phase)),
        metrics_port_(pages == nullptr ? -1 : pages->port()),
        acceptor_(std::move(acceptor)),
        pages_(std::move(pages)),
        reserved_(std::move(reserved)) {}
  ~TaskServer() override { TaskServer::Stop(); }

  absl::Status Start() override {
    MutexLock lock(mutex_);
    if (state_ == State::kServing) return absl::OkStatus();
    if (state_ != State::kNew)
      return FailedPrecondition("the server ", self_.ToString(), " has been stopped");
    // Sessions of this process and calls from outside keep the parts alive, not only the master.
    const std::shared_ptr<WorkerApi> worker(parts_, parts_->worker.get());
    if (!IsInside(options_)) {
      GrpcServerOptions options;
      options.host = place_.bind;
      options.port = place_.port;
      options.sockets =
          std::make_shared<ListeningSockets>(std::exchange(reserved_, {}).TakeSockets());
      options.acceptor = acceptor_;
      options.security = options_.security;
      options.max_message_bytes = options_.max_message_bytes;
      options.scheduler = schedulers_.control;
      options.status = SharedWatch();
      options.links = options_.links;
      options.batches = options_.batches;
      ASSIGN_OR_RETURN(grpc_, GrpcServer::Start(std::move(options), SharedMaster(), worker));
      EndWithDevices();
      ++serving;
    }
    if (options_.local_tasks != nullptr)
      options_.local_tasks->calls().Listen(address_, {worker, SharedMaster(), SharedWatch()});
    registration_ = std::make_unique<LocalMasterRegistration>(
        LocalMaster{target(), place_.port, place_.addresses, SharedMaster()});
    state_ = State::kServing;
    *phase_ = Phase::kServing;
    parts_->watch->Start();
    report_ = StatusReport::To(options_.status_socket, *schedulers_.control,
                               [watch = parts_->watch] { return watch->Own(); });
    if (report_ != nullptr) report_->Start();
    return absl::OkStatus();
  }

  void Stop() override { TaskServer::StopWithin(options_.stop_grace); }

  void StopWithin(absl::Duration grace) override {
    std::unique_ptr<GrpcServer> grpc;
    std::unique_ptr<LocalMasterRegistration> registration;
    bool was_serving;
    {
      MutexLock lock(mutex_);
      if (state_ == State::kStopping || state_ == State::kStopped) {
        while (state_ != State::kStopped) stopped_.Wait(mutex_);
        return;
      }
      was_serving = state_ == State::kServing;
      state_ = State::kStopping;
      *phase_ = Phase::kStopping;
      grpc = std::move(grpc_);
      registration = std::move(registration_);
      reserved_ = ReservedPort();
      if (report_ != nullptr) report_->Stop();
    }
    registration.reset();
    if (was_serving && !IsInside(options_)) --serving;
    if (was_serving) SayGoodbye();
    if (options_.local_tasks != nullptr) options_.local_tasks->calls().Close(address_);
    EndSteps(grpc.get(), grace);
    grpc.reset();
    std::unique_ptr<HttpServer> pages;
    {
      MutexLock lock(mutex_);
      pages = std::move(pages_);
    }
    pages.reset();
    MutexLock lock(mutex_);
    state_ = State::kStopped;
    stopped_.NotifyAll();
  }

  void Join() override {
    MutexLock lock(mutex_);
    if (report_ != nullptr) report_->NoteJoined();
    while (state_ != State::kStopped) stopped_.Wait(mutex_);
  }

  bool JoinFor(absl::Duration timeout) override {
    const absl::Time end = absl::Now() + timeout;
    MutexLock lock(mutex_);
    if (report_ != nullptr) report_->NoteJoined();
    while (state_ != State::kStopped) {
      const absl::Duration left = end - absl::Now();
      if (left <= absl::ZeroDuration()) return false;
      stopped_.WaitFor(mutex_, left);
    }
    return true;
  }

  std::string target() const override {
    return absl::StrCat("grpc://", Bracketed(place_.host), ":", place_.port);
  }
  int port() const override { return place_.port; }
  int metrics_port() const override { return metrics_port_; }
  ClusterStatus Status() const override { return parts_->watch->Seen(); }
  const ClusterSpec& cluster() const override { return options_.cluster; }
  TaskName self() const override { return self_; }

 private:
  enum class State : uint8_t { kNew, kServing, kStopping, kStopped };

  std::shared_ptr<MasterApi> SharedMaster() const { return {parts_, parts_->master.get()}; }

  std::shared_ptr<StatusApi> SharedWatch() const { return {parts_, parts_->watch.get()}; }

  // Tells the others that the task stops, so that it does not count as lost.
  void SayGoodbye() {
    struct Said {
      Mutex mutex;
      CondVar changed;
      bool done ABSL_GUARDED_BY(mutex) = false;
    };
    auto said = std::make_shared<Said>();
    parts_->watch->Leave([said] {
      MutexLock lock(said->mutex);
      said->done = true;
      said->changed.NotifyAll();
    });
    const absl::Time latest = absl::Now() + kGoodbyeTime;
    MutexLock lock(said->mutex);
    while (!said->done && absl::Now() < latest)
      said->changed.WaitFor(said->mutex, latest - absl::Now());
  }

  // Nothing new is begun, and steps under way have the grace period, in which other tasks can still
  // ask for their tensors. Then the master and the worker end them, so that the calls that wait for
  // them return; what still hangs after that is dropped by gRPC.
  void EndSteps(GrpcServer* grpc, absl::Duration grace) {
    const absl::Status reason =
        absl::UnavailableError(absl::StrCat("the server ", self_.ToString(), " is being stopped"));
    struct Ended {
      Mutex mutex;
      CondVar changed;
      bool done ABSL_GUARDED_BY(mutex) = false;
    };
    auto ended = std::make_shared<Ended>();
    parts_->worker->Refuse(reason);
    parts_->master->Refuse(reason);
    const absl::Time grace_end = absl::Now() + grace;
    while (RunsSteps() && absl::Now() < grace_end) absl::SleepFor(kLookAgain);
    parts_->worker->Stop(reason);
    parts_->master->Stop(reason, [ended](const absl::Status&) {
      MutexLock lock(ended->mutex);
      ended->done = true;
      ended->changed.NotifyAll();
    });
    if (grpc != nullptr) grpc->Stop(kCancelTime);
    const absl::Time latest = absl::Now() + kCancelTime;
    MutexLock lock(ended->mutex);
    while (!ended->done && absl::Now() < latest)
      ended->changed.WaitFor(ended->mutex, latest - absl::Now());
    if (!ended->done) LOG(WARNING) << self_.ToString() << " stops with steps that do not end";
  }

  bool RunsSteps() const {
    return parts_->worker->counts().steps > 0 || parts_->master->counts().steps > 0;
  }

  static constexpr absl::Duration kLookAgain = absl::Milliseconds(2);
  static constexpr absl::Duration kCancelTime = absl::Seconds(1);
  static constexpr absl::Duration kGoodbyeTime = absl::Seconds(1);

  ServerOptions options_;
  const TaskName self_;
  const std::string address_;  // in the cluster that it was given
  const Place place_;
  const Schedulers schedulers_;
  const std::shared_ptr<Parts> parts_;
  const std::shared_ptr<std::atomic<Phase>> phase_;
  const int metrics_port_;
  const std::shared_ptr<Acceptor> acceptor_;

  Mutex mutex_;
  CondVar stopped_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kNew;
  std::unique_ptr<HttpServer> pages_ ABSL_GUARDED_BY(mutex_);
  ReservedPort reserved_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<GrpcServer> grpc_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<LocalMasterRegistration> registration_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<StatusReport> report_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::shared_ptr<Parts>> MakeParts(const ServerOptions& options, const TaskName& self,
                                                 int port, const Schedulers& schedulers) {
  auto parts = std::make_shared<Parts>();
  std::unique_ptr<Transport> transport;
  if (!IsInside(options)) {
    GrpcOptions grpc;
    grpc.scheduler = schedulers.control;
    grpc.security = options.security;
    grpc.max_message_bytes = options.max_message_bytes;
    grpc.links = options.links;
    transport = NewGrpcTransport(std::move(grpc));
  }
  if (options.local_tasks != nullptr)
    transport = NewLocalTasksTransport(options.local_tasks, std::move(transport));
  parts->transport =
      NewWatchedTransport(std::move(transport), *schedulers.control, options.liveness);
  WorkerOptions worker;
  worker.self = self;
  worker.cluster = options.cluster;
  worker.scheduler = schedulers.compute;
  worker.control = schedulers.control;
  worker.transport = parts->transport.get();
  worker.devices = options.config.devices;
  worker.cache_replies = options.cache_rpc_response;
  worker.master_timeout = options.master_timeout;
  const CallerLimits limits{options.max_graph_nodes, options.max_session_memory_bytes};
  worker.limits = limits;
  worker.collective_group_leader = options.config.collective_group_leader;
  ASSIGN_OR_RETURN(collective::TaskGroupsOptions groups, GroupsOf(options, self));
  groups.scheduler = schedulers.compute;
  worker.direct_groups = collective::NewTaskGroups(std::move(groups));
  ASSIGN_OR_RETURN(parts->worker, Worker::Create(std::move(worker)));
  MasterOptions master;
  master.self = self;
  master.port = port;
  master.scheduler = schedulers.control;
  master.transport = parts->transport.get();
  master.peers = parts->worker->peers();
  master.local_worker = parts->worker;
  master.default_config = options.config;
  master.step_sequences = parts->worker->step_sequences();
  master.orphan_grace = options.orphan_grace;
  master.liveness = options.liveness;
  master.limits = limits;
  parts->master = Master::Create(std::move(master));
  ClusterWatchOptions watch;
  watch.self = self;
  // Connections of its own: steps must not find one that has just failed because a task was asked
  // before it was there, nor questions wait behind large tensors.
  watch.peers = parts->transport->Connect(options.cluster, self, nullptr);
  watch.scheduler = schedulers.control;
  watch.liveness = options.liveness;
  watch.own = [self, own_master = parts->master, own_worker = parts->worker] {
    return ReportOf(self, *own_master, *own_worker);
  };
  watch.pulse = [own_master = parts->master] {
    const Master::Counts counts = own_master->counts();
    return TaskPulse{counts.steps_run, counts.sessions};
  };
  parts->watch = ClusterWatch::Create(std::move(watch));
  return parts;
}

// Null where none are wanted.
absl::StatusOr<std::unique_ptr<HttpServer>> ServePages(
    const ServerOptions& options, const Place& place, const std::shared_ptr<Parts>& parts,
    const std::shared_ptr<std::atomic<Phase>>& phase, const std::shared_ptr<Acceptor>& acceptor) {
  if (options.metrics_port < 0) return nullptr;
  HttpServerOptions http;
  // Tasks inside this process have no address of their own.
  http.host = IsInside(options) ? "127.0.0.1" : place.bind;
  http.port = options.metrics_port;
  http.pages["/metrics"] = [watch = parts->watch, acceptor] {
    return MetricsPage(*watch, *acceptor);
  };
  http.pages["/healthz"] = [phase, acceptor] { return HealthPage(*phase, *acceptor); };
  return HttpServer::Start(std::move(http));
}

void TrimLater(Scheduler& scheduler) {
  scheduler.ScheduleAfter(absl::Seconds(1), [&scheduler] {
    TrimUnusedMemory(scheduler.clock().Now());
    TrimLater(scheduler);
  });
}

// From now on, for all servers of the process.
void KeepMemoryTrimmed() {
  static const bool started = [] {
    TrimLater(Server::SharedScheduler());
    return true;
  }();
  static_cast<void>(started);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Create(ServerOptions options) {
  RETURN_IF_ERROR(options.cluster.Validate());
  ASSIGN_OR_RETURN(TaskName self, Self(options));
  ASSIGN_OR_RETURN(Place place, FindPlace(options, self));
  ASSIGN_OR_RETURN(std::string address, options.cluster.Address(self));
  if (options.local_tasks != nullptr && !options.local_tasks->Has(address)) {
    return InvalidArgument(self.ToString(), " at ", address,
                           " is not one of the tasks that share this process");
  }
  ReservedPort reserved;
  if (!IsInside(options)) {
    ASSIGN_OR_RETURN(reserved, ReservedPort::Take(place.bind, place.port));
    place.port = reserved.port();
  }
  const Schedulers schedulers = SchedulersOf(options, self);
  if (options.max_memory_bytes < INT64_MAX) MemoryGuard::Global().Limit(options.max_memory_bytes);
  if (options.scheduler == nullptr) KeepMemoryTrimmed();
  // The task's own entry says where it really is, so that other tasks find it.
  options.cluster.jobs()[self.job][self.task] =
      absl::StrCat(Bracketed(ParseHostPort(address).value().host), ":", place.port);
  ASSIGN_OR_RETURN(std::shared_ptr<Parts> parts, MakeParts(options, self, place.port, schedulers));
  const auto phase = std::make_shared<std::atomic<Phase>>(Phase::kStarting);
  const auto acceptor =
      std::make_shared<Acceptor>(absl::StrCat("port ", place.port), LimitsOf(options));
  ASSIGN_OR_RETURN(std::unique_ptr<HttpServer> pages,
                   ServePages(options, place, parts, phase, acceptor));
  if (!IsInside(options)) WarnIfOpen(place, options.security, self);
  return std::make_unique<TaskServer>(std::move(options), std::move(self), std::move(address),
                                      std::move(place), std::move(reserved), acceptor, schedulers,
                                      std::move(parts), phase, std::move(pages));
}

Scheduler& Server::SharedScheduler() {
  static Scheduler* const control = NewThreadPool(2).release();
  return *control;
}

absl::StatusOr<std::unique_ptr<Server>> Server::CreateLocal(SessionConfig config) {
  ServerOptions options;
  options.cluster = ClusterSpec({{"local", {{0, "localhost:0"}}}});
  options.config = std::move(config);
  return Create(std::move(options));
}

}  // namespace muster
