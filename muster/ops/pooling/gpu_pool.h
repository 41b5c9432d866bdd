// Kernels for GPUs of the pooling ops, for OpBuilder::GpuTypes. Those over images take both
// layouts.
#pragma once

#include "muster/ops/nn/packs.h"
#include "muster/ops/nn/volume.h"
#include "muster/ops/nn/window.h"

namespace muster {

KernelFactory MakeGpuMaxPool(DType dtype);
KernelFactory MakeGpuMaxPoolGrad(DType dtype);
KernelFactory MakeGpuMaxPoolGradGrad(DType dtype);
KernelFactory MakeGpuMaxPoolWithArgmax(DType dtype);
KernelFactory MakeGpuMaxPoolGradWithArgmax(DType dtype);
KernelFactory MakeGpuAvgPool(DType dtype);
KernelFactory MakeGpuAvgPoolGrad(DType dtype);
KernelFactory MakeGpuMaxPool3D(DType dtype);
KernelFactory MakeGpuMaxPool3DGrad(DType dtype);
KernelFactory MakeGpuMaxPool3DGradGrad(DType dtype);
KernelFactory MakeGpuAvgPool3D(DType dtype);
KernelFactory MakeGpuAvgPool3DGrad(DType dtype);

// What AvgPool and AvgPoolGrad check on every device.
absl::StatusOr<PoolWindow> CheckedAvgPool(const PoolAttrs& attrs, const Shape& input);
absl::StatusOr<PoolWindow> CheckedAvgPoolGrad(const PoolAttrs& attrs, const Tensor& sizes,
                                              const Shape& grad);

// As pool.cu has it.
struct GpuPoolAxis {
  int32_t size, window, stride, pad, out;
};
struct GpuPooling {
  int64_t channels;
  GpuPoolAxis depth, height, width;
  int32_t channels_first;
  int64_t is_wide;

  // Lets threads take several channels at a time, where these tensors allow it.
  void Widen(std::initializer_list<const Tensor*> tensors);
  // How many threads have something to do.
  int64_t ThreadsFor(int64_t elements) const;
};

}  // namespace muster
