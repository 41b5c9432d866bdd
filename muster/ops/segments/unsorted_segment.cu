// UnsortedSegmentSum, -Prod, -Max and -Min: rows joined with those of the same id.
#include "muster/ops/math/elementwise.cuh"

template <typename T>
__device__ __forceinline__ Compute<T> Largest() {
  if constexpr (kSame<T, Half>)
    return 65504.0f;
  else if constexpr (kSame<T, Bfloat16>)
    return BitCast<float>(0x7F7F0000u);
  else
    return Highest<T>();
}

// Empty<T>() is what a segment without rows holds.
struct Sum {
  template <typename T>
  static __device__ Compute<T> Empty() { return Compute<T>(0); }
  template <typename A>
  static __device__ void Update(A* to, A value) { AtomicAdd(to, value); }
};
// For functions that the hardware has no atomic form of.
template <typename Op, typename A>
__device__ __forceinline__ void AtomicJoin(A* to, A value) {
  if constexpr (sizeof(A) == 4) {
    auto* const word = reinterpret_cast<uint32*>(to);
    uint32 before = *word, expected;
    do {
      expected = before;
      before = atomicCAS(word, expected, BitCast<uint32>(Op::Join(BitCast<A>(expected), value)));
    } while (before != expected);
  } else {
    auto* const word = reinterpret_cast<uint64*>(to);
    uint64 before = *word, expected;
    do {
      expected = before;
      before = atomicCAS(word, expected, BitCast<uint64>(Op::Join(BitCast<A>(expected), value)));
    } while (before != expected);
  }
}
struct Prod {
  template <typename T>
  static __device__ Compute<T> Empty() { return Compute<T>(1); }
  template <typename A>
  static __device__ A Join(A a, A b) {
    using U = typename UnsignedOf<A>::type;
    return A(U(a) * U(b));
  }
  template <typename A>
  static __device__ void Update(A* to, A value) { AtomicJoin<Prod>(to, value); }
};
// Of NaNs the later one decides.
struct Max {
  template <typename T>
  static __device__ Compute<T> Empty() {
    return kIsFloat<T> ? -Largest<T>() : Lowest<Compute<T>>();
  }
  template <typename A>
  static __device__ A Join(A a, A b) { return a > b ? a : b; }
  template <typename A>
  static __device__ void Update(A* to, A value) { AtomicJoin<Max>(to, value); }
};
struct Min {
  template <typename T>
  static __device__ Compute<T> Empty() { return Largest<T>(); }
  template <typename A>
  static __device__ A Join(A a, A b) { return a < b ? a : b; }
  template <typename A>
  static __device__ void Update(A* to, A value) { AtomicJoin<Min>(to, value); }
};

template <typename Op, typename T>
__global__ void StartSegments(Compute<T>* results, int64 count) {
  FOR_EACH_ELEMENT(i, count) results[i] = Op::template Empty<T>();
}

// Rows whose id is no segment's are left out: nothing can be reported from a card.
template <typename Op, typename T, typename Index>
__global__ void JoinSegments(const T* data, const Index* ids, Compute<T>* results, int64 count,
                             Divisor inner, int64 segments) {
  FOR_EACH_ELEMENT(i, count) {
    const int64 row = inner.Divide(i);
    const int64 id = ids[row];
    if (id < 0 || id >= segments) continue;
    Op::Update(results + id * inner.size + (i - row * inner.size), Load(data, i));
  }
}
