// Several element-wise nodes as one function: what would be written by one and read by the next stays
// in registers. The steps are named by template arguments, in the order in which they run:
//
//   Fused<4, FusedArguments<2, 1, 1>, In<0, float, kFlat>, In<1, float, kScalar>, Two<Mul, float, 0, 1>,
//         One<Tanh, float, 2>, Out<0, 3, kFlat>>
//
// Loads come first, then steps, then what is stored. The value of step k is what its node would have
// stored, rounded to the type of the node's elements. fusion.cc puts such names together.
#include "muster/ops/math/binary.cuh"
#include "muster/ops/math/cast.cuh"
#include "muster/ops/math/unary.cuh"
#include "muster/ops/nn/activations.cuh"

// Where the elements of an operand are: at the place of the function's, always the first one, or by
// number `how` of the broadcasts. Rows and addresses allow the packs that the host has chosen.
constexpr int kFlat = -1, kScalar = -2;

template <int ins, int outs, int broadcasts>
struct FusedArguments {
  static constexpr int kBroadcasts = broadcasts;
  const void* in[ins];
  void* out[outs];
  Broadcast<broadcasts> broadcast;
};

// --- Values so far, by the number of their step
struct NoValues {
  static constexpr int kCount = 0;
};
template <typename Before, typename Value>
struct Values {
  static constexpr int kAt = Before::kCount, kCount = kAt + 1;
  Before before;
  Value value;
  template <int k>
  __device__ __forceinline__ const auto& Get() const {
    if constexpr (k == kAt)
      return value;
    else
      return before.template Get<k>();
  }
};

// --- Steps: n elements at a time
template <int operand, typename T, int how>
struct In {
  static constexpr bool kStores = false;
  template <int n, typename V, typename A, typename O>
  static __device__ __forceinline__ Pack<T, n> Run(const V&, const A& a, int64 i, const O& offsets) {
    const T* const from = static_cast<const T*>(a.in[operand]);
    if constexpr (how == kFlat)
      return LoadPack<n>(from + i);
    else if constexpr (how == kScalar)
      return LoadPack<n>(from, false);
    else
      return LoadPack<n>(from + offsets.at[how], a.broadcast.steps[how]);
  }
};

template <int operand, int k, int how>
struct Out {
  static constexpr bool kStores = true;
  template <typename T, int n>
  static __device__ __forceinline__ void Put(void* to, int64 at, int step, const Pack<T, n>& pack) {
    T* const first = static_cast<T*>(to) + at;
    if (step) return StorePack(first, pack);
#pragma unroll
    for (int i = 0; i < n; ++i) *first = pack.at[i];
  }
  template <typename V, typename A, typename O>
  static __device__ __forceinline__ void Run(const V& values, const A& a, int64 i,
                                             const O& offsets) {
    if constexpr (how == kFlat)
      Put(a.out[operand], i, 1, values.template Get<k>());
    else
      Put(a.out[operand], offsets.at[how], a.broadcast.steps[how], values.template Get<k>());
  }
};

// What computes its value from those of other steps by a function of one element of each.
template <typename Derived>
struct Computed {
  static constexpr bool kStores = false;
  template <int n, typename V, typename A, typename O>
  static __device__ __forceinline__ auto Run(const V& values, const A&, int64, const O&) {
    Pack<typename Derived::Result, n> pack;
#pragma unroll
    for (int at = 0; at < n; ++at) Store(pack.at, at, Derived::Element(values, at));
    return pack;
  }
};
template <int k, typename V>
__device__ __forceinline__ auto LoadOf(const V& values, int at) {
  return Load(values.template Get<k>().at, at);
}

// The same bits as elements of another type.
template <typename T, int x>
struct As {
  static constexpr bool kStores = false;
  template <int n, typename V, typename A, typename O>
  static __device__ __forceinline__ Pack<T, n> Run(const V& values, const A&, int64, const O&) {
    Pack<T, n> pack;
#pragma unroll
    for (int at = 0; at < n; ++at) pack.at[at] = BitCast<T>(values.template Get<x>().at[at]);
    return pack;
  }
};

