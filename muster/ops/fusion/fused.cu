// Several element-wise nodes as one function: what would be written by one and read by the next stays
// in registers. The steps are named by template arguments, in the order in which they run:
//
//   Fused<4, FusedArguments<2, 1, 1>, In<0, float, kFlat>, In<1, float, kScalar>, Two<Mul, float, 0, 1>,
//         One<Tanh, float, 2>, Out<0, 3, kFlat>>
//
// Loads come first, then steps, then what is stored. group_function.cc puts such names together.
#include "muster/ops/fusion/steps.cuh"

// Where the elements are that a thread works on at once.
template <int n, typename Offsets>
struct FlatPlace {
  static constexpr int kPack = n;
  int64 first;
  Offsets offsets;
};

template <int operand, typename T, int how>
struct In {
  static constexpr bool kStores = false;
  template <typename V, typename A, typename P>
  static __device__ __forceinline__ auto Run(const V&, const A& a, const P& place) {
    const T* const from = static_cast<const T*>(a.in[operand]);
    if constexpr (how == kScalar) {
      return Elements<T, 1>{{*from}};
    } else {
      constexpr int n = P::kPack;
      const int64 at = how == kFlat ? place.first : place.offsets.at[how < 0 ? 0 : how];
      const auto pack = LoadPack<n>(from + at, how == kFlat || a.broadcast.steps[how < 0 ? 0 : how]);
      Elements<T, n> elements;
#pragma unroll
      for (int k = 0; k < n; ++k) elements.at[k] = pack.at[k];
      return elements;
    }
  }
};

template <int operand, int k, int how>
struct Out {
  static constexpr bool kStores = true;
  template <int n, typename T, int count>
  static __device__ __forceinline__ void Put(void* to, int64 at, int step,
                                             const Elements<T, count>& elements) {
    Pack<T, n> pack;
#pragma unroll
    for (int i = 0; i < n; ++i) pack.at[i] = elements.at[count == 1 ? 0 : i];
    T* const first = static_cast<T*>(to) + at;
    if (step)
      StorePack(first, pack);
    else  // there is one
      *first = pack.at[0];
  }
  template <typename V, typename A, typename P>
  static __device__ __forceinline__ void Run(const V& values, const A& a, const P& place) {
    if constexpr (how == kFlat)
      Put<P::kPack>(a.out[operand], place.first, 1, values.template Get<k>());
    else
      Put<P::kPack>(a.out[operand], place.offsets.at[how], a.broadcast.steps[how],
                    values.template Get<k>());
  }
};

template <int n, typename... Steps, typename A>
__device__ __forceinline__ void RunSteps(const A& a, int64 i) {
  using Place = FlatPlace<n, decltype(a.broadcast.OffsetsOf(i))>;
  const Place place{i, a.broadcast.OffsetsOf(i)};
  RunFrom<NoValues, A, Place, Steps...>(NoValues(), a, place);
}

// Broadcasts that nobody asks for cost nothing: no operand uses the offsets.
template <int n, typename A, typename... Steps>
__global__ void Fused(A a) {
  const int64 packs = a.broadcast.template NumPacks<n>();
  FOR_EACH_ELEMENT(i, packs) RunSteps<n, Steps...>(a, i * n);
  const int64 rest = packs * n;
  FOR_EACH_ELEMENT(i, a.broadcast.count - rest) RunSteps<1, Steps...>(a, rest + i);
}
