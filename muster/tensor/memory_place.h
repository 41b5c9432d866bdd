// Where the memory of an allocator is, for the text of an error.
#pragma once

#include <string>

#include "muster/tensor/buffer.h"

namespace muster {

// An allocator that knows it better than by its kind.
class PlacedAllocator : public Allocator {
 public:
  // "on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc".
  virtual std::string place() const = 0;
};

inline std::string PlaceOf(const Allocator& allocator) {
  if (const auto* const placed = dynamic_cast<const PlacedAllocator*>(&allocator))
    return placed->place();
  return allocator.memory_kind() == MemoryKind::kDevice ? "on the device" : "on the host";
}

}  // namespace muster
