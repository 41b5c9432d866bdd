#include "muster/base/settings.h"
#include "muster/transport/watch/watched_peers.h"

namespace muster {

LivenessOptions LivenessFrom(const Settings& settings) {
  LivenessOptions options;
  options.heartbeat = settings.heartbeat.value_or(options.heartbeat);
  options.warn_after = settings.warn_after.value_or(options.warn_after);
  options.fail_after = settings.fail_after.value_or(options.fail_after);
  return options;
}

}  // namespace muster
