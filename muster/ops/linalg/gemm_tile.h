// The innermost loop of matrix products, and the layout of its operands: a tile of c stays in
// registers, and panels of a and b are packed so that the loop reads both front to back. In a
// header because every element type and size of tile is a function of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace muster::gemm {

#ifdef __AVX512F__
constexpr int kVectorBytes = 64;
constexpr int kRows = 14;  // 28 sums in 32 registers
#else
constexpr int kVectorBytes = 32;
constexpr int kRows = 6;  // 12 sums in 16 registers
#endif

template <typename E>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(E));
// Columns of a tile: two vectors.
template <typename E>
constexpr int kColumns = 2 * kLanes<E>;

template <typename E, int kBytes = kVectorBytes>
struct VectorOf {
  typedef E Type __attribute__((vector_size(kBytes), aligned(sizeof(E)), may_alias));
};

// Where the left operand of some tiles lies: element (row, p) is at data[row * row_step + p *
// depth_step]. Packed panels have row_step 1, and `tile_step` leads from one panel of kRows rows to
// the next.
template <typename E>
struct Left {
  const E* data;
  int64_t row_step;
  int64_t depth_step;
  int64_t tile_step;
};

// Row p of the right operand is at data[p * depth_step], as many whole vectors as the tile has.
template <typename E>
struct Right {
  const E* data;
  int64_t depth_step;
};

// c[0..kTileRows)[0..columns) = (or +=) left · right, with vectors of kBytes.
template <typename E, int kTileRows, int kVectors, bool kPacked, int kBytes = kVectorBytes>
void MultiplyTile(int64_t depth, const Left<E>& left, const Right<E>& right, E* __restrict c,
                  int64_t ldc, int columns, bool accumulate) {
  using V = typename VectorOf<E, kBytes>::Type;
  constexpr int kTileLanes = kBytes / static_cast<int>(sizeof(E));
  const E* __restrict a = left.data;
  const E* __restrict b = right.data;
  const int64_t row_step = kPacked ? 1 : left.row_step;
  const int64_t a_step = left.depth_step;
  const int64_t b_step = right.depth_step;
  V sum[kTileRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[i][v] = V{};
  }
  if (accumulate) {
    for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) __builtin_prefetch(c + i * ldc + v * kTileLanes, 1);
    }
  }
  for (int64_t p = 0; p < depth; ++p) {
    V columns_of_b[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      __builtin_prefetch(b + 8 * b_step + v * kTileLanes);
      columns_of_b[v] = *reinterpret_cast<const V*>(b + v * kTileLanes);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kTileRows; ++i) {
      const E factor = a[i * row_step];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[i][v] += factor * columns_of_b[v];
    }
    a += a_step;
    b += b_step;
  }
  if (columns == kVectors * kTileLanes) {
#pragma GCC unroll 16
    for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        V* out = reinterpret_cast<V*>(c + i * ldc + v * kTileLanes);
        *out = accumulate ? *out + sum[i][v] : sum[i][v];
      }
    }
    return;
  }
  E edge[kTileRows][kVectors * kTileLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) *reinterpret_cast<V*>(&edge[i][v * kTileLanes]) = sum[i][v];
  }
  for (int i = 0; i < kTileRows; ++i, c += ldc) {
    if (accumulate) {
      for (int j = 0; j < columns; ++j) c[j] = static_cast<E>(c[j] + edge[i][j]);
    } else {
      std::memcpy(c, edge[i], static_cast<size_t>(columns) * sizeof(E));
    }
  }
}

// Any number of rows: whole tiles, then smaller ones.
template <typename E, int kVectors, bool kPacked, int kBytes = kVectorBytes>
void MultiplyRows(int64_t rows, int64_t depth, Left<E> left, const Right<E>& right, E* c,
                  int64_t ldc, int columns, bool accumulate) {
  for (; rows >= kRows; rows -= kRows, left.data += left.tile_step, c += kRows * ldc) {
    MultiplyTile<E, kRows, kVectors, kPacked, kBytes>(depth, left, right, c, ldc, columns,
                                                      accumulate);
  }
  const auto rest = [&]<int kTileRows>() {
    for (; rows >= kTileRows;
         rows -= kTileRows, left.data += kTileRows * left.row_step, c += kTileRows * ldc) {
      MultiplyTile<E, kTileRows, kVectors, kPacked, kBytes>(depth, left, right, c, ldc, columns,
                                                            accumulate);
    }
  };
  if constexpr (kRows > 8) rest.template operator()<8>();
  rest.template operator()<4>();
  rest.template operator()<2>();
  rest.template operator()<1>();
}

// Four rows of four elements, turned.
template <typename E>
void Turn4x4(const E* from, int64_t step, E* to, int64_t width) {
  typedef E V __attribute__((vector_size(4 * sizeof(E)), aligned(sizeof(E)), may_alias));
  const V r0 = *reinterpret_cast<const V*>(from);
  const V r1 = *reinterpret_cast<const V*>(from + step);
  const V r2 = *reinterpret_cast<const V*>(from + 2 * step);
  const V r3 = *reinterpret_cast<const V*>(from + 3 * step);
  const V low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
  const V high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
  const V low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
  const V high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
  *reinterpret_cast<V*>(to) = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
  *reinterpret_cast<V*>(to + width) = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
  *reinterpret_cast<V*>(to + 2 * width) = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  *reinterpret_cast<V*>(to + 3 * width) = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

// `count` rows of length `depth`, interleaved: to[p * width + i]. Goes in short stretches of p, so
// that the lines of `to` are still in the cache when the next rows come.
template <typename E>
void Interleave(const E* from, int64_t step, int count, int64_t depth, int width, E* to) {
  constexpr int64_t kStretch = 64;
  for (int64_t start = 0; start < depth; start += kStretch) {
    const int64_t end = std::min(depth, start + kStretch);
    int i = 0;
    for (; i + 4 <= count; i += 4) {
      const E* rows = from + i * step;
      int64_t p = start;
      for (; p + 4 <= end; p += 4) Turn4x4(rows + p, step, to + p * width + i, width);
      for (; p < end; ++p) {
        for (int r = 0; r < 4; ++r) to[p * width + i + r] = rows[r * step + p];
      }
    }
    for (; i < count; ++i) {
      for (int64_t p = start; p < end; ++p) to[p * width + i] = from[i * step + p];
    }
    if (count < width) {
      for (int64_t p = start; p < end; ++p)
        std::fill(to + p * width + count, to + (p + 1) * width, E{0});
    }
  }
}

// `depth` rows of `count` elements, each padded with zeros to `width`.
template <typename E>
void CopyRows(const E* from, int64_t step, int count, int64_t depth, int width, E* to) {
  for (int64_t p = 0; p < depth; ++p, from += step, to += width) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(E));
    std::fill(to + count, to + width, E{0});
  }
}

// One operand: `count` rows of a or columns of b from `first` on, terms [p, p + depth), as a panel
// of the given width.
template <typename E>
void PackPanel(const E* from, int64_t ld, bool contiguous_terms, int64_t first, int64_t p,
               int count, int64_t depth, int width, E* to) {
  if (contiguous_terms) {
    Interleave(from + first * ld + p, ld, count, depth, width, to);
  } else {
    CopyRows(from + p * ld + first, ld, count, depth, width, to);
  }
}

}  // namespace muster::gemm
