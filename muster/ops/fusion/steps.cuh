// What functions of several element-wise nodes are made of (fused.cu, fused_rows.cu). The value of a
// step is what its node would have stored, rounded to the type of the node's elements.
#pragma once

#include "muster/ops/math/binary.cuh"
#include "muster/ops/math/cast.cuh"
#include "muster/ops/math/unary.cuh"
#include "muster/ops/nn/activations.cuh"

// Where the elements of an operand are: at the place of the function's, always the first one, one
// for each row (fused_rows.cu), or by number `how` of the broadcasts. Rows and addresses allow the
// packs that the host has chosen.
constexpr int kFlat = -1, kScalar = -2, kOfRow = -3;

template <int ins, int outs, int broadcasts>
struct FusedArguments {
  const void* in[ins];
  void* out[outs];
  Broadcast<broadcasts> broadcast;
};

// --- Values so far, by the number of their step
// The elements that a thread has at once; one stands for as many equal ones.
template <typename T, int count>
struct Elements {
  static constexpr int kCount = count;
  T at[count];
};
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
template <typename T, int count>
__device__ constexpr int CountOf(const Elements<T, count>*) {
  return count;
}
template <int k, typename V>
constexpr int kCountOf = CountOf(static_cast<decltype(&static_cast<const V*>(nullptr)->template Get<k>())>(nullptr));
template <int a, int... rest>
struct Most {
  static constexpr int value = a > Most<rest...>::value ? a : Most<rest...>::value;
};
template <int a>
struct Most<a> {
  static constexpr int value = a;
};

template <int k, typename V>
__device__ __forceinline__ const auto& ElementOf(const V& values, int at) {
  return values.template Get<k>().at[kCountOf<k, V> == 1 ? 0 : at];
}
template <int k, typename V>
__device__ __forceinline__ auto LoadOf(const V& values, int at) {
  return Load(&ElementOf<k>(values, at), 0);
}

// --- Steps
// Computes its value from those of the steps x... by a function of one element of each.
template <typename Derived, int... x>
struct Computed {
  static constexpr bool kStores = false;
  template <typename V, typename A, typename P>
  static __device__ __forceinline__ auto Run(const V& values, const A&, const P&) {
    constexpr int count = Most<kCountOf<x, V>...>::value;
    Elements<typename Derived::Result, count> result;
#pragma unroll
    for (int at = 0; at < count; ++at) Store(result.at, at, Derived::Element(values, at));
    return result;
  }
};
// The same bits as elements of another type.
template <typename T, int x>
struct As {
  static constexpr bool kStores = false;
  template <typename V, typename A, typename P>
  static __device__ __forceinline__ auto Run(const V& values, const A&, const P&) {
    Elements<T, kCountOf<x, V>> result;
#pragma unroll
    for (int at = 0; at < kCountOf<x, V>; ++at) result.at[at] = BitCast<T>(ElementOf<x>(values, at));
    return result;
  }
};
template <typename F, typename T, int x>
struct One : Computed<One<F, T, x>, x> {
  using Result = UnaryResult<F, T>;
  template <typename V>
  static __device__ __forceinline__ auto Element(const V& values, int at) {
    return F::Apply(LoopType<F, T>(LoadOf<x>(values, at)));
  }
};
template <typename F, typename T, int x, int y>
struct Two : Computed<Two<F, T, x, y>, x, y> {
  using Result = BinaryResult<F, T>;
  template <typename V>
  static __device__ __forceinline__ auto Element(const V& values, int at) {
    using L = LoopType<F, T>;
    return F::Apply(L(LoadOf<x>(values, at)), L(LoadOf<y>(values, at)));
  }
};
template <typename F, typename T, int x, int y, int z>
struct Three : Computed<Three<F, T, x, y, z>, x, y, z> {
  using Result = T;
  template <typename V>
  static __device__ __forceinline__ auto Element(const V& values, int at) {
    return F::Apply(LoadOf<x>(values, at), LoadOf<y>(values, at), LoadOf<z>(values, at));
  }
};
template <typename S, typename D, int cleared_bits, int x>
struct Converted : Computed<Converted<S, D, cleared_bits, x>, x> {
  using Result = D;
  template <typename V>
  static __device__ __forceinline__ auto Element(const V& values, int at) {
    return Convert<D>(LoadOf<x>(values, at), cleared_bits);
  }
};
// `alpha` are the bits of a float.
template <typename F, typename T, uint32 alpha, int x>
struct Activation : Computed<Activation<F, T, alpha, x>, x> {
  using Result = T;
  template <typename V>
  static __device__ __forceinline__ auto Element(const V& values, int at) {
    return F::template Apply<T>(LoadOf<x>(values, at), Compute<T>(T(BitCast<float>(alpha))));
  }
};
template <typename F, typename T, uint32 alpha, int dy, int x>
struct ActivationGrad : Computed<ActivationGrad<F, T, alpha, dy, x>, dy, x> {
  using Result = T;
  template <typename V>
  static __device__ __forceinline__ auto Element(const V& values, int at) {
    return F::template Apply<T>(LoadOf<dy>(values, at), LoadOf<x>(values, at),
                                Compute<T>(T(BitCast<float>(alpha))));
  }
};
// In the order of AddN.
template <typename T, int... x>
struct Total : Computed<Total<T, x...>, x...> {
  using Result = T;
  template <typename V>
  static __device__ __forceinline__ auto Element(const V& values, int at) {
    using A = Compute<typename UnsignedOf<T>::type>;
    A total = A(0);
    ((total += A(LoadOf<x>(values, at))), ...);
    return total;
  }
};

// --- The steps one after the other, at a place
template <typename V, typename A, typename P, typename Step, typename... Rest>
__device__ __forceinline__ void RunFrom(const V& values, const A& a, const P& place) {
  if constexpr (Step::kStores) {
    Step::Run(values, a, place);
    if constexpr (sizeof...(Rest) > 0) RunFrom<V, A, P, Rest...>(values, a, place);
  } else {
    using Value = decltype(Step::Run(values, a, place));
    const Values<V, Value> next{values, Step::Run(values, a, place)};
    RunFrom<Values<V, Value>, A, P, Rest...>(next, a, place);
  }
}
