// A network on a virtual clock: delays, losses, cut links and deaths, all from one seed.
#pragma once

#include <memory>
#include <string>

#include "muster/transport/inproc/relay.h"

namespace muster {

// Tasks and clients are known by their addresses; clients that ConnectMaster by "client".
class SimulatedNetwork : public Transport {
 public:
  struct Options {
    uint64_t seed = 0;
    // The delay of each message is drawn between these.
    absl::Duration min_delay = absl::Microseconds(50);
    absl::Duration max_delay = absl::Milliseconds(1);
  };
  // `scheduler` outlives the network.
  static std::unique_ptr<SimulatedNetwork> Create(SimulatedScheduler& scheduler, Options options);

  // A task starts, or restarts: calls that waited for it arrive.
  virtual void Listen(const std::string& address, Endpoint endpoint) = 0;
  // The task dies. Calls to it that are under way fail with Unavailable "Socket closed", later ones
  // with "failed to connect to all addresses"; those that wait for a peer wait. Its own calls are
  // cancelled where they are served and get no answer from the network: stop the worker to end its
  // steps.
  virtual void Kill(const std::string& address) = 0;
  // Nothing comes from the task and nothing reaches it until Resume, as when its process is
  // stopped.
  virtual void Pause(const std::string& address) = 0;
  virtual void Resume(const std::string& address) = 0;
  // Messages from one to the other are lost with this probability and, as TCP does, sent again:
  // after 200 ms, then ever more slowly. With 1 they wait until the link is better.
  virtual void SetLoss(const std::string& from, const std::string& to, double probability) = 0;
  // Both directions: nothing gets through, or everything.
  virtual void Cut(const std::string& a, const std::string& b) = 0;
  virtual void Heal(const std::string& a, const std::string& b) = 0;
  struct Traffic {
    int64_t calls = 0;        // sent, those that did not arrive too
    int64_t connections = 0;  // pairs of caller and called
  };
  virtual Traffic traffic() const = 0;
};

}  // namespace muster
