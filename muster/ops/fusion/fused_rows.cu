// Nodes over the rows of a matrix as one function: element-wise ones, sums and the like over each row,
// and what is computed of both. Threads that share a row keep their elements of it in registers:
//
//   FusedRows<Rows<768, 32, 4>, FusedArguments<1, 1, 1>, RowIn<0, float, kFlat>, Reduced<Mean<float>, 0>,
//             Two<Sub, float, 0, 1>, AllLoaded, RowOut<0, 2, kFlat>>
//
// A row's elements are divided and joined as by Reduce (math/reduce.cuh), in the same order.
#include "muster/ops/fusion/steps.cuh"
#include "muster/ops/math/reductions.cuh"
#include "muster/ops/nn/rows.cuh"

// Rows of `size` elements, of which each of `lanes` neighbouring threads takes `pack` in turn.
template <int size, int lanes, int pack>
struct Rows {
  static constexpr int kSize = size, kLanes = lanes, kPack = pack;
  static constexpr int kPacks = (size + lanes * pack - 1) / (lanes * pack);
  static constexpr int kElements = kPacks * pack;
  static constexpr bool kIsWhole = size % (lanes * pack) == 0;
};
constexpr int kRowThreads = 1024;  // at most

template <typename R, typename Offsets>
struct RowPlace {
  using Shape = R;
  int64 row;
  bool is_row;  // else there are more threads than rows: nothing is stored
  int lane;
  Offsets offsets;  // of its first element
  void* shared;
  __device__ __forceinline__ int ColumnOf(int pack) const {
    return (pack * R::kLanes + lane) * R::kPack;
  }
  __device__ __forceinline__ bool Has(int pack) const {
    return R::kIsWhole || ColumnOf(pack) < R::kSize;
  }
};

template <int operand, typename T, int how>
struct RowIn {
  static constexpr bool kStores = false;
  template <typename V, typename A, typename P>
  static __device__ __forceinline__ auto Run(const V&, const A& a, const P& place) {
    using R = typename P::Shape;
    const T* const from = static_cast<const T*>(a.in[operand]);
    if constexpr (how == kScalar) {
      return Elements<T, 1>{{*from}};
    } else if constexpr (how == kOfRow) {
      return Elements<T, 1>{{from[place.row]}};
    } else {
      const int64 first = how == kFlat ? place.row * R::kSize : place.offsets.at[how < 0 ? 0 : how];
      const bool steps = how == kFlat || a.broadcast.steps[how < 0 ? 0 : how];
      Elements<T, R::kElements> elements = {};
#pragma unroll
      for (int p = 0; p < R::kPacks; ++p) {
        if (!place.Has(p)) continue;
        const auto pack =
            LoadPack<R::kPack>(from + first + (steps ? place.ColumnOf(p) : 0), steps);
#pragma unroll
        for (int k = 0; k < R::kPack; ++k) elements.at[p * R::kPack + k] = pack.at[k];
      }
      return elements;
    }
  }
};

// The first lane's value, for all lanes of a row within a warp.
template <typename C>
__device__ __forceinline__ C ShuffleFrom(C value, int lane) {
  if constexpr (sizeof(C) == 4) {
    return BitCast<C>(__shfl_sync(0xFFFFFFFFu, BitCast<uint32>(value), lane));
  } else {
    return BitCast<C>(__shfl_sync(0xFFFFFFFFu, BitCast<uint64>(value), lane));
  }
}
// JoinRow, with the total for all threads of the row.
template <typename Op, typename R, typename A>
__device__ __forceinline__ A JoinLanes(A total, void* memory) {
  constexpr int lanes = R::kLanes;
#pragma unroll
  for (int offset = (lanes < kWarp ? lanes : kWarp) / 2; offset > 0; offset /= 2)
    total = Op::Join(total, ShuffleDown(total, offset));
  const int own = int(threadIdx.x) % kWarp;
  if constexpr (lanes <= kWarp) {
    return ShuffleFrom(total, own & ~(lanes - 1));
  } else {
    A* const shared = static_cast<A*>(memory);
    constexpr int warps = lanes / kWarp;
    __syncthreads();
    if (own == 0) shared[threadIdx.x / kWarp] = total;
    __syncthreads();
    total = own < warps ? shared[int(threadIdx.x) / lanes * warps + own] : Op::None();
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
      total = Op::Join(total, ShuffleDown(total, offset));
    return ShuffleFrom(total, 0);
  }
}

