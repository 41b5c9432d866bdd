// Convolutions as matrix products: the windows of the images become rows of a matrix (conv_gpu.h).
#include "muster/ops/nn/packs.cuh"

constexpr int kWide = 4;  // elements that a thread moves at once, where the channels allow it

// As GpuConvSize of conv_gpu.cc. Images are NHWC. Products of these sizes fit 32 bits.
struct ConvSize {
  int32 batch, height, width, channels;
  int32 filter_height, filter_width;
  int32 out_height, out_width;
  int32 stride_height, stride_width;
  int32 dilation_height, dilation_width;
  int32 pad_top, pad_left;
};

// A row for each element of the output's space, a column for each element of a filter. T is
// `wide` elements, and channels are counted in T.
template <int wide, typename T>
__device__ __forceinline__ void WindowsToRows(const T* images, T* rows, const ConvSize& s) {
  const uint32 channels = uint32(s.channels / wide);
  const uint32 columns = uint32(s.filter_height * s.filter_width) * channels;
  const uint32 count = uint32(s.batch * s.out_height * s.out_width) * columns;
  FOR_EACH_ELEMENT(i, count) {
    const uint32 column = uint32(i) % columns, row = uint32(i) / columns;
    const uint32 channel = column % channels, at = column / channels;
    const int32 filter_x = int32(at % uint32(s.filter_width)), filter_y = int32(at / uint32(s.filter_width));
    const int32 out_x = int32(row % uint32(s.out_width));
    const uint32 rest = row / uint32(s.out_width);
    const int32 out_y = int32(rest % uint32(s.out_height));
    const int64 image = rest / uint32(s.out_height);
    const int32 y = out_y * s.stride_height - s.pad_top + filter_y * s.dilation_height;
    const int32 x = out_x * s.stride_width - s.pad_left + filter_x * s.dilation_width;
    const bool is_inside = y >= 0 && y < s.height && x >= 0 && x < s.width;
    rows[i] = is_inside ? images[((image * s.height + y) * s.width + x) * channels + channel] : T();
  }
}
template <typename T>
__global__ void ImageToRows(const T* images, T* rows, ConvSize s, bool is_wide) {
  if (is_wide && IsAligned(images) && IsAligned(rows)) {
    using Wide = Pack<T, kWide>;
    WindowsToRows<kWide>(reinterpret_cast<const Wide*>(images), reinterpret_cast<Wide*>(rows), s);
  } else {
    WindowsToRows<1>(images, rows, s);
  }
}

// The other way: each element of an image is the sum of where it stands in the rows.
template <typename T>
__global__ void RowsToImage(const T* rows, T* images, ConvSize s) {
  const int64 columns = int64(s.filter_height) * s.filter_width * s.channels;
  const int64 count = int64(s.batch) * s.height * s.width * s.channels;
  FOR_EACH_ELEMENT(i, count) {
    const int32 channel = int32(i % s.channels);
    const int64 pixel = i / s.channels;
    const int32 x = int32(pixel % s.width), y = int32(pixel / s.width % s.height);
    const int64 image = pixel / s.width / s.height;
    Compute<T> sum = 0;
    for (int32 filter_y = 0; filter_y < s.filter_height; ++filter_y) {
      const int32 from_y = y + s.pad_top - filter_y * s.dilation_height;
      if (from_y < 0 || from_y % s.stride_height != 0 || from_y / s.stride_height >= s.out_height) continue;
      for (int32 filter_x = 0; filter_x < s.filter_width; ++filter_x) {
        const int32 from_x = x + s.pad_left - filter_x * s.dilation_width;
        if (from_x < 0 || from_x % s.stride_width != 0 || from_x / s.stride_width >= s.out_width) continue;
        const int64 row = (image * s.out_height + from_y / s.stride_height) * s.out_width + from_x / s.stride_width;
        sum += Load(rows, row * columns + (int64(filter_y) * s.filter_width + filter_x) * s.channels + channel);
      }
    }
    Store(images, i, sum);
  }
}

// NCHW and NHWC into each other: `outer` matrices of rows and columns are transposed.
template <typename T>
__global__ void SwapInner(const T* from, T* to, int64 count, int32 rows, int32 columns) {
  FOR_EACH_ELEMENT(i, count) {
    const int64 row = i % rows, column = i / rows % columns, outer = i / rows / columns;
    to[i] = from[(outer * rows + row) * columns + column];
  }
}
