// Tasks of a cluster that share this process: they call each other directly.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "muster/base/scheduler.h"
#include "muster/transport/inproc/in_process_transport.h"

namespace muster {

// Which tasks those are, by their addresses in the cluster, and which of them serve. Thread-safe.
class LocalTasks {
 public:
  // `closed`: the whole cluster is in this process, so its addresses are mere names and nothing
  // listens on a port. `scheduler` outlives the object.
  LocalTasks(Scheduler& scheduler, std::set<std::string> addresses, bool closed)
      : addresses_(std::move(addresses)),
        closed_(closed),
        calls_(InProcessTransport::Create(scheduler)) {}

  bool Has(const std::string& address) const { return addresses_.count(address) > 0; }
  bool closed() const { return closed_; }
  InProcessTransport& calls() { return *calls_; }

 private:
  const std::set<std::string> addresses_;
  const bool closed_;
  const std::unique_ptr<InProcessTransport> calls_;
};

// Tasks of `local` are called directly, the others through `network`. Null: there are no others.
std::unique_ptr<Transport> NewLocalTasksTransport(std::shared_ptr<LocalTasks> local,
                                                  std::unique_ptr<Transport> network);

}  // namespace muster
