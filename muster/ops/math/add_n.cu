// AddN: sums of several tensors in one pass.
#include "muster/ops/math/elementwise.cuh"

template <typename T>
struct AddNInputs {
  static constexpr int kMost = 32;
  const T* at[kMost];
  int64 count;
};

template <typename T>
__global__ void AddN(AddNInputs<T> inputs, T* sum, int64 count) {
  using A = Compute<typename UnsignedOf<T>::type>;
  constexpr int kPack = kPackOf<T, T>;
  bool aligned = IsPackAligned<kPack>(sum);
  for (int k = 0; k < inputs.count; ++k) aligned = aligned && IsPackAligned<kPack>(inputs.at[k]);
  const int64 packs = aligned ? count / kPack : 0;
  FOR_EACH_ELEMENT(i, packs) {
    A totals[kPack];
#pragma unroll
    for (int j = 0; j < kPack; ++j) totals[j] = A(0);
    for (int k = 0; k < inputs.count; ++k) {
      const auto pack = LoadPack<kPack>(inputs.at[k] + i * kPack);
#pragma unroll
      for (int j = 0; j < kPack; ++j) totals[j] += A(Load(pack.at, j));
    }
    Pack<T, kPack> result;
#pragma unroll
    for (int j = 0; j < kPack; ++j) Store(result.at, j, totals[j]);
    StorePack(sum + i * kPack, result);
  }
  const int64 rest = packs * kPack;
  FOR_EACH_ELEMENT(i, count - rest) {
    A total = A(0);
    for (int k = 0; k < inputs.count; ++k) total += A(Load(inputs.at[k], rest + i));
    Store(sum, rest + i, total);
  }
}
