// Packed, blocked products after Goto: which panels of a and b are packed when, and how the work is
// split over threads; gemm_tile.h has the innermost loop. Operands that stay in the cache anyway
// are read where they lie. Measured against oneDNN's sgemm this is within a few percent for large
// matrices and ahead for small ones, splits over our own threads and serves every element type.
#include "muster/ops/linalg/gemm.h"

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "muster/ops/linalg/gemm_tile.h"
#include "muster/ops/math/float16.h"
#include "muster/tensor/buffer.h"

namespace muster {
namespace {

using gemm::kColumns;
using gemm::kLanes;
using gemm::kRows;
using gemm::Left;
using gemm::MultiplyRows;
using gemm::MultiplyTile;
using gemm::PackPanel;
using gemm::Right;
using gemm::VectorOf;

// Rows that one thread takes at a time.
constexpr int64_t kUnitRows = kRows * 4;
// Terms of the sums that are done in one go, and columns likewise: a panel of a stays in the
// first-level cache, a block of b in the second.
template <typename E>
constexpr int64_t kDepth = 2048 / static_cast<int64_t>(sizeof(E));
constexpr int64_t kBlockColumns = 256;
// Bytes of an operand that is read in place.
constexpr int64_t kInPlaceBytes = 512 * 1024;

// sum + x * y in E; short integers must not be multiplied as int, which overflows.
template <typename E>
E MultiplyAdd(E sum, E x, E y) {
  if constexpr (std::is_integral_v<E> && sizeof(E) < 4) {
    return static_cast<E>(uint32_t{sum} + uint32_t{x} * uint32_t{y});
  } else {
    return sum + x * y;
  }
}

int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

absl::StatusOr<Buffer> Scratch(int64_t elements, size_t element_bytes) {
  const size_t bytes = static_cast<size_t>(std::max<int64_t>(elements, 1)) * element_bytes;
  Buffer buffer = HostAllocator().Allocate(bytes);
  if (!buffer)
    return absl::ResourceExhaustedError(
        absl::StrCat("No ", bytes, " bytes of memory for a matrix product"));
  return buffer;
}

template <typename E>
class Product {
 public:
  Product(const GemmShape& shape, const E* a, const E* b, E* c)
      : m_(shape.m),
        n_(shape.n),
        k_(shape.k),
        transpose_a_(shape.transpose_a),
        transpose_b_(shape.transpose_b),
        accumulate_(shape.accumulate),
        a_(a),
        b_(b),
        c_(c),
        lda_(shape.lda != 0 ? shape.lda : (transpose_a_ ? m_ : k_)),
        ldb_(shape.ldb != 0 ? shape.ldb : (transpose_b_ ? k_ : n_)),
        ldc_(shape.ldc != 0 ? shape.ldc : n_) {}

  absl::Status Run(ParallelRunner parallel) {
    if (m_ == 0 || n_ == 0) return absl::OkStatus();
    if (k_ == 0) {
      if (!accumulate_) {
        for (int64_t i = 0; i < m_; ++i) std::fill_n(c_ + i * ldc_, n_, E{0});
      }
      return absl::OkStatus();
    }
    // A column is the transpose of a row: cT = bT · aT.
    if (n_ == 1 && m_ > 1 && ldc_ == 1) {
      std::swap(m_, n_);
      std::swap(a_, b_);
      std::swap(lda_, ldb_);
      const bool was_transposed = transpose_a_;
      transpose_a_ = !transpose_b_;
      transpose_b_ = !was_transposed;
      ldc_ = n_;
    }
    const bool a_contiguous = transpose_a_ ? lda_ == 1 || k_ == 1 : true;
    if (m_ == 1 && a_contiguous) return RunRow(parallel);
    const int64_t limit = kInPlaceBytes / static_cast<int64_t>(sizeof(E));
    const bool in_place =
        m_ <= 2 * kRows ? !transpose_b_ || n_ * k_ <= limit : m_ * k_ <= limit && n_ * k_ <= limit;
    return in_place ? RunInPlace(parallel) : RunBlocked(parallel);
  }

 private:
  static constexpr int kWidth = kColumns<E>;
  // Columns of the narrowest tile: a few that are left over do not cost a whole vector each.
  static constexpr int kQuarter = 16 / static_cast<int>(sizeof(E));

