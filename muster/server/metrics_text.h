// What a task counts, for Prometheus.
#pragma once

#include <string>
#include <vector>

#include "muster/base/net/acceptor.h"
#include "muster/device/gpu/gpu_report.h"
#include "muster/transport/api/task_status.h"

namespace muster {

// Version 0.0.4 of its text format: the task that was asked, with labels "muster_job" and "task",
// and the states of the others as it sees them, with "peer_job" and "peer_task".
std::string MetricsText(const ClusterStatus& cluster, const ConnectionCounts& connections = {},
                        const std::vector<GpuReport>& gpus = {});

}  // namespace muster
