#include "muster/transport/wire/step_proto.h"

#include <algorithm>

#include "google/protobuf/unknown_field_set.h"
#include "tensorflow/core/protobuf/master.pb.h"
#include "tensorflow/core/protobuf/worker.pb.h"

#include "muster/transport/wire/status_proto.h"
#include "muster/transport/wire/wire_tensor_proto.h"

namespace muster {
namespace {

// A field of RunGraphRequest that only tasks of Muster read.
constexpr uint32_t kFinishedSteps = 70'001;

std::vector<std::string> Texts(const google::protobuf::RepeatedPtrField<std::string>& field) {
  return {field.begin(), field.end()};
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

absl::Duration TimeoutFromMillis(int64_t millis) {
  return millis > 0 ? absl::Milliseconds(millis) : absl::ZeroDuration();
}

int64_t TimeoutToMillis(absl::Duration timeout) {
  if (timeout <= absl::ZeroDuration() || timeout == absl::InfiniteDuration()) return 0;
  return std::max<int64_t>(1, absl::ToInt64Milliseconds(timeout));
}

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
  // The devices themselves are not used.
  if (request.has_feed_or_fetch_devices) (*proto.mutable_feed_devices())[""] = "";
}

// --- Masters

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

// --- Workers

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
