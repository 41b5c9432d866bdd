// A vector added along the channels, and sums per channel.
#include "muster/ops/nn/channels.cuh"

template <typename T>
__global__ void BiasAdd(const T* x, const T* bias, T* y, int64 count, int64 channels, int64 inner) {
  using C = Compute<T>;
  MapChannels(count, channels, inner, y,
              [=](int64, int64 channel, C value) { return value + Load(bias, channel); }, x);
}

template <typename T>
struct AddElements {
  const T* x;
  template <int wide>
  __device__ __forceinline__ void Run(Sum<Compute<T>>* totals, int64 i, int64) const {
    const auto pack = *reinterpret_cast<const Pack<T, wide>*>(x + i);
#pragma unroll
    for (int k = 0; k < wide; ++k) totals[k].value += Load(pack.at, k);
  }
};

// What comes back through Relu: to dx, and added.
template <typename T>
struct AddThroughRelu {
  const T* dy;
  const T* y;
  T* dx;
  template <int wide>
  __device__ __forceinline__ void Run(Sum<Compute<T>>* totals, int64 i, int64) const {
    using C = Compute<T>;
    const auto dys = *reinterpret_cast<const Pack<T, wide>*>(dy + i);
    const auto ys = *reinterpret_cast<const Pack<T, wide>*>(y + i);
    Pack<T, wide> out;
#pragma unroll
    for (int k = 0; k < wide; ++k) {
      const C d = Load(ys.at, k) > C(0) ? Load(dys.at, k) : C(0);
      Store(out.at, k, d);
      totals[k].value += d;
    }
    *reinterpret_cast<Pack<T, wide>*>(dx + i) = out;
  }
};

// To `parts` where there are several, else to `sums`.
template <typename T, typename Add>
__device__ __forceinline__ void SumPerChannel(Add add, T* sums, Sum<Compute<T>>* parts,
                                              const ChannelSplit& split) {
  using Total = Sum<Compute<T>>;
  ReduceChannels<Total, T>(split, add, [=](int64 channel, Total total) {
    if (gridDim.y == 1) {
      Store(sums, channel, total.value);
    } else {
      parts[blockIdx.y * split.channels + channel] = total;
    }
  });
}
template <typename T>
__global__ void SumChannels(const T* x, T* sums, Sum<Compute<T>>* parts, ChannelSplit split) {
  SumPerChannel(AddElements<T>{x}, sums, parts, split);
}
template <typename T>
__global__ void SumThroughRelu(const T* dy, const T* y, T* dx, T* sums, Sum<Compute<T>>* parts,
                               ChannelSplit split) {
  SumPerChannel(AddThroughRelu<T>{dy, y, dx}, sums, parts, split);
}
template <typename T>
__global__ void SumParts(const Sum<Compute<T>>* parts, T* sums, ChannelSplit split) {
  ReduceParts(parts, split,
              [=](int64 channel, Sum<Compute<T>> total) { Store(sums, channel, total.value); });
}
