#include "muster/ops/gpu.cuh"

constexpr int kMostTileAxes = 8;
struct TileAxis {
  int64 size, times;  // of one copy, and how many there are
};
struct TileAxes {
  int rank;
  TileAxis axes[kMostTileAxes];
};

// Sums of all copies of an element, in the order of the CPU's kernel.
template <typename T>
__global__ void TileGrad(const T* copies, T* out, TileAxes tiled, int64 count) {
  using Sum = typename UnsignedOf<Compute<T>>::type;
  FOR_EACH_ELEMENT(i, count) {
    int64 at[kMostTileAxes], copy[kMostTileAxes];
    int64 rest = i;
    for (int k = tiled.rank - 1; k >= 0; --k) {
      at[k] = rest % tiled.axes[k].size;
      rest /= tiled.axes[k].size;
      copy[k] = 0;
    }
    Sum sum = Sum(0);
    for (;;) {
      int64 from = 0;
      for (int k = 0; k < tiled.rank; ++k) {
        const TileAxis& axis = tiled.axes[k];
        from = from * axis.size * axis.times + copy[k] * axis.size + at[k];
      }
      sum += Sum(Load(copies, from));
      int k = tiled.rank - 1;
      while (k >= 0 && ++copy[k] == tiled.axes[k].times) copy[k--] = 0;
      if (k < 0) break;
    }
    Store(out, i, sum);
  }
}
