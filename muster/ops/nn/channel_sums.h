// Tensors seen as [outer, channels, inner], and sums per channel: what batch normalisation is made
// of.
#pragma once

#include <vector>

#include "muster/ops/op.h"

namespace muster {

struct ChannelView {
  int64_t outer = 0;
  int64_t channels = 0;
  int64_t inner = 1;  // one when the channels come last

  int64_t per_channel() const { return outer * inner; }
};

// For each channel the sum of term(i, channel) over its elements i, in parallel. Rows are summed in
// floats and blocks of rows in doubles, so that the error does not grow with the size; the order
// depends on the sizes alone.
template <typename F>
std::vector<double> SumPerChannel(KernelContext& c, const ChannelView& view, F term) {
  constexpr int64_t kBlock = 64;
  const int64_t n = view.channels;
  const int64_t size = view.per_channel() * n;
  const int64_t parts = std::clamp<int64_t>(size / 32768, 1, 16);
  std::vector<double> sums(static_cast<size_t>(parts * n), 0.0);
  c.ParallelFor(parts, 0.5 * static_cast<double>(size) / static_cast<double>(parts),
                [&](int64_t first, int64_t last) {
                  std::vector<float> block(static_cast<size_t>(n));
                  for (int64_t part = first; part < last; ++part) {
                    const int64_t begin = view.outer * part / parts;
                    const int64_t end = view.outer * (part + 1) / parts;
                    double* const to = sums.data() + part * n;
                    if (view.inner == 1) {
                      float* __restrict const row_sums = block.data();
                      for (int64_t start = begin; start < end; start += kBlock) {
                        std::fill(block.begin(), block.end(), 0.0f);
                        for (int64_t row = start; row < std::min(start + kBlock, end); ++row) {
                          for (int64_t i = 0; i < n; ++i) row_sums[i] += term(row * n + i, i);
                        }
                        for (int64_t i = 0; i < n; ++i) to[i] += row_sums[i];
                      }
                      continue;
                    }
                    for (int64_t run = begin * n; run < end * n; ++run) {
                      for (int64_t start = 0; start < view.inner; start += kBlock) {
                        float sum = 0;
                        for (int64_t i = start; i < std::min(start + kBlock, view.inner); ++i)
                          sum += term(run * view.inner + i, run % n);
                        to[run % n] += sum;
                      }
                    }
                  }
                });
  for (int64_t part = 1; part < parts; ++part) {
    for (int64_t i = 0; i < n; ++i) sums[i] += sums[part * n + i];
  }
  sums.resize(static_cast<size_t>(n));
  return sums;
}

// Calls apply(i, channel) for every element, in parallel.
template <typename F>
void ForEachElement(KernelContext& c, const ChannelView& view, F apply) {
  const int64_t n = view.channels;
  c.ParallelFor(view.outer, 0.5 * static_cast<double>(n * view.inner),
                [&](int64_t begin, int64_t end) {
                  if (view.inner == 1) {
                    for (int64_t row = begin; row < end; ++row) {
#pragma GCC ivdep
                      for (int64_t i = 0; i < n; ++i) apply(row * n + i, i);
                    }
                    return;
                  }
                  for (int64_t run = begin * n; run < end * n; ++run) {
#pragma GCC ivdep
                    for (int64_t i = 0; i < view.inner; ++i) apply(run * view.inner + i, run % n);
                  }
                });
}

}  // namespace muster
