// The windows of images, each laid out along the channels.
#include "muster/ops/gpu.cuh"

struct Patches {
  int64 height, width, channels;
  int64 rows, columns;
  int64 window_height, window_width;
  int64 stride_height, stride_width;
  int64 rate_height, rate_width;
  int64 pad_top, pad_left;
};

template <typename T>
__global__ void ExtractPatches(const T* images, T* patches, int64 count, Patches p) {
  FOR_EACH_ELEMENT(i, count) {
    int64 rest = i;
    const auto take = [&rest](int64 size) {
      const int64 above = rest / size, at = rest - above * size;
      rest = above;
      return at;
    };
    const int64 channel = take(p.channels);
    const int64 in_x = take(p.window_width) * p.rate_width;
    const int64 in_y = take(p.window_height) * p.rate_height;
    const int64 x = take(p.columns) * p.stride_width - p.pad_left + in_x;
    const int64 y = take(p.rows) * p.stride_height - p.pad_top + in_y;
    const bool inside = x >= 0 && x < p.width && y >= 0 && y < p.height;
    patches[i] = inside ? images[((rest * p.height + y) * p.width + x) * p.channels + channel]
                        : T(Compute<T>(0));
  }
}
