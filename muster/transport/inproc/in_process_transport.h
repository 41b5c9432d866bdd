// Tasks of one process call each other directly, whole clusters at a time.
#pragma once

#include <memory>
#include <string>

#include "muster/transport/inproc/relay.h"

namespace muster {

// Thread-safe. Calls are made on the caller's thread. A call to an address at which nothing listens
// fails with Unavailable, or waits where its options say so.
class InProcessTransport : public Transport {
 public:
  // `scheduler`, for timeouts and cancellation, outlives the transport.
  static std::unique_ptr<InProcessTransport> Create(Scheduler& scheduler);
  // Replaces what was there.
  virtual void Listen(const std::string& address, Endpoint endpoint) = 0;
  // Later calls fail; calls under way go on.
  virtual void Close(const std::string& address) = 0;
};

}  // namespace muster
