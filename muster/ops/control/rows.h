// Tensors cut along their first axis into those that arrays and lists hold, and put together again.
#pragma once

#include "muster/ops/indexing/mover.h"

namespace muster {

// Parts of `from`, one after the other, with the given shapes and in memory of their own; on a card
// in that of `from` where each part is aligned as tensors are. Requires: the shapes have no more
// elements together than `from`.
absl::StatusOr<std::vector<Tensor>> CutRows(KernelContext& c, const Mover& mover,
                                            const Tensor& from, absl::Span<const Shape> shapes);

// All of `to`: `counts[i]` elements of part i, or zeros where that is not valid, one after the
// other. Requires: as many as `to` has.
absl::Status JoinRows(KernelContext& c, const Mover& mover, absl::Span<const Tensor> parts,
                      absl::Span<const int64_t> counts, Tensor& to);

}  // namespace muster
