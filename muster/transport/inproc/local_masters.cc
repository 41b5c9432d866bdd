#include "muster/transport/inproc/local_masters.h"

#include <algorithm>
#include <map>

#include "absl/strings/strip.h"

#include "muster/base/mutex.h"
#include "muster/transport/api/local_address.h"

namespace muster {
namespace {

struct Registry {
  Mutex mutex;
  int64_t next_id ABSL_GUARDED_BY(mutex) = 0;
  std::map<int64_t, LocalMaster> masters ABSL_GUARDED_BY(mutex);

  static Registry& Global() {
    static Registry& registry = *std::make_unique<Registry>().release();  // outlives every server
    return registry;
  }
};

bool ListensAt(const LocalMaster& master, const std::vector<std::string>& addresses) {
  return std::any_of(addresses.begin(), addresses.end(), [&](const std::string& address) {
    return master.addresses.empty() ? IsLocalAddress(address)
                                    : std::find(master.addresses.begin(), master.addresses.end(),
                                                address) != master.addresses.end();
  });
}

}  // namespace

LocalMasterRegistration::LocalMasterRegistration(LocalMaster master) {
  Registry& registry = Registry::Global();
  MutexLock lock(registry.mutex);
  id_ = registry.next_id++;
  registry.masters.emplace(id_, std::move(master));
}

LocalMasterRegistration::~LocalMasterRegistration() {
  Registry& registry = Registry::Global();
  MutexLock lock(registry.mutex);
  registry.masters.erase(id_);
}

std::shared_ptr<MasterApi> FindLocalMaster(absl::string_view target) {
  if (!absl::ConsumePrefix(&target, "grpc://")) return nullptr;
  const absl::StatusOr<HostPort> address = ParseHostPort(target);
  if (!address.ok()) return nullptr;
  std::vector<LocalMaster> candidates;
  {
    Registry& registry = Registry::Global();
    MutexLock lock(registry.mutex);
    for (const auto& [id, master] : registry.masters) {
      if (absl::StripPrefix(master.target, "grpc://") == target) return master.master.lock();
      if (master.port == address->port) candidates.push_back(master);
    }
  }
  if (candidates.empty()) return nullptr;  // names are resolved only where it can matter
  const absl::StatusOr<std::vector<std::string>> addresses = ResolveHost(address->host);
  if (!addresses.ok()) return nullptr;
  for (const LocalMaster& candidate : candidates) {
    if (ListensAt(candidate, *addresses)) return candidate.master.lock();
  }
  return nullptr;
}

}  // namespace muster
