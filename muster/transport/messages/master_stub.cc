#include "absl/container/flat_hash_map.h"
#include "tensorflow/core/protobuf/master.pb.h"

#include "muster/transport/device_proto.h"
#include "muster/transport/master_proto.h"
#include "muster/transport/messages/methods.h"
#include "muster/transport/messages/stub_reply.h"
#include "muster/transport/messages/stubs.h"
#include "muster/transport/peer.h"

namespace muster {
namespace {

// The graph of a session as its master has it: an edit needs the whole graph, a message only what
// the edit added.
struct SessionGraph {
  Mutex mutex;
  Graph graph ABSL_GUARDED_BY(mutex);
};

// Thread-safe; shared with the calls that are under way.
class SessionGraphs {
 public:
  void Add(const std::string& session, std::shared_ptr<SessionGraph> graph) {
    MutexLock lock(mutex_);
    graphs_[session] = std::move(graph);
  }
  std::shared_ptr<SessionGraph> Find(const std::string& session) {
    MutexLock lock(mutex_);
    const auto found = graphs_.find(session);
    return found == graphs_.end() ? nullptr : found->second;
  }
  void Remove(const std::string& session) {
    MutexLock lock(mutex_);
    graphs_.erase(session);
  }

 private:
  Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<SessionGraph>> graphs_ ABSL_GUARDED_BY(mutex_);
};

class MasterStub final : public MasterApi, public MasterConnection {
 public:
  explicit MasterStub(std::shared_ptr<const Channel> channel)
      : channel_(std::move(channel)), graphs_(std::make_shared<SessionGraphs>()) {}

  void CreateSession(CallOptions options, CreateSessionRequest request,
                     CallDone<CreateSessionReply> done) override {
    auto graph = std::make_shared<SessionGraph>();
    absl::StatusOr<WireMessage> message = [&]() -> absl::StatusOr<WireMessage> {
      MutexLock lock(graph->mutex);
      if (request.graph) RETURN_IF_ERROR(std::move(request.graph)(graph->graph));
      return WriteCreateSession(request, graph->graph);
    }();
    Call("CreateSession", std::move(options), std::move(message),
         ReplyAs<tensorflow::CreateSessionResponse>(
             std::move(done),
             [graphs = graphs_, graph](const tensorflow::CreateSessionResponse& proto) {
               graphs->Add(proto.session_handle(), graph);
               return CreateSessionReply{proto.session_handle(), proto.graph_version()};
             }));
  }

  void ExtendSession(CallOptions options, ExtendSessionRequest request,
                     CallDone<int64_t> done) override {
    const std::shared_ptr<SessionGraph> graph = graphs_->Find(request.session);
    if (graph == nullptr) {
      return std::move(done)(
          absl::AbortedError(absl::StrCat("Session ", request.session, " is not found.")));
    }
    int nodes_before = 0;
    absl::StatusOr<WireMessage> message = [&]() -> absl::StatusOr<WireMessage> {
      MutexLock lock(graph->mutex);
      nodes_before = graph->graph.num_nodes();
      RETURN_IF_ERROR(std::move(request.graph)(graph->graph));
      return WriteExtendSession(request, graph->graph, nodes_before);
    }();
    auto undo_on_error = [graph, nodes_before,
                          done = std::move(done)](absl::StatusOr<int64_t> version) mutable {
      if (!version.ok()) {
        MutexLock lock(graph->mutex);
        graph->graph.RemoveNewestNodes(nodes_before);
      }
      std::move(done)(std::move(version));
    };
    Call("ExtendSession", std::move(options), std::move(message),
         ReplyAs<tensorflow::ExtendSessionResponse>(
             CallDone<int64_t>(std::move(undo_on_error)),
             [](const tensorflow::ExtendSessionResponse& proto) -> int64_t {
               return proto.new_graph_version();
             }));
  }

  void RunStep(CallOptions options, RunStepRequest request, CallDone<RunStepReply> done) override {
    Call("RunStep", std::move(options), WriteRunStep(request),
         ReplyWith(std::move(done), ReadRunStepReply));
  }

