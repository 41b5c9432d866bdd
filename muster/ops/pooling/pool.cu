// Pooling over images and volumes, and its gradients: one thread per element of the result, or per
// pack of channels. Gradients gather what the windows around an element give it, so that each sum
// has one order.
#include "muster/ops/nn/packs.cuh"

struct PoolAxis {
  int32 size, window, stride, pad, out;

  // The cells of window `i` that are inside: [Begin, End).
  __device__ __forceinline__ int32 Begin(int32 i) const {
    const int64 begin = int64(i) * stride - pad;
    return begin < 0 ? 0 : int32(begin);
  }
  __device__ __forceinline__ int32 End(int32 i) const {
    const int64 end = int64(i) * stride - pad + window;
    return end < size ? int32(end) : size;
  }
  // The windows that have cell `i`: [First, Last].
  __device__ __forceinline__ int32 First(int32 i) const {
    const uint32 at = uint32(i) + uint32(pad);
    return at < uint32(window) ? 0 : int32((at - uint32(window)) / uint32(stride) + 1);
  }
  __device__ __forceinline__ int32 Last(int32 i) const {
    const uint32 last = (uint32(i) + uint32(pad)) / uint32(stride);
    return last < uint32(out) ? int32(last) : out - 1;
  }
};

// Images are volumes with a depth of one.
struct Pooling {
  int64 channels;
  PoolAxis depth, height, width;
  int32 channels_first;
  int64 is_wide;  // kWide channels at a time
};
constexpr int kWide = 4;

// Where an element is: its image and channel begin at `in` and `out`, and their cells are `step`
// elements apart.
struct Place {
  int64 in, out;
  int64 step;
  int32 z, y, x;

  __device__ __forceinline__ int64 In(const Pooling& p, int32 a, int32 b, int32 c) const {
    return in + ((int64(a) * p.height.size + b) * p.width.size + c) * step;
  }
  __device__ __forceinline__ int64 Out(const Pooling& p, int32 a, int32 b, int32 c) const {
    return out + ((int64(a) * p.height.out + b) * p.width.out + c) * step;
  }
};
template <bool kOfOutput>
__device__ __forceinline__ Place PlaceOf(const Pooling& p, int64 i) {
  const auto take = [&i](int64 size) {
    const int64 above = i / size;
    const int64 at = i - above * size;
    i = above;
    return at;
  };
  const auto cells = [](int32 a, int32 b, int32 c) { return int64(a) * b * c; };
  Place place;
  int64 channel = 0;
  if (!p.channels_first) channel = take(p.channels);
  place.x = int32(take(kOfOutput ? p.width.out : p.width.size));
  place.y = int32(take(kOfOutput ? p.height.out : p.height.size));
  const int32 depth = kOfOutput ? p.depth.out : p.depth.size;
  place.z = depth == 1 ? 0 : int32(take(depth));
  place.step = p.channels_first ? 1 : p.channels;
  const int64 run = i * place.step;
  place.in = run * cells(p.depth.size, p.height.size, p.width.size) + channel;
  place.out = run * cells(p.depth.out, p.height.out, p.width.out) + channel;
  return place;
}

// Calls f(element of the input) for the cells of the window of `place`, in their order, until it
// returns false.
template <typename F>
__device__ __forceinline__ void ForEachCell(const Pooling& p, const Place& place, F f) {
  const int32 end_z = p.depth.End(place.z), end_y = p.height.End(place.y);
  const int32 begin_x = p.width.Begin(place.x), end_x = p.width.End(place.x);
  for (int32 z = p.depth.Begin(place.z); z < end_z; ++z) {
    for (int32 y = p.height.Begin(place.y); y < end_y; ++y) {
      int64 at = place.In(p, z, y, begin_x);
      for (int32 x = begin_x; x < end_x; ++x, at += place.step)
        if (!f(at)) return;
    }
  }
}
// Calls f(place of the window) for the windows that have the cell of `place`.
template <typename F>
__device__ __forceinline__ void ForEachWindow(const Pooling& p, const Place& place, F f) {
  const int32 last_z = p.depth.Last(place.z), last_y = p.height.Last(place.y);
  const int32 first_x = p.width.First(place.x), last_x = p.width.Last(place.x);
  for (int32 z = p.depth.First(place.z); z <= last_z; ++z) {
    for (int32 y = p.height.First(place.y); y <= last_y; ++y) {
      for (int32 x = first_x; x <= last_x; ++x) {
        Place window = place;
        window.z = z, window.y = y, window.x = x;
        f(window);
      }
    }
  }
}
__device__ __forceinline__ int64 CellsOf(const Pooling& p, const Place& window) {
  const auto size = [](const PoolAxis& axis, int32 i) {
    const int32 cells = axis.End(i) - axis.Begin(i);
    return int64(cells < 0 ? 0 : cells);
  };
  return size(p.depth, window.z) * size(p.height, window.y) * size(p.width, window.x);
}

