#include "muster/transport/master_proto.h"

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "tensorflow/core/protobuf/master.pb.h"

#include "muster/graph/graph_proto.h"
#include "muster/transport/session_config_proto.h"
#include "muster/transport/status_proto.h"
#include "muster/transport/wire_tensor_proto.h"

namespace muster {
namespace {

// Messages with the same meaning may differ in the order of attributes, which is left out.
size_t FingerprintOf(const tensorflow::GraphDef& graph) {
  size_t fingerprint = static_cast<size_t>(graph.node_size());
  for (const auto& node : graph.node()) {
    fingerprint = absl::HashOf(fingerprint, node.name(), node.op(), node.device());
    for (const std::string& input : node.input()) fingerprint = absl::HashOf(fingerprint, input);
  }
  return fingerprint;
}

std::vector<std::string> Texts(const google::protobuf::RepeatedPtrField<std::string>& field) {
  return {field.begin(), field.end()};
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

absl::StatusOr<WireMessage> WithTensors(const google::protobuf::Message& rest, uint32_t field,
                                        const std::vector<NamedTensor>& tensors) {
  ASSIGN_OR_RETURN(WireMessage message, SerializeMessage(rest));
  for (const NamedTensor& tensor : tensors) {
    RETURN_IF_ERROR(AppendNamedTensor(field, tensor, message));
  }
  return message;
}

}  // namespace

StepOptions StepOptionsFromProto(const tensorflow::RunOptions& proto) {
  StepOptions options;
  options.timeout = TimeoutFromMillis(proto.timeout_in_ms());
  options.trace = proto.trace_level() != tensorflow::RunOptions::NO_TRACE;
  options.output_partition_graphs = proto.output_partition_graphs();
  // Watches that are sent nowhere change nothing.
  for (const auto& watch : proto.debug_options().debug_tensor_watch_opts())
    options.has_debug_watches |= watch.debug_urls_size() > 0;
  options.collective_graph_key = proto.experimental().collective_graph_key();
  return options;
}

void StepOptionsToProto(const StepOptions& options, tensorflow::RunOptions& proto) {
  proto.Clear();
  proto.set_timeout_in_ms(TimeoutToMillis(options.timeout));
  if (options.trace) proto.set_trace_level(tensorflow::RunOptions::FULL_TRACE);
  proto.set_output_partition_graphs(options.output_partition_graphs);
  if (options.has_debug_watches)
    proto.mutable_debug_options()->add_debug_tensor_watch_opts()->add_debug_urls("file://");
  if (options.collective_graph_key != 0) {
    proto.mutable_experimental()->set_collective_graph_key(options.collective_graph_key);
  }
}

MakeCallableRequest CallableFromProto(const tensorflow::CallableOptions& proto) {
  MakeCallableRequest request;
  request.feeds = Texts(proto.feed());
  request.fetches = Texts(proto.fetch());
  request.targets = Texts(proto.target());
  request.options = StepOptionsFromProto(proto.run_options());
  for (const auto& connection : proto.tensor_connection()) {
    request.connections.emplace_back(connection.from_tensor(), connection.to_tensor());
  }
  request.has_feed_or_fetch_devices =
      !proto.feed_devices().empty() || !proto.fetch_devices().empty();
  return request;
}

void CallableToProto(const MakeCallableRequest& request, tensorflow::CallableOptions& proto) {
  proto.Clear();
  *proto.mutable_feed() = {request.feeds.begin(), request.feeds.end()};
  *proto.mutable_fetch() = {request.fetches.begin(), request.fetches.end()};
  *proto.mutable_target() = {request.targets.begin(), request.targets.end()};
  StepOptionsToProto(request.options, *proto.mutable_run_options());
  for (const auto& [from, to] : request.connections) {
    auto& connection = *proto.add_tensor_connection();
    connection.set_from_tensor(from);
    connection.set_to_tensor(to);
  }
  // Which devices they are nobody here asks.
  if (request.has_feed_or_fetch_devices) (*proto.mutable_feed_devices())[""] = "";
}

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

absl::StatusOr<ReceivedRunStep> ReadRunStep(const WireBytes& bytes) {
  tensorflow::RunStepRequest proto;
  ASSIGN_OR_RETURN(const std::vector<WireReader> parts, SplitField(bytes, 2, proto));
  ReceivedRunStep result;
  RunStepRequest& request = result.request;
  request.session = proto.session_handle();
  for (size_t i = 0; i < parts.size() && result.bad_feed.ok(); ++i) {
    absl::StatusOr<NamedTensor> tensor = ReadNamedTensor(parts[i]);
    if (tensor.ok()) {
      request.feeds.push_back(*std::move(tensor));
    } else if (absl::IsResourceExhausted(tensor.status())) {
      result.bad_feed = AfterStart(tensor.status());
    } else {
      result.bad_feed = AfterStart(InvalidArgument("Invalid TensorProto for feed value ", i));
    }
  }
  request.fetches = Texts(proto.fetch());
  request.targets = Texts(proto.target());
  request.options = StepOptionsFromProto(proto.options());
  request.partial_run = proto.partial_run_handle();
  request.request_id = proto.request_id();
  result.errors_in_body = proto.store_errors_in_response_body();
  return result;
}

absl::StatusOr<WireMessage> WriteRunStep(const RunStepRequest& request) {
  tensorflow::RunStepRequest proto;
  proto.set_session_handle(request.session);
  *proto.mutable_fetch() = {request.fetches.begin(), request.fetches.end()};
  *proto.mutable_target() = {request.targets.begin(), request.targets.end()};
  StepOptionsToProto(request.options, *proto.mutable_options());
  proto.set_partial_run_handle(request.partial_run);
  proto.set_request_id(request.request_id);
  proto.set_store_errors_in_response_body(true);
  return WithTensors(proto, 2, request.feeds);
}

absl::StatusOr<RunStepReply> ReadRunStepReply(const WireBytes& bytes) {
  tensorflow::RunStepResponse proto;
  ASSIGN_OR_RETURN(const std::vector<WireReader> parts, SplitField(bytes, 1, proto));
  RETURN_IF_ERROR(StatusFromWire(proto.status_code(), proto.status_error_message()));
  RunStepReply reply;
  for (const WireReader& part : parts) {
    ASSIGN_OR_RETURN(NamedTensor tensor, ReadNamedTensor(part));
    reply.tensors.push_back(std::move(tensor));
  }
  reply.metadata = proto.metadata().SerializeAsString();
  reply.has_metadata = proto.has_metadata();
  return reply;
}

absl::StatusOr<WireMessage> WriteRunStepReply(const RunStepReply& reply) {
  WireMessage message;
  for (const NamedTensor& tensor : reply.tensors) {
    RETURN_IF_ERROR(AppendNamedTensor(1, tensor, message));
  }
  if (reply.has_metadata) message.AppendBytesField(2, reply.metadata);
  return message;
}

WireMessage WriteRunStepError(const absl::Status& status, CallOptions::Peer peer) {
  WireMessage message;
  if (IsAfterStart(status)) message.AppendBytesField(2, "");
  message.AppendVarintField(3, static_cast<uint64_t>(status.code()));
  message.AppendBytesField(4, StatusTextFor(status, peer, /*in_body=*/true));
  return message;
}

absl::StatusOr<RunCallableRequest> ReadRunCallable(const WireBytes& bytes) {
  tensorflow::RunCallableRequest proto;
  ASSIGN_OR_RETURN(const std::vector<WireReader> parts, SplitField(bytes, 3, proto));
  RunCallableRequest request;
  request.session = proto.session_handle();
  request.callable = proto.handle();
  request.request_id = proto.request_id();
  for (const WireReader& part : parts) {
    ASSIGN_OR_RETURN(Tensor tensor, ReadTensor(part));
    request.feeds.push_back(std::move(tensor));
  }
  return request;
}

absl::StatusOr<WireMessage> WriteRunCallable(const RunCallableRequest& request) {
  tensorflow::RunCallableRequest proto;
  proto.set_session_handle(request.session);
  proto.set_handle(request.callable);
  proto.set_request_id(request.request_id);
  ASSIGN_OR_RETURN(WireMessage message, SerializeMessage(proto));
  for (const Tensor& tensor : request.feeds) RETURN_IF_ERROR(AppendTensor(3, tensor, message));
  return message;
}

absl::StatusOr<RunCallableReply> ReadRunCallableReply(const WireBytes& bytes) {
  tensorflow::RunCallableResponse proto;
  ASSIGN_OR_RETURN(const std::vector<WireReader> parts, SplitField(bytes, 1, proto));
  RunCallableReply reply;
  for (const WireReader& part : parts) {
    ASSIGN_OR_RETURN(Tensor tensor, ReadTensor(part));
    reply.fetches.push_back(std::move(tensor));
  }
  reply.metadata = proto.metadata().SerializeAsString();
  return reply;
}

absl::StatusOr<WireMessage> WriteRunCallableReply(const RunCallableReply& reply) {
  WireMessage message;
  for (const Tensor& tensor : reply.fetches) RETURN_IF_ERROR(AppendTensor(1, tensor, message));
  message.AppendBytesField(2, reply.metadata);
  return message;
}

}  // namespace muster
