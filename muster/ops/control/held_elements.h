// What arrays, lists and variants do with the elements of the tensors that they hold, in the memory
// of the kernel's device. On a card it is done later, in the order of its work.
#pragma once

#include "muster/ops/op.h"

namespace muster {

// Zeros; empty strings, handles and variants.
absl::StatusOr<Tensor> Zeros(KernelContext& c, DType dtype, const Shape& shape);

// Whether elements of this type can be added.
bool CanBeAdded(DType dtype);
// Element by element, integers without overflow. Requires: equal types, which CanBeAdded, and
// shapes; `sum` is writable.
absl::Status AddTo(KernelContext& c, Tensor& sum, const Tensor& value);
absl::StatusOr<Tensor> Sum(KernelContext& c, const Tensor& a, const Tensor& b);

// Arrays and stacks keep tensors where the nodes that use them compute. InvalidArgument where the
// node is not on the device of the handle and one of the two has memory of its own.
absl::Status CheckDeviceOf(const ResourceHandle& handle, const KernelContext& c);

}  // namespace muster
