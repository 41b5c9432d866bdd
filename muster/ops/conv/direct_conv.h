// Convolutions by plain loops, for the types and sizes that oneDNN does not take. Requires: sizes
// that are positive.
#pragma once

#include "muster/ops/conv/conv_geometry.h"

namespace muster {

// a + b * c; integers wrap around.
template <typename T>
T MultiplyAdd(T a, T b, T c) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b) * static_cast<U>(c));
  } else {
    return a + b * c;
  }
}

// Calls visit(filter cell, image cell, output cell) for each pair that meets in output row `row` of
// an image; cells are positions y * width + x.
template <typename F>
void VisitRow(const ConvGeometry& g, int64_t row, F visit) {
  for (int64_t ky = 0; ky < g.filter_height; ++ky) {
    const int64_t y = row * g.stride_height - g.pad_top + ky * g.dilation_height;
    if (y < 0 || y >= g.height) continue;
    for (int64_t column = 0; column < g.out_width; ++column) {
      for (int64_t kx = 0; kx < g.filter_width; ++kx) {
        const int64_t x = column * g.stride_width - g.pad_left + kx * g.dilation_width;
        if (x < 0 || x >= g.width) continue;
        visit(ky * g.filter_width + kx, y * g.width + x, row * g.out_width + column);
      }
    }
  }
}

template <typename T>
void DirectForward(KernelContext& c, const ConvGeometry& g, const T* input, const T* filter,
                   T* output) {
  const int64_t outputs = g.out_channels / g.groups;
  const int64_t row_size = g.out_width * g.out_channels;
  c.ParallelFor(g.batch * g.out_height, g.work() / static_cast<double>(g.out_height),
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    const T* const image = input + i / g.out_height * g.image_size();
                    T* const out = output + i / g.out_height * g.output_size();
                    const int64_t row = i % g.out_height;
                    std::fill(out + row * row_size, out + (row + 1) * row_size, T(0));
                    VisitRow(g, row, [&](int64_t k, int64_t from, int64_t to) {
                      for (int64_t channel = 0; channel < g.channels; ++channel) {
                        const int64_t group = channel / g.filter_channels;
                        const T value = image[from * g.channels + channel];
                        const T* __restrict const w =
                            filter +
                            (k * g.filter_channels + channel % g.filter_channels) * g.out_channels +
                            group * outputs;
                        T* __restrict const sums = out + to * g.out_channels + group * outputs;
                        for (int64_t o = 0; o < outputs; ++o)
                          sums[o] = MultiplyAdd(sums[o], value, w[o]);
                      }
                    });
                  }
                });
}

template <typename T>
void DirectBackwardInput(KernelContext& c, const ConvGeometry& g, const T* filter, const T* dy,
                         T* dx) {
  const int64_t outputs = g.out_channels / g.groups;
  c.ParallelFor(g.batch, g.work(), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      T* const image = dx + n * g.image_size();
      const T* const gradient = dy + n * g.output_size();
      std::fill(image, image + g.image_size(), T(0));
      for (int64_t row = 0; row < g.out_height; ++row) {
        VisitRow(g, row, [&](int64_t k, int64_t to, int64_t from) {
          for (int64_t channel = 0; channel < g.channels; ++channel) {
            const int64_t group = channel / g.filter_channels;
            const T* const w =
                filter + (k * g.filter_channels + channel % g.filter_channels) * g.out_channels +
                group * outputs;
            const T* const received = gradient + from * g.out_channels + group * outputs;
            T sum = T(0);
            for (int64_t o = 0; o < outputs; ++o) sum = MultiplyAdd(sum, received[o], w[o]);
            T& total = image[to * g.channels + channel];
            total = MultiplyAdd(total, sum, T(1));
          }
        });
      }
    }
  });
}

template <typename T>
void DirectBackwardFilter(KernelContext& c, const ConvGeometry& g, const T* input, const T* dy,
                          T* dw) {
  const int64_t outputs = g.out_channels / g.groups;
  const int64_t cells = g.filter_height * g.filter_width;
  const int64_t cell_size = g.filter_channels * g.out_channels;
  // Each cell of the filter is one thread's: no sums to merge.
  c.ParallelFor(
      cells, g.work() * static_cast<double>(g.batch) / static_cast<double>(cells),
      [&](int64_t begin, int64_t end) {
        std::fill(dw + begin * cell_size, dw + end * cell_size, T(0));
        for (int64_t i = 0; i < g.batch * g.out_height; ++i) {
          const T* const image = input + i / g.out_height * g.image_size();
          const T* const gradient = dy + i / g.out_height * g.output_size();
          VisitRow(g, i % g.out_height, [&](int64_t k, int64_t from, int64_t at) {
            if (k < begin || k >= end) return;
            for (int64_t channel = 0; channel < g.channels; ++channel) {
              const int64_t group = channel / g.filter_channels;
              const T value = image[from * g.channels + channel];
              const T* __restrict const received = gradient + at * g.out_channels + group * outputs;
              T* __restrict const to =
                  dw + (k * g.filter_channels + channel % g.filter_channels) * g.out_channels +
                  group * outputs;
              for (int64_t o = 0; o < outputs; ++o) to[o] = MultiplyAdd(to[o], value, received[o]);
            }
          });
        }
      });
}

}  // namespace muster