  int PanelColumns(int64_t panel) const {
    return static_cast<int>(std::min<int64_t>(kWidth, n_ - panel * kWidth));
  }

  // One row times a matrix: every element of b is used once, so nothing is worth packing.
  absl::Status RunRow(ParallelRunner parallel) {
    constexpr int64_t kStretch = 8 * kLanes<E>;
    const double bytes = static_cast<double>(k_ * static_cast<int64_t>(sizeof(E)));
    if (transpose_b_) {
      parallel(n_, bytes / 40.0, [&](int64_t begin, int64_t end) {
        for (int64_t j = begin; j < end; ++j) {
          const E value = Dot(a_, b_ + j * ldb_);
          c_[j] = accumulate_ ? static_cast<E>(c_[j] + value) : value;
        }
      });
      return absl::OkStatus();
    }
    parallel(CeilDiv(n_, kStretch), bytes * kStretch / 40.0, [&](int64_t begin, int64_t end) {
      const Left<E> left{a_, 0, 1, 0};
      const int64_t last = std::min(end * kStretch, n_);
      int64_t j = begin * kStretch;
      for (; j + kStretch <= last; j += kStretch) {
        MultiplyTile<E, 1, 8, false>(k_, left, {b_ + j, ldb_}, c_ + j, ldc_, kStretch, accumulate_);
      }
      for (; j + kLanes<E> <= last; j += kLanes<E>) {
        MultiplyTile<E, 1, 1, false>(k_, left, {b_ + j, ldb_}, c_ + j, ldc_, kLanes<E>,
                                     accumulate_);
      }
      for (; j < last; ++j) {
        E sum{0};
        for (int64_t p = 0; p < k_; ++p) sum = MultiplyAdd(sum, a_[p], b_[p * ldb_ + j]);
        c_[j] = accumulate_ ? static_cast<E>(c_[j] + sum) : sum;
      }
    });
    return absl::OkStatus();
  }

  E Dot(const E* x, const E* y) const {
    using V = typename VectorOf<E>::Type;
    V sums[4] = {};
    int64_t p = 0;
    for (; p + 4 * kLanes<E> <= k_; p += 4 * kLanes<E>) {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        sums[v] += *reinterpret_cast<const V*>(x + p + v * kLanes<E>) *
                   *reinterpret_cast<const V*>(y + p + v * kLanes<E>);
      }
    }
    for (; p + kLanes<E> <= k_; p += kLanes<E>) {
      sums[0] += *reinterpret_cast<const V*>(x + p) * *reinterpret_cast<const V*>(y + p);
    }
    const V sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    E total{0};
    for (int i = 0; i < kLanes<E>; ++i) total = static_cast<E>(total + sum[i]);
    for (; p < k_; ++p) total = MultiplyAdd(total, x[p], y[p]);
    return total;
  }

