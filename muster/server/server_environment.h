// Bounds of a server that the environment may set, for programs that start servers themselves.
#pragma once

#include "muster/server/server.h"

namespace muster {

// MUSTER_HEARTBEAT, MUSTER_WARN_AFTER, MUSTER_FAIL_AFTER, MUSTER_ORPHAN_GRACE and
// MUSTER_MASTER_TIMEOUT in seconds, MUSTER_MAX_MESSAGE_BYTES, MUSTER_MAX_GRAPH_NODES and
// MUSTER_METRICS_PORT.
// InvalidArgument naming the variable for what is no positive number.
absl::Status ReadServerEnvironment(ServerOptions& options);

}  // namespace muster
