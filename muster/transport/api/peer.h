// How a task finds out whether another one is Muster too, and what both can do beyond TensorFlow's
// protocol.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "muster/transport/api/call.h"

namespace muster {

class MasterApi;
class WorkerApi;

struct PeerInfo {
  int version = 1;
  uint64_t incarnation = 0;  // of the process
  // Tasks with equal ones run on the same machine, in the same network namespace.
  std::string boot_id;
  uint64_t network_namespace = 0;
  std::vector<std::string> capabilities;
};

// The capability of tasks that know muster.Peer/RecvTensors and RunGraphRequest::finished_steps.
inline constexpr char kBatchesCapability[] = "batches";

// This process, without capabilities: those are of a server. The same every time.
const PeerInfo& LocalPeer();

// Thread-safe.
class PeerApi {
 public:
  virtual ~PeerApi() = default;
  // Unimplemented from peers that are not Muster.
  virtual void Hello(CallOptions options, PeerInfo self, CallDone<PeerInfo> done) = 0;
  // Finds out, over a connection of its own, how far connecting gets: name resolution, TCP, HTTP/2.
  // `done` gets a line about it within a few seconds, on any thread.
  virtual void Probe(absl::AnyInvocable<void(std::string) &&> done) = 0;
  // Leaves the connection for a new one, for calls that are made from now on.
  virtual void Renew() = 0;
};

// How to greet the task of `worker`; null when it is not reached over the network.
PeerApi* PeerOf(WorkerApi& worker);

// A master that is reached over a connection which other services of its task share.
class MasterConnection {
 public:
  virtual ~MasterConnection() = default;
  virtual std::shared_ptr<WorkerApi> Worker() = 0;
};
// The worker of the master's task, over the same connection; null where there is no such thing.
std::shared_ptr<WorkerApi> WorkerBeside(MasterApi& master);

}  // namespace muster
