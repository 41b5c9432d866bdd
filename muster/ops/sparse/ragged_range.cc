// RaggedRange: rows of numbers, each with a start, a limit and a step of its own.
#include <cmath>
#include <limits>

#include "muster/ops/math/float16.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

// Far above what fits into memory.
constexpr double kMostValues = 1e15;

template <typename T>
absl::StatusOr<int64_t> RowSize(T start, T limit, T delta) {
  if constexpr (std::is_integral_v<T>) {
    if (delta == 0) return InvalidArgument("Requires delta != 0");
    const __int128 distance =
        delta > 0 ? static_cast<__int128>(limit) - start : static_cast<__int128>(start) - limit;
    const __int128 step = delta > 0 ? static_cast<__int128>(delta) : -static_cast<__int128>(delta);
    if (distance <= 0) return 0;
    const __int128 size = (distance + step - 1) / step;
    if (size > static_cast<__int128>(kMostValues))
      return InvalidArgument("Requires ((limit - start) / delta) <= ", kMostValues);
    return static_cast<int64_t>(size);
  } else {
    const auto from = static_cast<double>(static_cast<Compute<T>>(start));
    const auto to = static_cast<double>(static_cast<Compute<T>>(limit));
    const auto step = static_cast<double>(static_cast<Compute<T>>(delta));
    if (step == 0) return InvalidArgument("Requires delta != 0");
    if ((step > 0 && to < from) || (step < 0 && to > from)) return 0;
    const double size = std::ceil(std::abs((to - from) / step));
    if (!(size <= kMostValues))
      return InvalidArgument("Requires ((limit - start) / delta) <= ", kMostValues);
    return static_cast<int64_t>(size);
  }
}

template <typename T, typename Split>
absl::Status Run(KernelContext& c) {
  static constexpr const char* kNames[] = {"starts", "limits", "deltas"};
  int64_t rows = 1;
  bool broadcast = true;
  for (int i = 0; i < 3; ++i) {
    const Shape& shape = c.input(i).shape();
    if (shape.rank() > 1) return InvalidArgument(kNames[i], " must be a scalar or vector");
    if (shape.rank() == 0) continue;
    if (!broadcast && shape.dim(0) != rows)
      return InvalidArgument("starts, limits, and deltas must have the same shape");
    rows = shape.dim(0);
    broadcast = false;
  }
  const auto at = [&c](int input, int64_t row) {
    return c.input(input).data<T>()[c.input(input).rank() == 0 ? 0 : row];
  };
  ASSIGN_OR_RETURN(Tensor* const splits, c.AllocateOutput(0, Shape({rows + 1})));
  Split* const ends = splits->data<Split>();
  ends[0] = 0;
  int64_t total = 0;
  for (int64_t row = 0; row < rows; ++row) {
    ASSIGN_OR_RETURN(const int64_t size, RowSize<T>(at(0, row), at(1, row), at(2, row)));
    total += size;
    if (total > static_cast<int64_t>(std::numeric_limits<Split>::max()) || total > kMostValues)
      return InvalidArgument("The total number of values overflowed the type of the row splits");
    ends[row + 1] = static_cast<Split>(total);
  }
  ASSIGN_OR_RETURN(Tensor* const values, c.AllocateOutput(1, Shape({total})));
  T* to = values->data<T>();
  for (int64_t row = 0; row < rows; ++row) {
    T value = at(0, row);
    const T step = at(2, row);
    for (int64_t i = ends[row]; i < ends[row + 1]; ++i) {
      *to++ = value;
      if (i + 1 < ends[row + 1]) {
        value = static_cast<T>(static_cast<Compute<T>>(value) + static_cast<Compute<T>>(step));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status RangeShape(ShapeContext& c) {
  int64_t rows = -1;
  bool all_scalars = true;
  for (int i = 0; i < 3; ++i) {
    ASSIGN_OR_RETURN(const PartialShape shape, c.WithRankAtMost(c.input(i), 1));
    if (!shape.known_rank()) {
      all_scalars = false;
    } else if (shape.rank() == 1) {
      all_scalars = false;
      ASSIGN_OR_RETURN(rows, ShapeContext::MergeDims(rows, shape.dim(0)));
    }
  }
  if (all_scalars) rows = 1;
  c.SetOutput(0, PartialShape::Vector(ShapeContext::AddDims(rows, 1)));
  c.SetOutput(1, PartialShape::Vector(-1));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(RaggedRange) {
  using Values = Types<Bfloat16, float, double, int32_t, int64_t>;
  op.Attr("T: {bfloat16, float, double, int32, int64} = DT_INT32")
      .Attr("Tsplits: {int32, int64} = DT_INT64")
      .Input("starts: T")
      .Input("limits: T")
      .Input("deltas: T")
      .Output("rt_nested_splits: Tsplits")
      .Output("rt_dense_values: T")
      .Doc("Numbers from each start up to each limit, as the rows of a ragged matrix.")
      .Shape(RangeShape)
      .CpuTypes<Values>("T", []<typename T>() { return Stateless(Run<T, int32_t>); },
                        {{"Tsplits", DType::kInt32}})
      .CpuTypes<Values>("T", []<typename T>() { return Stateless(Run<T, int64_t>); },
                        {{"Tsplits", DType::kInt64}});
}

}  // namespace muster
