// Copies between the memory of the host and that of a device, for tensors of every type. Variants
// are in host memory themselves; the tensors that their values hold (elements of a list, components
// of an optional) are where the nodes that pass the variant on compute.
#pragma once

#include <vector>

#include "muster/device/device.h"

namespace muster {

// A tensor of this type is in host memory on every device, and so is all that belongs to it.
bool StaysOnHost(DType dtype);

// As Device::CopyToHost and CopyFromHost. Values of variants that no message can hold (datasets,
// locks) hold no tensors of a device: they are handed on as they are.
void CopyToHost(Device& device, const Tensor& tensor, Device::CopyDone done);
absl::StatusOr<Tensor> CopyFromHost(Device& device, const Tensor& tensor);

// All tensors from the memory of one device to that of another.
using AllCopied = absl::AnyInvocable<void(absl::StatusOr<std::vector<Tensor>>) &&>;
void CopyBetween(Device& from, Device& to, std::vector<Tensor> tensors, AllCopied done);

}  // namespace muster
