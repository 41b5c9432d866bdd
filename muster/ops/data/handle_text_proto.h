// Resource handles as strings that may be fed: TensorFlow's message.
#pragma once

#include <string>

#include "muster/base/status.h"
#include "muster/tensor/handles.h"

namespace muster {

std::string HandleToString(const ResourceHandle& handle);
absl::StatusOr<ResourceHandle> HandleFromString(const std::string& text);

}  // namespace muster
