// What workers are asked and answer, as TensorFlow's messages.
#pragma once

#include "muster/transport/wire_message.h"
#include "muster/transport/worker_api.h"

namespace tensorflow {
class CreateWorkerSessionRequest;
class LoggingRequest;
class LoggingResponse;
}  // namespace tensorflow

namespace muster {

absl::StatusOr<CreateWorkerSessionRequest> CreateWorkerSessionFromProto(
    const tensorflow::CreateWorkerSessionRequest& proto);
void CreateWorkerSessionToProto(const CreateWorkerSessionRequest& request,
                                tensorflow::CreateWorkerSessionRequest& proto);

// The graph is imported when the request's GraphMaker is called. Unimplemented for a graph that is
// to be debugged.
absl::StatusOr<RegisterGraphRequest> ReadRegisterGraph(const WireBytes& bytes,
                                                       CallOptions::Peer peer);
// Makes the graph; every attribute is written, for peers that fill in no defaults.
absl::StatusOr<WireMessage> WriteRegisterGraph(RegisterGraphRequest request);

struct ReceivedRunGraph {
  RunGraphRequest request;
  bool errors_in_body = false;
};
absl::StatusOr<ReceivedRunGraph> ReadRunGraph(const WireBytes& bytes);
// Asks for errors in the body.
absl::StatusOr<WireMessage> WriteRunGraph(const RunGraphRequest& request);
// The error that is in the body, if there is one.
absl::StatusOr<RunGraphReply> ReadRunGraphReply(const WireBytes& bytes);
absl::StatusOr<WireMessage> WriteRunGraphReply(const RunGraphReply& reply);
WireMessage WriteRunGraphError(const absl::Status& status, CallOptions::Peer peer);

LoggingRequest LoggingFromProto(const tensorflow::LoggingRequest& proto);
void LoggingToProto(const LoggingRequest& request, tensorflow::LoggingRequest& proto);
LoggingReply LoggingReplyFromProto(const tensorflow::LoggingResponse& proto);
absl::Status LoggingReplyToProto(const LoggingReply& reply, tensorflow::LoggingResponse& proto);

}  // namespace muster
