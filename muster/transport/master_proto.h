// What masters are asked and answer, as TensorFlow's messages.
#pragma once

#include "muster/transport/master_api.h"
#include "muster/transport/wire_message.h"

namespace tensorflow {
class CallableOptions;
class GraphDef;
class RunOptions;
}  // namespace tensorflow

namespace muster {

StepOptions StepOptionsFromProto(const tensorflow::RunOptions& proto);
void StepOptionsToProto(const StepOptions& options, tensorflow::RunOptions& proto);

// Session and request id are left alone.
MakeCallableRequest CallableFromProto(const tensorflow::CallableOptions& proto);
void CallableToProto(const MakeCallableRequest& request, tensorflow::CallableOptions& proto);

// Adds the graph; inputs may name nodes that the graph already has.
GraphEdit EditFromProto(std::shared_ptr<const tensorflow::GraphDef> proto);

absl::StatusOr<CreateSessionRequest> ReadCreateSession(const WireBytes& bytes);
absl::StatusOr<ExtendSessionRequest> ReadExtendSession(const WireBytes& bytes);
// `graph` is what the request's edit made; of it only nodes from number `first_node` on are
// written.
absl::StatusOr<WireMessage> WriteCreateSession(const CreateSessionRequest& request,
                                               const Graph& graph);
absl::StatusOr<WireMessage> WriteExtendSession(const ExtendSessionRequest& request,
                                               const Graph& graph, int first_node);

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

}  // namespace muster
