// Colours of images.
#include "muster/ops/gpu.cuh"

template <typename C>
struct Colour {
  C a, b, c;

  // Of three numbers, of which the first may be NaN and the others are passed over if they are.
  __device__ __forceinline__ C Largest() const {
    const C ab = a < b ? b : a;
    return ab < c ? c : ab;
  }
  __device__ __forceinline__ C Smallest() const {
    const C ab = b < a ? b : a;
    return c < ab ? c : ab;
  }
};

template <typename C>
__device__ __forceinline__ Colour<C> ToHsv(Colour<C> rgb) {
  const C value = rgb.Largest();
  const C range = value - rgb.Smallest();
  const C saturation = value > C(0) ? range / value : C(0);
  if (!(range > C(0))) return {C(0), saturation, value};
  const C norm = C(1) / (C(6) * range);
  C hue = rgb.a == value   ? norm * (rgb.b - rgb.c)
          : rgb.b == value ? norm * (rgb.c - rgb.a) + C(2) / C(6)
                           : norm * (rgb.a - rgb.b) + C(4) / C(6);
  if (hue < C(0)) hue += C(1);
  return {hue, saturation, value};
}

template <typename C>
__device__ __forceinline__ C ClipToUnit(C x) {
  const C positive = x < C(0) ? C(0) : x;
  return C(1) < positive ? C(1) : positive;
}
template <typename C>
__device__ __forceinline__ Colour<C> ToRgb(Colour<C> hsv) {
  const C h = hsv.a * C(6);
  const C red = ClipToUnit(fabs(h - C(3)) - C(1));
  const C green = ClipToUnit(C(2) - fabs(h - C(2)));
  const C blue = ClipToUnit(C(2) - fabs(h - C(4)));
  const C rest = C(1) - hsv.b;
  return {(rest + hsv.b * red) * hsv.c, (rest + hsv.b * green) * hsv.c,
          (rest + hsv.b * blue) * hsv.c};
}

struct RgbToHsv {
  template <typename C>
  static __device__ Colour<C> Apply(Colour<C> rgb, float) {
    return ToHsv(rgb);
  }
};
struct HsvToRgb {
  template <typename C>
  static __device__ Colour<C> Apply(Colour<C> hsv, float) {
    return ToRgb(hsv);
  }
};
struct AdjustHue {
  template <typename C>
  static __device__ Colour<C> Apply(Colour<C> rgb, float delta) {
    const C largest = rgb.Largest(), smallest = rgb.Smallest();
    if (largest == smallest) return rgb;
    C hue = ToHsv(rgb).a + delta;
    hue -= floor(hue);
    // Back from hue and range, so that values outside [0, 1] survive.
    const Colour<C> pure = ToRgb(Colour<C>{hue, 1, 1});
    const C range = largest - smallest;
    return {smallest + range * pure.a, smallest + range * pure.b, smallest + range * pure.c};
  }
};
struct AdjustSaturation {
  template <typename C>
  static __device__ Colour<C> Apply(Colour<C> rgb, float scale) {
    Colour<C> hsv = ToHsv(rgb);
    const C scaled = hsv.b * scale;
    const C positive = C(0) < scaled ? scaled : C(0);
    hsv.b = positive < C(1) ? positive : C(1);
    return ToRgb(hsv);
  }
};

// `amount` may be null.
template <typename F, typename T>
__global__ void MapColours(const T* x, const float* amount, T* y, int64 count) {
  const float by = amount == nullptr ? 0.0f : *amount;
  FOR_EACH_ELEMENT(i, count) {
    const Colour<Compute<T>> to = F::Apply(
        Colour<Compute<T>>{Load(x, 3 * i), Load(x, 3 * i + 1), Load(x, 3 * i + 2)}, by);
    Store(y, 3 * i, to.a);
    Store(y, 3 * i + 1, to.b);
    Store(y, 3 * i + 2, to.c);
  }
}

struct AddUp {
  static __device__ __forceinline__ float Join(float a, float b) { return a + b; }
  template <typename C>
  static __device__ __forceinline__ C None() {
    return C(0);
  }
};
// A block for each channel of each image.
template <typename T>
__global__ void AdjustContrast(const T* x, const float* factor, T* y, int64 cells, int64 channels) {
  __shared__ float mean;
  const int64 image = blockIdx.x / channels, channel = blockIdx.x % channels;
  const int64 begin = image * cells * channels + channel;
  float sum = 0;
  for (int64 i = threadIdx.x; i < cells; i += blockDim.x) sum += Load(x, begin + i * channels);
  sum = ReduceBlock<AddUp>(sum);
  if (threadIdx.x == 0) mean = sum / float(cells);
  __syncthreads();
  for (int64 i = threadIdx.x; i < cells; i += blockDim.x) {
    const int64 at = begin + i * channels;
    Store(y, at, (Load(x, at) - mean) * *factor + mean);
  }
}
