// What was put on a card's stream lately. An error of the card is heard of by a later call, which
// cannot say where it comes from: it comes from something that is not known to be done.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/device/gpu/cuda_api.h"

namespace muster {

class GpuPrograms;

// The functions of a sequence, each once; null: a call of a library.
using GpuFunctions = std::shared_ptr<const std::vector<cuda::Function>>;

// Thread-safe.
class GpuHistory {
 public:
  // The functions go on the stream now, after all others.
  void Add(GpuFunctions functions);
  // A number that grows with each.
  uint64_t last() const;
  // All up to the number `last` are done.
  void NoteDone(uint64_t last);
  // A sentence that names what is not known to be done.
  std::string Candidates(const GpuPrograms& programs) const;

 private:
  struct Added {
    uint64_t number;
    GpuFunctions functions;
  };

  mutable Mutex mutex_;
  std::deque<Added> added_ ABSL_GUARDED_BY(mutex_);  // the latest that are not done
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace muster
