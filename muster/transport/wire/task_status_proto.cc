#include "muster/transport/wire/task_status_proto.h"

#include "muster/transport/status.pb.h"

namespace muster {
namespace {

constexpr size_t kMostGpus = 64;  // that are shown of a task

void TaskToProto(const TaskStatus& status, TaskStatusProto& proto) {
  proto.set_task(status.task.ToString());
  proto.set_is_muster(status.is_muster);
  proto.set_incarnation(status.incarnation);
  proto.set_stopping(status.stopping);
  proto.set_joined(status.joined);
  proto.set_devices(status.devices);
  proto.set_uptime_ms(absl::ToInt64Milliseconds(status.uptime));
  proto.set_sessions(status.sessions);
  proto.set_worker_sessions(status.worker_sessions);
  proto.set_graphs(status.graphs);
  proto.set_steps_under_way(status.steps_under_way);
  proto.set_steps(status.steps);
  proto.set_parts(status.parts);
  if (status.steps_per_second) proto.set_steps_per_second(*status.steps_per_second);
  proto.set_tensors_sent(status.tensors_sent);
  proto.set_bytes_sent(status.bytes_sent);
  proto.set_tensors_received(status.tensors_received);
  proto.set_bytes_received(status.bytes_received);
  proto.set_collective_bytes_sent(status.collective_bytes_sent);
  proto.set_collective_bytes_received(status.collective_bytes_received);
  proto.set_resident_bytes(status.resident_bytes);
  proto.set_variables(status.variables);
  proto.set_variable_bytes(status.variable_bytes);
  if (status.global_step) proto.set_global_step(*status.global_step);
  for (const TaskGpu& gpu : status.gpus) {
    TaskGpuProto& to = *proto.add_gpus();
    to.set_number(gpu.number);
    to.set_name(gpu.name);
    to.set_memory_bytes(gpu.memory_bytes);
    to.set_used_bytes(gpu.used_bytes);
    to.set_calls(gpu.calls);
    to.set_replayed_calls(gpu.replayed_calls);
  }
}

absl::StatusOr<TaskStatus> TaskFromProto(const TaskStatusProto& proto) {
  TaskStatus status;
  ASSIGN_OR_RETURN(status.task, TaskName::Parse(proto.task()));
  status.is_muster = proto.is_muster();
  status.incarnation = proto.incarnation();
  status.stopping = proto.stopping();
  status.joined = proto.joined();
  status.devices = proto.devices();
  status.uptime = absl::Milliseconds(proto.uptime_ms());
  status.sessions = proto.sessions();
  status.worker_sessions = proto.worker_sessions();
  status.graphs = proto.graphs();
  status.steps_under_way = proto.steps_under_way();
  status.steps = proto.steps();
  status.parts = proto.parts();
  if (proto.has_steps_per_second()) status.steps_per_second = proto.steps_per_second();
  status.tensors_sent = proto.tensors_sent();
  status.bytes_sent = proto.bytes_sent();
  status.tensors_received = proto.tensors_received();
  status.bytes_received = proto.bytes_received();
  status.collective_bytes_sent = proto.collective_bytes_sent();
  status.collective_bytes_received = proto.collective_bytes_received();
  status.resident_bytes = proto.resident_bytes();
  status.variables = proto.variables();
  status.variable_bytes = proto.variable_bytes();
  if (proto.has_global_step()) status.global_step = proto.global_step();
  for (const TaskGpuProto& gpu : proto.gpus()) {
    if (status.gpus.size() == kMostGpus) break;
    status.gpus.push_back({gpu.number(), gpu.name(), gpu.memory_bytes(), gpu.used_bytes(),
                           gpu.calls(), gpu.replayed_calls()});
  }
  return status;
}

}  // namespace

absl::StatusOr<StatusRequest> StatusRequestFromProto(const StatusRequestProto& proto) {
  StatusRequest request;
  request.whole_cluster = proto.whole_cluster();
  if (!proto.asking().empty()) {
    ASSIGN_OR_RETURN(request.asker, TaskName::Parse(proto.asking()));
  }
  if (proto.leaving().empty()) return request;
  request.goodbye.emplace();
  ASSIGN_OR_RETURN(request.goodbye->task, TaskName::Parse(proto.leaving()));
  request.goodbye->incarnation = proto.leaving_incarnation();
  return request;
}

void StatusRequestToProto(const StatusRequest& request, StatusRequestProto& proto) {
  proto.Clear();
  proto.set_whole_cluster(request.whole_cluster);
  if (request.asker) proto.set_asking(request.asker->ToString());
  if (!request.goodbye) return;
  proto.set_leaving(request.goodbye->task.ToString());
  proto.set_leaving_incarnation(request.goodbye->incarnation);
}

absl::StatusOr<ClusterStatus> ClusterStatusFromProto(const ClusterStatusProto& proto) {
  ClusterStatus cluster;
  ASSIGN_OR_RETURN(cluster.asked, TaskName::Parse(proto.asked()));
  for (const TaskViewProto& task : proto.task()) {
    TaskView view;
    ASSIGN_OR_RETURN(view.status, TaskFromProto(task.status()));
    view.heard = task.heard();
    if (!TaskHealthProto_IsValid(task.health()))
      return InvalidArgument("unknown health ", static_cast<int>(task.health()), " of ",
                             task.status().task());
    view.health = static_cast<TaskHealth>(task.health());
    view.since = absl::Milliseconds(task.since_ms());
    view.straggler = task.straggler();
    view.explanation = task.explanation();
    cluster.tasks.push_back(std::move(view));
  }
  return cluster;
}

void ClusterStatusToProto(const ClusterStatus& cluster, ClusterStatusProto& proto) {
  proto.Clear();
  proto.set_asked(cluster.asked.ToString());
  for (const TaskView& view : cluster.tasks) {
    TaskViewProto& task = *proto.add_task();
    TaskToProto(view.status, *task.mutable_status());
    task.set_heard(view.heard);
    task.set_health(static_cast<TaskHealthProto>(view.health));
    task.set_since_ms(absl::ToInt64Milliseconds(view.since));
    task.set_straggler(view.straggler);
    task.set_explanation(view.explanation);
  }
}

}  // namespace muster
