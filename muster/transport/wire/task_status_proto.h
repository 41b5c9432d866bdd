// The status of tasks, as messages.
#pragma once

#include "muster/transport/api/task_status.h"

namespace muster {

class ClusterStatusProto;
class StatusRequestProto;

// InvalidArgument for what is not the name of a task.
absl::StatusOr<StatusRequest> StatusRequestFromProto(const StatusRequestProto& proto);
void StatusRequestToProto(const StatusRequest& request, StatusRequestProto& proto);
absl::StatusOr<ClusterStatus> ClusterStatusFromProto(const ClusterStatusProto& proto);
void ClusterStatusToProto(const ClusterStatus& cluster, ClusterStatusProto& proto);

}  // namespace muster
