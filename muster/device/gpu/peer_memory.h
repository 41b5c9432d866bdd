// Memory of other processes of the machine that cards read by themselves: segments of the fast plane,
// registered with the driver.
#pragma once

#include <cstddef>
#include <map>

#include "muster/base/mutex.h"
#include "muster/tensor/shared_memory.h"

namespace muster {

class Gpu;

// Thread-safe. One for the process; never destroyed.
class PeerMemory : public MappingReader {
 public:
  static PeerMemory& Global();

  // Segments that come from now on are registered, for all cards, by a call for this one.
  void Start(const Gpu& gpu);
  // Whether cards may read it.
  bool Has(const char* data, size_t bytes) const;

  bool Begin(const char* data, size_t size_bytes) override;
  void End(const char* data) override;

 private:
  mutable Mutex mutex_;
  const Gpu* gpu_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::map<const char*, size_t> segments_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
