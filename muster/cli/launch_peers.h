// How launchers that each have one task of a cluster learn of its end.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

#include "muster/cli/launch_plan.h"

namespace muster {

// Rank 0 hears from the others, over TCP, when their task only serves and when it has ended, and
// tells all of them to stop: when the workers that train have ended, or one task has failed. Not
// thread-safe; never blocks.
class LaunchPeers {
 public:
  static absl::StatusOr<std::unique_ptr<LaunchPeers>> Open(const PeersPlan& plan);
  virtual ~LaunchPeers() = default;

  virtual void AddTo(std::vector<pollfd>& waiting) const = 0;
  // Reads, connects, decides. To be called every now and then.
  virtual void Update() = 0;
  // The own task does nothing but serve.
  virtual void TellJoined() = 0;
  // The own task has ended, for good.
  virtual void TellEnded(int code) = 0;
  // Set once all are to stop: the exit status of the whole.
  virtual std::optional<int> stop() const = 0;
  // Nothing is left to receive or to send.
  virtual bool finished() const = 0;
  // The reason of a failure: "rank 2 has ended with status 7".
  virtual std::string reason() const = 0;
};

}  // namespace muster