  void PartialRunSetup(CallOptions options, PartialRunSetupRequest request,
                       CallDone<std::string> done) override {
    tensorflow::PartialRunSetupRequest proto;
    proto.set_session_handle(std::move(request.session));
    *proto.mutable_feed() = {request.feeds.begin(), request.feeds.end()};
    *proto.mutable_fetch() = {request.fetches.begin(), request.fetches.end()};
    *proto.mutable_target() = {request.targets.begin(), request.targets.end()};
    proto.set_request_id(request.request_id);
    Call("PartialRunSetup", std::move(options), SerializeMessage(proto),
         ReplyAs<tensorflow::PartialRunSetupResponse>(
             std::move(done), [](const tensorflow::PartialRunSetupResponse& reply) {
               return reply.partial_run_handle();
             }));
  }

  void CloseSession(CallOptions options, std::string session, CallDone<Empty> done) override {
    graphs_->Remove(session);
    tensorflow::CloseSessionRequest proto;
    proto.set_session_handle(std::move(session));
    Call("CloseSession", std::move(options), SerializeMessage(proto), EmptyReply(std::move(done)));
  }

  void ListDevices(CallOptions options, std::string session,
                   CallDone<ListDevicesReply> done) override {
    tensorflow::ListDevicesRequest proto;
    proto.set_session_handle(std::move(session));
    Call("ListDevices", std::move(options), SerializeMessage(proto),
         ReplyAs<tensorflow::ListDevicesResponse>(
             std::move(done), [](const tensorflow::ListDevicesResponse& reply) {
               ListDevicesReply devices;
               for (const auto& device : reply.local_device()) {
                 devices.local.push_back(DeviceFromProto(device));
               }
               for (const auto& device : reply.remote_device()) {
                 devices.remote.push_back(DeviceFromProto(device));
               }
               return devices;
             }));
  }

  void Reset(CallOptions options, std::vector<std::string> containers,
             std::vector<std::string> device_filters, CallDone<Empty> done) override {
    tensorflow::ResetRequest proto;
    *proto.mutable_container() = {containers.begin(), containers.end()};
    *proto.mutable_device_filters() = {device_filters.begin(), device_filters.end()};
    Call("Reset", std::move(options), SerializeMessage(proto), EmptyReply(std::move(done)));
  }

  void MakeCallable(CallOptions options, MakeCallableRequest request,
                    CallDone<int64_t> done) override {
    tensorflow::MakeCallableRequest proto;
    proto.set_session_handle(request.session);
    proto.set_request_id(request.request_id);
    CallableToProto(request, *proto.mutable_options());
    Call("MakeCallable", std::move(options), SerializeMessage(proto),
         ReplyAs<tensorflow::MakeCallableResponse>(
             std::move(done), [](const tensorflow::MakeCallableResponse& reply) -> int64_t {
               return reply.handle();
             }));
  }

  void RunCallable(CallOptions options, RunCallableRequest request,
                   CallDone<RunCallableReply> done) override {
    Call("RunCallable", std::move(options), WriteRunCallable(request),
         ReplyWith(std::move(done), ReadRunCallableReply));
  }

  void ReleaseCallable(CallOptions options, std::string session, int64_t callable,
                       CallDone<Empty> done) override {
    tensorflow::ReleaseCallableRequest proto;
    proto.set_session_handle(std::move(session));
    proto.set_handle(callable);
    Call("ReleaseCallable", std::move(options), SerializeMessage(proto),
         EmptyReply(std::move(done)));
  }

  std::shared_ptr<WorkerApi> Worker() override { return NewWorkerStub(channel_); }

 private:
  void Call(absl::string_view method, CallOptions options, absl::StatusOr<WireMessage> request,
            Channel::Done done) {
    channel_->Call(kMasterService, method, std::move(options), std::move(request), std::move(done));
  }

  const std::shared_ptr<const Channel> channel_;
  const std::shared_ptr<SessionGraphs> graphs_;
};

}  // namespace

std::shared_ptr<MasterApi> NewMasterStub(std::shared_ptr<const Channel> channel) {
  return std::make_shared<MasterStub>(std::move(channel));
}

}  // namespace muster
