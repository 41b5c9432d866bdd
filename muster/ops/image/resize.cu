// Images of another size, and the gradients. Those gather, for each pixel of the original, from the
// pixels that were made of it.
#include "muster/ops/gpu.cuh"

// How positions of the resized image fall on one axis of the original.
struct Axis {
  int64 original, resized;
  float scale;
  int32 half_pixel;
  int64 align_corners;

  __device__ __forceinline__ float Linear(int64 i) const {
    const float x = float(i);
    return half_pixel ? (x + 0.5f) * scale - 0.5f : x * scale;
  }
  __device__ __forceinline__ int64 Clamp(float x) const {
    const int64 at = int64(x);
    return at < 0 ? 0 : at < original ? at : original - 1;
  }
  __device__ __forceinline__ int64 Nearest(int64 i) const {
    const float x = (half_pixel ? float(i) + 0.5f : float(i)) * scale;
    return Clamp(align_corners ? round(x) : floor(x));
  }
  // Positions beside which there are none that fall on `at` or between it and its neighbours.
  __device__ __forceinline__ int64 First(int64 at) const {
    if (at == 0) return 0;
    const double first = (double(at) - 1) / double(scale) - 3;
    return first < 0 ? 0 : first < double(resized) ? int64(first) : resized;
  }
  __device__ __forceinline__ int64 Last(int64 at) const {
    if (at == original - 1) return resized - 1;
    const double last = (double(at) + 2) / double(scale) + 3;
    return last < double(resized - 1) ? int64(last) : resized - 1;
  }
};
struct Neighbours {
  int64 lower, upper;
  float weight;  // of the upper one

  __device__ __forceinline__ Neighbours(const Axis& axis, int64 i) {
    const float x = axis.Linear(i);
    const float below = floor(x);
    lower = axis.Clamp(below);
    upper = axis.Clamp(ceil(x));
    weight = x - below;
  }
  __device__ __forceinline__ float WeightOf(int64 at) const {
    return (at == lower ? 1 - weight : 0.0f) + (at == upper ? weight : 0.0f);
  }
};

struct Resizing {
  int64 channels;
  Axis rows, columns;
};
// Where element i is, in an image of this size.
struct Pixel {
  int64 image, y, x, channel;
  __device__ __forceinline__ Pixel(int64 i, int64 height, int64 width, int64 channels) {
    const int64 cell = i / channels, row = cell / width;
    channel = i - cell * channels;
    x = cell - row * width;
    image = row / height;
    y = row - image * height;
  }
};

template <typename T>
__global__ void ResizeBilinear(const T* images, float* resized, int64 count, Resizing r) {
  FOR_EACH_ELEMENT(i, count) {
    const Pixel at(i, r.rows.resized, r.columns.resized, r.channels);
    const Neighbours row(r.rows, at.y), column(r.columns, at.x);
    const int64 width = r.columns.original;
    const T* const image =
        images + at.image * r.rows.original * width * r.channels + at.channel;
    const auto load = [&](int64 y, int64 x) {
      return float(Load(image, (y * width + x) * r.channels));
    };
    const float top_left = load(row.lower, column.lower);
    const float bottom_left = load(row.upper, column.lower);
    const float upper = top_left + (load(row.lower, column.upper) - top_left) * column.weight;
    const float lower =
        bottom_left + (load(row.upper, column.upper) - bottom_left) * column.weight;
    resized[i] = upper + (lower - upper) * row.weight;
  }
}
template <typename T>
__global__ void ResizeBilinearGrad(const float* grads, T* output, int64 count, Resizing r) {
  FOR_EACH_ELEMENT(i, count) {
    const Pixel at(i, r.rows.original, r.columns.original, r.channels);
    const int64 width = r.columns.resized;
    const float* const image = grads + at.image * r.rows.resized * width * r.channels + at.channel;
    const int64 last_y = r.rows.Last(at.y);
    const int64 first_x = r.columns.First(at.x), last_x = r.columns.Last(at.x);
    Compute<T> sum = 0;
    for (int64 y = r.rows.First(at.y); y <= last_y; ++y) {
      const float of_row = Neighbours(r.rows, y).WeightOf(at.y);
      if (of_row == 0) continue;
      for (int64 x = first_x; x <= last_x; ++x) {
        const float of_column = Neighbours(r.columns, x).WeightOf(at.x);
        if (of_column != 0) sum += image[(y * width + x) * r.channels] * of_row * of_column;
      }
    }
    Store(output, i, sum);
  }
}

template <typename T>
__global__ void ResizeNearest(const T* images, T* resized, int64 count, Resizing r) {
  FOR_EACH_ELEMENT(i, count) {
    const Pixel at(i, r.rows.resized, r.columns.resized, r.channels);
    const int64 row = at.image * r.rows.original + r.rows.Nearest(at.y);
    const int64 cell = row * r.columns.original + r.columns.Nearest(at.x);
    resized[i] = images[cell * r.channels + at.channel];
  }
}
template <typename T>
__global__ void ResizeNearestGrad(const T* grads, T* output, int64 count, Resizing r) {
  FOR_EACH_ELEMENT(i, count) {
    const Pixel at(i, r.rows.original, r.columns.original, r.channels);
    const int64 width = r.columns.resized;
    const T* const image = grads + at.image * r.rows.resized * width * r.channels + at.channel;
    const int64 last_y = r.rows.Last(at.y);
    const int64 first_x = r.columns.First(at.x), last_x = r.columns.Last(at.x);
    Compute<T> sum = 0;
    for (int64 y = r.rows.First(at.y); y <= last_y; ++y) {
      if (r.rows.Nearest(y) != at.y) continue;
      for (int64 x = first_x; x <= last_x; ++x) {
        if (r.columns.Nearest(x) == at.x) sum += Load(image, (y * width + x) * r.channels);
      }
    }
    Store(output, i, sum);
  }
}
