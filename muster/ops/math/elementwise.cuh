// Loops of element-wise functions. A function is a struct, as on the CPU (elementwise.h):
//
//   struct Square {
//     static constexpr bool kWraps = true;  // integers are computed as unsigned ones
//     template <typename C> static __device__ C Apply(C x) { return x * x; }
//   };
//
// It takes elements as Load gives them; a result of the same type becomes an element again.
#pragma once

#include "muster/ops/gpu.cuh"

// --- Types
template <typename F, typename = int>
constexpr bool kWrapsOf = false;
template <typename F>
constexpr bool kWrapsOf<F, decltype(int(F::kWraps))> = F::kWraps;

template <typename F, typename T, bool wraps = kWrapsOf<F>>
struct LoopTypeOf {
  using type = Compute<T>;
};
template <typename F, typename T>
struct LoopTypeOf<F, T, true> {
  using type = Compute<typename UnsignedOf<T>::type>;
};
// What F computes elements T in.
template <typename F, typename T>
using LoopType = typename LoopTypeOf<F, T>::type;

template <typename T, typename L, typename R>
struct ResultOf {
  using type = R;
};
template <typename T, typename L>
struct ResultOf<T, L, L> {
  using type = T;
};
template <typename F, typename T>
using UnaryResult =
    typename ResultOf<T, LoopType<F, T>, decltype(F::Apply(LoopType<F, T>()))>::type;
template <typename F, typename T>
using BinaryResult =
    typename ResultOf<T, LoopType<F, T>,
                      decltype(F::Apply(LoopType<F, T>(), LoopType<F, T>()))>::type;

// --- Several elements at once
template <typename T, int count>
struct alignas(sizeof(T) * count) Pack {
  T at[count];
};
// As many as fill 16 bytes of the wider type: the host computes the same for its grids.
template <typename A, typename B>
constexpr int kPackOf = 16 / (sizeof(A) > sizeof(B) ? sizeof(A) : sizeof(B));

template <int count, typename T>
__device__ __forceinline__ bool IsPackAligned(const T* memory) {
  return reinterpret_cast<uint64>(memory) % (sizeof(T) * count) == 0;
}
template <int count, typename T>
__device__ __forceinline__ Pack<T, count> LoadPack(const T* from, bool steps = true) {
  if (steps) return *reinterpret_cast<const Pack<T, count>*>(from);
  Pack<T, count> pack;
  const T value = *from;
#pragma unroll
  for (int k = 0; k < count; ++k) pack.at[k] = value;
  return pack;
}
template <int count, typename T>
__device__ __forceinline__ void StorePack(T* to, const Pack<T, count>& pack) {
  *reinterpret_cast<Pack<T, count>*>(to) = pack;
}

// --- Broadcasting, with the layout of the structs in elementwise_gpu.h
// Quotients by a number that the host knows: by a multiplication where 31 bits are enough.
struct Divisor {
  int64 size;
  uint32 multiplier;  // 0: not known
  uint32 shift;
  __device__ __forceinline__ int64 Divide(int64 n) const {
    if (multiplier == 0 || n > 0x7FFFFFFF) return n / size;
    return (uint32((uint64(n) * multiplier) >> 32) + uint32(n)) >> shift;
  }
};
template <int operands>
struct BroadcastOffsets {
  int64 at[operands];
};
template <int operands>
struct Broadcast {
  static constexpr int kMaxOuter = 7;
  struct Dim {
    Divisor size;
    int64 strides[operands];
  };
  int64 count;
  Divisor inner;          // elements of a row
  int32 steps[operands];  // along a row: 0 or 1
  int32 outer;            // dims, innermost first
  Dim dims[kMaxOuter];

  __device__ __forceinline__ BroadcastOffsets<operands> OffsetsOf(int64 i) const {
    BroadcastOffsets<operands> offsets;
    int64 column = i, rest = 0;
    if (outer > 0) {
      rest = inner.Divide(i);
      column -= rest * inner.size;
    }
#pragma unroll
    for (int k = 0; k < operands; ++k) offsets.at[k] = steps[k] ? column : 0;
#pragma unroll 1
    for (int d = 0; d < outer; ++d) {
      const int64 next = d + 1 < outer ? dims[d].size.Divide(rest) : 0;
      const int64 index = rest - next * dims[d].size.size;
#pragma unroll
      for (int k = 0; k < operands; ++k) offsets.at[k] += index * dims[d].strides[k];
      rest = next;
    }
    return offsets;
  }
  // How many packs the elements begin with, given that the operands are aligned: packs do not cross
  // the ends of rows.
  template <int pack>
  __device__ __forceinline__ int64 NumPacks() const {
    return outer == 0 || inner.size % pack == 0 ? count / pack : 0;
  }
};

