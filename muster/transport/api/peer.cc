#include "muster/transport/api/peer.h"

#include <fstream>

#include <sys/stat.h>

#include "muster/transport/api/master_api.h"
#include "muster/transport/api/worker_api.h"

namespace muster {

const PeerInfo& LocalPeer() {
  static const PeerInfo local = [] {
    PeerInfo info;
    info.incarnation = static_cast<uint64_t>(NewRequestId());
    // Where the system does not say, the fields stay empty: no two tasks are then taken for
    // neighbours.
    std::ifstream boot_id("/proc/sys/kernel/random/boot_id");
    std::getline(boot_id, info.boot_id);
    struct stat status;
    if (stat("/proc/self/ns/net", &status) == 0) info.network_namespace = status.st_ino;
    return info;
  }();
  return local;
}

PeerApi* PeerOf(WorkerApi& worker) {
  return dynamic_cast<PeerApi*>(&worker);
}

std::shared_ptr<WorkerApi> WorkerBeside(MasterApi& master) {
  auto* const connection = dynamic_cast<MasterConnection*>(&master);
  return connection == nullptr ? nullptr : connection->Worker();
}

}  // namespace muster
