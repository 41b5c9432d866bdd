// What masters and workers are asked and answer about steps, as TensorFlow's messages.
#pragma once

#include "muster/transport/api/master_api.h"
#include "muster/transport/api/worker_api.h"
#include "muster/transport/wire/wire_message.h"

namespace tensorflow {
class CallableOptions;
class LoggingRequest;
class LoggingResponse;
class RunOptions;
}  // namespace tensorflow

namespace muster {

// Timeouts in the fields of messages.
absl::Duration TimeoutFromMillis(int64_t millis);  // zero for what is not positive
int64_t TimeoutToMillis(absl::Duration timeout);   // zero for none; at least 1 otherwise

StepOptions StepOptionsFromProto(const tensorflow::RunOptions& proto);
void StepOptionsToProto(const StepOptions& options, tensorflow::RunOptions& proto);

// Session and request id are left alone.
MakeCallableRequest CallableFromProto(const tensorflow::CallableOptions& proto);
void CallableToProto(const MakeCallableRequest& request, tensorflow::CallableOptions& proto);

// --- Masters

struct ReceivedRunStep {
  RunStepRequest request;
  bool errors_in_body = false;
  absl::Status bad_feed;  // the first feed that holds no tensor
};
absl::StatusOr<ReceivedRunStep> ReadRunStep(const WireBytes& bytes);
// Asks for errors in the body.
absl::StatusOr<WireMessage> WriteRunStep(const RunStepRequest& request);
// The error that is in the body, if there is one.
absl::StatusOr<RunStepReply> ReadRunStepReply(const WireBytes& bytes);
absl::StatusOr<WireMessage> WriteRunStepReply(const RunStepReply& reply);
WireMessage WriteRunStepError(const absl::Status& status, CallOptions::Peer peer);

absl::StatusOr<RunCallableRequest> ReadRunCallable(const WireBytes& bytes);
absl::StatusOr<WireMessage> WriteRunCallable(const RunCallableRequest& request);
absl::StatusOr<RunCallableReply> ReadRunCallableReply(const WireBytes& bytes);
absl::StatusOr<WireMessage> WriteRunCallableReply(const RunCallableReply& reply);

// --- Workers

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
