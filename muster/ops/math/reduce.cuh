// Reductions over some dims of a tensor. An op gives how elements are joined:
//
//   template <typename Element>
//   struct Sum {
//     using T = Element;               // of the input
//     using A = Compute<Element>;      // of what is joined, of 4 or a multiple of 8 bytes
//     using R = Element;               // of the result
//     static __device__ A None();      // changes nothing
//     static __device__ A Join(A a, A b);
//     static __device__ A Take(Compute<T> x, int64 term);  // the term-th element of a result
//     static __device__ R Finish(A total, int64 terms);
//   };
//
// A block has as many lanes for each of its results as the host finds useful (reduce_gpu.cc).
// Neighbouring threads read neighbouring elements: they are lanes of one result where the innermost
// dim is reduced (rows), lanes of neighbouring results otherwise (columns). A thread reads several
// elements at once where they are aligned: of one row, or of as many columns. Where there are few
// results, blocks share one: each makes a piece of it, and a second launch joins the pieces.
#pragma once

#include "muster/ops/math/elementwise.cuh"

// Dims that a counter runs over, innermost first, and how far each leads in the input.
struct ReduceWalk {
  static constexpr int kMaxDims = 5;
  Divisor sizes[kMaxDims];
  int64 strides[kMaxDims];
  int64 dims;
  __device__ __forceinline__ int64 OffsetOf(int64 i) const {
    int64 offset = 0;
#pragma unroll 1
    for (int d = 0; d < dims; ++d) {
      const int64 next = d + 1 < dims ? sizes[d].Divide(i) : 0;
      offset += (i - next * sizes[d].size) * strides[d];
      i = next;
    }
    return offset;
  }
};
struct ReducePlan {
  int64 outputs, terms;
  int64 piece;         // terms that a block takes in
  int64 finish_terms;  // 0 and more: what is made are results, of so many terms; -1: pieces
  int32 lanes, lanes_shift;
  int32 by_rows, packed;
  ReduceWalk kept, reduced;
};

// What a second launch does with the pieces that the first one made.
template <typename Op>
struct Merge {
  using T = typename Op::A;
  using A = typename Op::A;
  using R = typename Op::R;
  static __device__ A None() { return Op::None(); }
  static __device__ A Join(A a, A b) { return Op::Join(a, b); }
  static __device__ A Take(A a, int64) { return a; }
  static __device__ R Finish(A total, int64 terms) { return Op::Finish(total, terms); }
};

// Columns that a thread reads at once: 8 bytes of elements, 16 of sums. The host computes the same.
template <int a, int b>
constexpr int kLesser = a < b ? a : b;
template <typename Op>
constexpr int kColumnsOf =
    kLesser<8 / int(sizeof(typename Op::T)), 16 / int(sizeof(typename Op::A))> > 1
        ? kLesser<8 / int(sizeof(typename Op::T)), 16 / int(sizeof(typename Op::A))>
        : 1;
template <typename Op, int columns>
struct Columns {
  typename Op::A at[columns];
  static __device__ Columns None() {
    Columns none;
#pragma unroll
    for (int k = 0; k < columns; ++k) none.at[k] = Op::None();
    return none;
  }
  static __device__ Columns Join(Columns a, const Columns& b) {
#pragma unroll
    for (int k = 0; k < columns; ++k) a.at[k] = Op::Join(a.at[k], b.at[k]);
    return a;
  }
};

// The lanes of a row follow each other; the first of them gets the total.
template <typename Op, typename A>
__device__ __forceinline__ A JoinRow(A total, const ReducePlan& p, A* shared) {
  const int thread = threadIdx.x, lanes = p.lanes;
  for (int offset = (lanes < kWarp ? lanes : kWarp) / 2; offset > 0; offset /= 2)
    total = Op::Join(total, ShuffleDown(total, offset));
  if (lanes <= kWarp) return total;
  if (thread % kWarp == 0) shared[thread / kWarp] = total;
  __syncthreads();
  const int lane = thread & (lanes - 1), warps = lanes / kWarp;
  total = lane < warps ? shared[(thread >> p.lanes_shift) * warps + lane] : Op::None();
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    total = Op::Join(total, ShuffleDown(total, offset));
  return total;
}
// Those of a column are `slots` threads apart.
template <typename Joined>
__device__ __forceinline__ Joined JoinColumn(Joined total, int lane, int slots, int lanes,
                                             Joined* shared) {
  for (int half = lanes / 2; half > 0; half /= 2) {
    shared[threadIdx.x] = total;
    __syncthreads();
    if (lane < half) total = Joined::Join(total, shared[threadIdx.x + half * slots]);
    __syncthreads();
  }
  return total;
}

template <typename Op>
__device__ __forceinline__ void StoreResult(void* y, int64 output, typename Op::A total,
                                            const ReducePlan& p) {
  if (p.finish_terms >= 0)
    static_cast<typename Op::R*>(y)[output] = Op::Finish(total, p.finish_terms);
  else
    static_cast<typename Op::A*>(y)[blockIdx.y * p.outputs + output] = total;
}

