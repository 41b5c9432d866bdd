// A master and a worker that remember what they were asked.
#pragma once

#include <deque>
#include <functional>
#include <future>
#include <optional>

#include "absl/strings/str_join.h"

#include "muster/transport/grpc/grpc_transport.h"

namespace muster {

// The result of a call, waited for.
template <typename Reply, typename Start>
absl::StatusOr<Reply> Await(Start start) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<Reply>>>();
  auto result = promise->get_future();
  start(CallDone<Reply>(
      [promise](absl::StatusOr<Reply> reply) { promise->set_value(std::move(reply)); }));
  if (result.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
    return absl::DeadlineExceededError("the test waited for a minute");
  }
  return result.get();
}

inline std::string Joined(const KeyList& keys) {
  std::string text;
  for (size_t i = 0; i < keys.size(); ++i) absl::StrAppend(&text, i == 0 ? "" : ",", keys[i]);
  return text;
}

class FakeWorker : public WorkerApi {
 public:
  absl::Status error;  // answered by all calls when it is set
  // Runs calls that may take long; empty: answers at once.
  std::function<void(CallOptions, std::function<void(absl::Status)>)> hold;
  CallOptions last;
  std::string text;  // what the last call said, for comparison
  std::optional<RunGraphRequest> run_graph;
  std::optional<CreateWorkerSessionRequest> session;
  std::unique_ptr<Graph> graph;
  FrameIds frame_ids = FrameIds::kBefore23;
  RunGraphReply run_graph_reply;
  RecvTensorReply recv_reply;
  RecvTensorsReply recv_several_reply;
  LoggingReply logging_reply;

  void GetStatus(CallOptions options, CallDone<std::vector<DeviceAttributes>> done) override {
    DeviceAttributes device;
    device.name = "/job:ps/replica:0/task:0/device:CPU:0";
    device.device_type = "CPU";
    device.incarnation = 0xFEDCBA9876543210;
    Answer<std::vector<DeviceAttributes>>(std::move(options), "GetStatus", std::move(done),
                                          {device});
  }
  void CreateWorkerSession(CallOptions options, CreateWorkerSessionRequest request,
                           CallDone<Empty> done) override {
    session = std::move(request);
    Answer<Empty>(std::move(options), "CreateWorkerSession", std::move(done), Empty());
  }
  void DeleteWorkerSession(CallOptions options, std::string name, CallDone<Empty> done) override {
    Answer<Empty>(std::move(options), "DeleteWorkerSession " + name, std::move(done), Empty());
  }
  void RegisterGraph(CallOptions options, RegisterGraphRequest request,
                     CallDone<std::string> done) override {
    absl::StatusOr<std::unique_ptr<Graph>> made = std::move(request.graph)();
    if (!made.ok()) return std::move(done)(made.status());
    graph = *std::move(made);
    frame_ids = request.frame_ids;
    Answer<std::string>(std::move(options),
                        absl::StrCat("RegisterGraph ", request.session, request.in_session,
                                     request.optimize, request.collective_graph_key),
                        std::move(done), "graph1");
  }
  void DeregisterGraph(CallOptions options, std::string name, bool in_session, std::string handle,
                       CallDone<Empty> done) override {
    Answer<Empty>(std::move(options), absl::StrCat("DeregisterGraph ", name, in_session, handle),
                  std::move(done), Empty());
  }
  void RunGraph(CallOptions options, RunGraphRequest request,
                CallDone<RunGraphReply> done) override {
    run_graph = std::move(request);
    Answer<RunGraphReply>(std::move(options), "RunGraph", std::move(done), run_graph_reply);
  }
  void CleanupGraph(CallOptions options, int64_t step_id, CallDone<Empty> done) override {
    Answer<Empty>(std::move(options), absl::StrCat("CleanupGraph ", step_id), std::move(done),
                  Empty());
  }
  void CleanupAll(CallOptions options, std::vector<std::string> containers,
                  CallDone<Empty> done) override {
    Answer<Empty>(std::move(options), absl::StrCat("CleanupAll ", containers.size()),
                  std::move(done), Empty());
  }
  void RecvTensor(CallOptions options, RecvTensorRequest request,
                  CallDone<RecvTensorReply> done) override {
    Answer<RecvTensorReply>(
        std::move(options),
        absl::StrCat("RecvTensor ", request.step_id, request.key, request.request_id),
        std::move(done), recv_reply);
  }
  void RecvTensors(CallOptions options, RecvTensorsRequest request,
                   CallDone<RecvTensorsReply> done) override {
    Answer<RecvTensorsReply>(
        std::move(options),
        absl::StrCat("RecvTensors ", request.step_id, Joined(request.keys), request.request_id),
        std::move(done), recv_several_reply);
  }
  void MarkRecvFinished(CallOptions options, int64_t request_id, CallDone<Empty> done) override {
    Answer<Empty>(std::move(options), absl::StrCat("MarkRecvFinished ", request_id),
                  std::move(done), Empty());
  }
  void Logging(CallOptions options, LoggingRequest request, CallDone<LoggingReply> done) override {
    Answer<LoggingReply>(std::move(options),
                         absl::StrCat("Logging ", request.enable, request.disable, request.clear,
                                      request.fetch_steps.size()),
                         std::move(done), logging_reply);
  }

 private:
  template <typename Reply>
  void Answer(CallOptions options, std::string said, CallDone<Reply> done, Reply reply) {
    {
      MutexLock lock(mutex_);
      text = std::move(said);
      last = options;
    }
    if (hold) {
      auto held = std::make_shared<CallDone<Reply>>(std::move(done));
      hold(std::move(options), [held](absl::Status status) { std::move (*held)(status); });
      return;
    }
    if (!error.ok()) {
      std::move(done)(error);
    } else {
      std::move(done)(std::move(reply));
    }
  }

