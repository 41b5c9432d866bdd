// Tensors seen as [outer, channels, inner] (inner is one where the channels come last): loops over
// their elements that know the channel, and reductions to one value per channel.
//
// A reduction runs in parts, each of which leaves one total per channel; when there is more than
// one part, a second function reduces the totals, a matrix [parts, channels], in the same way. The
// order of all sums depends on sizes and the card alone.
#pragma once

#include "muster/ops/nn/packs.cuh"

// Of elements that mostly come one after the other, which channel they are of.
template <typename F>
struct WithChannel {
  F f;
  int64 channels, inner;
  int64 next = -1, channel = 0, left = 0;  // of the element that is expected

  template <typename... Values>
  __device__ __forceinline__ auto operator()(int64 i, Values... values) {
    if (i != next) {
      const int64 run = i / inner;
      channel = run % channels;
      left = inner - (i - run * inner);
    }
    const int64 own = channel;
    next = i + 1;
    if (--left == 0) {
      left = inner;
      if (++channel == channels) channel = 0;
    }
    return f(i, own, values...);
  }
};

// y[i] = f(i, channel, x[i]...) for each i.
template <typename T, typename F, typename... In>
__device__ __forceinline__ void MapChannels(int64 count, int64 channels, int64 inner, T* y, F f,
                                            const In*... x) {
  MapElements(count, y, WithChannel<F>{f, channels, inner}, x...);
}

// How the work on channels is spread over threads; made by channels.h. Channels that come last are
// the columns of a matrix: blocks of width * height threads, where each thread has the same columns
// in every row, one or several of them (is_wide). Otherwise each block of a reduction has one
// channel, and threads that map elements take any of them.
struct ChannelSplit {
  int64 outer, channels, inner;
  int32 width, height;
  int64 is_wide;
};
constexpr int kMostThreads = 256;
// How many of its inputs' elements of this type a thread of a reduction takes at once, where it can.
template <typename T>
constexpr int kWideOf = sizeof(T) == 2 ? 8 : 4;

template <int wide, typename Total, typename Add, typename Finish>
__device__ __forceinline__ void ReduceRows(const ChannelSplit& split, Add add, Finish finish) {
  alignas(16) __shared__ unsigned char memory[kMostThreads * wide * sizeof(Total)];
  auto* const shared = reinterpret_cast<Total*>(memory);
  const int own_row = int(threadIdx.x) / split.width;
  const int64 column = (int64(blockIdx.x) * split.width + int(threadIdx.x) % split.width) * wide;
  Total totals[wide];
#pragma unroll
  for (int k = 0; k < wide; ++k) totals[k] = Total::None();
  if (column < split.channels) {
    const int64 step = int64(gridDim.y) * split.height;
#pragma unroll 4
    for (int64 row = int64(blockIdx.y) * split.height + own_row; row < split.outer; row += step)
      add.template Run<wide>(totals, row * split.channels + column, column);
  }
  const auto at = [&](int row, int k) -> Total& {
    return shared[k * kMostThreads + int(threadIdx.x) + (row - own_row) * split.width];
  };
#pragma unroll
  for (int k = 0; k < wide; ++k) at(own_row, k) = totals[k];
  for (int half = kMostThreads / 2; half > 0; half /= 2) {
    if (half >= split.height) continue;
    __syncthreads();
    if (own_row >= half || own_row + half >= split.height) continue;
#pragma unroll
    for (int k = 0; k < wide; ++k)
      at(own_row, k) = Total::Join(at(own_row, k), at(own_row + half, k));
  }
  if (own_row != 0 || column >= split.channels) return;
#pragma unroll
  for (int k = 0; k < wide; ++k) finish(column + k, at(0, k));
}

