#include "muster/worker/worker.h"

#include <atomic>

#include "muster/base/log.h"
#include "muster/runtime/direct_groups.h"
#include "muster/transport/api/forwarding.h"
#include "muster/worker/peer_receives.h"
#include "muster/worker/run_graph_call.h"
#include "muster/worker/session_table.h"
#include "muster/worker/task_collectives.h"
#include "muster/worker/variable_names.h"

namespace muster {
namespace {

// The handle that `Peers` holds of its own task: it must not keep the worker alive.
class OwnWorker : public ForwardingWorker<OwnWorker> {
 public:
  explicit OwnWorker(std::weak_ptr<WorkerApi> worker) : worker_(std::move(worker)) {}
  bool IsMuster() override { return true; }
  template <typename Reply, typename Call>
  void Forward(CallOptions options, CallDone<Reply> done, Call call) {
    if (const auto worker = worker_.lock()) {
      call(*worker, std::move(options), std::move(done));
    } else {
      std::move(done)(absl::UnavailableError("The worker of this task is gone"));
    }
  }

 private:
  const std::weak_ptr<WorkerApi> worker_;
};

class TaskWorker : public Worker, public std::enable_shared_from_this<TaskWorker> {
 public:
  TaskWorker(WorkerOptions options, std::shared_ptr<const TaskDevices> devices)
      : options_(std::move(options)),
        name_(options_.self.ToString()),
        devices_(std::move(devices)),
        resources_(std::make_shared<ResourceManager>(options_.self.job)),
        steps_(std::make_shared<StepTable>(*options_.control, log_)),
        sessions_(std::make_shared<SessionTable>(TableOptions())),
        collectives_(std::make_shared<TaskCollectives>(*options_.control, *options_.scheduler, log_,
                                                       options_.direct_groups)),
        receives_(std::make_shared<PeerReceives>(ReceiveOptions())) {}

  // Nobody is left waiting for an answer.
  ~TaskWorker() override {
    const absl::Status reason = absl::UnavailableError("The worker of the task is gone");
    steps_->Stop(nullptr, reason);
    collectives_->Stop(reason);
  }

  // Needs a shared pointer to this, so it comes after the constructor.
  void Connect(const ClusterSpec& cluster) {
    own_worker_ = std::make_shared<OwnWorker>(weak_from_this());
    peers_ = options_.transport->Connect(cluster, options_.self, own_worker_);
    legacy_ = std::make_shared<WorkerSession>(SessionOptions());
  }

  std::shared_ptr<Peers> peers() override { return peers_; }
  const std::vector<Device*>& devices() const override { return devices_->list(); }
  const ResourceManager& resources() const override { return *resources_; }
  std::shared_ptr<StepSequences> step_sequences() const override { return sequences_; }

  void Refuse(absl::Status reason) override {
    MutexLock lock(mutex_);
    refused_.Update(reason);
    refuses_ = true;
  }

  void Stop(absl::Status reason) override {
    Refuse(reason);
    {
      MutexLock lock(mutex_);
      if (!stopped_.ok()) return;
      stopped_ = reason;
    }
    sessions_->Stop();
    steps_->Stop(nullptr, reason);
    collectives_->Stop(reason);
  }

  Counts counts() const override {
    Counts counts;
    counts.steps = steps_->num_running();
    counts.steps_run = steps_run_.load(std::memory_order_relaxed);
    std::vector<std::shared_ptr<WorkerSession>> sessions = sessions_->All();
    counts.sessions = static_cast<int64_t>(sessions.size());
    sessions.push_back(legacy_);
    for (const auto& session : sessions) counts.graphs += session->num_graphs();
    counts.tensors_sent = log_->sent().tensors;
    counts.bytes_sent = log_->sent().bytes;
    counts.tensors_received = log_->received().tensors;
    counts.bytes_received = log_->received().bytes;
    counts.collective_bytes_sent = log_->collective_sent();
    counts.collective_bytes_received = log_->collective_received();
    if (options_.direct_groups != nullptr) {
      const DirectGroups::Moved moved = options_.direct_groups->moved();
      counts.collective_bytes_sent += moved.sent;
      counts.collective_bytes_received += moved.received;
    }
    return counts;
  }
  Variables variables() const override {
    const VariableNames::Totals totals = variables_->Count(*resources_);
    return {totals.variables, totals.bytes};
  }

  void GetStatus(CallOptions, CallDone<std::vector<DeviceAttributes>> done) override {
    if (const absl::Status refused = Refused(); !refused.ok()) {
      std::move(done)(refused);
      return;
    }
    std::move(done)(devices_->attributes());
  }

