#include "muster/ops/math/reduce.h"

#include <algorithm>

namespace muster {
namespace {

// Elements that one piece of work takes in; pieces do not depend on the number of threads, nor do
// the results.
constexpr int64_t kPieceElements = 32 * 1024;
// Columns whose accumulators stay in the first-level cache.
constexpr int64_t kColumnBlock = 2048;

int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// A set of dims that a counter runs over, and how far each leads in the input.
struct Walk {
  Dims sizes;
  Dims steps;
  int64_t count = 1;

  void Prepend(int64_t size, int64_t step) {
    sizes.insert(sizes.begin(), size);
    steps.insert(steps.begin(), step);
    count *= size;
  }
  int64_t Offset(int64_t index) const {
    int64_t offset = 0;
    for (int i = static_cast<int>(sizes.size()) - 1; i >= 0; --i) {
      offset += index % sizes[i] * steps[i];
      index /= sizes[i];
    }
    return offset;
  }
};

// The innermost two dims are one block, [rows, length]; everything before them is walked.
struct Layout {
  int64_t rows = 1;
  int64_t length = 1;
  bool reduces_rows =
      false;  // the rows are summed up (columns are kept), rather than each row into one
  Walk kept;
  Walk reduced;
};

Layout MakeLayout(const ReductionPlan& plan) {
  Layout layout;
  const int rank = static_cast<int>(plan.dims.size());
  const auto is_reduced = [&](int i) { return plan.first_is_reduced == (i % 2 == 0); };
  layout.length = plan.dims[rank - 1];
  layout.reduces_rows = !is_reduced(rank - 1);
  int64_t step = layout.length;
  if (rank >= 2) {
    layout.rows = plan.dims[rank - 2];
    step *= layout.rows;
  }
  for (int i = rank - 3; i >= 0; --i) {
    (is_reduced(i) ? layout.reduced : layout.kept).Prepend(plan.dims[i], step);
    step *= plan.dims[i];
  }
  return layout;
}

}  // namespace

absl::StatusOr<ReductionPlan> PlanReduction(const Shape& input, const Tensor& axes,
                                            bool keep_dims) {
  ASSIGN_OR_RETURN(const Dims values, IntegerValues(axes));
  std::vector<bool> reduced(input.rank(), false);
  for (const int64_t axis : values) {
    if (axis < -input.rank() || axis >= input.rank()) {
      return InvalidArgument("Invalid reduction dimension (", axis, " for input with ",
                             input.rank(), " dimension(s)");
    }
    const int64_t at = axis < 0 ? axis + input.rank() : axis;
    if (reduced[at])
      return InvalidArgument("Invalid reduction arguments: Axes contains duplicate dimension: ",
                             at);
    reduced[at] = true;
  }
  ReductionPlan plan;
  Dims output;
  const bool empty = input.num_elements() == 0;
  if (empty) plan.terms = 0;
  for (int i = 0; i < input.rank(); ++i) {
    const int64_t size = input[i];
    if (!reduced[i]) {
      output.push_back(size);
    } else {
      plan.terms *= size;
      if (keep_dims) output.push_back(1);
    }
    if (size == 1 || empty) continue;  // belongs to either kind, or nothing will be walked
    const bool last_is_reduced = plan.first_is_reduced == (plan.dims.size() % 2 == 1);
    if (plan.dims.empty()) {
      plan.first_is_reduced = reduced[i];
      plan.dims.push_back(size);
    } else if (last_is_reduced == reduced[i]) {
      plan.dims.back() *= size;
    } else {
      plan.dims.push_back(size);
    }
  }
  ASSIGN_OR_RETURN(plan.output, Shape::Make(output));
  return plan;
}

absl::Status RunReduction(KernelContext& c, const Reducer& reducer, const ReductionPlan& plan,
                          const void* input, void* results, size_t result_bytes) {
  const int64_t outputs = plan.output.num_elements();
  if (outputs == 0) return absl::OkStatus();
  const size_t element = reducer.element_bytes;
  const size_t accumulator = reducer.accumulator_bytes;
  // Results may serve as accumulators where they are of one size.
  Tensor temporary;
  char* totals = static_cast<char*>(results);
  const auto bytes_for = [&](int64_t count) -> absl::StatusOr<Tensor> {
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make({count, static_cast<int64_t>(accumulator)}));
    return c.AllocateTemporary(DType::kUint8, shape);
  };
  if (accumulator != result_bytes) {
    ASSIGN_OR_RETURN(temporary, bytes_for(outputs));
    totals = temporary.raw();
  }
  const char* const from = static_cast<const char*>(input);
  if (plan.terms == 0) {
    reducer.init(outputs, totals);
  } else if (plan.dims.empty()) {
    reducer.init(outputs, totals);
    reducer.take_rows(from, 1, 1, totals);
  } else {
    const Layout layout = MakeLayout(plan);
    // Along the kept dim of the block: how many results one piece of work makes. Along the reduced
    // one: how many pieces share a result.
    const int64_t kept_size = layout.reduces_rows ? layout.length : layout.rows;
    const int64_t reduced_size = layout.reduces_rows ? layout.rows : layout.length;
    int64_t kept_block = kept_size;
    int64_t reduced_block = reduced_size;
    if (layout.reduces_rows) {
      kept_block = std::min(kept_size, kColumnBlock);
      reduced_block = std::min(reduced_size, std::max<int64_t>(256, kPieceElements / kept_block));
    } else {
      reduced_block = std::min(reduced_size, kPieceElements);
      kept_block = std::min(kept_size, std::max<int64_t>(1, kPieceElements / reduced_block));
    }
    const int64_t kept_blocks = CeilDiv(kept_size, kept_block);
    const int64_t pieces = CeilDiv(reduced_size, reduced_block);
    Tensor partial;
    if (pieces > 1) {
      ASSIGN_OR_RETURN(partial, bytes_for(pieces * outputs));
    }
    const auto work = [&](int64_t unit) {
      const int64_t block = unit % kept_blocks;
      const int64_t piece = unit / kept_blocks % pieces;
      const int64_t outer = unit / kept_blocks / pieces;
      const int64_t first_kept = block * kept_block;
      const int64_t kept = std::min(kept_block, kept_size - first_kept);
      const int64_t first_reduced = piece * reduced_block;
      const int64_t reduced = std::min(reduced_block, reduced_size - first_reduced);
      char* const base =
          pieces > 1 ? partial.raw() + static_cast<size_t>(piece * outputs) * accumulator : totals;
      char* const to = base + static_cast<size_t>(outer * kept_size + first_kept) * accumulator;
      reducer.init(kept, to);
      const int64_t kept_offset = layout.kept.Offset(outer);
      for (int64_t r = 0; r < layout.reduced.count; ++r) {
        const int64_t offset = kept_offset + layout.reduced.Offset(r);
        if (layout.reduces_rows) {
          const char* start =
              from +
              static_cast<size_t>(offset + first_reduced * layout.length + first_kept) * element;
          reducer.take_columns(start, reduced, layout.length, kept, to);
        } else if (reduced == layout.length) {
          reducer.take_rows(
              from + static_cast<size_t>(offset + first_kept * layout.length) * element, kept,
              reduced, to);
        } else {
          for (int64_t k = 0; k < kept; ++k) {
            const char* start =
                from +
                static_cast<size_t>(offset + (first_kept + k) * layout.length + first_reduced) *
                    element;
            reducer.take_rows(start, 1, reduced, to + static_cast<size_t>(k) * accumulator);
          }
        }
      }
    };
    const int64_t units = layout.kept.count * pieces * kept_blocks;
    const double cost = static_cast<double>(kept_block * reduced_block * layout.reduced.count) *
                        static_cast<double>(accumulator) * 0.06;
    c.ParallelFor(units, cost + 10, [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) work(unit);
    });
    if (pieces > 1) {
      reducer.init(outputs, totals);
      for (int64_t piece = 0; piece < pieces; ++piece) {
        reducer.merge(partial.raw() + static_cast<size_t>(piece * outputs) * accumulator, outputs,
                      totals);
      }
    }
  }
  c.ParallelFor(outputs, 1.0, [&](int64_t begin, int64_t end) {
    reducer.finish(totals + static_cast<size_t>(begin) * accumulator, end - begin, plan.terms,
                   static_cast<char*>(results) + static_cast<size_t>(begin) * result_bytes);
  });
  return absl::OkStatus();
}

}  // namespace muster
