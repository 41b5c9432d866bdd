#include "muster/server/server_environment.h"

#include <cstdlib>
#include <limits>

#include "absl/strings/numbers.h"

namespace muster {
namespace {

template <typename Number>
absl::Status ReadCount(const char* name, Number& value) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return absl::OkStatus();
  int64_t count = 0;
  if (!absl::SimpleAtoi(text, &count) || count < 1 || count > std::numeric_limits<Number>::max()) {
    return InvalidArgument(name, " is '", text, "': it must be a number between 1 and ",
                           std::numeric_limits<Number>::max());
  }
  value = static_cast<Number>(count);
  return absl::OkStatus();
}

absl::Status ReadPort(const char* name, int& value) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return absl::OkStatus();
  int port = 0;
  if (!absl::SimpleAtoi(text, &port) || port < 0 || port > 65535)
    return InvalidArgument(name, " is '", text, "': it must be a port, 0 to 65535");
  value = port;
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadServerEnvironment(ServerOptions& options) {
  ASSIGN_OR_RETURN(options.liveness, LivenessFromEnvironment());
  RETURN_IF_ERROR(SecondsFromEnvironment("MUSTER_ORPHAN_GRACE", options.orphan_grace));
  RETURN_IF_ERROR(SecondsFromEnvironment("MUSTER_MASTER_TIMEOUT", options.master_timeout));
  RETURN_IF_ERROR(ReadCount("MUSTER_MAX_MESSAGE_BYTES", options.max_message_bytes));
  RETURN_IF_ERROR(ReadCount("MUSTER_MAX_CONNECTIONS", options.max_connections));
  RETURN_IF_ERROR(ReadCount("MUSTER_MAX_CONNECTIONS_PER_PEER", options.max_connections_per_peer));
  RETURN_IF_ERROR(ReadPort("MUSTER_METRICS_PORT", options.metrics_port));
  RETURN_IF_ERROR(ReadCount("MUSTER_MAX_MEMORY_BYTES", options.max_memory_bytes));
  RETURN_IF_ERROR(ReadCount("MUSTER_MAX_SESSION_MEMORY_BYTES", options.max_session_memory_bytes));
  return ReadCount("MUSTER_MAX_GRAPH_NODES", options.max_graph_nodes);
}

}  // namespace muster
