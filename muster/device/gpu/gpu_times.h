// When a card ran what the nodes of a traced step asked of it: an event of CUDA's before and one
// after each call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

#include "muster/base/mutex.h"
#include "muster/base/status.h"
#include "muster/device/gpu/cuda_api.h"
#include "muster/device/gpu/gpu_trace.h"

namespace muster {

class Gpu;

struct GpuTimedCall {
  std::string device, node, op;
  std::string what;  // "math/unary.cu: Unary<Tanh, float>", or "MEMCPYHtoD 4096 bytes"
  bool is_copy = false;
  int64_t start_nanos = 0, end_nanos = 0;  // of Clock::Real
};

// Thread-safe. Costs nothing before the first call.
class GpuTimes {
 public:
  GpuTimes() = default;
  ~GpuTimes();
  GpuTimes(const GpuTimes&) = delete;
  GpuTimes& operator=(const GpuTimes&) = delete;

  // `run` puts the call on the stream, for the node that the thread runs (device/running_node.h).
  // The first call waits for the stream, to know what its time is on the clock of the host.
  absl::Status Time(Gpu& gpu, const GpuCall& call, absl::FunctionRef<absl::Status()> run);
  // Requires: the streams have done what was put on them. Calls without a time, as after an error
  // of the card, are left out.
  std::vector<GpuTimedCall> Take();

 private:
  // Of one card.
  struct Base {
    Gpu* gpu = nullptr;
    cuda::Event event = nullptr;
    int64_t nanos = 0;
  };
  struct Pending {
    GpuTimedCall call;
    Base base;
    cuda::Event begin = nullptr, end = nullptr;
  };

  absl::StatusOr<Base> BaseOf(Gpu& gpu);

  Mutex mutex_;
  std::vector<Base> bases_ ABSL_GUARDED_BY(mutex_);
  std::vector<Pending> pending_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