template <typename Op, int x>
struct Reduced {
  static constexpr bool kStores = false;
  template <typename V, typename A, typename P>
  static __device__ __forceinline__ auto Run(const V& values, const A&, const P& place) {
    using R = typename P::Shape;
    typename Op::A total = Op::None();
#pragma unroll
    for (int p = 0; p < R::kPacks; ++p) {
      if (!place.Has(p)) continue;
#pragma unroll
      for (int k = 0; k < R::kPack; ++k)
        total = Op::Join(total, Op::Take(LoadOf<x>(values, p * R::kPack + k), place.ColumnOf(p) + k));
    }
    total = JoinLanes<Op, R>(total, place.shared);
    return Elements<typename Op::R, 1>{{Op::Finish(total, R::kSize)}};
  }
};

// As the function Softmax, whose rows have packs of one element.
template <typename T, bool kLog, int x>
struct Softmaxed {
  static constexpr bool kStores = false;
  template <typename V, typename A, typename P>
  static __device__ __forceinline__ auto Run(const V& values, const A&, const P& place) {
    using C = Compute<T>;
    using R = typename P::Shape;
    C largest = -Infinity<C>(), sum = C(0);
#pragma unroll
    for (int p = 0; p < R::kPacks; ++p)
      if (place.Has(p)) largest = Larger::Join(largest, LoadOf<x>(values, p));
    largest = ReduceRow<Larger, R::kLanes>(largest);
#pragma unroll
    for (int p = 0; p < R::kPacks; ++p)
      if (place.Has(p)) sum += exp(LoadOf<x>(values, p) - largest);
    sum = ReduceRow<Plus, R::kLanes>(sum);
    const C scale = C(1) / sum, log_sum = kLog ? log(sum) : C(0);
    Elements<T, R::kElements> result;
#pragma unroll
    for (int p = 0; p < R::kPacks; ++p) {
      const C centred = LoadOf<x>(values, p) - largest;
      Store(result.at, p, kLog ? centred - log_sum : exp(centred) * scale);
    }
    return result;
  }
};

// What is stored may take the place of what other threads of the row have loaded.
struct AllLoaded {
  static constexpr bool kStores = true;
  template <typename V, typename A, typename P>
  static __device__ __forceinline__ void Run(const V&, const A&, const P&) {
    __syncthreads();
  }
};

template <int operand, int k, int how>
struct RowOut {
  static constexpr bool kStores = true;
  template <typename R, typename P, typename T, int count>
  static __device__ __forceinline__ void Put(T* to, const P& place,
                                             const Elements<T, count>& elements) {
    if (!place.is_row) return;
    if constexpr (how == kOfRow) {
      if (place.lane == 0) to[place.row] = elements.at[0];
    } else {
#pragma unroll
      for (int p = 0; p < R::kPacks; ++p) {
        if (!place.Has(p)) continue;
        Pack<T, R::kPack> pack;
#pragma unroll
        for (int i = 0; i < R::kPack; ++i)
          pack.at[i] = elements.at[count == 1 ? 0 : p * R::kPack + i];
        StorePack(to + place.row * R::kSize + place.ColumnOf(p), pack);
      }
    }
  }
  template <typename T, int count>
  static __device__ __forceinline__ T* Typed(void* to, const Elements<T, count>&) {
    return static_cast<T*>(to);
  }
  template <typename V, typename A, typename P>
  static __device__ __forceinline__ void Run(const V& values, const A& a, const P& place) {
    const auto& elements = values.template Get<k>();
    Put<typename P::Shape>(Typed(a.out[operand], elements), place, elements);
  }
};

template <typename R, typename A, typename... Steps>
__global__ void __launch_bounds__(R::kLanes > 256 ? R::kLanes : 256) FusedRows(A a) {
  alignas(16) __shared__ unsigned char shared[kRowThreads / kWarp * 16];
  const int slots = int(blockDim.x) / R::kLanes;
  const int64 rows = a.broadcast.count / R::kSize;
  for (int64 first = int64(blockIdx.x) * slots; first < rows; first += int64(gridDim.x) * slots) {
    const int64 row = first + int(threadIdx.x) / R::kLanes;
    const bool is_row = row < rows;
    const int64 own = is_row ? row : rows - 1;
    using Offsets = decltype(a.broadcast.OffsetsOf(0));
    const RowPlace<R, Offsets> place{own, is_row, int(threadIdx.x) % R::kLanes,
                                     a.broadcast.OffsetsOf(own * R::kSize), shared};
    RunFrom<NoValues, A, RowPlace<R, Offsets>, Steps...>(NoValues(), a, place);
    __syncthreads();
  }
}
