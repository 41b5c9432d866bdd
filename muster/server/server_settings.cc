#include "muster/server/server_settings.h"

namespace muster {

void ApplySettings(const Settings& settings, ServerOptions& options) {
  const auto apply = [](const auto& setting, auto& option) {
    if (setting.has_value()) option = *setting;
  };
  options.liveness = LivenessFrom(settings);
  options.links = settings.links;
  options.batches = settings.batches;
  options.cache_rpc_response = settings.cache_rpc_response;
  options.status_socket = settings.status_socket;
  apply(settings.orphan_grace, options.orphan_grace);
  apply(settings.master_timeout, options.master_timeout);
  apply(settings.max_message_bytes, options.max_message_bytes);
  apply(settings.max_graph_nodes, options.max_graph_nodes);
  apply(settings.max_memory_bytes, options.max_memory_bytes);
  apply(settings.max_session_memory_bytes, options.max_session_memory_bytes);
  apply(settings.max_connections, options.max_connections);
  apply(settings.max_connections_per_peer, options.max_connections_per_peer);
  apply(settings.metrics_port, options.metrics_port);
}

}  // namespace muster
