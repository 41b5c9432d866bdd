#include "muster/ops/indexing/strided_copy.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

namespace muster {
namespace {

// Plain data is moved as blocks of bytes: alignment 1, so that any run of bytes can be one element.
template <int kSize>
struct Bytes {
  char data[kSize];
};

// Rough costs that decide how finely work is split.
constexpr double kCopyNsPerByte = 0.1;
constexpr double kGatherNsPerElement = 1.0;
constexpr double kObjectNsPerElement = 20.0;
constexpr int64_t kTile = 32;

template <typename T>
void CopyRun(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t count) {
  if (from_stride == 1 && to_stride == 1) {
    std::copy(from, from + count, to);
  } else if (to_stride == 1) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * from_stride];
  } else {
    for (int64_t i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
  }
}

// Walks the outer dims of the box and copies runs of the innermost one.
template <typename T>
void CopyRuns(const KernelContext& c, const StridedBox& box, const T* from, T* to, double cost_ns) {
  const int inner = static_cast<int>(box.dims.size()) - 1;
  const int64_t run = box.dims[inner];
  const int64_t total =
      std::accumulate(box.dims.begin(), box.dims.end(), int64_t{1}, std::multiplies<int64_t>());
  c.ParallelFor(total, cost_ns, [&](int64_t begin, int64_t end) {
    Dims index(inner);
    int64_t rest = begin / run;
    int64_t at = begin % run;
    const T* source = from + box.from_offset;
    T* target = to + box.to_offset;
    for (int i = inner - 1; i >= 0; --i) {
      index[i] = rest % box.dims[i];
      rest /= box.dims[i];
      source += index[i] * box.from_strides[i];
      target += index[i] * box.to_strides[i];
    }
    while (true) {
      const int64_t count = std::min(run - at, end - begin);
      CopyRun(source + at * box.from_strides[inner], box.from_strides[inner],
              target + at * box.to_strides[inner], box.to_strides[inner], count);
      begin += count;
      if (begin >= end) return;
      at = 0;
      for (int i = inner - 1; i >= 0; --i) {
        source += box.from_strides[i];
        target += box.to_strides[i];
        if (++index[i] < box.dims[i]) break;
        source -= box.dims[i] * box.from_strides[i];
        target -= box.dims[i] * box.to_strides[i];
        index[i] = 0;
      }
    }
  });
}

// The source is dense along dim `row`, the destination along the last one: square tiles keep both
// in the cache.
template <typename T>
void CopyTiles(const KernelContext& c, StridedBox box, int row, const T* from, T* to) {
  const int64_t rows = box.dims[row], row_to = box.to_strides[row];
  const int64_t columns = box.dims.back(), column_from = box.from_strides.back();
  for (Dims* part : {&box.dims, &box.from_strides, &box.to_strides}) {
    part->pop_back();
    part->erase(part->begin() + row);
  }
  const int64_t row_tiles = (rows + kTile - 1) / kTile,
                column_tiles = (columns + kTile - 1) / kTile;
  const int64_t outer =
      std::accumulate(box.dims.begin(), box.dims.end(), int64_t{1}, std::multiplies<int64_t>());
  c.ParallelFor(outer * row_tiles * column_tiles, kTile * kTile * kGatherNsPerElement,
                [&](int64_t begin, int64_t end) {
                  for (int64_t tile = begin; tile < end; ++tile) {
                    int64_t rest = tile / (row_tiles * column_tiles);
                    const int64_t first_row = tile / column_tiles % row_tiles * kTile;
                    const int64_t first_column = tile % column_tiles * kTile;
                    const T* source =
                        from + box.from_offset + first_row + first_column * column_from;
                    T* target = to + box.to_offset + first_row * row_to + first_column;
                    for (int i = static_cast<int>(box.dims.size()) - 1; i >= 0; --i) {
                      const int64_t index = rest % box.dims[i];
                      rest /= box.dims[i];
                      source += index * box.from_strides[i];
                      target += index * box.to_strides[i];
                    }
                    const int64_t tile_rows = std::min(kTile, rows - first_row);
                    const int64_t tile_columns = std::min(kTile, columns - first_column);
                    for (int64_t r = 0; r < tile_rows; ++r) {
                      CopyRun(source + r, column_from, target + r * row_to, 1, tile_columns);
                    }
                  }
                });
}

template <typename T>
void CopyAs(const KernelContext& c, const StridedBox& box, const char* from, char* to,
            double cost_ns) {
  const T* source = reinterpret_cast<const T*>(from);
  T* target = reinterpret_cast<T*>(to);
  if (box.dims.back() >= 4 && box.to_strides.back() == 1 && box.from_strides.back() > 1) {
    for (int i = static_cast<int>(box.dims.size()) - 2; i >= 0; --i) {
      if (box.from_strides[i] == 1 && box.dims[i] >= 4) return CopyTiles(c, box, i, source, target);
    }
  }
  CopyRuns(c, box, source, target, cost_ns);
}

}  // namespace

