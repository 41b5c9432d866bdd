#include "muster/transport/wire/session_proto.h"

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "google/protobuf/unknown_field_set.h"
#include "tensorflow/core/protobuf/master.pb.h"
#include "tensorflow/core/protobuf/worker.pb.h"

#include "muster/graph/proto/graph_proto.h"
#include "muster/transport/peer.pb.h"
#include "muster/transport/wire/cluster_proto.h"
#include "muster/transport/wire/session_config_proto.h"
#include "muster/transport/wire/wire_tensor_proto.h"

namespace muster {
namespace {

// A field of CreateWorkerSessionRequest that only tasks of Muster read.
constexpr int kOwner = 70'002;

// Messages with the same meaning may differ in the order of attributes, which is left out.
size_t FingerprintOf(const tensorflow::GraphDef& graph) {
  size_t fingerprint = static_cast<size_t>(graph.node_size());
  for (const auto& node : graph.node()) {
    fingerprint = absl::HashOf(fingerprint, node.name(), node.op(), node.device());
    for (const std::string& input : node.input()) fingerprint = absl::HashOf(fingerprint, input);
  }
  return fingerprint;
}

// Inputs of new nodes that the GraphDef itself does not have are looked for in `graph`.
ImportOptions SessionImportOptions(const Graph& graph, const tensorflow::GraphDef& proto) {
  ImportOptions options;
  options.adopt_versions = true;
  options.colocate_with_existing = true;
  options.keep_shape_errors = true;
  if (graph.num_nodes() == 0) return options;
  absl::flat_hash_set<absl::string_view> here;
  for (const auto& node : proto.node()) here.insert(node.name());
  absl::flat_hash_set<absl::string_view> mapped;
  for (const auto& node : proto.node()) {
    for (const std::string& input : node.input()) {
      const TensorName name = ParseTensorName(input);
      if (here.contains(name.node) || !mapped.insert(input).second) continue;
      Node* existing = graph.FindNode(name.node);
      if (existing == nullptr) continue;
      const int index = name.is_control() ? 0 : name.index;
      options.input_map.emplace_back(input, Output(existing, index));
    }
  }
  return options;
}

void CallerToProto(const Caller& caller, CallerProto& proto) {
  proto.set_name(caller.name);
  proto.set_host(caller.host);
  proto.set_subject(caller.subject);
  proto.set_has_token(caller.has_token);
  proto.set_introduction(caller.Introduction());
}

// Null where there is none.
absl::StatusOr<std::shared_ptr<const Caller>> OwnerIn(
    const google::protobuf::UnknownFieldSet& fields) {
  for (int i = 0; i < fields.field_count(); ++i) {
    const google::protobuf::UnknownField& field = fields.field(i);
    if (field.number() != kOwner ||
        field.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED)
      continue;
    CallerProto proto;
    if (!proto.ParseFromString(field.length_delimited()))
      return InvalidArgument("The owner of a session is not a message of its type");
    auto caller = std::make_shared<Caller>();
    caller->name = proto.name();
    caller->host = proto.host();
    caller->subject = proto.subject();
    caller->has_token = proto.has_token();
    caller->Introduce(proto.introduction());
    return caller;
  }
  return nullptr;
}

}  // namespace

// --- Masters

GraphEdit EditFromProto(std::shared_ptr<const tensorflow::GraphDef> proto) {
  return [proto = std::move(proto)](Graph& graph) -> absl::Status {
    for (const auto& node : proto->node()) {
      if (graph.FindNode(node.name()) == nullptr) continue;
      return InvalidArgument("GraphDef argument to Extend includes node '", node.name(),
                             "', which was created by a previous call to Create or Extend in this "
                             "session.");
    }
    return ImportGraph(graph, *proto, SessionImportOptions(graph, *proto)).status();
  };
}

absl::StatusOr<CreateSessionRequest> ReadCreateSession(const WireBytes& bytes) {
  auto proto = std::make_shared<tensorflow::CreateSessionRequest>();
  RETURN_IF_ERROR(ParseMessage(bytes, *proto));
  CreateSessionRequest request;
  ASSIGN_OR_RETURN(request.config, SessionConfigFromProto(proto->config()));
  request.target = proto->target();
  const tensorflow::GraphDef* graph = &proto->graph_def();
  request.graph =
      EditFromProto(std::shared_ptr<const tensorflow::GraphDef>(std::move(proto), graph));
  return request;
}

absl::StatusOr<ExtendSessionRequest> ReadExtendSession(const WireBytes& bytes) {
  auto proto = std::make_shared<tensorflow::ExtendSessionRequest>();
  RETURN_IF_ERROR(ParseMessage(bytes, *proto));
  ExtendSessionRequest request;
  request.session = proto->session_handle();
  request.current_version = proto->current_graph_version();
  request.fingerprint = FingerprintOf(proto->graph_def());
  const tensorflow::GraphDef* graph = &proto->graph_def();
  request.graph =
      EditFromProto(std::shared_ptr<const tensorflow::GraphDef>(std::move(proto), graph));
  return request;
}

absl::StatusOr<WireMessage> WriteCreateSession(const CreateSessionRequest& request,
                                               const Graph& graph) {
  tensorflow::CreateSessionRequest proto;
  SessionConfigToProto(request.config, *proto.mutable_config());
  proto.set_target(request.target);
  RETURN_IF_ERROR(GraphToProto(graph, ExportOptions(), *proto.mutable_graph_def()));
  return SerializeMessage(proto);
}

absl::StatusOr<WireMessage> WriteExtendSession(const ExtendSessionRequest& request,
                                               const Graph& graph, int first_node) {
  tensorflow::ExtendSessionRequest proto;
  proto.set_session_handle(request.session);
  proto.set_current_graph_version(request.current_version);
  ExportOptions options;
  options.from_version = first_node;
  RETURN_IF_ERROR(GraphToProto(graph, options, *proto.mutable_graph_def()));
  return SerializeMessage(proto);
}

// --- Workers

absl::StatusOr<CreateWorkerSessionRequest> CreateWorkerSessionFromProto(
    const tensorflow::CreateWorkerSessionRequest& proto) {
  CreateWorkerSessionRequest request;
  request.session = proto.session_handle();
  request.isolate_state = proto.isolate_session_state();
  request.master_task = proto.master_task();
  request.master_incarnation = static_cast<uint64_t>(proto.master_incarnation());
  // Newer masters send a server_def without jobs, which says nothing.
  const auto& server = proto.server_def();
  if (server.cluster().job_size() > 0) {
    ASSIGN_OR_RETURN(ClusterSpec cluster, ClusterFromProto(server.cluster()));
    request.identity = {std::move(cluster),
                        TaskName{server.job_name(), server.task_index(), server.replica()}};
  }
  ASSIGN_OR_RETURN(request.owner, OwnerIn(proto.GetReflection()->GetUnknownFields(proto)));
  return request;
}

void CreateWorkerSessionToProto(const CreateWorkerSessionRequest& request,
                                tensorflow::CreateWorkerSessionRequest& proto) {
  proto.Clear();
  proto.set_session_handle(request.session);
  proto.set_isolate_session_state(request.isolate_state);
  proto.set_master_task(request.master_task);
  proto.set_master_incarnation(static_cast<int64_t>(request.master_incarnation));
  if (request.owner != nullptr) {
    CallerProto owner;
    CallerToProto(*request.owner, owner);
    proto.GetReflection()->MutableUnknownFields(&proto)->AddLengthDelimited(
        kOwner, owner.SerializeAsString());
  }
  const TaskName& task = request.identity ? request.identity->self : request.task;
  if (task.job.empty()) return;
  auto& server = *proto.mutable_server_def();
  if (request.identity) ClusterToProto(request.identity->cluster, *server.mutable_cluster());
  server.set_job_name(task.job);
  server.set_task_index(task.task);
  server.set_replica(task.replica);
  server.set_protocol("grpc");
}

absl::StatusOr<RegisterGraphRequest> ReadRegisterGraph(const WireBytes& bytes,
                                                       CallOptions::Peer peer) {
  auto proto = std::make_shared<tensorflow::RegisterGraphRequest>();
  RETURN_IF_ERROR(ParseMessage(bytes, *proto));
  if (proto->debug_options().debug_tensor_watch_opts_size() > 0) {
    return Unimplemented("Debugging a graph (debug_options with watches) is not supported");
  }
  RegisterGraphRequest request;
  request.session = proto->session_handle();
  request.in_session = proto->create_worker_session_called();
  request.optimize = WantsOptimization(proto->graph_options());
  request.collective_graph_key = proto->collective_graph_key();
  request.collective_group_leader = proto->config_proto().experimental().collective_group_leader();
  // Masters before 2.1 send no config_proto; ours send one to say which rule they follow.
  request.frame_ids = peer == CallOptions::Peer::kTensorFlow1 || !proto->has_config_proto()
                          ? FrameIds::kBefore23
                          : FrameIds::kSince23;
  request.graph = [proto = std::move(proto)]() -> absl::StatusOr<std::unique_ptr<Graph>> {
    ImportOptions options;
    options.allow_internal_names = true;
    options.adopt_versions = true;
    options.validate_colocation = false;
    auto graph = std::make_unique<Graph>();
    RETURN_IF_ERROR(ImportGraph(*graph, proto->graph_def(), options).status());
    return graph;
  };
  return request;
}

absl::StatusOr<WireMessage> WriteRegisterGraph(RegisterGraphRequest request) {
  tensorflow::RegisterGraphRequest proto;
  proto.set_session_handle(request.session);
  proto.set_create_worker_session_called(request.in_session);
  proto.set_collective_graph_key(request.collective_graph_key);
  SetWantsOptimization(request.optimize, *proto.mutable_graph_options());
  proto.mutable_debug_options();
  if (request.frame_ids == FrameIds::kSince23) {
    auto& config = *proto.mutable_config_proto();
    if (!config.ParseFromString(request.config))
      return Internal("The session's ConfigProto of ", request.config.size(), " bytes is broken");
    config.mutable_experimental()->set_disable_optimize_for_static_graph(true);
    if (!request.collective_group_leader.empty())
      config.mutable_experimental()->set_collective_group_leader(request.collective_group_leader);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Graph> graph, std::move(request.graph)());
  RETURN_IF_ERROR(GraphToProto(*graph, ExportOptions(), *proto.mutable_graph_def()));
  proto.mutable_graph_def()->mutable_library();
  return SerializeMessage(proto);
}

}  // namespace muster
