// Depthwise convolutions and their gradients: each channel has filters of its own, so there is little
// to share between channels, and a thread computes one element by itself. cuDNN's convolutions in
// groups are several times slower here.
#include "muster/ops/nn/packs.cuh"

// As GpuDepthwiseSize of depthwise_gpu.cc.
struct DepthwiseSize {
  int32 batch, height, width, channels, multiplier;
  int32 filter_height, filter_width;
  int32 out_height, out_width;
  int32 stride_height, stride_width;
  int32 dilation_height, dilation_width;
  int32 pad_top, pad_left;
};

// Quicker than a division of 64 bits where it can be.
__device__ __forceinline__ int64 Divide(int64 a, int32 b) {
  return uint64(a) >> 32 == 0 ? int64(uint32(a) / uint32(b)) : a / b;
}

struct Place {
  int32 channel, x, y;
  int64 image;
};
template <bool channels_last>
__device__ __forceinline__ Place PlaceOf(int64 i, int32 channels, int32 height, int32 width) {
  Place at;
  if constexpr (channels_last) {
    const int64 pixel = Divide(i, channels);
    at.channel = int32(i - pixel * channels);
    i = pixel;
  }
  const int64 row = Divide(i, width);
  at.x = int32(i - row * width);
  const int64 plane = Divide(row, height);
  at.y = int32(row - plane * height);
  at.image = plane;
  if constexpr (!channels_last) {
    at.image = Divide(plane, channels);
    at.channel = int32(plane - at.image * channels);
  }
  return at;
}
template <bool channels_last>
__device__ __forceinline__ int64 OffsetOf(int64 image, int32 channel, int32 y, int32 x, int32 channels,
                                          int32 height, int32 width) {
  if constexpr (channels_last)
    return ((image * height + y) * width + x) * channels + channel;
  else
    return ((image * channels + channel) * height + y) * width + x;
}

// Where the channels come last and each has one filter, a thread computes as many channels at once as
// make up 16 bytes: that spares it most of the arithmetic with places.
template <typename T>
__device__ __forceinline__ bool CanPack(const DepthwiseSize& s, const void* a, const void* b, const void* c) {
  return s.multiplier == 1 && s.channels % int(16 / sizeof(T)) == 0 && IsAligned(a) && IsAligned(b) && IsAligned(c);
}
template <typename T>
__device__ __forceinline__ void AddProducts(Compute<T> (&sums)[16 / sizeof(T)], const Pack<T>& a, const Pack<T>& b) {
#pragma unroll
  for (int k = 0; k < int(16 / sizeof(T)); ++k) sums[k] += Load(a.at, k) * Load(b.at, k);
}
template <typename T>
__device__ __forceinline__ void StorePack(Pack<T>* to, const Compute<T> (&sums)[16 / sizeof(T)]) {
  Pack<T> pack;
#pragma unroll
  for (int k = 0; k < int(16 / sizeof(T)); ++k) Store(pack.at, k, sums[k]);
  *to = pack;
}

template <typename T>
__device__ __forceinline__ void ForwardPacks(const Pack<T>* images, const Pack<T>* filter, Pack<T>* output,
                                             int64 count, const DepthwiseSize& s) {
  const int32 packs = s.channels / int(16 / sizeof(T));
  FOR_EACH_ELEMENT(i, count) {
    const Place at = PlaceOf<true>(i, packs, s.out_height, s.out_width);
    const int32 top = at.y * s.stride_height - s.pad_top, left = at.x * s.stride_width - s.pad_left;
    Compute<T> sums[16 / sizeof(T)] = {};
    for (int32 v = 0; v < s.filter_height; ++v) {
      const int32 y = top + v * s.dilation_height;
      if (y < 0 || y >= s.height) continue;
      for (int32 u = 0; u < s.filter_width; ++u) {
        const int32 x = left + u * s.dilation_width;
        if (x < 0 || x >= s.width) continue;
        AddProducts<T>(sums, images[OffsetOf<true>(at.image, at.channel, y, x, packs, s.height, s.width)],
                       filter[int64(v * s.filter_width + u) * packs + at.channel]);
      }
    }
    StorePack<T>(output + i, sums);
  }
}