  Mutex mutex_;
};

class FakeMaster : public MasterApi {
 public:
  absl::Status error;
  CallOptions last;
  std::string text;
  Graph graph;
  std::optional<SessionConfig> config;
  std::optional<RunStepRequest> run_step;
  std::optional<MakeCallableRequest> callable;
  std::optional<RunCallableRequest> run_callable;
  RunStepReply run_step_reply;
  RunCallableReply run_callable_reply;
  ListDevicesReply devices;

  void CreateSession(CallOptions options, CreateSessionRequest request,
                     CallDone<CreateSessionReply> done) override {
    if (absl::Status status = std::move(request.graph)(graph); !status.ok()) {
      return std::move(done)(status);
    }
    config = std::move(request.config);
    Answer<CreateSessionReply>(std::move(options), "CreateSession " + request.target,
                               std::move(done), {"session1", 5});
  }
  void ExtendSession(CallOptions options, ExtendSessionRequest request,
                     CallDone<int64_t> done) override {
    if (absl::Status status = std::move(request.graph)(graph); !status.ok()) {
      return std::move(done)(status);
    }
    Answer<int64_t>(std::move(options), "ExtendSession " + request.session, std::move(done),
                    request.current_version + 1);
  }
  void RunStep(CallOptions options, RunStepRequest request, CallDone<RunStepReply> done) override {
    run_step = std::move(request);
    Answer<RunStepReply>(std::move(options), "RunStep", std::move(done), run_step_reply);
  }
  void PartialRunSetup(CallOptions options, PartialRunSetupRequest request,
                       CallDone<std::string> done) override {
    Answer<std::string>(
        std::move(options),
        absl::StrCat("PartialRunSetup ", request.session, request.feeds.size(),
                     request.fetches.size(), request.targets.size(), request.request_id),
        std::move(done), "partial1");
  }
  void CloseSession(CallOptions options, std::string session, CallDone<Empty> done) override {
    Answer<Empty>(std::move(options), "CloseSession " + session, std::move(done), Empty());
  }
  void ListDevices(CallOptions options, std::string session,
                   CallDone<ListDevicesReply> done) override {
    Answer<ListDevicesReply>(std::move(options), "ListDevices " + session, std::move(done),
                             devices);
  }
  void Reset(CallOptions options, std::vector<std::string> containers,
             std::vector<std::string> device_filters, CallDone<Empty> done) override {
    Answer<Empty>(std::move(options),
                  absl::StrCat("Reset ", containers.size(), device_filters.size()), std::move(done),
                  Empty());
  }
  void MakeCallable(CallOptions options, MakeCallableRequest request,
                    CallDone<int64_t> done) override {
    callable = std::move(request);
    Answer<int64_t>(std::move(options), "MakeCallable", std::move(done), 8);
  }
  void RunCallable(CallOptions options, RunCallableRequest request,
                   CallDone<RunCallableReply> done) override {
    run_callable = std::move(request);
    Answer<RunCallableReply>(std::move(options), "RunCallable", std::move(done),
                             run_callable_reply);
  }
  void ReleaseCallable(CallOptions options, std::string session, int64_t callable_handle,
                       CallDone<Empty> done) override {
    Answer<Empty>(std::move(options), absl::StrCat("ReleaseCallable ", session, callable_handle),
                  std::move(done), Empty());
  }

 private:
  template <typename Reply>
  void Answer(CallOptions options, std::string said, CallDone<Reply> done, Reply reply) {
    text = std::move(said);
    last = std::move(options);
    if (!error.ok()) {
      std::move(done)(error);
    } else {
      std::move(done)(std::move(reply));
    }
  }
};

// A server with both, and a transport that reaches it.
struct FakeTask {
  std::shared_ptr<FakeMaster> master = std::make_shared<FakeMaster>();
  std::shared_ptr<FakeWorker> worker = std::make_shared<FakeWorker>();
  std::unique_ptr<GrpcServer> server;
  std::unique_ptr<Transport> transport;
  std::shared_ptr<Peers> peers;
  std::shared_ptr<WorkerApi> remote;
  std::shared_ptr<MasterApi> remote_master;
  Links links = Links::kNone;
  size_t max_sent_bytes = INT32_MAX;  // by either side
  size_t max_whole_bytes = INT32_MAX;

  absl::Status Start(GrpcServerOptions options = {}, SecurityOptions client = {}) {
    options.host = "127.0.0.1";
    options.links = links;
    options.max_sent_bytes = max_sent_bytes;
    options.max_whole_bytes = max_whole_bytes;
    ASSIGN_OR_RETURN(server, GrpcServer::Start(std::move(options), master, worker));
    return Connect(std::move(client), absl::StrCat("127.0.0.1:", server->port()));
  }
  absl::Status Connect(SecurityOptions client, const std::string& address) {
    GrpcOptions grpc;
    grpc.scheduler = &DefaultScheduler();
    grpc.security = std::move(client);
    grpc.links = links;
    grpc.max_sent_bytes = max_sent_bytes;
    grpc.max_whole_bytes = max_whole_bytes;
    transport = NewGrpcTransport(std::move(grpc));
    peers = transport->Connect(ClusterSpec({{"ps", {{0, address}}}}), TaskName(), nullptr);
    remote = peers->Worker("/job:ps/replica:0/task:0");
    ASSIGN_OR_RETURN(remote_master, transport->ConnectMaster(absl::StrCat("grpc://", address)));
    return absl::OkStatus();
  }
};

}  // namespace muster
