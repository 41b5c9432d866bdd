// BroadcastTo, for any type of T's size.
#include "muster/ops/math/elementwise.cuh"

template <typename T>
__global__ void Repeat(const T* x, T* y, Broadcast<1> broadcast) {
  constexpr int kPack = kPackOf<T, T>;
  const bool aligned = IsPackAligned<kPack>(x) && IsPackAligned<kPack>(y);
  const int64 packs = aligned ? broadcast.NumPacks<kPack>() : 0;
  FOR_EACH_ELEMENT(i, packs) {
    const int64 at = broadcast.OffsetsOf(i * kPack).at[0];
    StorePack(y + i * kPack, LoadPack<kPack>(x + at, broadcast.steps[0]));
  }
  const int64 rest = packs * kPack;
  FOR_EACH_ELEMENT(i, broadcast.count - rest) {
    y[rest + i] = x[broadcast.OffsetsOf(rest + i).at[0]];
  }
}
