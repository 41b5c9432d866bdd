// Arithmetic on the elements and rows of variables: arithmetic.h.
#include "muster/ops/gpu.cuh"

struct Add {
  template <typename C>
  static __device__ __forceinline__ C Apply(C a, C b) { return a + b; }
};
struct Sub {
  template <typename C>
  static __device__ __forceinline__ C Apply(C a, C b) { return a - b; }
};
struct Mul {
  template <typename C>
  static __device__ __forceinline__ C Apply(C a, C b) { return a * b; }
};
struct Div {
  template <typename C>
  static __device__ __forceinline__ C Apply(C a, C b) { return a / b; }
};
struct Min {
  template <typename C>
  static __device__ __forceinline__ C Apply(C a, C b) { return b < a ? b : a; }
};
struct Max {
  template <typename C>
  static __device__ __forceinline__ C Apply(C a, C b) { return a < b ? b : a; }
};
struct Update {
  template <typename C>
  static __device__ __forceinline__ C Apply(C, C b) { return b; }
};

template <typename Op, typename T>
__device__ __forceinline__ T Changed(T a, T b) {
  using C = Compute<typename UnsignedOf<T>::type>;
  return T(Op::Apply(C(a), C(b)));
}

template <typename Op, typename T>
__global__ void Change(T* to, const T* from, int64 count) {
  FOR_EACH_ELEMENT(i, count) to[i] = Changed<Op>(to[i], from[i]);
}

template <int size>
struct WordOf {
  using type = uint32;
};
template <>
struct WordOf<8> {
  using type = uint64;
};

// While other threads change the same element.
template <typename Op, typename T>
__device__ __forceinline__ void AtomicChange(T* to, T value) {
  if constexpr (kSame<Op, Update>) {
    *to = value;
  } else if constexpr (kSame<Op, Add>) {
    AtomicAdd(to, value);
  } else if constexpr (kSame<Op, Sub>) {
    AtomicAdd(to, Changed<Sub>(T(0), value));
  } else if constexpr (sizeof(T) == 2) {
    // The word that the element is in is replaced as a whole.
    const auto address = reinterpret_cast<uint64>(to);
    auto* const word = reinterpret_cast<uint32*>(address & ~uint64(3));
    const int shift = int(address & 3) * 8;
    uint32 before = *word, expected;
    do {
      expected = before;
      const T changed = Changed<Op>(BitCast<T>(uint16(expected >> shift)), value);
      const uint32 others = expected & ~(0xFFFFu << shift);
      before = atomicCAS(word, expected, others | (uint32(BitCast<uint16>(changed)) << shift));
    } while (before != expected);
  } else {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "whole words");
    using Word = typename WordOf<sizeof(T)>::type;
    auto* const word = reinterpret_cast<Word*>(to);
    Word before = *word, expected;
    do {
      expected = before;
      before = atomicCAS(word, expected, BitCast<Word>(Changed<Op>(BitCast<T>(expected), value)));
    } while (before != expected);
  }
}

// Rows of `to` at `indices`; `from` has as many rows, or one element for all. Indices outside are
// passed over.
template <typename Op, typename T, typename Index>
__global__ void ChangeRows(T* to, const Index* indices, const T* from, int64 count, int64 row_elements,
                           int64 num_rows, bool is_scalar) {
  FOR_EACH_ELEMENT(i, count) {
    const int64 row = indices[i / row_elements];
    if (row < 0 || row >= num_rows) continue;
    AtomicChange<Op>(to + row * row_elements + i % row_elements, from[is_scalar ? 0 : i]);
  }
}