template <typename T, bool channels_last>
__global__ void DepthwiseForward(const T* images, const T* filter, T* output, int64 count,
                                 DepthwiseSize s) {
  if (channels_last && CanPack<T>(s, images, filter, output)) {
    ForwardPacks<T>(reinterpret_cast<const Pack<T>*>(images), reinterpret_cast<const Pack<T>*>(filter),
                    reinterpret_cast<Pack<T>*>(output), count / int(16 / sizeof(T)), s);
    return;
  }
  const int32 outputs = s.channels * s.multiplier;
  FOR_EACH_ELEMENT(i, count) {
    const Place at = PlaceOf<channels_last>(i, outputs, s.out_height, s.out_width);
    const int32 channel = at.channel / s.multiplier;
    const int32 top = at.y * s.stride_height - s.pad_top, left = at.x * s.stride_width - s.pad_left;
    Compute<T> sum = 0;
    for (int32 v = 0; v < s.filter_height; ++v) {
      const int32 y = top + v * s.dilation_height;
      if (y < 0 || y >= s.height) continue;
      for (int32 u = 0; u < s.filter_width; ++u) {
        const int32 x = left + u * s.dilation_width;
        if (x < 0 || x >= s.width) continue;
        sum += Load(images, OffsetOf<channels_last>(at.image, channel, y, x, s.channels, s.height, s.width)) *
               Load(filter, int64(v * s.filter_width + u) * outputs + at.channel);
      }
    }
    Store(output, i, sum);
  }
}

template <typename T>
__device__ __forceinline__ void BackwardPacks(const Pack<T>* filter, const Pack<T>* dy, Pack<T>* dx, int64 count,
                                              const DepthwiseSize& s) {
  const int32 packs = s.channels / int(16 / sizeof(T));
  FOR_EACH_ELEMENT(i, count) {
    const Place at = PlaceOf<true>(i, packs, s.height, s.width);
    Compute<T> sums[16 / sizeof(T)] = {};
    for (int32 v = 0; v < s.filter_height; ++v) {
      const int32 below = at.y + s.pad_top - v * s.dilation_height;
      const int32 y = below / s.stride_height;
      if (below < 0 || y * s.stride_height != below || y >= s.out_height) continue;
      for (int32 u = 0; u < s.filter_width; ++u) {
        const int32 right = at.x + s.pad_left - u * s.dilation_width;
        const int32 x = right / s.stride_width;
        if (right < 0 || x * s.stride_width != right || x >= s.out_width) continue;
        AddProducts<T>(sums, dy[OffsetOf<true>(at.image, at.channel, y, x, packs, s.out_height, s.out_width)],
                       filter[int64(v * s.filter_width + u) * packs + at.channel]);
      }
    }
    StorePack<T>(dx + i, sums);
  }
}

template <typename T, bool channels_last>
__global__ void DepthwiseBackwardInput(const T* filter, const T* dy, T* dx, int64 count, DepthwiseSize s) {
  if (channels_last && CanPack<T>(s, filter, dy, dx)) {
    BackwardPacks<T>(reinterpret_cast<const Pack<T>*>(filter), reinterpret_cast<const Pack<T>*>(dy),
                     reinterpret_cast<Pack<T>*>(dx), count / int(16 / sizeof(T)), s);
    return;
  }
  const int32 outputs = s.channels * s.multiplier;
  FOR_EACH_ELEMENT(i, count) {
    const Place at = PlaceOf<channels_last>(i, s.channels, s.height, s.width);
    Compute<T> sum = 0;
    for (int32 v = 0; v < s.filter_height; ++v) {
      const int32 below = at.y + s.pad_top - v * s.dilation_height;
      const int32 y = below / s.stride_height;
      if (below < 0 || y * s.stride_height != below || y >= s.out_height) continue;
      for (int32 u = 0; u < s.filter_width; ++u) {
        const int32 right = at.x + s.pad_left - u * s.dilation_width;
        const int32 x = right / s.stride_width;
        if (right < 0 || x * s.stride_width != right || x >= s.out_width) continue;
        for (int32 m = 0; m < s.multiplier; ++m) {
          const int32 output = at.channel * s.multiplier + m;
          sum += Load(dy, OffsetOf<channels_last>(at.image, output, y, x, outputs, s.out_height, s.out_width)) *
                 Load(filter, int64(v * s.filter_width + u) * outputs + output);
        }
      }
    }
    Store(dx, i, sum);
  }
}