template <int wide, typename T, typename C>
__device__ __forceinline__ void StorePack(T* to, const C* values) {
  Pack<T, wide> pack;
#pragma unroll
  for (int k = 0; k < wide; ++k) Store(pack.at, k, values[k]);
  *reinterpret_cast<Pack<T, wide>*>(to) = pack;
}

// What an empty window of an image gives.
template <typename T>
__device__ __forceinline__ Compute<T> LowestOf() {
  if constexpr (kSame<T, Half>) {
    return -65504.0f;
  } else if constexpr (kSame<T, Bfloat16>) {
    return BitCast<float>(0xFF7F0000u);
  } else {
    return Lowest<T>();
  }
}
template <typename T, bool kOfVolume>
__device__ __forceinline__ Compute<T> SmallestMaximum() {
  if constexpr (kOfVolume) {
    return -Infinity<Compute<T>>();
  } else {
    return LowestOf<T>();
  }
}

template <int wide, bool kOfVolume, typename T>
__device__ __forceinline__ void PoolMaximum(const T* x, T* y, int64 i, const Pooling& p) {
  using C = Compute<T>;
  C best[wide];
#pragma unroll
  for (int k = 0; k < wide; ++k) best[k] = SmallestMaximum<T, kOfVolume>();
  ForEachCell(p, PlaceOf<true>(p, i), [&](int64 at) {
    const auto pack = *reinterpret_cast<const Pack<T, wide>*>(x + at);
#pragma unroll
    for (int k = 0; k < wide; ++k) {
      const C value = Load(pack.at, k);
      if (best[k] < value) best[k] = value;
    }
    return true;
  });
  StorePack<wide>(y + i, best);
}
template <typename T, bool kOfVolume>
__global__ void MaxPool(const T* x, T* y, int64 count, Pooling p) {
  if (p.is_wide) {
    FOR_EACH_ELEMENT(pack, count / kWide) PoolMaximum<kWide, kOfVolume>(x, y, pack * kWide, p);
  } else {
    FOR_EACH_ELEMENT(i, count) PoolMaximum<1, kOfVolume>(x, y, i, p);
  }
}

template <int wide, typename T>
__device__ __forceinline__ void PoolMean(const T* x, T* y, int64 i, const Pooling& p) {
  using C = Compute<T>;
  C sums[wide];
#pragma unroll
  for (int k = 0; k < wide; ++k) sums[k] = C(0);
  const Place place = PlaceOf<true>(p, i);
  ForEachCell(p, place, [&](int64 at) {
    const auto pack = *reinterpret_cast<const Pack<T, wide>*>(x + at);
#pragma unroll
    for (int k = 0; k < wide; ++k) sums[k] += Load(pack.at, k);
    return true;
  });
  const C count = C(CellsOf(p, place));
#pragma unroll
  for (int k = 0; k < wide; ++k) sums[k] = sums[k] / count;
  StorePack<wide>(y + i, sums);
}
template <typename T>
__global__ void AvgPool(const T* x, T* y, int64 count, Pooling p) {
  if (p.is_wide) {
    FOR_EACH_ELEMENT(pack, count / kWide) PoolMean<kWide>(x, y, pack * kWide, p);
  } else {
    FOR_EACH_ELEMENT(i, count) PoolMean<1>(x, y, i, p);
  }
}