  // All of k at once: a where it lies; b too, but for transposed matrices and the last panel.
  absl::Status RunInPlace(ParallelRunner parallel) {
    const int64_t panels = CeilDiv(n_, kWidth);
    const int64_t first_packed = transpose_b_ ? 0 : n_ / kWidth;
    const int64_t panel_elements = kWidth * k_;
    ASSIGN_OR_RETURN(const Buffer buffer,
                     Scratch((panels - first_packed) * panel_elements, sizeof(E)));
    E* const packed = reinterpret_cast<E*>(buffer.data());
    const auto padded = [](int columns) {
      return columns <= kQuarter ? kQuarter : columns <= kLanes<E> ? kLanes<E> : kWidth;
    };
    parallel(panels - first_packed, static_cast<double>(panel_elements) * 0.4,
             [&](int64_t begin, int64_t end) {
               for (int64_t panel = first_packed + begin; panel < first_packed + end; ++panel) {
                 const int columns = PanelColumns(panel);
                 PackPanel(b_, ldb_, transpose_b_, panel * kWidth, 0, columns, k_, padded(columns),
                           packed + (panel - first_packed) * panel_elements);
               }
             });
    const int64_t row_units = CeilDiv(m_, kUnitRows);
    const int64_t unit_rows = CeilDiv(CeilDiv(m_, kRows), row_units) * kRows;
    const int64_t row_step = transpose_a_ ? 1 : lda_;
    parallel(row_units * panels,
             GemmCostNs<E>(std::min(unit_rows, m_), std::min<int64_t>(kWidth, n_), k_),
             [&](int64_t begin, int64_t end) {
               for (int64_t unit = begin; unit < end;) {
                 // Units that follow each other in one panel are one call.
                 const int64_t panel = unit / row_units;
                 const int64_t row_unit = unit % row_units;
                 const int64_t taken = std::min(end - unit, row_units - row_unit);
                 unit += taken;
                 const int64_t first = std::min(m_, row_unit * unit_rows);
                 const int64_t rows = std::min(m_, (row_unit + taken) * unit_rows) - first;
                 const int columns = PanelColumns(panel);
                 const Right<E> right =
                     panel < first_packed
                         ? Right<E>{b_ + panel * kWidth, ldb_}
                         : Right<E>{packed + (panel - first_packed) * panel_elements,
                                    padded(columns)};
                 const Left<E> left{a_ + first * row_step, row_step, transpose_a_ ? lda_ : 1,
                                    kRows * row_step};
                 const auto multiply = columns <= kQuarter    ? MultiplyRows<E, 1, false, 16>
                                       : columns <= kLanes<E> ? MultiplyRows<E, 1, false>
                                                              : MultiplyRows<E, 2, false>;
                 multiply(rows, k_, left, right, c_ + first * ldc_ + panel * kWidth, ldc_, columns,
                          accumulate_);
               }
             });
    return absl::OkStatus();
  }

  // Stretch by stretch along k: b is packed once for all threads, a by the thread that multiplies
  // with it.
  absl::Status RunBlocked(ParallelRunner parallel) {
    const int64_t depth_step = CeilDiv(k_, CeilDiv(k_, kDepth<E>));
    const int64_t panels = CeilDiv(n_, kWidth);
    ASSIGN_OR_RETURN(const Buffer b_buffer, Scratch(panels * kWidth * depth_step, sizeof(E)));
    E* const packed_b = reinterpret_cast<E*>(b_buffer.data());
    constexpr int64_t kBlockPanels = kBlockColumns / kWidth > 0 ? kBlockColumns / kWidth : 1;
    const int64_t column_blocks = CeilDiv(panels, kBlockPanels);
    const int64_t row_units = CeilDiv(m_, kUnitRows);
    std::atomic<bool> out_of_memory = false;
    for (int64_t p = 0; p < k_; p += depth_step) {
      const int64_t depth = std::min(depth_step, k_ - p);
      const bool accumulate = accumulate_ || p > 0;
      parallel(panels, static_cast<double>(kWidth * depth) * 0.4, [&](int64_t begin, int64_t end) {
        for (int64_t panel = begin; panel < end; ++panel) {
          PackPanel(b_, ldb_, transpose_b_, panel * kWidth, p, PanelColumns(panel), depth, kWidth,
                    packed_b + panel * kWidth * depth);
        }
      });
      const double cost =
          GemmCostNs<E>(std::min(m_, kUnitRows), std::min(n_, kBlockColumns), depth);
      parallel(row_units * column_blocks, cost, [&](int64_t begin, int64_t end) {
        const absl::StatusOr<Buffer> a_buffer = Scratch(kUnitRows * depth, sizeof(E));
        if (!a_buffer.ok()) {
          out_of_memory = true;
          return;
        }
        E* const packed_a = reinterpret_cast<E*>(a_buffer->data());
        int64_t packed_unit = -1;
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t first = unit / column_blocks * kUnitRows;
          const int64_t rows = std::min(kUnitRows, m_ - first);
          if (packed_unit != unit / column_blocks) {
            packed_unit = unit / column_blocks;
            for (int64_t i = 0; i < rows; i += kRows) {
              PackPanel(a_, lda_, !transpose_a_, first + i, p,
                        static_cast<int>(std::min<int64_t>(kRows, rows - i)), depth, kRows,
                        packed_a + i * depth);
            }
          }
          const int64_t first_panel = unit % column_blocks * kBlockPanels;
          const int64_t last_panel = std::min(panels, first_panel + kBlockPanels);
          for (int64_t i = 0; i < rows; i += kRows) {
            const Left<E> left{packed_a + i * depth, 1, kRows, kRows * depth};
            E* const c = c_ + (first + i) * ldc_;
            for (int64_t panel = first_panel; panel < last_panel; ++panel) {
              MultiplyRows<E, 2, true>(std::min<int64_t>(kRows, rows - i), depth, left,
                                       {packed_b + panel * kWidth * depth, kWidth},
                                       c + panel * kWidth, ldc_, PanelColumns(panel), accumulate);
            }
          }
        }
      });
    }
    if (out_of_memory) return absl::ResourceExhaustedError("No memory for a matrix product");
    return absl::OkStatus();
  }

