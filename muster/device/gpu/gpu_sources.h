// The .cu files beside the ops that they belong to, and the .cuh files that they include. The build
// puts their text into the library (cmake/gpu_sources.cmake).
#pragma once

#include <cstddef>

#include "absl/types/span.h"

namespace muster {

struct GpuSource {
  const char* path;  // "muster/ops/math/unary_arithmetic.cu"
  const char* text;
};

absl::Span<const GpuSource> GpuSources();

}  // namespace muster
