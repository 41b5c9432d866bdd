#include "muster/ops/indexing/scan.cuh"
#include "muster/ops/random/philox.cuh"

struct LargerDouble {
  __device__ static double Join(double a, double b) { return a > b ? a : b; }
  template <typename C>
  __device__ static C None() {
    return Lowest<double>();
  }
};

template <typename T>
__device__ __forceinline__ double LogitAt(const T* logits, int64 i) {
  return double(Load(logits, i));
}
__device__ __forceinline__ bool IsFinite(double value) {
  return value - value == 0;
}

// Running sums of exp(logit - largest) for each row; a block takes rows in turn.
template <typename T>
__global__ void SumLogits(const T* logits, double* sums, int64 rows, int64 classes) {
  __shared__ double largest;
  for (int64 row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const values = logits + row * classes;
    double max = Lowest<double>();
    for (int64 j = threadIdx.x; j < classes; j += kScanThreads) {
      const double logit = LogitAt(values, j);
      if (IsFinite(logit) && logit > max) max = logit;
    }
    max = ReduceBlock<LargerDouble>(max);
    if (threadIdx.x == 0) largest = max;
    __syncthreads();
    double before = 0;
    for (int64 first = 0; first < classes; first += kScanThreads) {
      const int64 j = first + threadIdx.x;
      const double logit = j < classes ? LogitAt(values, j) : 0;
      double total = 0;
      const double sum =
          ScanBlock(j < classes && IsFinite(logit) ? exp(logit - largest) : 0.0, total);
      if (j < classes) sums[row * classes + j] = before + sum;
      before += total;
    }
    __syncthreads();
  }
}

// The first class whose running sum is above a number drawn for the sample.
template <typename Out>
__global__ void DrawClasses(const double* sums, Philox start, Out* out, int64 rows, int64 classes,
                            int64 samples) {
  FOR_EACH_ELEMENT(i, rows * samples) {
    const double* const of_row = sums + i / samples * classes;
    // Each sample takes two words, in order.
    Philox generator = start;
    generator.Skip(uint64(i) / 2);
    const PhiloxBlock block = generator.Next();
    const int word = i % 2 * 2;
    const double wanted =
        ToUniformDouble(block.words[word], block.words[word + 1]) * of_row[classes - 1];
    int64 low = 0, high = classes;
    while (low < high) {
      const int64 middle = (low + high) / 2;
      if (of_row[middle] > wanted) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    out[i] = Out(low);
  }
}
