// Windows of images at a common size, and the gradients.
#include "muster/ops/gpu.cuh"

struct Geometry {
  int64 batch, height, width, depth;
  int64 boxes, crop_height, crop_width;
  int64 bilinear;
};

// The positions of the samples of one crop along one axis of the image.
struct Axis {
  float first, step;
  int64 image;

  __device__ __forceinline__ Axis(float begin, float end, int64 image_size, int64 crop_size)
      : image(image_size) {
    const float last = float(image_size - 1);
    if (crop_size > 1) {
      first = begin * last;
      step = (end - begin) * last / float(crop_size - 1);
    } else {
      first = 0.5f * (begin + end) * last;
      step = 0;
    }
  }
  __device__ __forceinline__ float At(int64 i) const { return first + float(i) * step; }
  __device__ __forceinline__ bool Inside(float x) const {
    return x >= 0 && x <= float(image - 1);
  }
};

// A sample of a crop: where it is in its image. Boxes of images that do not exist have none.
struct Sample {
  int64 box, row, column;
  int64 image;
  float y, x;
  bool inside;

  __device__ __forceinline__ Sample(const Geometry& g, const float* boxes, const int32* box_index,
                                    int64 cell) {
    const int64 line = cell / g.crop_width;
    column = cell - line * g.crop_width;
    box = line / g.crop_height;
    row = line - box * g.crop_height;
    const float* const edges = boxes + 4 * box;
    const Axis rows(edges[0], edges[2], g.height, g.crop_height);
    const Axis columns(edges[1], edges[3], g.width, g.crop_width);
    y = rows.At(row);
    x = columns.At(column);
    image = box_index[box];
    inside = image >= 0 && image < g.batch && rows.Inside(y) && columns.Inside(x);
  }
  // Of the pixel in this row and column of the image.
  __device__ __forceinline__ int64 Pixel(const Geometry& g, int64 at_y, int64 at_x,
                                         int64 channel) const {
    return ((image * g.height + at_y) * g.width + at_x) * g.depth + channel;
  }
};

struct Neighbours {
  int64 low, high;
  float fraction;
  __device__ __forceinline__ explicit Neighbours(float x)
      : low(int64(floor(x))), high(int64(ceil(x))), fraction(x - float(low)) {}
};

template <typename T>
__global__ void CropAndResize(const T* images, const float* boxes, const int32* box_index,
                              float* crops, int64 count, Geometry g, float extrapolation) {
  FOR_EACH_ELEMENT(i, count) {
    const int64 cell = i / g.depth, channel = i - cell * g.depth;
    const Sample sample(g, boxes, box_index, cell);
    if (!sample.inside) {
      crops[i] = extrapolation;
      continue;
    }
    const auto load = [&](int64 y, int64 x) {
      return float(Load(images, sample.Pixel(g, y, x, channel)));
    };
    if (!g.bilinear) {
      crops[i] = load(int64(round(sample.y)), int64(round(sample.x)));
      continue;
    }
    const Neighbours y(sample.y), x(sample.x);
    const float top_left = load(y.low, x.low), bottom_left = load(y.high, x.low);
    const float top = top_left + (load(y.low, x.high) - top_left) * x.fraction;
    const float bottom = bottom_left + (load(y.high, x.high) - bottom_left) * x.fraction;
    crops[i] = top + (bottom - top) * y.fraction;
  }
}

// `output` holds zeros.
template <typename T>
__global__ void CropAndResizeGradImage(const float* grads, const float* boxes,
                                       const int32* box_index, T* output, int64 count, Geometry g) {
  FOR_EACH_ELEMENT(i, count) {
    const int64 cell = i / g.depth, channel = i - cell * g.depth;
    const Sample sample(g, boxes, box_index, cell);
    if (!sample.inside) continue;
    const auto add = [&](int64 y, int64 x, float value) {
      AtomicAdd(output + sample.Pixel(g, y, x, channel), T(value));
    };
    if (!g.bilinear) {
      add(int64(round(sample.y)), int64(round(sample.x)), grads[i]);
      continue;
    }
    const Neighbours y(sample.y), x(sample.x);
    const float top = (1 - y.fraction) * grads[i], bottom = y.fraction * grads[i];
    add(y.low, x.low, (1 - x.fraction) * top);
    add(y.low, x.high, x.fraction * top);
    add(y.high, x.low, (1 - x.fraction) * bottom);
    add(y.high, x.high, x.fraction * bottom);
  }
}

// How the place of sample i of n follows the lower and the upper edge of the box.
struct EdgeWeights {
  float lower, upper;
  __device__ __forceinline__ EdgeWeights(int64 i, int64 n, int64 size) {
    const float last = float(size - 1);
    upper = n <= 1 ? 0.5f * last : float(i) * (last / float(n - 1));
    lower = n <= 1 ? upper : last - upper;
  }
};
struct AddUp {
  static __device__ __forceinline__ float Join(float a, float b) { return a + b; }
  template <typename C>
  static __device__ __forceinline__ C None() {
    return C(0);
  }
};

// A block for each box.
template <typename T>
__global__ void CropAndResizeGradBoxes(const float* grads, const T* images, const float* boxes,
                                       const int32* box_index, float* output, Geometry g) {
  for (int64 box = blockIdx.x; box < g.boxes; box += gridDim.x) {
    float edges[4] = {0, 0, 0, 0};
    const int64 elements = g.crop_height * g.crop_width * g.depth;
    for (int64 i = threadIdx.x; i < elements; i += blockDim.x) {
      const int64 cell = i / g.depth, channel = i - cell * g.depth;
      const Sample sample(g, boxes, box_index, box * g.crop_height * g.crop_width + cell);
      if (!sample.inside) continue;
      const Neighbours y(sample.y), x(sample.x);
      const auto load = [&](int64 at_y, int64 at_x) {
        return float(Load(images, sample.Pixel(g, at_y, at_x, channel)));
      };
      const float tl = load(y.low, x.low), tr = load(y.low, x.high);
      const float bl = load(y.high, x.low), br = load(y.high, x.high);
      const float from = grads[box * elements + i];
      const float along_y = ((bl - tl) * (1 - x.fraction) + (br - tr) * x.fraction) * from;
      const float along_x = ((tr - tl) * (1 - y.fraction) + (br - bl) * y.fraction) * from;
      const EdgeWeights of_y(sample.row, g.crop_height, g.height);
      const EdgeWeights of_x(sample.column, g.crop_width, g.width);
      edges[0] += along_y * of_y.lower;
      edges[1] += along_x * of_x.lower;
      edges[2] += along_y * of_y.upper;
      edges[3] += along_x * of_x.upper;
    }
    for (int k = 0; k < 4; ++k) {
      const float sum = ReduceBlock<AddUp>(edges[k]);
      if (threadIdx.x == 0) output[4 * box + k] = sum;
    }
  }
}
