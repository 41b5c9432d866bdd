#include "muster/ops/gpu.cuh"

constexpr int kMostMirrorAxes = 8;
struct MirrorAxis {
  int64 size, before, after, stride;
};
struct MirrorAxes {
  int rank;
  int64 skip;
  MirrorAxis axes[kMostMirrorAxes];
};

// Where element `at` of an axis went: to its border before (choice 0), to its place, or to its
// border after (2); -1 where there is no such place.
__device__ __forceinline__ int64 PlaceOf(const MirrorAxis& axis, int64 skip, int64 at, int choice) {
  if (choice == 1) return axis.before + at;
  if (choice == 0) {
    const int64 place = axis.before - 1 + skip - at;
    return place >= 0 && place < axis.before ? place : -1;
  }
  const int64 place = axis.size - 1 - skip - at;
  return place >= 0 && place < axis.after ? axis.before + axis.size + place : -1;
}

// The sum of all places that an element went to, in the order of the CPU's kernel.
template <typename T>
__global__ void MirrorPadGrad(const T* dy, T* dx, MirrorAxes mirrored, int64 count) {
  FOR_EACH_ELEMENT(i, count) {
    int64 at[kMostMirrorAxes];
    int choice[kMostMirrorAxes];
    int64 rest = i;
    for (int k = mirrored.rank - 1; k >= 0; --k) {
      at[k] = rest % mirrored.axes[k].size;
      rest /= mirrored.axes[k].size;
      choice[k] = 0;
    }
    Compute<T> sum = Compute<T>(0);
    for (;;) {
      int64 from = 0;
      bool exists = true;
      for (int k = 0; k < mirrored.rank; ++k) {
        const int64 place = PlaceOf(mirrored.axes[k], mirrored.skip, at[k], choice[k]);
        exists = exists && place >= 0;
        from += place * mirrored.axes[k].stride;
      }
      if (exists) sum += Load(dy, from);
      int k = mirrored.rank - 1;
      while (k >= 0 && ++choice[k] == 3) choice[k--] = 0;
      if (k < 0) break;
    }
    Store(dx, i, sum);
  }
}
