// The kernels of the TensorArray ops, for tensor_array_ops.cc.
#pragma once

#include "muster/ops/op.h"

namespace muster {

KernelFactory TensorArrayNew();
KernelFactory TensorArrayWrite();
KernelFactory TensorArrayRead();
KernelFactory TensorArrayGather();
KernelFactory TensorArrayScatter();
KernelFactory TensorArrayConcat();
KernelFactory TensorArraySplit();
KernelFactory TensorArraySize();
KernelFactory TensorArrayGradient();
KernelFactory TensorArrayClose();

}  // namespace muster