// y = at(channel)(x...) for each element. Where the channels are columns, a thread calls `at` once
// for each of its channels.
template <typename T, typename At, typename... In>
__device__ __forceinline__ void MapByChannel(const ChannelSplit& split, T* y, At at,
                                             const In*... x) {
  if (!split.is_wide) {
    MapChannels(split.outer * split.channels * split.inner, split.channels, split.inner, y,
                [=](int64, int64 channel, auto... values) { return at(channel)(values...); },
                x...);
    return;
  }
  constexpr int kSize = 16 / sizeof(T);
  const int64 column =
      (int64(blockIdx.x) * split.width + int(threadIdx.x) % split.width) * kSize;
  if (column >= split.channels) return;
  decltype(at(column)) f[kSize];
#pragma unroll
  for (int k = 0; k < kSize; ++k) f[k] = at(column + k);
  const int64 step = int64(gridDim.y) * split.height;
#pragma unroll 2
  for (int64 row = int64(blockIdx.y) * split.height + int(threadIdx.x) / split.width;
       row < split.outer; row += step) {
    const int64 i = row * split.channels + column;
    MapPack(reinterpret_cast<Pack<T>*>(y + i), 0,
            [&](int64 k, auto... values) { return f[k](values...); },
            *reinterpret_cast<const Pack<In>*>(x + i)...);
  }
}

template <typename Total>
struct JoinTotals {
  static __device__ __forceinline__ Total Join(Total a, Total b) { return Total::Join(a, b); }
  template <typename C>
  static __device__ __forceinline__ C None() {
    return C::None();
  }
};

template <typename Total, typename Add, typename Finish>
__device__ __forceinline__ void ReducePlanes(const ChannelSplit& split, Add add, Finish finish) {
  const int64 channel = blockIdx.x;
  const int64 first = int64(blockIdx.y) * blockDim.x + threadIdx.x;
  const int64 step = int64(gridDim.y) * blockDim.x;
  const int64 step_planes = step / split.inner, step_inside = step % split.inner;
  Total total = Total::None();
  int64 plane = first / split.inner, inside = first % split.inner;
#pragma unroll 4
  while (plane < split.outer) {
    add.template Run<1>(&total, (plane * split.channels + channel) * split.inner + inside, channel);
    plane += step_planes;
    inside += step_inside;
    if (inside >= split.inner) {
      inside -= split.inner;
      ++plane;
    }
  }
  total = ReduceBlock<JoinTotals<Total>>(total);
  if (threadIdx.x == 0) finish(channel, total);
}

// For each channel joins what add.Run<n>(totals, i, channel) adds for its elements i in this part
// (to n totals at once, for elements and channels that follow each other), and calls
// finish(channel, total). Total has None() and Join(a, b); T is the type of the elements.
template <typename Total, typename T, typename Add, typename Finish>
__device__ __forceinline__ void ReduceChannels(const ChannelSplit& split, Add add, Finish finish) {
  if (split.inner != 1) {
    ReducePlanes<Total>(split, add, finish);
  } else if (split.is_wide) {
    ReduceRows<kWideOf<T>, Total>(split, add, finish);
  } else {
    ReduceRows<1, Total>(split, add, finish);
  }
}

// Joins the totals of all parts, [parts, channels].
template <typename Total>
struct AddTotals {
  const Total* parts;
  template <int wide>
  __device__ __forceinline__ void Run(Total* totals, int64 i, int64) const {
#pragma unroll
    for (int k = 0; k < wide; ++k) totals[k] = Total::Join(totals[k], parts[i + k]);
  }
};
template <typename Total, typename Finish>
__device__ __forceinline__ void ReduceParts(const Total* parts, const ChannelSplit& split,
                                            Finish finish) {
  ReduceRows<1, Total>(split, AddTotals<Total>{parts}, finish);
}

// A plain sum.
template <typename C>
struct Sum {
  C value;
  static __device__ __forceinline__ Sum None() { return {C(0)}; }
  static __device__ __forceinline__ Sum Join(Sum a, Sum b) { return {a.value + b.value}; }
};
