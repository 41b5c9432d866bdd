#include "muster/transport/messages/methods.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/time/clock.h"
#include "tensorflow/core/protobuf/master.pb.h"
#include "tensorflow/core/protobuf/worker.pb.h"

#include "muster/transport/peer.pb.h"
#include "muster/transport/status.pb.h"
#include "muster/transport/wire/collective_proto.h"
#include "muster/transport/wire/device_proto.h"
#include "muster/transport/wire/peer_proto.h"
#include "muster/transport/wire/session_proto.h"
#include "muster/transport/wire/step_proto.h"
#include "muster/transport/wire/task_status_proto.h"
#include "muster/transport/wire/wire_tensor_proto.h"

namespace muster {
namespace {

std::vector<std::string> Texts(const google::protobuf::RepeatedPtrField<std::string>& field) {
  return {field.begin(), field.end()};
}

void Fail(IncomingCall& call, absl::Status status) {
  std::move(call.reply)(std::move(status));
}

// Calls `body(call, request)` with what the reader made of the bytes.
template <typename Request, typename Body>
void WithRequest(IncomingCall call, absl::StatusOr<Request> request, Body body) {
  if (!request.ok()) return Fail(call, request.status());
  body(call, *std::move(request));
}

template <typename Proto, typename Body>
void WithProto(IncomingCall call, Body body) {
  Proto proto;
  if (absl::Status status = ParseMessage(call.request, proto); !status.ok()) {
    return Fail(call, std::move(status));
  }
  body(call, proto);
}

// A `done` that sends what `write` makes of the result.
template <typename Reply, typename Write>
CallDone<Reply> Answer(IncomingCall& call, Write write) {
  return [reply = std::move(call.reply), write](absl::StatusOr<Reply> result) mutable {
    if (!result.ok()) {
      std::move(reply)(result.status());
    } else {
      std::move(reply)(write(*std::move(result)));
    }
  };
}

CallDone<Empty> AnswerEmpty(IncomingCall& call) {
  return Answer<Empty>(call, [](Empty) -> absl::StatusOr<WireMessage> { return WireMessage(); });
}

// The same where errors travel in the body of the reply when the caller asked for that.
template <typename Reply, typename Write, typename WriteError>
CallDone<Reply> AnswerInBody(IncomingCall& call, bool errors_in_body, Write write,
                             WriteError write_error) {
  return [reply = std::move(call.reply), peer = call.options.peer, errors_in_body, write,
          write_error](absl::StatusOr<Reply> result) mutable {
    absl::StatusOr<WireMessage> message =
        result.ok() ? write(*result) : absl::StatusOr<WireMessage>(result.status());
    // Our own know how to get what is longer than a message.
    if (message.ok() && peer != CallOptions::Peer::kMuster) {
      if (absl::Status size = CheckSize(*message); !size.ok()) message = std::move(size);
    }
    if (!message.ok() && errors_in_body) message = write_error(message.status(), peer);
    std::move(reply)(std::move(message));
  };
}

// ---- master ----

void CreateSession(IncomingCall call) {
  absl::StatusOr<CreateSessionRequest> request = ReadCreateSession(call.request);
  WithRequest(std::move(call), std::move(request), [](IncomingCall& c, CreateSessionRequest r) {
    auto done = Answer<CreateSessionReply>(c, [](CreateSessionReply reply) {
      tensorflow::CreateSessionResponse proto;
      proto.set_session_handle(reply.session);
      proto.set_graph_version(reply.graph_version);
      return SerializeMessage(proto);
    });
    c.master->CreateSession(std::move(c.options), std::move(r), std::move(done));
  });
}

void ExtendSession(IncomingCall call) {
  absl::StatusOr<ExtendSessionRequest> request = ReadExtendSession(call.request);
  WithRequest(std::move(call), std::move(request), [](IncomingCall& c, ExtendSessionRequest r) {
    auto done = Answer<int64_t>(c, [](int64_t version) {
      tensorflow::ExtendSessionResponse proto;
      proto.set_new_graph_version(version);
      return SerializeMessage(proto);
    });
    c.master->ExtendSession(std::move(c.options), std::move(r), std::move(done));
  });
}

void RunStep(IncomingCall call) {
  absl::StatusOr<ReceivedRunStep> request = ReadRunStep(call.request);
  call.request = WireBytes();
  WithRequest(std::move(call), std::move(request), [](IncomingCall& c, ReceivedRunStep r) {
    auto done =
        AnswerInBody<RunStepReply>(c, r.errors_in_body, WriteRunStepReply, WriteRunStepError);
    if (!r.bad_feed.ok()) return std::move(done)(std::move(r.bad_feed));
    c.master->RunStep(std::move(c.options), std::move(r.request), std::move(done));
  });
}

void PartialRunSetup(IncomingCall call) {
  WithProto<tensorflow::PartialRunSetupRequest>(std::move(call), [](IncomingCall& c, auto& proto) {
    PartialRunSetupRequest request;
    request.session = proto.session_handle();
    request.feeds = Texts(proto.feed());
    request.fetches = Texts(proto.fetch());
    request.targets = Texts(proto.target());
    request.request_id = proto.request_id();
    auto done = Answer<std::string>(c, [](std::string handle) {
      tensorflow::PartialRunSetupResponse reply;
      reply.set_partial_run_handle(std::move(handle));
      return SerializeMessage(reply);
    });
    c.master->PartialRunSetup(std::move(c.options), std::move(request), std::move(done));
  });
}

void CloseSession(IncomingCall call) {
  WithProto<tensorflow::CloseSessionRequest>(std::move(call), [](IncomingCall& c, auto& proto) {
    auto done = AnswerEmpty(c);
    c.master->CloseSession(std::move(c.options), proto.session_handle(), std::move(done));
  });
}

void ListDevices(IncomingCall call) {
  WithProto<tensorflow::ListDevicesRequest>(std::move(call), [](IncomingCall& c, auto& proto) {
    auto done = Answer<ListDevicesReply>(c, [](ListDevicesReply devices) {
      tensorflow::ListDevicesResponse reply;
      for (const auto& device : devices.local) DeviceToProto(device, *reply.add_local_device());
      for (const auto& device : devices.remote) DeviceToProto(device, *reply.add_remote_device());
      return SerializeMessage(reply);
    });
    c.master->ListDevices(std::move(c.options), proto.session_handle(), std::move(done));
  });
}

void Reset(IncomingCall call) {
  WithProto<tensorflow::ResetRequest>(std::move(call), [](IncomingCall& c, auto& proto) {
    auto done = AnswerEmpty(c);
    c.master->Reset(std::move(c.options), Texts(proto.container()), Texts(proto.device_filters()),
                    std::move(done));
  });
}

void MakeCallable(IncomingCall call) {
  WithProto<tensorflow::MakeCallableRequest>(std::move(call), [](IncomingCall& c, auto& proto) {
    MakeCallableRequest request = CallableFromProto(proto.options());
    request.session = proto.session_handle();
    request.request_id = proto.request_id();
    auto done = Answer<int64_t>(c, [](int64_t handle) {
      tensorflow::MakeCallableResponse reply;
      reply.set_handle(handle);
      return SerializeMessage(reply);
    });
    c.master->MakeCallable(std::move(c.options), std::move(request), std::move(done));
  });
}

void RunCallable(IncomingCall call) {
  absl::StatusOr<RunCallableRequest> request = ReadRunCallable(call.request);
  call.request = WireBytes();
  WithRequest(std::move(call), std::move(request), [](IncomingCall& c, RunCallableRequest r) {
    auto done = Answer<RunCallableReply>(c, WriteRunCallableReply);
    c.master->RunCallable(std::move(c.options), std::move(r), std::move(done));
  });
}

void ReleaseCallable(IncomingCall call) {
  WithProto<tensorflow::ReleaseCallableRequest>(std::move(call), [](IncomingCall& c, auto& proto) {
    auto done = AnswerEmpty(c);
    c.master->ReleaseCallable(std::move(c.options), proto.session_handle(), proto.handle(),
                              std::move(done));
  });
}

// ---- worker ----

void GetStatus(IncomingCall call) {
  WithProto<tensorflow::GetStatusRequest>(std::move(call), [](IncomingCall& c, auto&) {
    auto done = Answer<std::vector<DeviceAttributes>>(c, [](std::vector<DeviceAttributes> devices) {
      tensorflow::GetStatusResponse reply;
      for (const auto& device : devices) DeviceToProto(device, *reply.add_device_attributes());
      return SerializeMessage(reply);
    });
    c.worker->GetStatus(std::move(c.options), std::move(done));
  });
}

void CreateWorkerSession(IncomingCall call) {
  WithProto<tensorflow::CreateWorkerSessionRequest>(
      std::move(call), [](IncomingCall& c, auto& proto) {
        absl::StatusOr<CreateWorkerSessionRequest> request = CreateWorkerSessionFromProto(proto);
        if (!request.ok()) return Fail(c, request.status());
        auto done = AnswerEmpty(c);
        c.worker->CreateWorkerSession(std::move(c.options), *std::move(request), std::move(done));
      });
}

void DeleteWorkerSession(IncomingCall call) {
  WithProto<tensorflow::DeleteWorkerSessionRequest>(std::move(call), [](IncomingCall& c,
                                                                        auto& proto) {
    auto done = AnswerEmpty(c);
    c.worker->DeleteWorkerSession(std::move(c.options), proto.session_handle(), std::move(done));
  });
}

void RegisterGraph(IncomingCall call) {
  absl::StatusOr<RegisterGraphRequest> request = ReadRegisterGraph(call.request, call.options.peer);
  WithRequest(std::move(call), std::move(request), [](IncomingCall& c, RegisterGraphRequest r) {
    auto done = Answer<std::string>(c, [](std::string handle) {
      tensorflow::RegisterGraphResponse reply;
      reply.set_graph_handle(std::move(handle));
      return SerializeMessage(reply);
    });
    c.worker->RegisterGraph(std::move(c.options), std::move(r), std::move(done));
  });
}

void DeregisterGraph(IncomingCall call) {
  WithProto<tensorflow::DeregisterGraphRequest>(std::move(call), [](IncomingCall& c, auto& proto) {
    auto done = AnswerEmpty(c);
    c.worker->DeregisterGraph(std::move(c.options), proto.session_handle(),
                              proto.create_worker_session_called(), proto.graph_handle(),
                              std::move(done));
  });
}

void RunGraph(IncomingCall call) {
  absl::StatusOr<ReceivedRunGraph> request = ReadRunGraph(call.request);
  call.request = WireBytes();
  WithRequest(std::move(call), std::move(request), [](IncomingCall& c, ReceivedRunGraph r) {
    auto done =
        AnswerInBody<RunGraphReply>(c, r.errors_in_body, WriteRunGraphReply, WriteRunGraphError);
    c.worker->RunGraph(std::move(c.options), std::move(r.request), std::move(done));
  });
}

void CleanupGraph(IncomingCall call) {
  WithProto<tensorflow::CleanupGraphRequest>(std::move(call), [](IncomingCall& c, auto& proto) {
    auto done = AnswerEmpty(c);
    c.worker->CleanupGraph(std::move(c.options), proto.step_id(), std::move(done));
  });
}

void CleanupAll(IncomingCall call) {
  WithProto<tensorflow::CleanupAllRequest>(std::move(call), [](IncomingCall& c, auto& proto) {
    auto done = AnswerEmpty(c);
    c.worker->CleanupAll(std::move(c.options), Texts(proto.container()), std::move(done));
  });
}

// Tensors that no message should carry stay here until our peer has fetched them.
absl::StatusOr<WireMessage> WriteReceived(const RecvTensorReply& reply, PieceStore* pieces,
                                          size_t piece_from_bytes, CallOptions::Peer peer) {
  const int64_t now_micros = absl::ToUnixMicros(absl::Now());
  const Tensor& tensor = reply.value.tensor;
  const bool is_large = !reply.value.is_dead && tensor.valid() && IsPlainData(tensor.dtype()) &&
                        tensor.size_bytes() > piece_from_bytes;
  if (!is_large) return WriteRecvTensorReply(reply, now_micros);
  if (peer == CallOptions::Peer::kMuster && pieces != nullptr) {
    return WriteRecvTensorInPieces(reply, now_micros, pieces->Add(tensor));
  }
  if (tensor.size_bytes() < INT32_MAX - 1024) return WriteRecvTensorReply(reply, now_micros);
  return Internal("A tensor of ", tensor.size_bytes(), " bytes, shape ", tensor.shape().ToString(),
                  ", cannot be sent to a task of stock TensorFlow, ", "whose messages end at ",
                  INT32_MAX, " bytes; between tasks of Muster it can");
}

void RecvTensor(IncomingCall call) {
  WithProto<tensorflow::RecvTensorRequest>(std::move(call), [](IncomingCall& c, auto& proto) {
    auto done = Answer<RecvTensorReply>(
        c, [pieces = c.pieces, from = c.piece_from_bytes, peer = c.options.peer](
               const RecvTensorReply& reply) { return WriteReceived(reply, pieces, from, peer); });
    c.worker->RecvTensor(std::move(c.options),
                         {proto.step_id(), proto.rendezvous_key(), proto.request_id()},
                         std::move(done));
  });
}

void MarkRecvFinished(IncomingCall call) {
  WithProto<tensorflow::MarkRecvFinishedRequest>(std::move(call), [](IncomingCall& c, auto& proto) {
    auto done = AnswerEmpty(c);
    c.worker->MarkRecvFinished(std::move(c.options), proto.request_id(), std::move(done));
  });
}

void Logging(IncomingCall call) {
  WithProto<tensorflow::LoggingRequest>(std::move(call), [](IncomingCall& c, auto& proto) {
    auto done =
        Answer<LoggingReply>(c, [](const LoggingReply& reply) -> absl::StatusOr<WireMessage> {
          tensorflow::LoggingResponse out;
          RETURN_IF_ERROR(LoggingReplyToProto(reply, out));
          return SerializeMessage(out);
        });
    c.worker->Logging(std::move(c.options), LoggingFromProto(proto), std::move(done));
  });
}

void Tracing(IncomingCall call) {
  Fail(call, Unimplemented("Tracing"));
}

void RecvBuf(IncomingCall call) {
  absl::StatusOr<RecvBufRequest> request = ReadRecvBuf(call.request);
  WithRequest(std::move(call), std::move(request), [](IncomingCall& c, RecvBufRequest r) {
    const bool is_ours = c.options.peer == CallOptions::Peer::kMuster;
    auto done = Answer<RecvBufReply>(
        c, [is_ours](const RecvBufReply& reply) -> absl::StatusOr<WireMessage> {
          return WriteRecvBufReply(reply, absl::ToUnixMicros(absl::Now()),
                                   is_ours ? 0 : kRecvBufChunk);
        });
    c.worker->RecvBuf(std::move(c.options), std::move(r), std::move(done));
  });
}

void CompleteGroup(IncomingCall call) {
  absl::StatusOr<CollectiveJoin> request = ReadCompleteGroup(call.request);
  WithRequest(std::move(call), std::move(request), [](IncomingCall& c, CollectiveJoin r) {
    auto done = Answer<CompleteGroupReply>(c, WriteCompleteGroupReply);
    c.worker->CompleteGroup(std::move(c.options), std::move(r), std::move(done));
  });
}

void CompleteInstance(IncomingCall call) {
  absl::StatusOr<CollectiveInstance> request = ReadCompleteInstance(call.request);
  WithRequest(std::move(call), std::move(request), [](IncomingCall& c, CollectiveInstance r) {
    auto done = Answer<int>(c, [key = r.instance_key](int source_rank) {
      tensorflow::CompleteInstanceResponse proto;
      proto.set_instance_key(key);
      proto.set_source_rank(source_rank);
      return SerializeMessage(proto);
    });
    c.worker->CompleteInstance(std::move(c.options), std::move(r), std::move(done));
  });
}

void GetStepSequence(IncomingCall call) {
  WithProto<tensorflow::GetStepSequenceRequest>(std::move(call), [](IncomingCall& c, auto& proto) {
    auto done = Answer<std::vector<StepSequence>>(c, [](const std::vector<StepSequence>& all) {
      tensorflow::GetStepSequenceResponse reply;
      for (const StepSequence& sequence : all) {
        auto& out = *reply.add_step_sequence();
        out.set_graph_key(sequence.graph_key);
        out.set_next_step_id(sequence.next_step_id);
      }
      return SerializeMessage(reply);
    });
    c.worker->GetStepSequence(std::move(c.options),
                              {proto.graph_key().begin(), proto.graph_key().end()},
                              std::move(done));
  });
}

// ---- our own ----

void Hello(IncomingCall call) {
  WithProto<PeerHello>(std::move(call), [](IncomingCall& c, auto&) {
    PeerInfo self = LocalPeer();
    self.capabilities.insert(self.capabilities.end(), c.capabilities->begin(),
                             c.capabilities->end());
    PeerHello reply;
    PeerToProto(self, reply);
    std::move(c.reply)(SerializeMessage(reply));
  });
}

void Status(IncomingCall call) {
  WithProto<StatusRequestProto>(std::move(call), [](IncomingCall& c, auto& proto) {
    if (c.status == nullptr) return Fail(c, Unimplemented("This task does not report its status"));
    absl::StatusOr<StatusRequest> request = StatusRequestFromProto(proto);
    if (!request.ok()) return Fail(c, request.status());
    auto done = Answer<ClusterStatus>(c, [](const ClusterStatus& cluster) {
      ClusterStatusProto reply;
      ClusterStatusToProto(cluster, reply);
      return SerializeMessage(reply);
    });
    c.status->Status(std::move(c.options), *std::move(request), std::move(done));
  });
}

void Piece(IncomingCall call) {
  WithProto<PieceRequest>(std::move(call), [](IncomingCall& c, auto& proto) {
    if (c.pieces == nullptr) return Fail(c, Unimplemented("This task keeps no pieces of tensors"));
    const absl::StatusOr<Buffer> piece = c.pieces->Take(
        proto.id(), proto.offset(), std::min<uint64_t>(proto.length(), c.max_piece_bytes));
    if (!piece.ok()) return Fail(c, piece.status());
    WireMessage reply;
    reply.AppendHeader(1, piece->length_bytes());
    reply.Attach(*piece);
    std::move(c.reply)(std::move(reply));
  });
}

void Upload(IncomingCall call) {
  if (call.uploads == nullptr)
    return Fail(call, Unimplemented("This task takes no messages in parts"));
  UploadRequest head;
  const absl::StatusOr<std::vector<WireReader>> data = SplitField(call.request, kUploadData, head);
  if (!data.ok()) return Fail(call, data.status());
  UploadReply reply;
  if (data->empty()) {
    const absl::StatusOr<uint64_t> id =
        call.uploads->Begin({head.part_bytes().begin(), head.part_bytes().end()});
    if (!id.ok()) return Fail(call, id.status());
    reply.set_id(*id);
  } else {
    absl::Status status = call.uploads->Put(head.id(), head.part(), head.offset(), data->front());
    if (!status.ok()) return Fail(call, std::move(status));
  }
  std::move(call.reply)(SerializeMessage(reply));
}

absl::StatusOr<WireMessage> WriteReceivedTensors(const RecvTensorsReply& reply, PieceStore* pieces,
                                                 size_t piece_from_bytes, size_t max_bytes) {
  const int64_t now_micros = absl::ToUnixMicros(absl::Now());
  WireMessage message;
  for (const RecvTensorsReply::Tensor& each : reply.tensors) {
    const Tensor& tensor = each.value.tensor;
    const bool is_large = !each.value.is_dead && tensor.valid() && IsPlainData(tensor.dtype()) &&
                          (tensor.size_bytes() > piece_from_bytes ||
                           message.size_bytes() + tensor.size_bytes() > max_bytes);
    if (is_large && pieces != nullptr) {
      ASSIGN_OR_RETURN(
          const WireMessage head,
          WriteRecvTensorInPieces({each.value, false}, now_micros, pieces->Add(tensor)));
      AppendPiecesItem(each.index, head, message);
    } else {
      RETURN_IF_ERROR(AppendReceivedItem(each, message));
    }
  }
  return message;
}

void RecvTensors(IncomingCall call) {
  absl::StatusOr<RecvTensorsRequest> read = ReadRecvTensors(call.request);
  call.request = WireBytes();
  WithRequest(std::move(call), std::move(read), [](IncomingCall& c, RecvTensorsRequest request) {
    auto done =
        Answer<RecvTensorsReply>(c, [pieces = c.pieces, from = c.piece_from_bytes,
                                     max = c.max_piece_bytes](const RecvTensorsReply& reply) {
          return WriteReceivedTensors(reply, pieces, from, max);
        });
    c.worker->RecvTensors(std::move(c.options), std::move(request), std::move(done));
  });
}

constexpr Method kMethods[] = {
    {kMasterService, "CreateSession", CreateSession, true},
    {kMasterService, "ExtendSession", ExtendSession, true},
    {kMasterService, "RunStep", RunStep, true},
    {kMasterService, "PartialRunSetup", PartialRunSetup, true},
    {kMasterService, "CloseSession", CloseSession},
    {kMasterService, "ListDevices", ListDevices},
    {kMasterService, "Reset", Reset},
    {kMasterService, "MakeCallable", MakeCallable, true},
    {kMasterService, "RunCallable", RunCallable, true},
    {kMasterService, "ReleaseCallable", ReleaseCallable},
    {kWorkerService, "GetStatus", GetStatus},
    {kWorkerService, "CreateWorkerSession", CreateWorkerSession},
    {kWorkerService, "DeleteWorkerSession", DeleteWorkerSession},
    {kWorkerService, "RegisterGraph", RegisterGraph, true},
    {kWorkerService, "DeregisterGraph", DeregisterGraph},
    {kWorkerService, "RunGraph", RunGraph, true},
    {kWorkerService, "CleanupGraph", CleanupGraph},
    {kWorkerService, "CleanupAll", CleanupAll},
    {kWorkerService, "RecvTensor", RecvTensor},
    {kWorkerService, "MarkRecvFinished", MarkRecvFinished},
    {kWorkerService, "Logging", Logging},
    {kWorkerService, "Tracing", Tracing},
    {kWorkerService, "RecvBuf", RecvBuf},
    {kWorkerService, "CompleteGroup", CompleteGroup},
    {kWorkerService, "CompleteInstance", CompleteInstance},
    {kWorkerService, "GetStepSequence", GetStepSequence},
    {kPeerService, "Hello", Hello},
    {kPeerService, "Piece", Piece},
    {kPeerService, "Upload", Upload},
    {kPeerService, "Status", Status},
    {kPeerService, "RecvTensors", RecvTensors},
};

}  // namespace

absl::Span<const Method> AllMethods() {
  return kMethods;
}

const Method* FindMethod(absl::string_view path) {
  static const auto& by_path = *[] {
    auto table = std::make_unique<absl::flat_hash_map<std::string, const Method*>>();
    for (const Method& method : kMethods) {
      table->emplace(absl::StrCat("/", method.service, "/", method.name), &method);
    }
    return table.release();
  }();
  const auto found = by_path.find(path);
  return found == by_path.end() ? nullptr : found->second;
}

}  // namespace muster