void SimplifyBox(StridedBox& box) {
  absl::InlinedVector<int, 4> order;
  for (int i = 0; i < static_cast<int>(box.dims.size()); ++i) {
    if (box.dims[i] != 1) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&box](int a, int b) {
    return std::abs(box.to_strides[a]) > std::abs(box.to_strides[b]);
  });
  StridedBox simple;
  simple.from_offset = box.from_offset;
  simple.to_offset = box.to_offset;
  for (int i : order) {
    const int64_t size = box.dims[i], from = box.from_strides[i], to = box.to_strides[i];
    if (!simple.dims.empty() && simple.from_strides.back() == from * size &&
        simple.to_strides.back() == to * size) {
      simple.dims.back() *= size;
      simple.from_strides.back() = from;
      simple.to_strides.back() = to;
    } else {
      simple.Add(size, from, to);
    }
  }
  if (simple.dims.empty()) simple.Add(1, 1, 1);
  box = std::move(simple);
}

Dims RowMajorStrides(absl::Span<const int64_t> dims) {
  Dims strides(dims.size());
  int64_t stride = 1;
  for (int i = static_cast<int>(dims.size()) - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= std::max<int64_t>(dims[i], 1);
  }
  return strides;
}

void CopyBox(const KernelContext& c, DType dtype, StridedBox box, const char* from, char* to) {
  for (int64_t size : box.dims) {
    if (size == 0) return;
  }
  SimplifyBox(box);
  switch (dtype) {
    case DType::kString:
      return CopyAs<std::string>(c, box, from, to, kObjectNsPerElement);
    case DType::kResource:
      return CopyAs<ResourceHandle>(c, box, from, to, kObjectNsPerElement);
    case DType::kVariant:
      return CopyAs<Variant>(c, box, from, to, kObjectNsPerElement);
    default:
      break;
  }
  int64_t size = static_cast<int64_t>(DTypeSize(dtype));
  // A short run that is dense on both sides moves as one wider element.
  const int64_t run_bytes = size * box.dims.back();
  if (box.dims.size() > 1 && box.from_strides.back() == 1 && box.to_strides.back() == 1 &&
      (run_bytes == 2 || run_bytes == 4 || run_bytes == 8 || run_bytes == 16)) {
    const int64_t run = box.dims.back();
    bool divides = box.from_offset % run == 0 && box.to_offset % run == 0;
    for (size_t i = 0; i + 1 < box.dims.size(); ++i) {
      divides = divides && box.from_strides[i] % run == 0 && box.to_strides[i] % run == 0;
    }
    if (divides) {
      for (Dims* part : {&box.dims, &box.from_strides, &box.to_strides}) part->pop_back();
      for (size_t i = 0; i < box.dims.size(); ++i) {
        box.from_strides[i] /= run;
        box.to_strides[i] /= run;
      }
      box.from_offset /= run;
      box.to_offset /= run;
      size = run_bytes;
    }
  }
  const bool dense = box.from_strides.back() == 1 && box.to_strides.back() == 1;
  const double cost_ns = dense ? kCopyNsPerByte * static_cast<double>(size) : kGatherNsPerElement;
  switch (size) {
    case 1:
      return CopyAs<Bytes<1>>(c, box, from, to, cost_ns);
    case 2:
      return CopyAs<Bytes<2>>(c, box, from, to, cost_ns);
    case 4:
      return CopyAs<Bytes<4>>(c, box, from, to, cost_ns);
    case 8:
      return CopyAs<Bytes<8>>(c, box, from, to, cost_ns);
    default:
      return CopyAs<Bytes<16>>(c, box, from, to, cost_ns);
  }
}

void ZeroElements(DType dtype, char* to, int64_t count) {
  switch (dtype) {
    case DType::kString:
      std::fill_n(reinterpret_cast<std::string*>(to), count, std::string());
      return;
    case DType::kResource:
      std::fill_n(reinterpret_cast<ResourceHandle*>(to), count, ResourceHandle());
      return;
    case DType::kVariant:
      std::fill_n(reinterpret_cast<Variant*>(to), count, Variant());
      return;
    default:
      if (count > 0) std::memset(to, 0, static_cast<size_t>(count) * DTypeSize(dtype));
  }
}

void FillElements(const KernelContext& c, DType dtype, const char* value, char* to, int64_t count) {
  StridedBox box;
  box.Add(count, 0, 1);
  CopyBox(c, dtype, std::move(box), value, to);
}

}  // namespace muster
