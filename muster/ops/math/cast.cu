// Cast, element by element.
#include "muster/ops/math/cast.cuh"

template <typename S, typename D>
__global__ void Cast(const S* x, D* y, int64 count, int32 cleared_bits) {
  constexpr int kPack = kPackOf<S, D>;
  const int64 packs = IsPackAligned<kPack>(x) && IsPackAligned<kPack>(y) ? count / kPack : 0;
  FOR_EACH_ELEMENT(i, packs) {
    const auto a = LoadPack<kPack>(x + i * kPack);
    Pack<D, kPack> b;
#pragma unroll
    for (int k = 0; k < kPack; ++k) b.at[k] = Convert<D>(Load(a.at, k), cleared_bits);
    StorePack(y + i * kPack, b);
  }
  const int64 rest = packs * kPack;
  FOR_EACH_ELEMENT(i, count - rest) y[rest + i] = Convert<D>(Load(x, rest + i), cleared_bits);
}