template <int wide, typename T>
__device__ __forceinline__ void SpreadMean(const T* dy, T* dx, int64 i, const Pooling& p) {
  using C = Compute<T>;
  C sums[wide];
#pragma unroll
  for (int k = 0; k < wide; ++k) sums[k] = C(0);
  ForEachWindow(p, PlaceOf<false>(p, i), [&](const Place& window) {
    const C share = C(1) / C(CellsOf(p, window));
    const auto pack = *reinterpret_cast<const Pack<T, wide>*>(
        dy + window.Out(p, window.z, window.y, window.x));
#pragma unroll
    for (int k = 0; k < wide; ++k) sums[k] += Load(pack.at, k) * share;
  });
  StorePack<wide>(dx + i, sums);
}
template <typename T>
__global__ void AvgPoolGrad(const T* dy, T* dx, int64 count, Pooling p) {
  if (p.is_wide) {
    FOR_EACH_ELEMENT(pack, count / kWide) SpreadMean<kWide>(dy, dx, pack * kWide, p);
  } else {
    FOR_EACH_ELEMENT(i, count) SpreadMean<1>(dy, dx, i, p);
  }
}

// --- Images: everything goes through the first maximum of a window, and NaN is never larger than
// anything.

// Of the window that `window` is the place of: the element of the input (-1 where it is empty).
template <typename T>
__device__ __forceinline__ int64 FirstMaximum(const T* x, const Pooling& p, const Place& window) {
  using C = Compute<T>;
  C best = 0;
  int64 found = -1;
  ForEachCell(p, window, [&](int64 at) {
    const C value = Load(x, at);
    if (found < 0 || best < value) {
      best = value;
      found = at;
    }
    return true;
  });
  return found;
}
// A window gives its gradient to element i, or to some of the `wide` ones from there on, if that is
// its first maximum. Mostly its first cells tell that it is not.
template <int wide, typename T>
__device__ __forceinline__ void GatherMaximum(const T* x, const T* dy, T* dx, int64 i,
                                              const Pooling& p) {
  using C = Compute<T>;
  const auto own = *reinterpret_cast<const Pack<T, wide>*>(x + i);
  C sums[wide];
#pragma unroll
  for (int k = 0; k < wide; ++k) sums[k] = C(0);
  ForEachWindow(p, PlaceOf<false>(p, i), [&](const Place& window) {
    uint32 is_maximum = (1u << wide) - 1;  // by element
    bool is_first = true;
    ForEachCell(p, window, [&](int64 at) {
      if (at != i) {
        const auto pack = *reinterpret_cast<const Pack<T, wide>*>(x + at);
#pragma unroll
        for (int k = 0; k < wide; ++k) {
          const C value = Load(own.at, k), other = Load(pack.at, k);
          const bool counts = other == other || is_first || value != value;
          const bool is_not = at < i ? !(other < value) && counts : other > value;
          if (is_not) is_maximum &= ~(1u << k);
        }
      }
      is_first = false;
      return is_maximum != 0;
    });
    if (is_maximum == 0) return;
    const auto pack = *reinterpret_cast<const Pack<T, wide>*>(
        dy + window.Out(p, window.z, window.y, window.x));
#pragma unroll
    for (int k = 0; k < wide; ++k)
      if (is_maximum >> k & 1) sums[k] += Load(pack.at, k);
  });
  StorePack<wide>(dx + i, sums);
}
template <typename T>
__global__ void MaxPoolGrad(const T* x, const T* dy, T* dx, int64 count, Pooling p) {
  if (p.is_wide) {
    FOR_EACH_ELEMENT(pack, count / kWide) GatherMaximum<kWide>(x, dy, dx, pack * kWide, p);
  } else {
    FOR_EACH_ELEMENT(i, count) GatherMaximum<1>(x, dy, dx, i, p);
  }
}