  void CreateWorkerSession(CallOptions options, CreateWorkerSessionRequest request,
                           CallDone<Empty> done) override {
    const absl::Status status = CreateSession(options.caller.get(), std::move(request));
    Finish(status, std::move(done));
  }

  void DeleteWorkerSession(CallOptions, std::string session, CallDone<Empty> done) override {
    const absl::StatusOr<std::shared_ptr<WorkerSession>> found = FindSession(session, true);
    sessions_->Remove(session);
    if (found.ok()) {
      // Its master says nothing more of them.
      for (const int64_t step : steps_->Idle(found->get())) FinishStep(step);
    }
    std::move(done)(Empty());
  }

  void RegisterGraph(CallOptions, RegisterGraphRequest request,
                     CallDone<std::string> done) override {
    if (absl::Status refused = Refused(); !refused.ok()) return std::move(done)(std::move(refused));
    const auto session = FindSession(request.session, request.in_session);
    std::move(done)(session.ok() ? (*session)->Register(std::move(request))
                                 : absl::StatusOr<std::string>(session.status()));
  }

  void DeregisterGraph(CallOptions, std::string session_handle, bool in_session, std::string graph,
                       CallDone<Empty> done) override {
    const auto session = FindSession(session_handle, in_session);
    Finish(session.ok() ? (*session)->Deregister(graph) : session.status(), std::move(done));
  }

  void RunGraph(CallOptions options, RunGraphRequest request,
                CallDone<RunGraphReply> done) override {
    for (const int64_t step : request.finished_steps) FinishStep(step);
    absl::StatusOr<StepTable::Started> started = StartRun(request);
    if (!started.ok()) {
      std::move(done)(started.status());
      return;
    }
    const std::shared_ptr<WorkerStep> step = started->step;
    RunGraphCall::Options call;
    call.request = std::move(request);
    call.done = std::move(done);
    call.step = step;
    call.starts_step = started->is_first;
    call.steps = steps_;
    call.caller = std::move(options.cancellation);
    call.cancel_grace = options_.cancel_grace;
    call.control = options_.control;
    std::make_shared<RunGraphCall>(std::move(call))->Start();
    // The worker may have been stopped before the step was in the table.
    if (const absl::Status stopped = Stopped(); !stopped.ok()) {
      step->cancellation()->Cancel(stopped);
      step->rendezvous->Abort(stopped);
    }
  }

  void CleanupGraph(CallOptions, int64_t step_id, CallDone<Empty> done) override {
    FinishStep(step_id);
    std::move(done)(Empty());
  }

  void CleanupAll(CallOptions, std::vector<std::string> containers, CallDone<Empty> done) override {
    if (containers.empty()) resources_->ClearContainer("");
    for (const std::string& container : containers) resources_->ClearContainer(container);
    std::move(done)(Empty());
  }

  void RecvTensor(CallOptions options, RecvTensorRequest request,
                  CallDone<RecvTensorReply> done) override {
    if (absl::Status stopped = Stopped(); !stopped.ok()) return std::move(done)(std::move(stopped));
    AbortIfStopped(receives_->RecvTensor(std::move(options), std::move(request), std::move(done)));
  }

  bool IsMuster() override { return true; }

  void RecvTensors(CallOptions options, RecvTensorsRequest request,
                   CallDone<RecvTensorsReply> done) override {
    if (absl::Status stopped = Stopped(); !stopped.ok()) return std::move(done)(std::move(stopped));
    AbortIfStopped(receives_->RecvTensors(std::move(options), std::move(request), std::move(done)));
  }

  void MarkRecvFinished(CallOptions, int64_t request_id, CallDone<Empty> done) override {
    receives_->Acknowledge(request_id);
    std::move(done)(Empty());
  }

  void Logging(CallOptions, LoggingRequest request, CallDone<LoggingReply> done) override {
    std::move(done)(log_->Answer(request, options_.scheduler->clock()));
  }

  void RecvBuf(CallOptions options, RecvBufRequest request, CallDone<RecvBufReply> done) override {
    if (absl::Status stopped = Stopped(); !stopped.ok()) return std::move(done)(std::move(stopped));
    AbortIfStopped(receives_->RecvBuf(std::move(options), request, std::move(done)));
  }

  void CompleteGroup(CallOptions options, CollectiveJoin request,
                     CallDone<CompleteGroupReply> done) override {
    if (absl::Status status = Stopped(); !status.ok()) return std::move(done)(std::move(status));
    collectives_->CompleteGroup(std::move(request), peers_, std::move(options.cancellation),
                                std::move(done));
  }