// The sums for the filter are made in parts: part p of `parts` has the elements of the output's space
// from p * cells on. Block x works on one element of the filter's space and one set of channels,
// block y on one part. Then SumFilterParts adds them, always in the same order.
template <typename T, bool channels_last>
__device__ __forceinline__ Compute<T> OneTerm(const T* images, const T* dy, const DepthwiseSize& s, int64 cell,
                                              int32 v, int32 u, int32 output) {
  const int64 row = Divide(cell, s.out_width);
  const int32 out_x = int32(cell - row * s.out_width);
  const int64 image = Divide(row, s.out_height);
  const int32 out_y = int32(row - image * s.out_height);
  const int32 y = out_y * s.stride_height - s.pad_top + v * s.dilation_height;
  const int32 x = out_x * s.stride_width - s.pad_left + u * s.dilation_width;
  if (y < 0 || y >= s.height || x < 0 || x >= s.width) return 0;
  return Load(images, OffsetOf<channels_last>(image, output / s.multiplier, y, x, s.channels, s.height, s.width)) *
         Load(dy, OffsetOf<channels_last>(image, output, out_y, out_x, s.channels * s.multiplier, s.out_height,
                                          s.out_width));
}

constexpr int kLanes = 32, kRows = 8;
template <typename T, bool channels_last>
__global__ void DepthwiseBackwardFilter(const T* images, const T* dy, Compute<T>* parts, int64 cells,
                                        DepthwiseSize s) {
  using C = Compute<T>;
  const int32 outputs = s.channels * s.multiplier;
  const int64 all = int64(s.batch) * s.out_height * s.out_width;
  const int64 begin = blockIdx.y * cells, end = begin + cells < all ? begin + cells : all;
  const int64 size = int64(s.filter_height) * s.filter_width * outputs;
  C sum = 0;
  if constexpr (channels_last) {
    // Neighbours in x have neighbouring channels.
    __shared__ C sums[kRows][kLanes];
    const int32 sets = (outputs + kLanes - 1) / kLanes;
    const int32 tap = int32(blockIdx.x) / sets;
    const int32 output = (int32(blockIdx.x) - tap * sets) * kLanes + int32(threadIdx.x);
    const int32 v = tap / s.filter_width, u = tap - v * s.filter_width;
    if (output < outputs) {
      for (int64 cell = begin + threadIdx.y; cell < end; cell += kRows)
        sum += OneTerm<T, true>(images, dy, s, cell, v, u, output);
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || output >= outputs) return;
    for (int row = 1; row < kRows; ++row) sum += sums[row][threadIdx.x];
    parts[blockIdx.y * size + int64(tap) * outputs + output] = sum;
  } else {
    // Neighbours in x have neighbouring pixels.
    const int32 tap = int32(blockIdx.x) / outputs, output = int32(blockIdx.x) - tap * outputs;
    const int32 v = tap / s.filter_width, u = tap - v * s.filter_width;
    const int32 thread = int32(threadIdx.y) * kLanes + int32(threadIdx.x);
    for (int64 cell = begin + thread; cell < end; cell += kLanes * kRows)
      sum += OneTerm<T, false>(images, dy, s, cell, v, u, output);
    __shared__ C sums[kRows * kLanes];
    sums[thread] = sum;
    for (int half = kRows * kLanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (thread < half) sums[thread] += sums[thread + half];
    }
    if (thread == 0) parts[blockIdx.y * size + int64(tap) * outputs + output] = sums[0];
  }
}

template <typename T>
__global__ void SumFilterParts(const Compute<T>* parts, T* dw, int64 size, int32 count) {
  FOR_EACH_ELEMENT(i, size) {
    Compute<T> sum = 0;
    for (int32 part = 0; part < count; ++part) sum += parts[part * size + i];
    Store(dw, i, sum);
  }
}
