#include "muster/transport/api/cluster_json.h"

#include "absl/strings/numbers.h"

namespace muster {
namespace {

absl::StatusOr<ClusterSpec::Tasks> TasksFromJson(const std::string& job, const Json& json) {
  ClusterSpec::Tasks tasks;
  const auto add = [&](int number, const Json& address) {
    if (address.string() == nullptr) {
      return InvalidArgument("the address of /job:", job, "/task:", number, " is ", address.kind(),
                             ", not a string");
    }
    if (!tasks.emplace(number, *address.string()).second)
      return InvalidArgument("/job:", job, "/task:", number, " is in the cluster twice");
    return absl::OkStatus();
  };
  if (json.list() != nullptr) {
    for (const Json& address : *json.list())
      RETURN_IF_ERROR(add(static_cast<int>(tasks.size()), address));
  } else if (json.object() != nullptr) {
    for (const auto& [name, address] : *json.object()) {
      int number;
      if (!absl::SimpleAtoi(name, &number) || number < 0) {
        return InvalidArgument("job '", job, "' has a task '", name,
                               "': the number of a task is not negative");
      }
      RETURN_IF_ERROR(add(number, address));
    }
  } else {
    return InvalidArgument("job '", job, "' is ", json.kind(),
                           ": a list of addresses or an object {\"NUMBER\": \"ADDRESS\"} expected");
  }
  return tasks;
}

}  // namespace

absl::StatusOr<ClusterSpec> ClusterFromJson(const Json& json) {
  if (json.object() == nullptr)
    return InvalidArgument("the cluster is ", json.kind(), ", not an object of jobs");
  ClusterSpec cluster;
  for (const auto& [job, tasks] : *json.object()) {
    ASSIGN_OR_RETURN(cluster.jobs()[job], TasksFromJson(job, tasks));
  }
  RETURN_IF_ERROR(cluster.Validate());
  return cluster;
}

absl::StatusOr<TfConfig> ParseTfConfig(absl::string_view text) {
  const auto failed = [](const absl::Status& status) { return Prefixed(status, "TF_CONFIG: "); };
  absl::StatusOr<Json> json = Json::Parse(text);
  if (!json.ok()) return failed(json.status());
  TfConfig config;
  if (const Json* cluster = json->Find("cluster")) {
    absl::StatusOr<ClusterSpec> read = ClusterFromJson(*cluster);
    if (!read.ok()) return failed(read.status());
    config.cluster = *std::move(read);
  }
  const Json* task = json->Find("task");
  if (task == nullptr) return config;
  if (const Json* type = task->Find("type")) {
    if (type->string() == nullptr) return failed(InvalidArgument("task.type is ", type->kind()));
    config.job = *type->string();
  }
  if (const Json* index = task->Find("index")) {
    // Some launchers write the number as a string.
    const bool good =
        index->number() != nullptr
            ? absl::SimpleAtoi(absl::StrCat(*index->number()), &config.task)
            : index->string() != nullptr && absl::SimpleAtoi(*index->string(), &config.task);
    if (!good || config.task < 0)
      return failed(InvalidArgument("task.index is not the number of a task"));
  }
  return config;
}

}  // namespace muster
