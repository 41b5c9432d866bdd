// Links to tasks of other machines.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"

#include "muster/transport/fast/fast_link.h"

namespace muster::fast {

// Connects to "host:port", trying all addresses of the host in turn, and greets the task there,
// which must be that of the process with this incarnation. Blocks, at most until `timeout` has
// passed, but for the resolver. Unavailable says why there is no link; the task can still be
// reached over gRPC. `scheduler` outlives the link.
absl::StatusOr<std::shared_ptr<FastLink>> ConnectLink(const std::string& address,
                                                      uint64_t incarnation, absl::Duration timeout,
                                                      Scheduler& scheduler,
                                                      size_t max_message_bytes);

}  // namespace muster::fast
