#include "muster/worker/worker.h"

#include <atomic>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"

#include "muster/base/log.h"
#include "muster/runtime/direct_groups.h"
#include "muster/transport/forwarding.h"
#include "muster/worker/batch_receive.h"
#include "muster/worker/graph_run.h"
#include "muster/worker/reply_cache.h"
#include "muster/worker/session_table.h"
#include "muster/worker/step_table.h"
#include "muster/worker/task_collectives.h"
#include "muster/worker/transfer_key.h"
#include "muster/worker/variable_names.h"

namespace muster {
namespace {

constexpr size_t kRememberedRequests = 100'000;
constexpr absl::Duration kGivenUpGrace = absl::Seconds(2);
// More than a step has: those that were forgotten are all looked at again.
constexpr size_t kRememberedKeys = 1 << 20;

// What peers hold of their own task: it must not keep the worker alive.
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

// A receive of another task that may be cancelled while it waits.
template <typename Reply>
struct WaitingCall {
  Mutex mutex;
  CallDone<Reply> done ABSL_GUARDED_BY(mutex);
  std::shared_ptr<Cancellation> caller;
  Cancellation::Token token = 0;

  // The first to come answers.
  void Answer(absl::StatusOr<Reply> reply) {
    CallDone<Reply> taken;
    {
      MutexLock lock(mutex);
      taken = std::move(done);
      done = nullptr;
    }
    if (caller != nullptr) caller->Deregister(token);
    if (taken) std::move(taken)(std::move(reply));
  }
  bool answered() {
    MutexLock lock(mutex);
    return !done;
  }
};

using PeerReceive = WaitingCall<RecvTensorReply>;
using PeerFetch = WaitingCall<RecvBufReply>;

class TaskWorker : public Worker, public std::enable_shared_from_this<TaskWorker> {
 public:
  explicit TaskWorker(WorkerOptions options)
      : options_(std::move(options)),
        name_(options_.self.ToString()),
        resources_(std::make_shared<ResourceManager>(options_.self.job)),
        steps_(std::make_shared<StepTable>(*options_.control, log_)),
        sessions_(std::make_shared<SessionTable>(TableOptions())),
        collectives_(std::make_shared<TaskCollectives>(*options_.control, *options_.scheduler, log_,
                                                       options_.direct_groups)) {
    for (int i = 0; i < options_.cpu_devices; ++i) {
      devices_->push_back(
          NewCpuDevice(absl::StrCat(name_, "/device:CPU:", i), *options_.scheduler));
      device_list_.push_back(devices_->back().get());
    }
  }

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
  const std::vector<Device*>& devices() const override { return device_list_; }
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
    std::vector<DeviceAttributes> list;
    for (const Device* device : device_list_) list.push_back(device->attributes());
    std::move(done)(std::move(list));
  }

