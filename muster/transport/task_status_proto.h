// How tasks tell each other how they do, as messages.
#pragma once

#include "muster/transport/task_status.h"

namespace muster {

class ClusterStatusProto;
class StatusRequestProto;

// InvalidArgument for what is no name of a task.
absl::StatusOr<StatusRequest> StatusRequestFromProto(const StatusRequestProto& proto);
void StatusRequestToProto(const StatusRequest& request, StatusRequestProto& proto);
absl::StatusOr<ClusterStatus> ClusterStatusFromProto(const ClusterStatusProto& proto);
void ClusterStatusToProto(const ClusterStatus& cluster, ClusterStatusProto& proto);

}  // namespace muster
