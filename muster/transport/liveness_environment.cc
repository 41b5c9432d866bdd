#include <cstdlib>

#include "absl/strings/numbers.h"

#include "muster/transport/watched_peers.h"

namespace muster {

absl::Status SecondsFromEnvironment(const char* name, absl::Duration& value) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return absl::OkStatus();
  double seconds = 0;
  if (!absl::SimpleAtod(text, &seconds) || !(seconds > 0))
    return InvalidArgument(name, " is '", text, "': it must be a positive number of seconds");
  value = absl::Seconds(seconds);
  return absl::OkStatus();
}

absl::StatusOr<LivenessOptions> LivenessFromEnvironment() {
  LivenessOptions options;
  RETURN_IF_ERROR(SecondsFromEnvironment("MUSTER_HEARTBEAT", options.heartbeat));
  RETURN_IF_ERROR(SecondsFromEnvironment("MUSTER_WARN_AFTER", options.warn_after));
  RETURN_IF_ERROR(SecondsFromEnvironment("MUSTER_FAIL_AFTER", options.fail_after));
  return options;
}

}  // namespace muster
