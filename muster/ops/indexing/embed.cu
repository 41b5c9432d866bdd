#include "muster/ops/indexing/moving.cuh"

// See EmbeddedAxis of mover.h.
struct Axis {
  QuickDivider size, step;
  int32 first;
  uint32 count;
  bool is_backwards;
  int64 from_stride;
};
constexpr int kMostAxes = 8;
struct Embedding {
  const void* from;
  void* to;
  uint32 count;
  int rank;
  Word16 around;  // begins with the element
  Axis axes[kMostAxes];
};

template <typename E>
__global__ void Embed(Embedding embedding) {
  const E* const from = static_cast<const E*>(embedding.from);
  E* const to = static_cast<E*>(embedding.to);
  E around;
  memcpy(&around, &embedding.around, sizeof(E));
  const uint32 step = gridDim.x * blockDim.x;
  for (uint32 i = blockIdx.x * blockDim.x + threadIdx.x; i < embedding.count; i += step) {
    uint32 rest = i;
    int64 at = 0;
    bool is_inside = true;
    for (int k = embedding.rank - 1; k >= 0; --k) {
      const Axis& axis = embedding.axes[k];
      const uint32 above = axis.size.Quotient(rest);
      const int32 place = int32(rest - above * axis.size.divisor) - axis.first;
      const int32 distance = axis.is_backwards ? -place : place;
      const uint32 index = distance < 0 ? 0 : axis.step.Quotient(uint32(distance));
      is_inside = is_inside && distance >= 0 && index < axis.count &&
                  index * axis.step.divisor == uint32(distance);
      at += index * axis.from_stride;
      rest = above;
    }
    to[i] = is_inside ? from[at] : around;
  }
}
