#include "muster/ops/gpu.cuh"

struct SparseProduct {
  int64 entries, rows, inner, columns;
  int64 b_row, b_column;  // strides
  int32 adjoint_a, unused;
};

// Each entry of a adds its multiple of a row of b to a row of the product. Nothing can be reported
// from a card: entries outside of the product's rows are left out, those outside of b's give NaN.
template <typename T, typename Index>
__global__ void MultiplySparse(const Index* indices, const T* values, const T* b, T* product,
                               SparseProduct sizes) {
  FOR_EACH_ELEMENT(i, sizes.entries * sizes.columns) {
    const int64 entry = i / sizes.columns, column = i % sizes.columns;
    const int64 row = indices[2 * entry + (sizes.adjoint_a ? 1 : 0)];
    const int64 inner = indices[2 * entry + (sizes.adjoint_a ? 0 : 1)];
    if (row < 0 || row >= sizes.rows) continue;
    const T factor = inner < 0 || inner >= sizes.inner
                         ? T(BitCast<float>(0x7FC00000u))
                         : b[inner * sizes.b_row + column * sizes.b_column];
    AtomicAdd(product + row * sizes.columns + column, T(values[entry] * factor));
  }
}
