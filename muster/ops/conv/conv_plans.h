// Plans of cuDNN's for convolutions on a card: found by its heuristics when a convolution is first
// seen, timed there against each other, and kept for the process.
//
// To time them takes the card for some milliseconds and the kernel waits for it, once for each kind
// of convolution. TF_CUDNN_USE_AUTOTUNE=0 takes the first one that cuDNN names instead, and
// TF_DETERMINISTIC_OPS=1 the first one that always gives the same result.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"

#include "muster/device/gpu/gpu.h"
#include "muster/device/gpu/gpu_timer.h"
#include "muster/ops/conv/cudnn.h"
#include "muster/tensor/dtype.h"

namespace muster {

// What addresses of tensors have to be multiples of.
inline constexpr int64_t kCudnnAlignment = 16;

// A convolution of dense tensors. Axes of space beyond `space` are not looked at. Compared by its
// bytes, so all members are of one size.
struct CudnnConvolution {
  enum Kind : int64_t { kForward, kBackwardInput, kBackwardFilter };
  static constexpr int kMostSpace = 3;
  using Space = std::array<int64_t, kMostSpace>;

  int64_t kind = kForward;
  int64_t dtype = 0;
  int64_t space = 2;
  int64_t channels_last = 1;  // of all three tensors
  int64_t batch = 0, channels = 0, filter_channels = 0, out_channels = 0;
  Space size{}, window{}, out{}, stride{}, dilation{}, pad{};
};

// Where the three tensors of a convolution are; `kind` says which one is written.
struct CudnnTensors {
  const void* images = nullptr;
  const void* filter = nullptr;
  const void* output = nullptr;
};

// A way to compute a convolution. Constant.
class ConvPlan {
 public:
  // `graph` is shared by the plans for one convolution: the graph, and what it is made of.
  ConvPlan(std::shared_ptr<const std::vector<cudnn::Descriptor>> graph, cudnn::Descriptor config,
           cudnn::Descriptor plan, int64_t workspace_bytes);

  int64_t workspace_bytes() const { return workspace_bytes_; }

 private:
  friend class ConvPlans;
  const int64_t serial_;  // no other plan of the process has it
  const int64_t workspace_bytes_;
  const std::shared_ptr<const std::vector<cudnn::Descriptor>> graph_;
  const cudnn::Descriptor config_, plan_;
};

// Those for one convolution.
struct ConvChoice {
  std::shared_ptr<const ConvPlan> fastest;   // null: cuDNN cannot compute this convolution
  std::shared_ptr<const ConvPlan> smallest;  // with the least workspace
  absl::Status why;                          // there is none
  float fastest_ms = 0;                      // of kTimedRuns runs; zero: it was not timed
  enum class Otherwise : uint8_t { kUnknown, kSlower, kFaster };
  Otherwise otherwise = Otherwise::kUnknown;  // what else computes the same
};

// Of one card. Thread-safe.
class ConvPlans {
 public:
  // NotFound where cuDNN is missing, which is logged once; the error that cuDNN starts up with.
  static absl::StatusOr<ConvPlans*> Of(Gpu& gpu);

  // The plans for the convolution, which are timed on these tensors where that was not done before:
  // what is written by it has no value then.
  absl::StatusOr<ConvChoice> Find(const CudnnConvolution& convolution, const CudnnTensors& tensors);
  // Whether `otherwise`, which adds work that computes the same, takes less time than the fastest
  // plan: found out when the convolution comes for the second time. False where nothing is timed.
  absl::StatusOr<bool> IsFasterOtherwise(const CudnnConvolution& convolution,
                                         absl::FunctionRef<absl::Status()> otherwise);
  // Adds the convolution to the work of the card.
  absl::Status Run(std::shared_ptr<const ConvPlan> plan, const CudnnTensors& tensors,
                   void* workspace);

 private:
  ConvPlans(Gpu& gpu, const cudnn::Api& api, cudnn::Handle handle)
      : gpu_(gpu), api_(api), handle_(handle), timer_(gpu) {}
  static absl::StatusOr<std::unique_ptr<ConvPlans>> Start(Gpu& gpu);

  std::optional<ConvChoice> FindKnown(const std::string& key) const;
  using Candidates = std::vector<std::shared_ptr<const ConvPlan>>;
  // At least one, or why there is none.
  absl::StatusOr<Candidates> Build(const CudnnConvolution& convolution) const;
  absl::StatusOr<ConvChoice> Choose(Candidates candidates, const CudnnTensors& tensors)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(timing_mutex_);
  absl::StatusOr<float> Time(const ConvPlan& plan, const CudnnTensors& tensors, void* workspace,
                             GpuTimer& timer) const;
  absl::Status Execute(const ConvPlan& plan, const CudnnTensors& tensors, void* workspace) const;

  Gpu& gpu_;
  const cudnn::Api& api_;
  // Held while a convolution is timed. The locks of the card's work are taken behind it, and those
  // of cuDNN's handle behind these.
  Mutex timing_mutex_;
  mutable Mutex handle_mutex_;
  const cudnn::Handle handle_;  // used by one thread at a time
  GpuTimer timer_ ABSL_GUARDED_BY(timing_mutex_);
  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, ConvChoice> choices_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
