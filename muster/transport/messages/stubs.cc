#include "muster/transport/messages/stubs.h"

#include <algorithm>
#include <atomic>

#include "absl/container/flat_hash_map.h"
#include "tensorflow/core/protobuf/master.pb.h"
#include "tensorflow/core/protobuf/worker.pb.h"

#include "muster/transport/api/peer.h"
#include "muster/transport/messages/message_parts.h"
#include "muster/transport/messages/methods.h"
#include "muster/transport/peer.pb.h"
#include "muster/transport/status.pb.h"
#include "muster/transport/watch/probe.h"
#include "muster/transport/wire/collective_proto.h"
#include "muster/transport/wire/device_proto.h"
#include "muster/transport/wire/session_proto.h"
#include "muster/transport/wire/peer_proto.h"
#include "muster/transport/wire/task_status_proto.h"
#include "muster/transport/wire/wire_tensor_proto.h"
#include "muster/transport/wire/step_proto.h"

namespace muster {
namespace {

// --- From the bytes of a reply to what the caller gets

// `read` makes a StatusOr<Reply> of the bytes.
template <typename Reply, typename Read>
Channel::Done ReplyWith(CallDone<Reply> done, Read read) {
  return [done = std::move(done), read = std::move(read)](absl::StatusOr<WireBytes> bytes) mutable {
    if (!bytes.ok()) {
      std::move(done)(bytes.status());
    } else {
      std::move(done)(read(*bytes));
    }
  };
}

// `convert` makes a Reply of the message.
template <typename Proto, typename Reply, typename Convert>
Channel::Done ReplyAs(CallDone<Reply> done, Convert convert) {
  return ReplyWith(std::move(done),
                   [convert = std::move(convert)](const WireBytes& bytes) -> absl::StatusOr<Reply> {
                     Proto proto;
                     RETURN_IF_ERROR(ParseMessage(bytes, proto));
                     return convert(proto);
                   });
}

Channel::Done EmptyReply(CallDone<Empty> done) {
  return ReplyWith(std::move(done),
                   [](const WireBytes&) -> absl::StatusOr<Empty> { return Empty(); });
}

// --- Masters

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

// --- Workers

// Fetches the elements of a tensor straight to their places.
void FetchElements(std::shared_ptr<const Channel> channel, CallOptions options, TensorPieces pieces,
                   CallDone<RecvTensorReply> done) {
  const Tensor& tensor = pieces.reply.value.tensor;
  Parts parts = {tensor.buffer().Slice(0, tensor.size_bytes())};
  FetchParts(
      std::move(channel), std::move(options), pieces.id, std::move(parts),
      [reply = std::move(pieces.reply), done = std::move(done)](absl::Status status) mutable {
        if (!status.ok()) return std::move(done)(std::move(status));
        std::move(done)(std::move(reply));
      });
}

// Fetches, one after the other, the tensors that came without their elements.
void Complete(const std::shared_ptr<const Channel>& channel, const CallOptions& options,
              ReceivedTensors received, CallDone<RecvTensorsReply> done) {
  if (received.in_pieces.empty()) return std::move(done)(std::move(received.reply));
  auto [at, pieces] = std::move(received.in_pieces.back());
  received.in_pieces.pop_back();
  FetchElements(channel, options, std::move(pieces),
                [channel, options, at = at, received = std::move(received),
                 done = std::move(done)](absl::StatusOr<RecvTensorReply> reply) mutable {
                  if (!reply.ok()) return std::move(done)(reply.status());
                  received.reply.tensors[at].value = std::move(reply->value);
                  Complete(channel, options, std::move(received), std::move(done));
                });
}

class WorkerStub final : public WorkerApi,
                         public PeerApi,
                         public StatusApi,
                         public std::enable_shared_from_this<WorkerStub> {
 public:
  explicit WorkerStub(std::shared_ptr<const Channel> channel) : channel_(std::move(channel)) {}

  void GetStatus(CallOptions options, CallDone<std::vector<DeviceAttributes>> done) override {
    Call("GetStatus", std::move(options), WireMessage(),
         ReplyAs<tensorflow::GetStatusResponse>(
             std::move(done), [](const tensorflow::GetStatusResponse& proto) {
               std::vector<DeviceAttributes> devices;
               for (const auto& device : proto.device_attributes()) {
                 devices.push_back(DeviceFromProto(device));
               }
               return devices;
             }));
  }

  void CreateWorkerSession(CallOptions options, CreateWorkerSessionRequest request,
                           CallDone<Empty> done) override {
    Greet();  // another program may run as the task now
    tensorflow::CreateWorkerSessionRequest proto;
    CreateWorkerSessionToProto(request, proto);
    Call("CreateWorkerSession", std::move(options), SerializeMessage(proto),
         EmptyReply(std::move(done)));
  }

  void DeleteWorkerSession(CallOptions options, std::string session,
                           CallDone<Empty> done) override {
    tensorflow::DeleteWorkerSessionRequest proto;
    proto.set_session_handle(std::move(session));
    Call("DeleteWorkerSession", std::move(options), SerializeMessage(proto),
         EmptyReply(std::move(done)));
  }

  void RegisterGraph(CallOptions options, RegisterGraphRequest request,
                     CallDone<std::string> done) override {
    Call("RegisterGraph", std::move(options), WriteRegisterGraph(std::move(request)),
         ReplyAs<tensorflow::RegisterGraphResponse>(
             std::move(done),
             [](const tensorflow::RegisterGraphResponse& proto) { return proto.graph_handle(); }));
  }

  void DeregisterGraph(CallOptions options, std::string session, bool in_session, std::string graph,
                       CallDone<Empty> done) override {
    tensorflow::DeregisterGraphRequest proto;
    proto.set_session_handle(std::move(session));
    proto.set_create_worker_session_called(in_session);
    proto.set_graph_handle(std::move(graph));
    Call("DeregisterGraph", std::move(options), SerializeMessage(proto),
         EmptyReply(std::move(done)));
  }

  void RunGraph(CallOptions options, RunGraphRequest request,
                CallDone<RunGraphReply> done) override {
    Call("RunGraph", std::move(options), WriteRunGraph(request),
         ReplyWith(std::move(done), ReadRunGraphReply));
  }

  void CleanupGraph(CallOptions options, int64_t step_id, CallDone<Empty> done) override {
    tensorflow::CleanupGraphRequest proto;
    proto.set_step_id(step_id);
    Call("CleanupGraph", std::move(options), SerializeMessage(proto), EmptyReply(std::move(done)));
  }

  void CleanupAll(CallOptions options, std::vector<std::string> containers,
                  CallDone<Empty> done) override {
    tensorflow::CleanupAllRequest proto;
    *proto.mutable_container() = {containers.begin(), containers.end()};
    Call("CleanupAll", std::move(options), SerializeMessage(proto), EmptyReply(std::move(done)));
  }

  void RecvTensor(CallOptions options, RecvTensorRequest request,
                  CallDone<RecvTensorReply> done) override {
    tensorflow::RecvTensorRequest proto;
    proto.set_step_id(request.step_id);
    proto.set_rendezvous_key(std::move(request.key));
    proto.set_request_id(request.request_id);
    Call("RecvTensor", options, SerializeMessage(proto),
         [channel = channel_, options,
          done = std::move(done)](absl::StatusOr<WireBytes> bytes) mutable {
           if (!bytes.ok()) return std::move(done)(bytes.status());
           absl::StatusOr<std::optional<TensorPieces>> pieces = ReadTensorPieces(*bytes);
           if (!pieces.ok()) return std::move(done)(pieces.status());
           if (!pieces->has_value()) return std::move(done)(ReadRecvTensorReply(*bytes));
           FetchElements(std::move(channel), std::move(options), **std::move(pieces),
                         std::move(done));
         });
  }

  void MarkRecvFinished(CallOptions options, int64_t request_id, CallDone<Empty> done) override {
    tensorflow::MarkRecvFinishedRequest proto;
    proto.set_request_id(request_id);
    Call("MarkRecvFinished", std::move(options), SerializeMessage(proto),
         EmptyReply(std::move(done)));
  }

  void Logging(CallOptions options, LoggingRequest request, CallDone<LoggingReply> done) override {
    tensorflow::LoggingRequest proto;
    LoggingToProto(request, proto);
    Call("Logging", std::move(options), SerializeMessage(proto),
         ReplyAs<tensorflow::LoggingResponse>(std::move(done), LoggingReplyFromProto));
  }

  void RecvBuf(CallOptions options, RecvBufRequest request, CallDone<RecvBufReply> done) override {
    Call("RecvBuf", std::move(options), WriteRecvBuf(request),
         ReplyWith(std::move(done), ReadRecvBufReply));
  }

  void CompleteGroup(CallOptions options, CollectiveJoin request,
                     CallDone<CompleteGroupReply> done) override {
    Call("CompleteGroup", std::move(options), WriteCompleteGroup(request),
         ReplyWith(std::move(done), ReadCompleteGroupReply));
  }

  void CompleteInstance(CallOptions options, CollectiveInstance request,
                        CallDone<int> done) override {
    Call("CompleteInstance", std::move(options), WriteCompleteInstance(request),
         ReplyAs<tensorflow::CompleteInstanceResponse>(
             std::move(done), [](const tensorflow::CompleteInstanceResponse& proto) {
               return static_cast<int>(proto.source_rank());
             }));
  }

  void GetStepSequence(CallOptions options, std::vector<int64_t> graph_keys,
                       CallDone<std::vector<StepSequence>> done) override {
    tensorflow::GetStepSequenceRequest proto;
    *proto.mutable_graph_key() = {graph_keys.begin(), graph_keys.end()};
    Call("GetStepSequence", std::move(options), SerializeMessage(proto),
         ReplyAs<tensorflow::GetStepSequenceResponse>(
             std::move(done), [](const tensorflow::GetStepSequenceResponse& reply) {
               std::vector<StepSequence> all;
               for (const auto& sequence : reply.step_sequence())
                 all.push_back({sequence.graph_key(), sequence.next_step_id()});
               return all;
             }));
  }

  void Reconnect() override { channel_->Reconnect(); }

  bool IsMuster() override {
    Kind kind = kind_.load(std::memory_order_relaxed);
    if (kind == Kind::kUnknown && kind_.compare_exchange_strong(kind, Kind::kAsked)) Greet();
    return kind == Kind::kMuster;
  }

  void RecvTensors(CallOptions options, RecvTensorsRequest request,
                   CallDone<RecvTensorsReply> done) override {
    channel_->Call(kPeerService, "RecvTensors", options, WriteRecvTensors(request),
                   [self = shared_from_this(), options,
                    done = std::move(done)](absl::StatusOr<WireBytes> bytes) mutable {
                     if (!bytes.ok()) {
                       // The new process will be asked again.
                       if (absl::IsUnimplemented(bytes.status())) self->kind_ = Kind::kUnknown;
                       return std::move(done)(bytes.status());
                     }
                     absl::StatusOr<ReceivedTensors> received = ReadRecvTensorsReply(*bytes);
                     bytes = WireBytes();
                     if (!received.ok()) return std::move(done)(received.status());
                     Complete(self->channel_, options, *std::move(received), std::move(done));
                   });
  }

  void Hello(CallOptions options, PeerInfo self, CallDone<PeerInfo> done) override {
    channel_->Call(kPeerService, "Hello", std::move(options), WritePeer(self),
                   ReplyWith(std::move(done), ReadPeer));
  }

  void Status(CallOptions options, StatusRequest request, CallDone<ClusterStatus> done) override {
    StatusRequestProto proto;
    StatusRequestToProto(request, proto);
    channel_->Call(
        kPeerService, "Status", std::move(options), SerializeMessage(proto),
        ReplyWith(std::move(done), [](const WireBytes& bytes) -> absl::StatusOr<ClusterStatus> {
          ClusterStatusProto reply;
          RETURN_IF_ERROR(ParseMessage(bytes, reply));
          return ClusterStatusFromProto(reply);
        }));
  }

  void Probe(absl::AnyInvocable<void(std::string) &&> done) override {
    ProbeAddress(channel_->address(), std::move(done));
  }
  void Renew() override { channel_->Renew(); }

 private:
  void Call(absl::string_view method, CallOptions options, absl::StatusOr<WireMessage> request,
            Channel::Done done) {
    channel_->Call(kWorkerService, method, std::move(options), std::move(request), std::move(done));
  }

  void Greet() {
    CallOptions options;
    options.timeout = kAnswerWithin;
    Hello(std::move(options), LocalPeer(),
          [self = shared_from_this()](const absl::StatusOr<PeerInfo>& info) {
            self->kind_ = KindOf(info);
          });
  }

  enum class Kind : uint8_t { kUnknown, kAsked, kMuster, kOther };
  static constexpr absl::Duration kAnswerWithin = absl::Seconds(10);
  static Kind KindOf(const absl::StatusOr<PeerInfo>& info) {
    if (absl::IsUnimplemented(info.status())) return Kind::kOther;
    if (!info.ok()) return Kind::kUnknown;
    const auto& all = info->capabilities;
    return std::find(all.begin(), all.end(), kBatchesCapability) == all.end() ? Kind::kOther
                                                                              : Kind::kMuster;
  }

  const std::shared_ptr<const Channel> channel_;
  std::atomic<Kind> kind_{Kind::kUnknown};
};

}  // namespace

std::shared_ptr<MasterApi> NewMasterStub(std::shared_ptr<const Channel> channel) {
  return std::make_shared<MasterStub>(std::move(channel));
}

std::shared_ptr<WorkerApi> NewWorkerStub(std::shared_ptr<const Channel> channel) {
  return std::make_shared<WorkerStub>(std::move(channel));
}

}  // namespace muster