template <typename F, typename T, int x>
struct One : Computed<One<F, T, x>> {
  using Result = UnaryResult<F, T>;
  template <typename V>
  static __device__ __forceinline__ auto Element(const V& values, int at) {
    return F::Apply(LoopType<F, T>(LoadOf<x>(values, at)));
  }
};
template <typename F, typename T, int x, int y>
struct Two : Computed<Two<F, T, x, y>> {
  using Result = BinaryResult<F, T>;
  template <typename V>
  static __device__ __forceinline__ auto Element(const V& values, int at) {
    using L = LoopType<F, T>;
    return F::Apply(L(LoadOf<x>(values, at)), L(LoadOf<y>(values, at)));
  }
};
template <typename F, typename T, int x, int y, int z>
struct Three : Computed<Three<F, T, x, y, z>> {
  using Result = T;
  template <typename V>
  static __device__ __forceinline__ auto Element(const V& values, int at) {
    return F::Apply(LoadOf<x>(values, at), LoadOf<y>(values, at), LoadOf<z>(values, at));
  }
};
template <typename S, typename D, int cleared_bits, int x>
struct Converted : Computed<Converted<S, D, cleared_bits, x>> {
  using Result = D;
  template <typename V>
  static __device__ __forceinline__ auto Element(const V& values, int at) {
    return Convert<D>(LoadOf<x>(values, at), cleared_bits);
  }
};
// `alpha` are the bits of a float.
template <typename F, typename T, uint32 alpha, int x>
struct Activation : Computed<Activation<F, T, alpha, x>> {
  using Result = T;
  template <typename V>
  static __device__ __forceinline__ auto Element(const V& values, int at) {
    return F::template Apply<T>(LoadOf<x>(values, at), Compute<T>(T(BitCast<float>(alpha))));
  }
};
template <typename F, typename T, uint32 alpha, int dy, int x>
struct ActivationGrad : Computed<ActivationGrad<F, T, alpha, dy, x>> {
  using Result = T;
  template <typename V>
  static __device__ __forceinline__ auto Element(const V& values, int at) {
    return F::template Apply<T>(LoadOf<dy>(values, at), LoadOf<x>(values, at),
                                Compute<T>(T(BitCast<float>(alpha))));
  }
};
// In the order of AddN.
template <typename T, int... x>
struct Total : Computed<Total<T, x...>> {
  using Result = T;
  template <typename V>
  static __device__ __forceinline__ auto Element(const V& values, int at) {
    using A = Compute<typename UnsignedOf<T>::type>;
    A total = A(0);
    ((total += A(LoadOf<x>(values, at))), ...);
    return total;
  }
};

// --- The steps one after the other
template <int n, typename V, typename A, typename O, typename Step, typename... Rest>
__device__ __forceinline__ void RunFrom(const V& values, const A& a, int64 i, const O& offsets) {
  if constexpr (Step::kStores) {
    Step::Run(values, a, i, offsets);
    if constexpr (sizeof...(Rest) > 0) RunFrom<n, V, A, O, Rest...>(values, a, i, offsets);
  } else {
    using Value = decltype(Step::template Run<n>(values, a, i, offsets));
    const Values<V, Value> next{values, Step::template Run<n>(values, a, i, offsets)};
    RunFrom<n, Values<V, Value>, A, O, Rest...>(next, a, i, offsets);
  }
}

template <int n, typename... Steps, typename A>
__device__ __forceinline__ void RunSteps(const A& a, int64 i) {
  const auto offsets = a.broadcast.OffsetsOf(i);
  RunFrom<n, NoValues, A, decltype(offsets), Steps...>(NoValues(), a, i, offsets);
}

// Broadcasts that nobody asks for cost nothing: no operand uses the offsets.
template <int n, typename A, typename... Steps>
__global__ void Fused(A a) {
  const int64 packs = a.broadcast.template NumPacks<n>();
  FOR_EACH_ELEMENT(i, packs) RunSteps<n, Steps...>(a, i * n);
  const int64 rest = packs * n;
  FOR_EACH_ELEMENT(i, a.broadcast.count - rest) RunSteps<1, Steps...>(a, rest + i);
}
