// GPUs as devices of a task.
#pragma once

#include "muster/device/device_kinds.h"

namespace muster {

// The kind of devices that a task has for each of this machine's cards; none on a machine without
// one, where nothing of CUDA is looked for. Registered with the library.
DeviceKind& GpuKind();

// Why there is no GPU, for the text of an error where one was asked for; empty where there is one.
std::string WhyNoGpu();

}  // namespace muster
