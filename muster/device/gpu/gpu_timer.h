// How long work takes on a card: for choosing between ways to compute the same.
#pragma once

#include "muster/base/status.h"
#include "muster/device/gpu/cuda_api.h"

namespace muster {

class Gpu;

// Confined. For use within Gpu::RunNow, so that nothing else comes in between. What it takes of the
// driver is never given back: it is meant to live as long as the card.
class GpuTimer {
 public:
  explicit GpuTimer(Gpu& gpu) : gpu_(gpu) {}
  GpuTimer(const GpuTimer&) = delete;
  GpuTimer& operator=(const GpuTimer&) = delete;

  // Time begins when the stream has come so far.
  absl::Status Begin();
  // Waits for what is on the stream. Milliseconds since Begin.
  absl::StatusOr<float> End();

 private:
  Gpu& gpu_;
  cuda::Event begin_ = nullptr, end_ = nullptr;
};

}  // namespace muster