  void CompleteInstance(CallOptions options, CollectiveInstance request,
                        CallDone<int> done) override {
    if (absl::Status status = Stopped(); !status.ok()) return std::move(done)(std::move(status));
    collectives_->CompleteInstance(std::move(request), peers_, name_,
                                   std::move(options.cancellation), std::move(done));
  }

  void GetStepSequence(CallOptions, std::vector<int64_t> graph_keys,
                       CallDone<std::vector<StepSequence>> done) override {
    if (absl::Status status = Stopped(); !status.ok()) return std::move(done)(std::move(status));
    if (!options_.collective_group_leader.empty() && options_.collective_group_leader != name_)
      return std::move(done)(Internal("GetStepSequenceAsync called at non-group-leader"));
    std::vector<StepSequence> all;
    for (const int64_t key : graph_keys) {
      const absl::StatusOr<int64_t> next = sequences_->NextOfLeader(key);
      if (!next.ok()) return std::move(done)(next.status());
      all.push_back({key, *next});
    }
    std::move(done)(std::move(all));
  }

 private:
  static void Finish(const absl::Status& status, CallDone<Empty> done) {
    if (status.ok()) {
      std::move(done)(Empty());
    } else {
      std::move(done)(status);
    }
  }

  void FinishStep(int64_t id) {
    steps_->Finish(id);
    receives_->ForgetStep(id);
  }

  // A call may have come to wait for the step, which may be null, after the steps were stopped.
  void AbortIfStopped(const std::shared_ptr<WorkerStep>& step) const {
    const absl::Status stopped = Stopped();
    if (stopped.ok() || step == nullptr) return;
    step->Abort(stopped);
  }

  absl::Status Stopped() const {
    MutexLock lock(mutex_);
    return stopped_;
  }
  absl::Status Refused() const {
    if (!refuses_.load(std::memory_order_relaxed)) return absl::OkStatus();
    MutexLock lock(mutex_);
    return refused_;
  }

  SessionTable::Options TableOptions() const {
    SessionTable::Options options;
    options.task = name_;
    options.scheduler = options_.control;
    options.master_timeout = options_.master_timeout;
    options.dropped = [steps = steps_](const std::shared_ptr<WorkerSession>& session,
                                       const absl::Status& reason) {
      steps->Stop(session.get(), reason);
    };
    return options;
  }

  PeerReceives::Options ReceiveOptions() const {
    PeerReceives::Options options;
    options.devices = devices_;
    options.steps = steps_;
    options.requests = requests_;
    options.log = log_;
    options.control = options_.control;
    options.cancel_grace = options_.cancel_grace;
    options.cache_replies = options_.cache_replies;
    return options;
  }

  WorkerSession::Options SessionOptions() const {
    WorkerSession::Options options;
    options.self = options_.self;
    options.peers = peers_;
    options.devices = devices_;
    options.scheduler = options_.scheduler;
    options.shared = resources_;
    options.variables = variables_;
    options.owner = OwnerOf(nullptr);
    return options;
  }

  // A caller with the limits that this task sets.
  std::shared_ptr<const Caller> OwnerOf(const Caller* caller) const {
    auto owner = std::make_shared<Caller>(*OrThisProcess(caller));
    owner->limits = options_.limits;
    return owner;
  }

