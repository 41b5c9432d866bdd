// Nodes of two and three operands: Binary<Add, float>, Ternary<Select, bool, float>.
#include "muster/ops/math/binary.cuh"

// Differences below a number: the only function with a parameter.
template <typename T>
__global__ void ApproximateEqual(const T* x, const T* y, bool* z, int64 count,
                                 float tolerance) {
  FOR_EACH_ELEMENT(i, count) z[i] = fabs(x[i] - y[i]) < T(tolerance);
}
