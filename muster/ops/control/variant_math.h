// What ops that compute do with variants that hold lists and optional values: element by element.
#pragma once

#include "muster/ops/op.h"

namespace muster {

absl::Status ZerosLikeVariants(KernelContext& c);
// No value that a variant holds has a conjugate.
absl::Status ConjVariants(KernelContext& c);
absl::Status AddVariants(KernelContext& c);

}  // namespace muster
