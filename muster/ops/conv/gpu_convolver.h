// Convolutions on a card by cuDNN, in two or three dimensions of space, with their gradients: what
// lies between the tensors of TensorFlow's ops and a plan of cuDNN's. Filters are brought into
// cuDNN's order, and images whose paddings differ before and after them are padded first.
#pragma once

#include <array>
#include <functional>

#include "muster/ops/conv/conv_plans.h"
#include "muster/ops/indexing/gpu_mover.h"

namespace muster {

// The sizes of a convolution; those of axes of space are in the order of the tensors.
struct GpuConvSizes {
  using Space = CudnnConvolution::Space;
  int space = 2;
  bool channels_last = true;
  int64_t batch = 0, channels = 0, filter_channels = 0, out_channels = 0;
  Space size{}, window{}, out{}, stride{}, dilation{}, pad_before{}, pad_after{};
};

// A member of the kernel that uses it. No tensor is empty.
class GpuConvolver {
 public:
  GpuConvolver(GpuKernel& kernel, DType dtype) : dtype_(dtype), mover_(kernel, dtype) {}

  // Called by the kernel's Init. NotFound, naming the library, where cuDNN is missing.
  absl::Status Init(Gpu& gpu);

  // False where cuDNN has no plan for these sizes: then nothing was done. `filter` is
  // [window..., filter_channels, out_channels].
  absl::StatusOr<bool> Forward(KernelContext& c, const GpuConvSizes& sizes, const Tensor& images,
                               const Tensor& filter, Tensor& output) const;
  absl::StatusOr<bool> BackwardInput(KernelContext& c, const GpuConvSizes& sizes,
                                     const Tensor& filter, const Tensor& dy, Tensor& dx) const;
  // Also false where `otherwise` (if any), which computes the same by other work for the card, has
  // turned out to be faster.
  absl::StatusOr<bool> BackwardFilter(KernelContext& c, const GpuConvSizes& sizes,
                                      const Tensor& images, const Tensor& dy, Tensor& dw,
                                      const std::function<absl::Status()>& otherwise = {}) const;

 private:
  struct Padding;
  absl::StatusOr<bool> RunPlan(KernelContext& c, const CudnnConvolution& convolution,
                               const CudnnTensors& tensors,
                               absl::FunctionRef<absl::Status()> before) const;
  absl::StatusOr<Tensor> Aligned(KernelContext& c, const Tensor& tensor) const;
  absl::StatusOr<Tensor> AllocatePadded(KernelContext& c, const Padding& padding) const;
  absl::Status MoveFilter(KernelContext& c, const GpuConvSizes& sizes, const Tensor& from,
                          Tensor& to, bool to_cudnn) const;

  const DType dtype_;
  const GpuEmbedder mover_;
  ConvPlans* plans_ = nullptr;
};

}  // namespace muster