// The same in two passes, for windows of few cells. Which cell of each window is its first maximum:
// cells are counted in the order of ForEachCell, and kNoCell is that of empty windows.
constexpr uint32 kNoCell = 255;
template <int wide, typename T>
__device__ __forceinline__ void FindMaximum(const T* x, uint8* cells, int64 i, const Pooling& p) {
  using C = Compute<T>;
  C best[wide];
  uint32 found[wide];
  uint32 cell = 0;
#pragma unroll
  for (int k = 0; k < wide; ++k) best[k] = C(0), found[k] = kNoCell;
  ForEachCell(p, PlaceOf<true>(p, i), [&](int64 at) {
    const auto pack = *reinterpret_cast<const Pack<T, wide>*>(x + at);
#pragma unroll
    for (int k = 0; k < wide; ++k) {
      const C value = Load(pack.at, k);
      if (cell != 0 && !(best[k] < value)) continue;
      best[k] = value;
      found[k] = cell;
    }
    ++cell;
    return true;
  });
  Pack<uint8, wide> pack;
#pragma unroll
  for (int k = 0; k < wide; ++k) pack.at[k] = uint8(found[k]);
  *reinterpret_cast<Pack<uint8, wide>*>(cells + i) = pack;
}
template <typename T>
__global__ void FindMaxima(const T* x, uint8* cells, int64 count, Pooling p) {
  if (p.is_wide) {
    FOR_EACH_ELEMENT(pack, count / kWide) FindMaximum<kWide>(x, cells, pack * kWide, p);
  } else {
    FOR_EACH_ELEMENT(i, count) FindMaximum<1>(x, cells, i, p);
  }
}
template <int wide, typename T>
__device__ __forceinline__ void GatherFound(const uint8* cells, const T* dy, T* dx, int64 i,
                                            const Pooling& p) {
  using C = Compute<T>;
  C sums[wide];
#pragma unroll
  for (int k = 0; k < wide; ++k) sums[k] = C(0);
  const Place place = PlaceOf<false>(p, i);
  const auto number = [&](const Place& window) {
    const auto before = [](const PoolAxis& axis, int32 i, int32 at) { return at - axis.Begin(i); };
    const int32 rows = p.height.End(window.y) - p.height.Begin(window.y);
    const int32 columns = p.width.End(window.x) - p.width.Begin(window.x);
    const int32 row = before(p.depth, window.z, place.z) * rows + before(p.height, window.y, place.y);
    return uint32(row * columns + before(p.width, window.x, place.x));
  };
  ForEachWindow(p, place, [&](const Place& window) {
    const int64 at = window.Out(p, window.z, window.y, window.x);
    const auto found = *reinterpret_cast<const Pack<uint8, wide>*>(cells + at);
    const auto pack = *reinterpret_cast<const Pack<T, wide>*>(dy + at);
    const uint32 own = number(window);
#pragma unroll
    for (int k = 0; k < wide; ++k)
      if (found.at[k] == own) sums[k] += Load(pack.at, k);
  });
  StorePack<wide>(dx + i, sums);
}
template <typename T>
__global__ void GatherMaxima(const uint8* cells, const T* dy, T* dx, int64 count, Pooling p) {
  if (p.is_wide) {
    FOR_EACH_ELEMENT(pack, count / kWide) GatherFound<kWide>(cells, dy, dx, pack * kWide, p);
  } else {
    FOR_EACH_ELEMENT(i, count) GatherFound<1>(cells, dy, dx, i, p);
  }
}

// The same where no windows overlap: a window writes to all of its cells. Those of no window hold
// zeros already.
template <int wide, typename T>
__device__ __forceinline__ void ScatterMaximum(const T* x, const T* dy, T* dx, int64 i,
                                               const Pooling& p) {
  using C = Compute<T>;
  const Place place = PlaceOf<true>(p, i);
  C best[wide];
  int64 found[wide];
#pragma unroll
  for (int k = 0; k < wide; ++k) found[k] = -1;
  ForEachCell(p, place, [&](int64 at) {
    const auto pack = *reinterpret_cast<const Pack<T, wide>*>(x + at);
#pragma unroll
    for (int k = 0; k < wide; ++k) {
      const C value = Load(pack.at, k);
      if (found[k] >= 0 && !(best[k] < value)) continue;
      best[k] = value;
      found[k] = at;
    }
    return true;
  });
  const auto gradients = *reinterpret_cast<const Pack<T, wide>*>(dy + i);
  ForEachCell(p, place, [&](int64 at) {
    C values[wide];
#pragma unroll
    for (int k = 0; k < wide; ++k) values[k] = found[k] == at ? Load(gradients.at, k) : C(0);
    StorePack<wide>(dx + at, values);
    return true;
  });
}
template <typename T>
__global__ void MaxPoolGradApart(const T* x, const T* dy, T* dx, int64 count, Pooling p) {
  if (p.is_wide) {
    FOR_EACH_ELEMENT(pack, count / kWide) ScatterMaximum<kWide>(x, dy, dx, pack * kWide, p);
  } else {
    FOR_EACH_ELEMENT(i, count) ScatterMaximum<1>(x, dy, dx, i, p);
  }
}

