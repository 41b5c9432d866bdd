#include "muster/transport/wire/session_config_proto.h"

#include <algorithm>

#include "tensorflow/core/protobuf/config.pb.h"

#include "muster/tensor/message_proto.h"
#include "muster/transport/wire/cluster_proto.h"
#include "muster/transport/wire/step_proto.h"

namespace muster {
namespace {

constexpr char kLazyTasks[] = "muster.lazy_tasks";
constexpr int kMaxCpuDevices = 1024;

}  // namespace

bool WantsOptimization(const tensorflow::GraphOptions& options) {
  return options.optimizer_options().opt_level() != tensorflow::OptimizerOptions::L0 &&
         !options.rewrite_options().disable_meta_optimizer();
}

void SetWantsOptimization(bool wanted, tensorflow::GraphOptions& options) {
  if (wanted == WantsOptimization(options)) return;
  options.mutable_optimizer_options()->set_opt_level(wanted ? tensorflow::OptimizerOptions::L1
                                                            : tensorflow::OptimizerOptions::L0);
  if (wanted) options.mutable_rewrite_options()->set_disable_meta_optimizer(false);
}

absl::StatusOr<SessionConfig> SessionConfigFromProto(const tensorflow::ConfigProto& proto) {
  SessionConfig config;
  config.device_filters = {proto.device_filters().begin(), proto.device_filters().end()};
  config.allow_soft_placement = proto.allow_soft_placement();
  config.log_device_placement = proto.log_device_placement();
  config.operation_timeout = TimeoutFromMillis(proto.operation_timeout_in_ms());
  ASSIGN_OR_RETURN(config.cluster, ClusterFromProto(proto.cluster_def()));
  config.isolate_session_state = proto.isolate_session_state();
  config.use_per_session_threads = proto.use_per_session_threads();
  config.has_session_inter_op_threads = proto.session_inter_op_thread_pool_size() > 0;
  config.optimize_graph = WantsOptimization(proto.graph_options());
  config.bfloat16_sendrecv = proto.graph_options().enable_bfloat16_sendrecv();
  const auto& experimental = proto.experimental();
  config.share_session_state_in_clusterspec_propagation =
      experimental.share_session_state_in_clusterspec_propagation();
  config.lazy_tasks = experimental.executor_type() == kLazyTasks;
  if (!config.lazy_tasks) config.executor_type = experimental.executor_type();
  config.collective_group_leader = experimental.collective_group_leader();
  config.use_rpc_for_inprocess_master = proto.rpc_options().use_rpc_for_inprocess_master();
  if (const auto found = proto.device_count().find("CPU"); found != proto.device_count().end()) {
    if (found->second < 0 || found->second > kMaxCpuDevices) {
      return InvalidArgument("device_count[\"CPU\"] is ", found->second, ": it must be from 0 to ",
                             kMaxCpuDevices);
    }
    config.devices.cpu_devices = std::max(1, found->second);  // a task has at least one
  }
  if (const auto found = proto.device_count().find("GPU"); found != proto.device_count().end())
    config.devices.gpu_devices = std::max(0, found->second);
  const tensorflow::GPUOptions& gpu = proto.gpu_options();
  config.devices.visible_gpus = gpu.visible_device_list();
  config.devices.gpu_memory_fraction = gpu.per_process_gpu_memory_fraction();
  for (const auto& card : gpu.experimental().virtual_devices()) {
    config.devices.virtual_gpus.emplace_back(card.memory_limit_mb().begin(),
                                             card.memory_limit_mb().end());
  }
  config.serialized = proto.SerializeAsString();
  return config;
}

void SessionConfigToProto(const SessionConfig& config, tensorflow::ConfigProto& proto) {
  // Only what SessionConfigFromProto kept gets into `serialized`; anything else counts as empty.
  if (!proto.ParseFromString(config.serialized)) proto.Clear();
  *proto.mutable_device_filters() = {config.device_filters.begin(), config.device_filters.end()};
  proto.set_allow_soft_placement(config.allow_soft_placement);
  proto.set_log_device_placement(config.log_device_placement);
  proto.set_operation_timeout_in_ms(TimeoutToMillis(config.operation_timeout));
  proto.clear_cluster_def();
  if (!config.cluster.empty()) ClusterToProto(config.cluster, *proto.mutable_cluster_def());
  proto.set_isolate_session_state(config.isolate_session_state);
  proto.set_use_per_session_threads(config.use_per_session_threads);
  if (!config.has_session_inter_op_threads) {
    proto.clear_session_inter_op_thread_pool();
  } else if (proto.session_inter_op_thread_pool_size() == 0) {
    proto.add_session_inter_op_thread_pool();
  }
  if (config.optimize_graph != WantsOptimization(proto.graph_options())) {
    SetWantsOptimization(config.optimize_graph, *proto.mutable_graph_options());
  }
  if (config.bfloat16_sendrecv != proto.graph_options().enable_bfloat16_sendrecv()) {
    proto.mutable_graph_options()->set_enable_bfloat16_sendrecv(config.bfloat16_sendrecv);
  }
  if (config.share_session_state_in_clusterspec_propagation) {
    proto.mutable_experimental()->set_share_session_state_in_clusterspec_propagation(true);
  }
  if (config.lazy_tasks) proto.mutable_experimental()->set_executor_type(kLazyTasks);
  if (!config.collective_group_leader.empty()) {
    proto.mutable_experimental()->set_collective_group_leader(config.collective_group_leader);
  }
  if (config.use_rpc_for_inprocess_master) {
    proto.mutable_rpc_options()->set_use_rpc_for_inprocess_master(true);
  }
  const DeviceOptions& devices = config.devices;
  if (devices.cpu_devices != 1) (*proto.mutable_device_count())["CPU"] = devices.cpu_devices;
  if (devices.gpu_devices >= 0) (*proto.mutable_device_count())["GPU"] = devices.gpu_devices;
  if (!devices.visible_gpus.empty())
    proto.mutable_gpu_options()->set_visible_device_list(devices.visible_gpus);
  if (devices.gpu_memory_fraction > 0)
    proto.mutable_gpu_options()->set_per_process_gpu_memory_fraction(devices.gpu_memory_fraction);
  if (!devices.virtual_gpus.empty()) {
    auto& cards = *proto.mutable_gpu_options()->mutable_experimental()->mutable_virtual_devices();
    cards.Clear();
    for (const std::vector<float>& card : devices.virtual_gpus)
      *cards.Add()->mutable_memory_limit_mb() = {card.begin(), card.end()};
  }
}

absl::StatusOr<SessionConfig> ParseSessionConfig(absl::string_view serialized) {
  tensorflow::ConfigProto proto;
  if (!MessageFromBytes(serialized, proto)) {
    return InvalidArgument("The bytes given are not a ConfigProto");
  }
  return SessionConfigFromProto(proto);
}

std::string SerializeSessionConfig(const SessionConfig& config) {
  tensorflow::ConfigProto proto;
  SessionConfigToProto(config, proto);
  return proto.SerializeAsString();
}

}  // namespace muster
