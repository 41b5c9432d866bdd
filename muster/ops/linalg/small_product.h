// Products on a card that are too small for cuBLAS (small_product.cu).
#pragma once

#include "muster/graph/rewrite/optimize.h"
#include "muster/ops/gpu_kernel.h"
#include "muster/ops/linalg/gemm.h"

namespace muster {

// A member of the kernel that uses it, of float matrices.
class GpuSmallProduct {
 public:
  explicit GpuSmallProduct(GpuKernel& kernel)
      : run_(kernel, "linalg/small_product.cu", "SmallProduct<float>") {}

  static bool Takes(const GemmShape& shape) {
    return shape.m > 0 && shape.n > 0 && shape.k > 0 && shape.k <= kMostInnerOfSmallProducts &&
           shape.m * shape.n <= kMostElementsOfSmallProducts && !shape.conjugate_a &&
           !shape.conjugate_b;
  }
  // c = a b, with `bias` (null: none) added to each row, and Relu of it. Rows follow each other.
  // `columns` (null: not asked for) are the sums of the columns of b.
  absl::Status Multiply(const GemmShape& shape, const void* a, const void* b, const void* bias,
                        void* c, bool has_relu, void* columns = nullptr) const {
    const struct {
      int32_t m, n, k, transpose_a, transpose_b, has_relu;
    } size = {static_cast<int32_t>(shape.m), static_cast<int32_t>(shape.n),
              static_cast<int32_t>(shape.k), shape.transpose_a ? 1 : 0,
              shape.transpose_b ? 1 : 0,     has_relu ? 1 : 0};
    GpuGrid grid;
    grid.blocks_x = static_cast<unsigned>((shape.n + kTile - 1) / kTile);
    grid.blocks_y = static_cast<unsigned>((shape.m + kTile - 1) / kTile);
    grid.threads_x = kTile * kTile;
    return run_.Launch(grid, a, b, bias, c, columns, size);
  }

 private:
  static constexpr int64_t kTile = 16;  // as in small_product.cu

  GpuFunction run_;
};

}  // namespace muster