template <typename T>
__global__ void MaxPoolGradGrad(const T* x, const T* grad, T* out, int64 count, Pooling p) {
  FOR_EACH_ELEMENT(i, count) {
    const int64 at = FirstMaximum(x, p, PlaceOf<true>(p, i));
    out[i] = at < 0 ? T(Compute<T>(0)) : grad[at];
  }
}

// Positions are counted in an image, or (image_size zero) in the whole batch.
template <typename T, typename Index>
__global__ void MaxPoolWithArgmax(const T* x, T* y, Index* argmax, int64 count, int64 image_size,
                                  Pooling p) {
  FOR_EACH_ELEMENT(i, count) {
    const Place place = PlaceOf<true>(p, i);
    const int64 at = FirstMaximum(x, p, place);
    if (at < 0) {
      Store(y, i, LowestOf<T>());
      argmax[i] = Index(i % p.channels - p.channels);
      continue;
    }
    y[i] = x[at];
    argmax[i] = Index(image_size == 0 ? at : at % image_size);
  }
}

// `dx` holds zeros. Positions outside of their image are passed over.
template <typename T, typename Index>
__global__ void MaxPoolGradWithArgmax(const T* dy, const Index* argmax, T* dx, int64 count,
                                      int64 pooled_size, int64 image_size, bool batch_in_index) {
  FOR_EACH_ELEMENT(i, count) {
    const int64 begin = i / pooled_size * image_size;
    const int64 at = int64(argmax[i]) + (batch_in_index ? 0 : begin);
    if (at >= begin && at < begin + image_size) AtomicAdd(dx + at, dy[i]);
  }
}

// The largest of each `window` neighbouring channels.
template <typename T>
__global__ void MaxOfChannels(const T* x, T* y, int64 count, int64 window) {
  using C = Compute<T>;
  FOR_EACH_ELEMENT(i, count) {
    C best = Load(x, i * window);
    for (int64 k = 1; k < window; ++k) {
      const C value = Load(x, i * window + k);
      if (best < value) best = value;
    }
    Store(y, i, best);
  }
}

// --- Volumes, as TensorFlow has them

// Every cell that holds its window's maximum gets the whole gradient.
template <typename T>
__global__ void MaxPool3DGrad(const T* x, const T* y, const T* dy, T* dx, int64 count, Pooling p) {
  using C = Compute<T>;
  FOR_EACH_ELEMENT(i, count) {
    const C value = Load(x, i);
    C sum = 0;
    ForEachWindow(p, PlaceOf<false>(p, i), [&](const Place& window) {
      const int64 at = window.Out(p, window.z, window.y, window.x);
      if (value == Load(y, at)) sum += Load(dy, at);
    });
    Store(dx, i, sum);
  }
}

// The value at the first cell that holds the window's maximum.
template <typename T>
__global__ void MaxPool3DGradGrad(const T* x, const T* y, const T* grad, T* out, int64 count,
                                  Pooling p) {
  using C = Compute<T>;
  FOR_EACH_ELEMENT(i, count) {
    const C maximum = Load(y, i);
    int64 found = -1;
    ForEachCell(p, PlaceOf<true>(p, i), [&](int64 at) {
      if (Load(x, at) == maximum) found = at;
      return found < 0;
    });
    out[i] = found < 0 ? T(C(0)) : grad[found];
  }
}
