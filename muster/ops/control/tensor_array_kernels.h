// The kernels of the TensorArray ops, for tensor_array_ops.cc.
#pragma once

#include "muster/ops/op.h"

namespace muster {

KernelFactory TensorArrayNew();
KernelFactory TensorArrayWrite();
KernelFactory TensorArrayRead();
KernelFactory TensorArrayGather();
KernelFactory TensorArrayGatherOnGpu(DType dtype);
KernelFactory TensorArrayScatter();
KernelFactory TensorArrayScatterOnGpu(DType dtype);
KernelFactory TensorArrayConcat();
KernelFactory TensorArrayConcatOnGpu(DType dtype);
KernelFactory TensorArraySplit();
KernelFactory TensorArraySplitOnGpu(DType dtype);
KernelFactory TensorArraySize();
KernelFactory TensorArrayGradient();
KernelFactory TensorArrayClose();

}  // namespace muster