  void CreateWorkerSession(CallOptions, CreateWorkerSessionRequest request,
                           CallDone<Empty> done) override {
    const absl::Status status = CreateSession(std::move(request));
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
    absl::StatusOr<GraphRun::Options> run = PrepareRun(request);
    if (!run.ok()) {
      std::move(done)(run.status());
      return;
    }
    run->request = std::move(request);
    run->done = std::move(done);
    run->steps = steps_;
    run->caller = std::move(options.cancellation);
    run->cancel_grace = options_.cancel_grace;
    run->scheduler = options_.control;
    const auto execution = run->execution;
    std::make_shared<GraphRun>(*std::move(run))->Start();
    // The worker may have been stopped before the step was in the table.
    if (const absl::Status stopped = Stopped(); !stopped.ok()) {
      execution->cancellation->Cancel(stopped);
      execution->rendezvous().Abort(stopped);
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
    if (const absl::Status stopped = Stopped(); !stopped.ok()) {
      std::move(done)(stopped);
      return;
    }
    if (options_.cache_replies && request.request_id != 0) {
      // A reply that is kept is wanted even when the call that asked for it is gone.
      options.cancellation = nullptr;
      if (!cache_->Begin(request.request_id, request.step_id, std::move(done))) return;
      done = [cache = cache_, id = request.request_id](absl::StatusOr<RecvTensorReply> reply) {
        cache->Finish(id, std::move(reply));
      };
    }
    absl::Status status = CheckReceive(request);
    absl::StatusOr<std::shared_ptr<WorkerStep>> step =
        status.ok() ? steps_->ForReceive(request.step_id) : status;
    if (!step.ok()) {
      std::move(done)(step.status());
      return;
    }
    Receive(*step, request.key, std::move(options.cancellation), std::move(done));
    if (const absl::Status stopped = Stopped(); !stopped.ok()) (*step)->rendezvous->Abort(stopped);
  }

  bool IsMuster() override { return true; }

  void RecvTensors(CallOptions options, RecvTensorsRequest request,
                   CallDone<RecvTensorsReply> done) override {
    absl::StatusOr<std::shared_ptr<WorkerStep>> step = StepOf(request);
    if (!step.ok()) {
      std::move(done)(step.status());
      return;
    }
    BatchReceive::Options receive;
    receive.keys = std::move(request.keys);
    receive.done = std::move(done);
    receive.step = *step;
    receive.steps = steps_;
    receive.caller = std::move(options.cancellation);
    receive.cancel_grace = options_.cancel_grace;
    receive.control = options_.control;
    receive.log = log_;
    std::make_shared<BatchReceive>(std::move(receive))->Start();
    if (const absl::Status stopped = Stopped(); !stopped.ok()) (*step)->rendezvous->Abort(stopped);
  }

  void MarkRecvFinished(CallOptions, int64_t request_id, CallDone<Empty> done) override {
    cache_->Forget(request_id);
    std::move(done)(Empty());
  }

  void Logging(CallOptions, LoggingRequest request, CallDone<LoggingReply> done) override {
    std::move(done)(log_->Answer(request, options_.scheduler->clock()));
  }

  void RecvBuf(CallOptions options, RecvBufRequest request, CallDone<RecvBufReply> done) override {
    absl::Status status = Stopped();
    if (status.ok()) status = CheckFetch(request);
    absl::StatusOr<std::shared_ptr<WorkerStep>> step =
        status.ok() ? steps_->ForBuffer(request.step_id) : status;
    if (!step.ok()) return std::move(done)(step.status());
    Fetch(*step, request, std::move(options.cancellation), std::move(done));
    if (const absl::Status stopped = Stopped(); !stopped.ok()) (*step)->buffers->Abort(stopped);
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
    cache_->ForgetStep(id);
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

  WorkerSession::Options SessionOptions() const {
    WorkerSession::Options options;
    options.self = options_.self;
    options.peers = peers_;
    options.devices = devices_;
    options.shared = resources_;
    options.variables = variables_;
    options.max_graph_nodes = options_.max_graph_nodes;
    options.max_memory_bytes = options_.max_session_memory_bytes;
    return options;
  }

  absl::Status CreateSession(CreateWorkerSessionRequest request) {
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
    if (request.isolate_state) {
      options.shared = nullptr;
      options.variables = nullptr;
    }
    RETURN_IF_ERROR(Refused());
    if (sessions_->Contains(request.session)) return absl::OkStatus();
    if (request.identity) {
      options.self = request.identity->self;
      options.rename_devices = true;
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

  // True when the id was not seen before; zero never was.
  bool IsNewRequest(int64_t request_id) {
    if (request_id == 0) return true;
    MutexLock lock(requests_mutex_);
    return requests_.Insert(request_id);
  }

  absl::StatusOr<GraphRun::Options> PrepareRun(const RunGraphRequest& request) {
    RETURN_IF_ERROR(Refused());
    if (!IsNewRequest(request.request_id)) {
      return absl::AbortedError(absl::StrCat(
          "The same RunGraph (Worker) request was received twice. graph_handle: \"", request.graph,
          "\" step_id: ", request.step_id, " session_handle: \"", request.session, "\" ",
          request.in_session ? "create_worker_session_called: true " : "",
          "request_id: ", request.request_id));
    }
    ASSIGN_OR_RETURN(const auto session, FindSession(request.session, request.in_session));
    ASSIGN_OR_RETURN(const auto graph, session->Find(request.graph));
    GraphRun::Options run;
    ASSIGN_OR_RETURN(run.step, steps_->StartRun(request.step_id, session));
    run.step->rendezvous->Bind(session->task(), session->peers());
    const auto make = [&] {
      auto execution = std::make_shared<Execution>(request.step_id, session, graph,
                                                   run.step->rendezvous, *options_.scheduler,
                                                   request.record_timeline && !request.is_partial);
      if (graph->has_collectives) AddCollectives(*session, *graph, *run.step, *execution);
      return execution;
    };
    if (request.is_partial) {
      StepTable::Partial partial = steps_->PartialRun(*run.step, make);
      run.execution = std::move(partial.execution);
      run.starts_execution = partial.is_new;
    } else {
      run.execution = make();
      steps_->AddExecution(*run.step, run.execution);
    }
    if (run.starts_execution) steps_run_.fetch_add(1, std::memory_order_relaxed);
    return run;
  }

  void AddCollectives(const WorkerSession& session, const RegisteredGraph& graph,
                      const WorkerStep& step, Execution& execution) {
    TaskCollectives::Place place;
    place.task = session.task();
    place.leader = graph.collective_group_leader.empty() ? options_.collective_group_leader
                                                         : graph.collective_group_leader;
    place.peers = session.peers();
    execution.UseCollectives(collectives_->ForStep(std::move(place), step.id, step.buffers));
    execution.WhenDone([steps = steps_, id = step.id](const absl::Status& status) {
      if (!status.ok()) steps->Failed(id, status);
    });
  }

  absl::Status CheckFetch(const RecvBufRequest& request) {
    if (!IsNewRequest(request.request_id)) {
      return absl::AbortedError(absl::StrCat(
          "The same RecvBuf (GrpcWorker) request was received twice. step_id: ", request.step_id,
          " buf_rendezvous_key: \"", request.key, "\" request_id: ", request.request_id));
    }
    ASSIGN_OR_RETURN(const DeviceName source, DeviceName::Parse(request.src_device));
    for (const Device* device : device_list_) {
      ASSIGN_OR_RETURN(const DeviceName name, DeviceName::Parse(device->name()));
      if (name.type != source.type || name.index != source.index) continue;
      const uint64_t incarnation = device->attributes().incarnation;
      if (request.src_incarnation == 0 || request.src_incarnation == incarnation)
        return absl::OkStatus();
      return PossiblyRestarted(FailedPrecondition(
          "RecvBuf expects a different device incarnation: ", request.src_incarnation, " vs. ",
          incarnation, ". Your worker job that contains the device (\"", request.src_device,
          "\") was probably restarted. Check your worker job for the reason why it was "
          "restarted."));
    }
    return InvalidArgument("'", request.src_device, "' is no device of ", name_);
  }

  void Fetch(const std::shared_ptr<WorkerStep>& step, const RecvBufRequest& request,
             std::shared_ptr<Cancellation> caller, CallDone<RecvBufReply> done) {
    auto fetch = std::make_shared<PeerFetch>();
    {
      MutexLock lock(fetch->mutex);
      fetch->done = std::move(done);
    }
    if (caller != nullptr) {
      fetch->token = caller->NewToken();
      fetch->caller = caller;
    }
    const CollectiveBuffers::Token waiting =
        step->buffers->Consume(request.key, [fetch, log = log_](absl::StatusOr<Buffer> bytes) {
          if (bytes.ok()) {
            log->CountCollective(static_cast<int64_t>(bytes->length_bytes()), 0);
            fetch->Answer(RecvBufReply{*std::move(bytes), false});
          } else {
            fetch->Answer(bytes.status());
          }
        });
    if (caller == nullptr || fetch->answered()) return;
    // Only scheduled: the answer takes the callback back, perhaps because of it.
    Task stop = [weak = weak_from_this(), step, waiting, fetch, taker = request.dst_device] {
      if (const auto self = weak.lock()) self->StopFetch(step, waiting, *fetch, taker);
    };
    const bool registered = caller->Register(
        fetch->token, [scheduler = options_.control, stop = std::move(stop)]() mutable {
          scheduler->Schedule(std::move(stop));
        });
    if (!registered) StopFetch(step, waiting, *fetch, request.dst_device);
    if (fetch->answered()) caller->Deregister(fetch->token);
  }

  void StopFetch(const std::shared_ptr<WorkerStep>& step, CollectiveBuffers::Token waiting,
                 PeerFetch& fetch, const std::string& taker) {
    if (!step->buffers->StopWaiting(waiting)) return;
    // A collective cannot go on without one of its ranks; those that only watch have no name. Why
    // it has given up is soon told by the ranks that are asked for something.
    if (steps_->ReceiveStopped(step) && !taker.empty()) {
      const absl::Status reason = Derived(absl::AbortedError(absl::StrCat(
          "Collective rank ", taker, " has given up: ", fetch.caller->reason().message())));
      options_.control->ScheduleAfter(
          kGivenUpGrace, [weak = std::weak_ptr<CollectiveBuffers>(step->buffers), reason] {
            if (const auto buffers = weak.lock()) buffers->Abort(reason);
          });
    }
    fetch.Answer(fetch.caller->reason());
  }

  absl::Status CheckReceive(const RecvTensorRequest& request) {
    if (!IsNewRequest(request.request_id)) {
      return absl::AbortedError(absl::StrCat(
          "The same RecvTensor (GrpcWorker) request was received twice. step_id: ", request.step_id,
          " rendezvous_key: \"", request.key, "\" request_id: ", request.request_id));
    }
    return CheckKey(request.key);
  }

  absl::StatusOr<std::shared_ptr<WorkerStep>> StepOf(const RecvTensorsRequest& request) {
    RETURN_IF_ERROR(Stopped());
    const size_t count = request.keys.size();
    if (count == 0 || count > RecvTensorsRequest::kMaxKeys) {
      return InvalidArgument("RecvTensors asks for ", count, " tensors; it may be 1 to ",
                             RecvTensorsRequest::kMaxKeys);
    }
    if (!IsNewRequest(request.request_id)) {
      return absl::AbortedError(absl::StrCat(
          "The same RecvTensors request was received twice. step_id: ", request.step_id,
          " request_id: ", request.request_id));
    }
    RETURN_IF_ERROR(CheckKeys(request.keys));
    return steps_->ForReceive(request.step_id, static_cast<int64_t>(count));
  }

  // Steps repeat themselves, and so do their keys.
  absl::Status CheckKeys(const KeyList& keys) {
    std::vector<size_t> unknown;
    {
      MutexLock lock(keys_mutex_);
      for (size_t i = 0; i < keys.size(); ++i)
        if (!good_keys_.contains(absl::HashOf(keys[i]))) unknown.push_back(i);
    }
    for (const size_t i : unknown) RETURN_IF_ERROR(CheckNewKey(std::string(keys[i])));
    return absl::OkStatus();
  }

  absl::Status CheckKey(const std::string& key) {
    {
      MutexLock lock(keys_mutex_);
      if (good_keys_.contains(absl::HashOf(absl::string_view(key)))) return absl::OkStatus();
    }
    return CheckNewKey(key);
  }

  absl::Status CheckNewKey(const std::string& key) {
    RETURN_IF_ERROR(ParseKey(key));
    if (!absl::EndsWith(key, ";0:0")) return absl::OkStatus();  // loops do not
    MutexLock lock(keys_mutex_);
    if (good_keys_.size() >= kRememberedKeys) good_keys_.clear();
    good_keys_.insert(absl::HashOf(absl::string_view(key)));
    return absl::OkStatus();
  }

  absl::Status ParseKey(const std::string& text) {
    ASSIGN_OR_RETURN(const TransferKey key, TransferKey::Parse(text));
    // By type and number alone: in sessions with their own clusters the task has another name.
    for (const Device* device : device_list_) {
      ASSIGN_OR_RETURN(const DeviceName name, DeviceName::Parse(device->name()));
      if (name.type != key.source_device.type || name.index != key.source_device.index) continue;
      if (device->attributes().incarnation == key.incarnation) return absl::OkStatus();
      return PossiblyRestarted(absl::AbortedError(absl::StrCat(
          "RecvTensor expects a different device incarnation: ", key.incarnation, " vs. ",
          device->attributes().incarnation, ". Your worker job (\"", name_,
          "\") was probably restarted. Check your worker job for the reason why it was "
          "restarted.")));
    }
    return InvalidArgument("/device:", *key.source_device.type, ":", *key.source_device.index,
                           " unknown device.");
  }

  void Receive(const std::shared_ptr<WorkerStep>& step, const std::string& key,
               std::shared_ptr<Cancellation> caller, CallDone<RecvTensorReply> done) {
    auto receive = std::make_shared<PeerReceive>();
    {
      MutexLock lock(receive->mutex);
      receive->done = std::move(done);
    }
    if (caller != nullptr) {
      receive->token = caller->NewToken();
      receive->caller = caller;
    }
    const RemoteRendezvous::Token waiting = step->rendezvous->RecvForPeer(
        key, [receive, log = log_](absl::StatusOr<Rendezvous::Value> value) {
          if (value.ok()) {
            log->CountSent(value->tensor);
            receive->Answer(RecvTensorReply{*std::move(value), false});
          } else {
            receive->Answer(value.status());
          }
        });
    if (caller == nullptr || receive->answered()) return;
    // Only scheduled: the answer takes the callback back, perhaps because of it.
    Task stop = [weak = weak_from_this(), step, waiting, receive] {
      if (const auto self = weak.lock()) self->StopReceive(step, waiting, *receive);
    };
    const bool registered = caller->Register(
        receive->token, [scheduler = options_.control, stop = std::move(stop)]() mutable {
          scheduler->Schedule(std::move(stop));
        });
    if (!registered) StopReceive(step, waiting, *receive);
    if (receive->answered()) caller->Deregister(receive->token);
  }

  void StopReceive(const std::shared_ptr<WorkerStep>& step, RemoteRendezvous::Token waiting,
                   PeerReceive& receive) {
    if (!step->rendezvous->StopWaiting(waiting)) return;
    // The step cannot go on without the receiver.
    if (steps_->ReceiveStopped(step))
      AbortAfter(options_.cancel_grace, step->id, step->rendezvous, *options_.control);
    receive.Answer(receive.caller->reason());
  }

  const WorkerOptions options_;
  const std::string name_;
  const std::shared_ptr<DeviceList> devices_ = std::make_shared<DeviceList>();
  std::vector<Device*> device_list_;
  const std::shared_ptr<ResourceManager> resources_;
  const std::shared_ptr<VariableNames> variables_ = std::make_shared<VariableNames>();
  const std::shared_ptr<TransferLog> log_ = std::make_shared<TransferLog>();
  const std::shared_ptr<StepTable> steps_;
  const std::shared_ptr<SessionTable> sessions_;
  const std::shared_ptr<TaskCollectives> collectives_;
  const std::shared_ptr<StepSequences> sequences_ = std::make_shared<StepSequences>();
  const std::shared_ptr<ReplyCache> cache_ = std::make_shared<ReplyCache>();
  std::shared_ptr<OwnWorker> own_worker_;  // as the others of a cluster, for all of them one
  std::shared_ptr<Peers> peers_;
  std::shared_ptr<WorkerSession> legacy_;
  std::atomic<int64_t> steps_run_{0};

  Mutex requests_mutex_;
  RecentIds requests_ ABSL_GUARDED_BY(requests_mutex_){kRememberedRequests};
  Mutex keys_mutex_;
  // By their hash, which nobody else can foresee: a seed of the process is in it.
  absl::flat_hash_set<size_t> good_keys_ ABSL_GUARDED_BY(keys_mutex_);
  mutable Mutex mutex_;
  absl::Status stopped_ ABSL_GUARDED_BY(mutex_);
  absl::Status refused_ ABSL_GUARDED_BY(mutex_);  // why nothing new is begun
  std::atomic<bool> refuses_{false};
};

}  // namespace

absl::StatusOr<std::shared_ptr<Worker>> Worker::Create(WorkerOptions options) {
  if (options.scheduler == nullptr || options.transport == nullptr)
    return InvalidArgument("A worker needs a scheduler and a transport");
  if (options.cpu_devices < 1 || options.cpu_devices > 1024) {
    return InvalidArgument("device_count CPU is ", options.cpu_devices,
                           "; a task has between 1 and 1024 CPU devices");
  }
  if (options.control == nullptr) options.control = options.scheduler;
  const ClusterSpec cluster = std::exchange(options.cluster, {});  // the peers keep it
  auto worker = std::make_shared<TaskWorker>(std::move(options));
  worker->Connect(cluster);
  return std::shared_ptr<Worker>(std::move(worker));
}

}  // namespace muster
