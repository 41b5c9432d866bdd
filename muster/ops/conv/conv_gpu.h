// Convolutions on a card. The windows of the images become the rows of a matrix, which cuBLAS
// multiplies with the filter; a part of the batch at a time, so that the matrix stays small.
// Convolutions of single pixels need no such matrix.
#pragma once

#include "muster/ops/conv/conv_geometry.h"
#include "muster/ops/op.h"

namespace muster {

// Kernels for GPUs, beside those for the CPU, whose checks they share.
void AddGpuConv2D(OpBuilder& op);
void AddGpuConv2DBackpropInput(OpBuilder& op);
void AddGpuConv2DBackpropFilter(OpBuilder& op);

}  // namespace muster
