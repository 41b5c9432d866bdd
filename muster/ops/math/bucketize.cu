// Bucketize: binary search in the boundaries. Integers are compared as floats.
#include "muster/ops/gpu.cuh"

template <typename T>
struct WideOf {
  using type = float;
};
template <>
struct WideOf<double> {
  using type = double;
};

template <typename T>
__global__ void Bucketize(const T* x, const float* boundaries, int32* y, int64 count,
                          int64 num_boundaries) {
  using Wide = typename WideOf<T>::type;
  FOR_EACH_ELEMENT(i, count) {
    const Wide value = Wide(x[i]);
    int64 begin = 0, end = num_boundaries;
    while (begin < end) {
      const int64 middle = (begin + end) / 2;
      if (value < Wide(boundaries[middle]))
        end = middle;
      else
        begin = middle + 1;
    }
    y[i] = int32(begin);
  }
}