// --- Loops
template <typename F, typename T>
__global__ void Unary(const T* x, UnaryResult<F, T>* y, int64 count) {
  using L = LoopType<F, T>;
  using R = UnaryResult<F, T>;
  constexpr int kPack = kPackOf<T, R>;
  const int64 packs = IsPackAligned<kPack>(x) && IsPackAligned<kPack>(y) ? count / kPack : 0;
  FOR_EACH_ELEMENT(i, packs) {
    const auto a = LoadPack<kPack>(x + i * kPack);
    Pack<R, kPack> b;
#pragma unroll
    for (int k = 0; k < kPack; ++k) Store(b.at, k, F::Apply(L(Load(a.at, k))));
    StorePack(y + i * kPack, b);
  }
  const int64 rest = packs * kPack;
  FOR_EACH_ELEMENT(i, count - rest) Store(y, rest + i, F::Apply(L(Load(x, rest + i))));
}

template <typename F, typename T>
__global__ void Binary(const T* x, const T* y, BinaryResult<F, T>* z, Broadcast<2> broadcast) {
  using L = LoopType<F, T>;
  using R = BinaryResult<F, T>;
  constexpr int kPack = kPackOf<T, R>;
  const bool aligned =
      IsPackAligned<kPack>(x) && IsPackAligned<kPack>(y) && IsPackAligned<kPack>(z);
  const int64 packs = aligned ? broadcast.NumPacks<kPack>() : 0;
  FOR_EACH_ELEMENT(i, packs) {
    const auto offsets = broadcast.OffsetsOf(i * kPack);
    const auto a = LoadPack<kPack>(x + offsets.at[0], broadcast.steps[0]);
    const auto b = LoadPack<kPack>(y + offsets.at[1], broadcast.steps[1]);
    Pack<R, kPack> c;
#pragma unroll
    for (int k = 0; k < kPack; ++k)
      Store(c.at, k, F::Apply(L(Load(a.at, k)), L(Load(b.at, k))));
    StorePack(z + i * kPack, c);
  }
  const int64 rest = packs * kPack;
  FOR_EACH_ELEMENT(i, broadcast.count - rest) {
    const auto offsets = broadcast.OffsetsOf(rest + i);
    Store(z, rest + i, F::Apply(L(Load(x, offsets.at[0])), L(Load(y, offsets.at[1]))));
  }
}

// Three operands, the first of which may be of another type; F gives elements.
template <typename F, typename A, typename T>
__global__ void Ternary(const A* x, const T* y, const T* z, T* out, Broadcast<3> broadcast) {
  constexpr int kPack = kPackOf<A, T>;
  const bool aligned = IsPackAligned<kPack>(x) && IsPackAligned<kPack>(y) &&
                       IsPackAligned<kPack>(z) && IsPackAligned<kPack>(out);
  const int64 packs = aligned ? broadcast.NumPacks<kPack>() : 0;
  FOR_EACH_ELEMENT(i, packs) {
    const auto offsets = broadcast.OffsetsOf(i * kPack);
    const auto a = LoadPack<kPack>(x + offsets.at[0], broadcast.steps[0]);
    const auto b = LoadPack<kPack>(y + offsets.at[1], broadcast.steps[1]);
    const auto c = LoadPack<kPack>(z + offsets.at[2], broadcast.steps[2]);
    Pack<T, kPack> result;
#pragma unroll
    for (int k = 0; k < kPack; ++k)
      Store(result.at, k, F::Apply(Load(a.at, k), Load(b.at, k), Load(c.at, k)));
    StorePack(out + i * kPack, result);
  }
  const int64 rest = packs * kPack;
  FOR_EACH_ELEMENT(i, broadcast.count - rest) {
    const auto offsets = broadcast.OffsetsOf(rest + i);
    Store(out, rest + i,
          F::Apply(Load(x, offsets.at[0]), Load(y, offsets.at[1]), Load(z, offsets.at[2])));
  }
}