// The terms of a row, from `begin` in steps of the lanes.
template <typename Op>
__device__ __forceinline__ typename Op::A TakeTerms(const typename Op::T* from, int64 begin,
                                                    int64 end, const ReducePlan& p) {
  using T = typename Op::T;
  constexpr int kPack = kPackOf<T, T>;
  typename Op::A total = Op::None();
  const auto take_pack = [&](int64 offset, int64 t) {
    const auto pack = LoadPack<kPack>(from + offset);
#pragma unroll
    for (int k = 0; k < kPack; ++k) total = Op::Join(total, Op::Take(Load(pack.at, k), t + k));
  };
  if (p.reduced.dims == 1 && p.packed) {
#pragma unroll 4
    for (int64 t = begin; t < end; t += p.lanes * kPack) take_pack(t, t);
  } else if (p.reduced.dims == 1) {
#pragma unroll 4
    for (int64 t = begin; t < end; t += p.lanes) total = Op::Join(total, Op::Take(Load(from, t), t));
  } else if (p.packed) {
#pragma unroll 1
    for (int64 t = begin; t < end; t += p.lanes * kPack) take_pack(p.reduced.OffsetOf(t), t);
  } else {
#pragma unroll 1
    for (int64 t = begin; t < end; t += p.lanes)
      total = Op::Join(total, Op::Take(Load(from, p.reduced.OffsetOf(t)), t));
  }
  return total;
}

template <typename Op>
__device__ __forceinline__ void ReduceRows(const typename Op::T* x, void* y, const ReducePlan& p,
                                           int64 begin, int64 end, void* shared) {
  using A = typename Op::A;
  const int slots = blockDim.x >> p.lanes_shift, lane = threadIdx.x & (p.lanes - 1);
  const int pack = p.packed ? kPackOf<typename Op::T, typename Op::T> : 1;
  for (int64 first = int64(blockIdx.x) * slots; first < p.outputs;
       first += int64(gridDim.x) * slots) {
    const int64 output = first + (threadIdx.x >> p.lanes_shift);
    A total = Op::None();
    if (output < p.outputs)
      total = TakeTerms<Op>(x + p.kept.OffsetOf(output), begin + lane * pack, end, p);
    total = JoinRow<Op>(total, p, static_cast<A*>(shared));
    if (lane == 0 && output < p.outputs) StoreResult<Op>(y, output, total, p);
    __syncthreads();
  }
}

template <typename Op, int columns>
__device__ __forceinline__ void ReduceColumns(const typename Op::T* x, void* y,
                                              const ReducePlan& p, int64 begin, int64 end,
                                              void* shared) {
  using Totals = Columns<Op, columns>;
  const int slots = blockDim.x >> p.lanes_shift;
  const int slot = threadIdx.x % slots, lane = threadIdx.x / slots;
  for (int64 first = int64(blockIdx.x) * slots * columns; first < p.outputs;
       first += int64(gridDim.x) * slots * columns) {
    const int64 output = first + slot * columns;
    Totals totals = Totals::None();
    const auto take = [&](int64 offset, int64 t) {
      const auto pack = LoadPack<columns>(x + offset);
#pragma unroll
      for (int k = 0; k < columns; ++k)
        totals.at[k] = Op::Join(totals.at[k], Op::Take(Load(pack.at, k), t));
    };
    if (output < p.outputs) {
      const int64 at = p.kept.OffsetOf(output);
      if (p.reduced.dims == 1) {
        const int64 stride = p.reduced.strides[0];
#pragma unroll 4
        for (int64 t = begin + lane; t < end; t += p.lanes) take(at + t * stride, t);
      } else {
#pragma unroll 1
        for (int64 t = begin + lane; t < end; t += p.lanes) take(at + p.reduced.OffsetOf(t), t);
      }
    }
    totals = JoinColumn(totals, lane, slots, p.lanes, static_cast<Totals*>(shared));
    if (lane == 0 && output < p.outputs) {
#pragma unroll
      for (int k = 0; k < columns; ++k) StoreResult<Op>(y, output + k, totals.at[k], p);
    }
  }
}

template <typename Op>
__global__ void Reduce(const typename Op::T* x, void* y, ReducePlan p) {
  constexpr int kMaxThreads = 1024, kColumns = kColumnsOf<Op>;
  alignas(16) __shared__ unsigned char shared[kMaxThreads * sizeof(Columns<Op, kColumns>)];
  const int64 begin = blockIdx.y * p.piece;
  const int64 end = begin + p.piece < p.terms ? begin + p.piece : p.terms;
  if (p.by_rows)
    ReduceRows<Op>(x, y, p, begin, end, shared);
  else if (p.packed)
    ReduceColumns<Op, kColumns>(x, y, p, begin, end, shared);
  else
    ReduceColumns<Op, 1>(x, y, p, begin, end, shared);
}