  absl::Status CreateSession(const Caller* caller, CreateWorkerSessionRequest request) {
    if (request.session.empty()) return InvalidArgument("Session must be non-empty.");
    // Nobody will ever close those of its master's earlier life.
    sessions_->DropLeftBehind(request.master_task, request.master_incarnation);
    // It may have been asked for before it was there; its steps should not fail because of that.
    const std::shared_ptr<WorkerApi> master =
        request.master_task.empty() ? nullptr : peers_->Worker(request.master_task);
    if (master != nullptr) master->Reconnect();
    WorkerSession::Options options = SessionOptions();
    options.master_task = request.master_task;
    options.master_incarnation = request.master_incarnation;
    options.owner = OwnerOf(request.owner != nullptr ? request.owner.get() : caller);
    if (request.isolate_state) {
      options.shared = nullptr;
      options.variables = nullptr;
    }
    RETURN_IF_ERROR(Refused());
    if (sessions_->Contains(request.session)) return absl::OkStatus();
    if (request.identity) {
      options.self = request.identity->self;
      options.has_own_cluster = true;
      options.peers =
          options_.transport->Connect(request.identity->cluster, options.self, own_worker_);
    }
    sessions_->Add(request.session, std::make_shared<WorkerSession>(std::move(options)));
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<WorkerSession>> FindSession(const std::string& handle,
                                                             bool in_session) {
    RETURN_IF_ERROR(Stopped());
    if (!in_session) return legacy_;
    if (auto session = sessions_->Find(handle); session != nullptr) return session;
    return PossiblyRestarted(absl::AbortedError(
        absl::StrCat("Session handle is not found: ", handle, ". Possibly this worker (\"", name_,
                     "\") just restarted.")));
  }

  absl::StatusOr<StepTable::Started> StartRun(const RunGraphRequest& request) {
    RETURN_IF_ERROR(Refused());
    if (!requests_->IsNew(request.request_id)) {
      return absl::AbortedError(absl::StrCat(
          "The same RunGraph (Worker) request was received twice. graph_handle: \"", request.graph,
          "\" step_id: ", request.step_id, " session_handle: \"", request.session, "\" ",
          request.in_session ? "create_worker_session_called: true " : "",
          "request_id: ", request.request_id));
    }
    ASSIGN_OR_RETURN(const auto session, FindSession(request.session, request.in_session));
    ASSIGN_OR_RETURN(const auto graph, session->Find(request.graph));
    ASSIGN_OR_RETURN(
        StepTable::Started started,
        steps_->StartRun(request.step_id, session, request.is_partial, [&](WorkerStep& step) {
          step.Begin(session->on_task(), graph->graph);
          if (request.record_timeline && !request.is_partial) step.RecordTrace();
          if (graph->graph->has_collectives) AddCollectives(*session, *graph, step);
        }));
    started.step->rendezvous->Bind(session->task(), session->peers());
    if (started.is_first) steps_run_.fetch_add(1, std::memory_order_relaxed);
    return started;
  }

  void AddCollectives(const WorkerSession& session, const RegisteredGraph& graph,
                      WorkerStep& step) {
    TaskCollectives::Place place;
    place.task = session.task();
    place.leader = graph.collective_group_leader.empty() ? options_.collective_group_leader
                                                         : graph.collective_group_leader;
    place.peers = session.peers();
    step.Use(collectives_->ForStep(std::move(place), step.id(), step.buffers()));
    step.WhenDone([steps = steps_, id = step.id()](const absl::Status& status) {
      if (!status.ok()) steps->Failed(id, status);
    });
  }

  const WorkerOptions options_;
  const std::string name_;
  const std::shared_ptr<const TaskDevices> devices_;
  const std::shared_ptr<ResourceManager> resources_;
  const std::shared_ptr<VariableNames> variables_ = std::make_shared<VariableNames>();
  const std::shared_ptr<TransferLog> log_ = std::make_shared<TransferLog>();
  const std::shared_ptr<StepTable> steps_;
  const std::shared_ptr<SessionTable> sessions_;
  const std::shared_ptr<TaskCollectives> collectives_;
  const std::shared_ptr<StepSequences> sequences_ = std::make_shared<StepSequences>();
  const std::shared_ptr<RequestIds> requests_ = std::make_shared<RequestIds>();
  const std::shared_ptr<PeerReceives> receives_;
  std::shared_ptr<OwnWorker> own_worker_;  // as the others of a cluster, for all of them one
  std::shared_ptr<Peers> peers_;
  std::shared_ptr<WorkerSession> legacy_;
  std::atomic<int64_t> steps_run_{0};

  mutable Mutex mutex_;
  absl::Status stopped_ ABSL_GUARDED_BY(mutex_);
  absl::Status refused_ ABSL_GUARDED_BY(mutex_);  // why nothing new is begun
  std::atomic<bool> refuses_{false};
};

}  // namespace

absl::StatusOr<std::shared_ptr<Worker>> Worker::Create(WorkerOptions options) {
  if (options.scheduler == nullptr || options.transport == nullptr)
    return InvalidArgument("A worker needs a scheduler and a transport");
  ASSIGN_OR_RETURN(
      std::shared_ptr<const TaskDevices> devices,
      TaskDevices::Create(options.self.ToString(), options.devices, *options.scheduler));
  if (options.control == nullptr) options.control = options.scheduler;
  const ClusterSpec cluster = std::exchange(options.cluster, {});  // the peers keep it
  auto worker = std::make_shared<TaskWorker>(std::move(options), std::move(devices));
  worker->Connect(cluster);
  return std::shared_ptr<Worker>(std::move(worker));
}

}  // namespace muster