  int64_t m_;
  int64_t n_;
  int64_t k_;
  bool transpose_a_;
  bool transpose_b_;
  bool accumulate_;
  const E* a_;
  const E* b_;
  E* c_;
  int64_t lda_;
  int64_t ldb_;
  int64_t ldc_;
};

// Rows and columns as the matrices lie in memory.
struct Extent {
  int64_t rows;
  int64_t columns;
  int64_t step;
};
Extent ExtentOfA(const GemmShape& s) {
  const Extent e = s.transpose_a ? Extent{s.k, s.m, s.m} : Extent{s.m, s.k, s.k};
  return {e.rows, e.columns, s.lda != 0 ? s.lda : e.step};
}
Extent ExtentOfB(const GemmShape& s) {
  const Extent e = s.transpose_b ? Extent{s.n, s.k, s.k} : Extent{s.k, s.n, s.n};
  return {e.rows, e.columns, s.ldb != 0 ? s.ldb : e.step};
}

GemmShape WithoutSteps(GemmShape shape) {
  shape.lda = shape.ldb = shape.ldc = 0;
  return shape;
}

template <typename T>
absl::Status GemmInFloat(const GemmShape& shape, const T* a, const T* b, T* c,
                         ParallelRunner parallel) {
  if (shape.accumulate)
    return Unimplemented("Products of 16-bit floats do not add to their output");
  const Extent ea = ExtentOfA(shape);
  const Extent eb = ExtentOfB(shape);
  ASSIGN_OR_RETURN(const Buffer a_buffer, Scratch(ea.rows * ea.columns, sizeof(float)));
  ASSIGN_OR_RETURN(const Buffer b_buffer, Scratch(eb.rows * eb.columns, sizeof(float)));
  ASSIGN_OR_RETURN(const Buffer c_buffer, Scratch(shape.m * shape.n, sizeof(float)));
  float* const fa = reinterpret_cast<float*>(a_buffer.data());
  float* const fb = reinterpret_cast<float*>(b_buffer.data());
  float* const fc = reinterpret_cast<float*>(c_buffer.data());
  const auto widen = [&](const T* from, const Extent& e, float* to) {
    parallel(e.rows, static_cast<double>(e.columns) * 0.3, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        ConvertArray(from + i * e.step, e.columns, to + i * e.columns);
    });
  };
  widen(a, ea, fa);
  widen(b, eb, fb);
  RETURN_IF_ERROR(Product<float>(WithoutSteps(shape), fa, fb, fc).Run(parallel));
  const int64_t ldc = shape.ldc != 0 ? shape.ldc : shape.n;
  parallel(shape.m, static_cast<double>(shape.n) * 0.3, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ConvertArray(fc + i * shape.n, shape.n, c + i * ldc);
  });
  return absl::OkStatus();
}

