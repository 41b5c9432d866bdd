// Convolutions and their gradients on a card: by cuDNN. Where that is missing or has no plan, those
// in two dimensions are matrix products. For them the windows of the images become the rows of a
// matrix, which cuBLAS multiplies with the filter; a part of the batch at a time, so that the
// matrix stays small. Convolutions of single pixels need no such matrix.
#pragma once

#include "muster/ops/conv/conv_geometry.h"
#include "muster/ops/op.h"

namespace muster {

// Kernels K(dtype, args...) for the floating-point types of GPUs.
template <typename K, typename... Args>
void AddGpuFloats(OpBuilder& op, Args... args) {
  op.GpuTypes("T", {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble},
              [args...](DType dtype) -> KernelFactory {
                return [=] { return std::make_unique<K>(dtype, args...); };
              });
}

// Kernels for GPUs, beside those for the CPU, whose checks they share.
void AddGpuConv2D(OpBuilder& op);
void AddGpuFusedConv2D(OpBuilder& op);
void AddGpuConv2DBackpropInput(OpBuilder& op);
void AddGpuConv2DBackpropFilter(OpBuilder& op);
void AddGpuConv3D(OpBuilder& op);
void AddGpuConv3DBackpropInput(OpBuilder& op);
void AddGpuConv3DBackpropFilter(OpBuilder& op);

}  // namespace muster
