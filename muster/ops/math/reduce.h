// Reductions over some axes of a tensor. The walk over the tensor is compiled once (reduce.cc);
// each op and element type brings a few loops over contiguous runs (Reducer).
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "muster/base/status.h"
#include "muster/ops/math/float16.h"
#include "muster/runtime/kernel.h"

namespace muster {

// Loops over contiguous memory. Elements of the input become accumulators, which may be of another
// type.
struct Reducer {
  size_t element_bytes;
  size_t accumulator_bytes;
  void (*init)(int64_t count, void* accumulators);
  // accumulators[r] takes in the `length` elements of row r; rows follow each other.
  void (*take_rows)(const void* elements, int64_t rows, int64_t length, void* accumulators);
  // accumulators[j] takes in element j of every row; rows are `step` elements apart.
  void (*take_columns)(const void* elements, int64_t rows, int64_t step, int64_t columns,
                       void* accumulators);
  void (*merge)(const void* others, int64_t count, void* accumulators);
  // Results from accumulators of `terms` elements each; may write over them.
  void (*finish)(const void* accumulators, int64_t count, int64_t terms, void* results);
};

// What is reduced: the shape that the op gives, and dims of the input with neighbours of the same
// kind put together, in turn kept and reduced.
struct ReductionPlan {
  Shape output;
  Dims dims;
  bool first_is_reduced = false;
  int64_t terms = 1;  // elements per result
};
absl::StatusOr<ReductionPlan> PlanReduction(const Shape& input, const Tensor& axes, bool keep_dims);

// Reduces `input` into `results` (plan.output elements of result type).
absl::Status RunReduction(KernelContext& c, const Reducer& reducer, const ReductionPlan& plan,
                          const void* input, void* results, size_t result_bytes);

// --- Making a Reducer
// ----------------------------------------------------------------------------------------------

inline constexpr int kReduceVectorBytes =
#ifdef __AVX512F__
    64;
#else
    32;
#endif

// An Op has: T (elements), A (accumulators), R (results), kIdentity-like Identity(), `Combine` for
// A and for vectors of A, Convert(const T*, n, A*) where T is not A, and Finish(A, terms).
template <typename Op>
struct Reductions {
  using T = typename Op::T;
  using A = typename Op::A;
  static constexpr bool kDirect = Op::kDirect;
  static constexpr int64_t kBlock = 512;

  static void Init(int64_t count, void* accumulators) {
    A* to = static_cast<A*>(accumulators);
    for (int64_t i = 0; i < count; ++i) to[i] = Op::Identity();
  }

  // Several sums run side by side: quicker, and more accurate than one long sum.
  static A Fold(const A* x, int64_t count) {
    A result = Op::Identity();
    int64_t i = 0;
    if constexpr (std::is_arithmetic_v<A> && !std::is_same_v<A, bool>) {
      typedef A V __attribute__((vector_size(kReduceVectorBytes), aligned(sizeof(A)), may_alias));
      constexpr int kLanes = kReduceVectorBytes / static_cast<int>(sizeof(A));
      if (count >= 4 * kLanes) {
        const V* v = reinterpret_cast<const V*>(x);
        V s0 = v[0];
        V s1 = v[1];
        V s2 = v[2];
        V s3 = v[3];
        v += 4;
        for (i = 4 * kLanes; i + 4 * kLanes <= count; i += 4 * kLanes, v += 4) {
          s0 = Op::Combine(s0, V(v[0]));
          s1 = Op::Combine(s1, V(v[1]));
          s2 = Op::Combine(s2, V(v[2]));
          s3 = Op::Combine(s3, V(v[3]));
        }
        const V s = Op::Combine(Op::Combine(s0, s1), Op::Combine(s2, s3));
        A lanes[kLanes];
        for (int l = 0; l < kLanes; ++l) lanes[l] = s[l];
        for (int width = kLanes / 2; width > 0; width /= 2) {
          for (int l = 0; l < width; ++l) lanes[l] = Op::Combine(lanes[l], lanes[l + width]);
        }
        result = lanes[0];
      }
    }
    for (; i < count; ++i) result = Op::Combine(result, x[i]);
    return result;
  }

  static void TakeRows(const void* elements, int64_t rows, int64_t length, void* accumulators) {
    const T* from = static_cast<const T*>(elements);
    A* to = static_cast<A*>(accumulators);
    for (int64_t r = 0; r < rows; ++r, from += length) {
      if constexpr (kDirect) {
        to[r] = Op::Combine(to[r], Fold(reinterpret_cast<const A*>(from), length));
      } else {
        A block[kBlock];
        for (int64_t i = 0; i < length; i += kBlock) {
          const int64_t count = std::min(kBlock, length - i);
          Op::Convert(from + i, count, block);
          to[r] = Op::Combine(to[r], Fold(block, count));
        }
      }
    }
  }

  static void TakeColumns(const void* elements, int64_t rows, int64_t step, int64_t columns,
                          void* accumulators) {
    const T* from = static_cast<const T*>(elements);
    A* __restrict to = static_cast<A*>(accumulators);
    for (int64_t r = 0; r < rows; ++r, from += step) {
      if constexpr (kDirect) {
        const A* __restrict x = reinterpret_cast<const A*>(from);
        for (int64_t j = 0; j < columns; ++j) to[j] = Op::Combine(to[j], x[j]);
      } else {
        A block[kBlock];
        for (int64_t j = 0; j < columns; j += kBlock) {
          const int64_t count = std::min(kBlock, columns - j);
          Op::Convert(from + j, count, block);
          for (int64_t i = 0; i < count; ++i) to[j + i] = Op::Combine(to[j + i], block[i]);
        }
      }
    }
  }

  static void Merge(const void* others, int64_t count, void* accumulators) {
    const A* from = static_cast<const A*>(others);
    A* to = static_cast<A*>(accumulators);
    for (int64_t i = 0; i < count; ++i) to[i] = Op::Combine(to[i], from[i]);
  }

  static void Finish(const void* accumulators, int64_t count, int64_t terms, void* results) {
    const A* from = static_cast<const A*>(accumulators);
    auto* to = static_cast<typename Op::R*>(results);
    for (int64_t i = 0; i < count; ++i) to[i] = Op::Finish(from[i], terms);
  }

  static constexpr Reducer Make() {
    return {sizeof(T), sizeof(A), Init, TakeRows, TakeColumns, Merge, Finish};
  }
};

}  // namespace muster
