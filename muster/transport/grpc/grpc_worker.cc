#include "tensorflow/core/protobuf/worker.pb.h"

#include "muster/transport/collective_proto.h"
#include "muster/transport/device_proto.h"
#include "muster/transport/grpc/grpc_methods.h"
#include "muster/transport/grpc/grpc_reply.h"
#include "muster/transport/grpc/grpc_stubs.h"
#include "muster/transport/peer.pb.h"
#include "muster/transport/peer_proto.h"
#include "muster/transport/probe.h"
#include "muster/transport/wire_tensor_proto.h"
#include "muster/transport/worker_proto.h"

namespace muster {
namespace {

// Fetches the pieces of a tensor one after the other, straight to their places.
class PieceFetch : public std::enable_shared_from_this<PieceFetch> {
 public:
  static void Start(std::shared_ptr<const GrpcChannel> channel, CallOptions options,
                    TensorPieces pieces, CallDone<RecvTensorReply> done) {
    auto fetch = std::make_shared<PieceFetch>();
    fetch->channel_ = std::move(channel);
    fetch->options_ = std::move(options);
    fetch->pieces_ = std::move(pieces);
    fetch->done_ = std::move(done);
    fetch->Next();
  }

 private:
  static constexpr uint64_t kPieceBytes = uint64_t{256} << 20;

  void Next() {
    Tensor& tensor = pieces_.reply.value.tensor;
    if (fetched_ == tensor.size_bytes()) return std::move(done_)(std::move(pieces_.reply));
    PieceRequest request;
    request.set_id(pieces_.id);
    request.set_offset(fetched_);
    request.set_length(kPieceBytes);
    channel_->Call(kPeerService, "Piece", options_, SerializeMessage(request),
                   [self = shared_from_this()](absl::StatusOr<WireBytes> bytes) {
                     if (bytes.ok()) {
                       if (absl::Status status = self->Store(*bytes); status.ok()) {
                         self->Next();
                       } else {
                         std::move(self->done_)(std::move(status));
                       }
                     } else {
                       std::move(self->done_)(bytes.status());
                     }
                   });
  }

  absl::Status Store(const WireBytes& bytes) {
    WireReader reader(bytes);
    ASSIGN_OR_RETURN(const WireReader::Tag tag, reader.NextTag());
    if (tag.field != 1 || tag.type != WireType::kBytes)
      return InvalidArgument("A piece of a tensor came without its bytes");
    ASSIGN_OR_RETURN(WireReader piece, reader.Bytes());
    Tensor& tensor = pieces_.reply.value.tensor;
    if (piece.remaining() == 0 || piece.remaining() > tensor.size_bytes() - fetched_) {
      return InvalidArgument("A piece of ", piece.remaining(), " bytes came at byte ", fetched_,
                             " of a tensor of ", tensor.size_bytes(), " bytes");
    }
    const size_t length = piece.remaining();
    piece.CopyTo(tensor.raw() + fetched_, length);
    fetched_ += length;
    return absl::OkStatus();
  }

  std::shared_ptr<const GrpcChannel> channel_;
  CallOptions options_;
  TensorPieces pieces_;
  CallDone<RecvTensorReply> done_;
  uint64_t fetched_ = 0;
};

class GrpcWorker final : public WorkerApi, public PeerApi {
 public:
  explicit GrpcWorker(std::shared_ptr<const GrpcChannel> channel) : channel_(std::move(channel)) {}

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
           PieceFetch::Start(std::move(channel), std::move(options), **std::move(pieces),
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

  void Hello(CallOptions options, PeerInfo self, CallDone<PeerInfo> done) override {
    PeerHello proto;
    PeerToProto(self, proto);
    channel_->Call(kPeerService, "Hello", std::move(options), SerializeMessage(proto),
                   ReplyAs<PeerHello>(std::move(done), PeerFromProto));
  }

  void Probe(absl::AnyInvocable<void(std::string) &&> done) override {
    ProbeAddress(channel_->address(), std::move(done));
  }

 private:
  void Call(absl::string_view method, CallOptions options, absl::StatusOr<WireMessage> request,
            GrpcChannel::Done done) {
    channel_->Call(kWorkerService, method, std::move(options), std::move(request), std::move(done));
  }

  const std::shared_ptr<const GrpcChannel> channel_;
};

}  // namespace

std::shared_ptr<WorkerApi> NewGrpcWorker(std::shared_ptr<const GrpcChannel> channel) {
  return std::make_shared<GrpcWorker>(std::move(channel));
}

}  // namespace muster
