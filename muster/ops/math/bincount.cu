// Bincount and HistogramFixedWidth. Few bins are counted in the memory of each block first.
#include "muster/ops/gpu.cuh"

constexpr int kLocalBins = 2048;

// `bin_of(i)`: where element i belongs, negative or at least `size` where nowhere; `weight_of(i)`:
// what is added there.
template <typename T, typename BinOf, typename WeightOf>
__device__ __forceinline__ void CountInto(T* bins, int64 size, int64 count, BinOf bin_of,
                                          WeightOf weight_of) {
  __shared__ T local[kLocalBins];
  const bool is_local = size <= kLocalBins;
  T* const to = is_local ? local : bins;
  if (is_local) {
    for (int64 i = threadIdx.x; i < size; i += blockDim.x) local[i] = T(0);
    __syncthreads();
  }
  FOR_EACH_ELEMENT(i, count) {
    const int64 bin = bin_of(i);
    if (bin >= 0 && bin < size) AtomicAdd(to + bin, weight_of(i));
  }
  if (!is_local) return;
  __syncthreads();
  for (int64 i = threadIdx.x; i < size; i += blockDim.x) {
    if (local[i] != T(0)) AtomicAdd(bins + i, local[i]);
  }
}

// `weights` may be null: each number counts as one.
template <typename T>
__global__ void Bincount(const int32* numbers, const T* weights, T* bins, int64 size,
                         int64 count) {
  CountInto(
      bins, size, count, [=](int64 i) { return int64(numbers[i]); },
      [=](int64 i) { return weights != nullptr ? weights[i] : T(1); });
}

// What is not a number is not counted: the CPU fails.
template <typename T>
__global__ void Histogram(const T* values, int32* bins, int64 size, int64 count, T low,
                          double step) {
  const auto bin_of = [=](int64 i) -> int64 {
    const T value = values[i];
    if (value != value) return -1;
    const double bin = value > low ? double(value - low) / step : 0;
    return int64(bin < double(size - 1) ? bin : double(size - 1));
  };
  CountInto(bins, size, count, bin_of, [](int64) { return int32(1); });
}
