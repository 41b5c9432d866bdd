// Peers whose silence is noticed: calls that may take for ever end when the task that serves them
// does.
#pragma once

#include <memory>

#include "muster/base/scheduler.h"
#include "muster/transport/api/peers.h"

namespace muster {

struct Settings;

struct LivenessOptions {
  // While a call is open, the task that serves it is asked this often whether it lives.
  absl::Duration heartbeat = absl::Seconds(1);
  // After so much silence the task is named in a warning, and then all calls to it fail.
  absl::Duration warn_after = absl::Seconds(5);
  absl::Duration fail_after = absl::Seconds(30);
};

// Tasks connected through `inner`, watched while calls to them are open: by Hello where they know
// it, by GetStatus otherwise. Calls to a silent task fail with Unavailable, further ones at once
// until it answers again; calls to one that has restarted meanwhile with Aborted; both name the
// task. GetStatus and calls that wait for a worker are not watched, the task's own worker neither.
// Masters are watched by the worker at their address, also by calls that wait for them: one that
// refuses connections is not silent. Making a session then waits for it, with a warning; calls for
// a session that was there fail soon with Unavailable. `scheduler` and the transport outlive what
// is connected.
std::unique_ptr<Transport> NewWatchedTransport(std::unique_ptr<Transport> inner,
                                               Scheduler& scheduler, LivenessOptions options);

// Of an Unavailable that the watch decided on: trying again at once is of no use.
inline constexpr absl::string_view kGivenUpPayload = "muster.GivenUp";

// The defaults, but for what the settings say.
LivenessOptions LivenessFrom(const Settings& settings);

}  // namespace muster