// Four real products of the real and imaginary parts.
template <typename R>
absl::Status GemmComplex(const GemmShape& shape, const std::complex<R>* a, const std::complex<R>* b,
                         std::complex<R>* c, ParallelRunner parallel) {
  const Extent ea = ExtentOfA(shape);
  const Extent eb = ExtentOfB(shape);
  const int64_t a_size = ea.rows * ea.columns;
  const int64_t b_size = eb.rows * eb.columns;
  const int64_t c_size = shape.m * shape.n;
  ASSIGN_OR_RETURN(const Buffer a_buffer, Scratch(3 * a_size, sizeof(R)));
  ASSIGN_OR_RETURN(const Buffer b_buffer, Scratch(2 * b_size, sizeof(R)));
  ASSIGN_OR_RETURN(const Buffer c_buffer, Scratch(2 * c_size, sizeof(R)));
  R* const a_real = reinterpret_cast<R*>(a_buffer.data());
  R* const a_imaginary = a_real + a_size;
  R* const minus_a_imaginary = a_imaginary + a_size;
  R* const b_real = reinterpret_cast<R*>(b_buffer.data());
  R* const b_imaginary = b_real + b_size;
  R* const c_real = reinterpret_cast<R*>(c_buffer.data());
  R* const c_imaginary = c_real + c_size;
  const auto split = [](const std::complex<R>* from, const Extent& e, bool conjugate, R* real,
                        R* imaginary) {
    for (int64_t i = 0; i < e.rows; ++i) {
      for (int64_t j = 0; j < e.columns; ++j) {
        const std::complex<R> value = from[i * e.step + j];
        *real++ = value.real();
        *imaginary++ = conjugate ? -value.imag() : value.imag();
      }
    }
  };
  split(a, ea, shape.conjugate_a, a_real, a_imaginary);
  split(b, eb, shape.conjugate_b, b_real, b_imaginary);
  for (int64_t i = 0; i < a_size; ++i) minus_a_imaginary[i] = -a_imaginary[i];
  GemmShape real = WithoutSteps(shape);
  real.accumulate = false;
  RETURN_IF_ERROR(Product<R>(real, a_real, b_real, c_real).Run(parallel));
  RETURN_IF_ERROR(Product<R>(real, a_real, b_imaginary, c_imaginary).Run(parallel));
  real.accumulate = true;
  RETURN_IF_ERROR(Product<R>(real, minus_a_imaginary, b_imaginary, c_real).Run(parallel));
  RETURN_IF_ERROR(Product<R>(real, a_imaginary, b_real, c_imaginary).Run(parallel));
  const int64_t ldc = shape.ldc != 0 ? shape.ldc : shape.n;
  for (int64_t i = 0; i < shape.m; ++i) {
    for (int64_t j = 0; j < shape.n; ++j) {
      const std::complex<R> value(c_real[i * shape.n + j], c_imaginary[i * shape.n + j]);
      c[i * ldc + j] = shape.accumulate ? c[i * ldc + j] + value : value;
    }
  }
  return absl::OkStatus();
}

}  // namespace

void RunSerially(int64_t count, double /*cost_per_item_ns*/,
                 absl::FunctionRef<void(int64_t, int64_t)> body) {
  if (count > 0) body(0, count);
}

template <typename T>
absl::Status Gemm(const GemmShape& shape, const T* a, const T* b, T* c, ParallelRunner parallel) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>) {
    return GemmInFloat(shape, a, b, c, parallel);
  } else if constexpr (std::is_integral_v<T>) {
    // Unsigned arithmetic wraps around without undefined behaviour and has the same bits.
    using U = std::make_unsigned_t<T>;
    return Product<U>(shape, reinterpret_cast<const U*>(a), reinterpret_cast<const U*>(b),
                      reinterpret_cast<U*>(c))
        .Run(parallel);
  } else if constexpr (std::is_floating_point_v<T>) {
    return Product<T>(shape, a, b, c).Run(parallel);
  } else {
    return GemmComplex(shape, a, b, c, parallel);
  }
}

template absl::Status Gemm(const GemmShape&, const float*, const float*, float*, ParallelRunner);
template absl::Status Gemm(const GemmShape&, const double*, const double*, double*, ParallelRunner);
template absl::Status Gemm(const GemmShape&, const Half*, const Half*, Half*, ParallelRunner);
template absl::Status Gemm(const GemmShape&, const Bfloat16*, const Bfloat16*, Bfloat16*,
                           ParallelRunner);
template absl::Status Gemm(const GemmShape&, const int16_t*, const int16_t*, int16_t*,
                           ParallelRunner);
template absl::Status Gemm(const GemmShape&, const int32_t*, const int32_t*, int32_t*,
                           ParallelRunner);
template absl::Status Gemm(const GemmShape&, const int64_t*, const int64_t*, int64_t*,
                           ParallelRunner);
template absl::Status Gemm(const GemmShape&, const Complex64*, const Complex64*, Complex64*,
                           ParallelRunner);
template absl::Status Gemm(const GemmShape&, const Complex128*, const Complex128*, Complex128*,
                           ParallelRunner);

}  // namespace muster
