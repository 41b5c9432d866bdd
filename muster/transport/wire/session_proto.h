// What masters and workers are asked and answer about sessions and their graphs, as TensorFlow's
// messages.
#pragma once

#include "muster/transport/api/master_api.h"
#include "muster/transport/api/worker_api.h"
#include "muster/transport/wire/wire_message.h"

namespace tensorflow {
class CreateWorkerSessionRequest;
class GraphDef;
}  // namespace tensorflow

namespace muster {

// --- Masters

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

// --- Workers

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

}  // namespace muster
