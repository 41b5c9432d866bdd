// Convolutions in float by oneDNN: compiled once per size, run in one thread per part of the batch.
#pragma once

#include <memory>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/ops/conv/conv_geometry.h"

namespace muster {

// Thread-safe: one per kernel. Requires of all sizes that they are positive.
class Convolver {
 public:
  Convolver();
  ~Convolver();

  absl::Status Forward(KernelContext& c, const ConvGeometry& g, const float* input,
                       const float* filter, float* output);
  absl::Status BackwardInput(KernelContext& c, const ConvGeometry& g, const float* filter,
                             const float* out_backprop, float* input_backprop);
  absl::Status BackwardFilter(KernelContext& c, const ConvGeometry& g, const float* input,
                              const float* out_backprop, float* filter_backprop);

 private:
  class Program;
  enum class Kind : uint8_t { kForward, kBackwardInput, kBackwardFilter };
  // The program for a batch of `g`.batch; null when oneDNN has none for these sizes.
  std::shared_ptr<const Program> Find(Kind kind, const ConvGeometry& g);
  // How many parts the batch is split into.
  static int64_t Parts(const KernelContext& c, const ConvGeometry& g, int64_t parts_per_thread);
  // The programs for all parts; empty when oneDNN has none.
  std::vector<std::shared_ptr<const Program>> FindAll(Kind kind, const ConvGeometry& g,
                                                      int64_t parts);

  struct Entry {
    Kind kind;
    ConvGeometry geometry;
    std::shared_ptr<const Program> program;
  };
  Mutex mutex_;
  std::vector<Entry> programs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
