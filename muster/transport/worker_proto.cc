#include "muster/transport/worker_proto.h"

#include "google/protobuf/unknown_field_set.h"
#include "tensorflow/core/protobuf/worker.pb.h"

#include "muster/graph/graph_proto.h"
#include "muster/transport/cluster_proto.h"
#include "muster/transport/session_config_proto.h"
#include "muster/transport/status_proto.h"
#include "muster/transport/wire_tensor_proto.h"

namespace muster {
namespace {

// A field of RunGraphRequest that only tasks of Muster send each other.
constexpr uint32_t kFinishedSteps = 70'001;

}  // namespace

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
  return request;
}

void CreateWorkerSessionToProto(const CreateWorkerSessionRequest& request,
                                tensorflow::CreateWorkerSessionRequest& proto) {
  proto.Clear();
  proto.set_session_handle(request.session);
  proto.set_isolate_session_state(request.isolate_state);
  proto.set_master_task(request.master_task);
  proto.set_master_incarnation(static_cast<int64_t>(request.master_incarnation));
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

absl::StatusOr<ReceivedRunGraph> ReadRunGraph(const WireBytes& bytes) {
  tensorflow::RunGraphRequest proto;
  ASSIGN_OR_RETURN(const std::vector<WireReader> parts, SplitField(bytes, 3, proto));
  ReceivedRunGraph result;
  RunGraphRequest& request = result.request;
  request.session = proto.session_handle();
  request.in_session = proto.create_worker_session_called();
  request.graph = proto.graph_handle();
  request.step_id = proto.step_id();
  for (const WireReader& part : parts) {
    ASSIGN_OR_RETURN(NamedTensor tensor, ReadNamedTensor(part));
    request.send.push_back(std::move(tensor));
  }
  request.recv_keys = {proto.recv_key().begin(), proto.recv_key().end()};
  request.record_timeline = proto.exec_opts().record_timeline();
  request.record_partition_graphs = proto.exec_opts().record_partition_graphs();
  request.is_partial = proto.is_partial();
  request.is_last_partial = proto.is_last_partial_run();
  request.request_id = proto.request_id();
  const auto& others = proto.GetReflection()->GetUnknownFields(proto);
  for (int i = 0; i < others.field_count(); ++i) {
    const google::protobuf::UnknownField& field = others.field(i);
    if (field.number() != kFinishedSteps ||
        field.type() != google::protobuf::UnknownField::TYPE_VARINT)
      continue;
    request.finished_steps.push_back(static_cast<int64_t>(field.varint()));
  }
  result.errors_in_body = proto.store_errors_in_response_body();
  return result;
}

absl::StatusOr<WireMessage> WriteRunGraph(const RunGraphRequest& request) {
  tensorflow::RunGraphRequest proto;
  proto.set_session_handle(request.session);
  proto.set_create_worker_session_called(request.in_session);
  proto.set_graph_handle(request.graph);
  proto.set_step_id(request.step_id);
  *proto.mutable_recv_key() = {request.recv_keys.begin(), request.recv_keys.end()};
  proto.mutable_exec_opts()->set_record_timeline(request.record_timeline);
  proto.mutable_exec_opts()->set_record_partition_graphs(request.record_partition_graphs);
  proto.set_is_partial(request.is_partial);
  proto.set_is_last_partial_run(request.is_last_partial);
  proto.set_request_id(request.request_id);
  proto.set_store_errors_in_response_body(true);
  ASSIGN_OR_RETURN(WireMessage message, SerializeMessage(proto));
  for (const NamedTensor& tensor : request.send) {
    RETURN_IF_ERROR(AppendNamedTensor(3, tensor, message));
  }
  for (const int64_t step : request.finished_steps)
    message.AppendVarintField(kFinishedSteps, static_cast<uint64_t>(step));
  return message;
}

absl::StatusOr<RunGraphReply> ReadRunGraphReply(const WireBytes& bytes) {
  tensorflow::RunGraphResponse proto;
  ASSIGN_OR_RETURN(const std::vector<WireReader> parts, SplitField(bytes, 1, proto));
  RETURN_IF_ERROR(StatusFromWire(proto.status_code(), proto.status_error_message()));
  RunGraphReply reply;
  for (const WireReader& part : parts) {
    ASSIGN_OR_RETURN(NamedTensor tensor, ReadNamedTensor(part));
    reply.recv.push_back(std::move(tensor));
  }
  if (proto.has_step_stats()) reply.step_stats = proto.step_stats().SerializeAsString();
  for (const auto& graph : proto.partition_graph()) {
    reply.partition_graphs.push_back(graph.SerializeAsString());
  }
  return reply;
}

absl::StatusOr<WireMessage> WriteRunGraphReply(const RunGraphReply& reply) {
  WireMessage message;
  for (const NamedTensor& tensor : reply.recv) {
    RETURN_IF_ERROR(AppendNamedTensor(1, tensor, message));
  }
  if (!reply.step_stats.empty()) message.AppendBytesField(2, reply.step_stats);
  // TensorFlow always sends an empty cost_graph.
  message.AppendBytesField(3, "");
  for (const std::string& graph : reply.partition_graphs) message.AppendBytesField(4, graph);
  return message;
}

WireMessage WriteRunGraphError(const absl::Status& status, CallOptions::Peer peer) {
  WireMessage message;
  message.AppendBytesField(3, "");
  message.AppendVarintField(5, static_cast<uint64_t>(status.code()));
  message.AppendBytesField(6, StatusTextFor(status, peer, /*in_body=*/true));
  return message;
}

LoggingRequest LoggingFromProto(const tensorflow::LoggingRequest& proto) {
  LoggingRequest request;
  request.enable = proto.enable_rpc_logging();
  request.disable = proto.disable_rpc_logging();
  request.clear = proto.clear();
  request.fetch_steps = {proto.fetch_step_id().begin(), proto.fetch_step_id().end()};
  return request;
}

void LoggingToProto(const LoggingRequest& request, tensorflow::LoggingRequest& proto) {
  proto.Clear();
  proto.set_enable_rpc_logging(request.enable);
  proto.set_disable_rpc_logging(request.disable);
  proto.set_clear(request.clear);
  *proto.mutable_fetch_step_id() = {request.fetch_steps.begin(), request.fetch_steps.end()};
}

LoggingReply LoggingReplyFromProto(const tensorflow::LoggingResponse& proto) {
  LoggingReply reply;
  for (const auto& step : proto.step()) {
    reply.steps.push_back({step.step_id(), step.step_stats().SerializeAsString()});
  }
  return reply;
}

absl::Status LoggingReplyToProto(const LoggingReply& reply, tensorflow::LoggingResponse& proto) {
  proto.Clear();
  for (const LoggingReply::Step& step : reply.steps) {
    auto& out = *proto.add_step();
    out.set_step_id(step.id);
    if (!out.mutable_step_stats()->ParseFromString(step.step_stats)) {
      return Internal("The trace of step ", step.id, " is not a StepStats");
    }
  }
  return absl::OkStatus();
}

}  // namespace muster
