// RaggedGather: rows of a ragged tensor picked by index.
#include "absl/strings/str_join.h"

#include "muster/ops/op.h"

namespace muster {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 26;

absl::Status CheckSplits(const std::vector<Dims>& splits, int64_t num_values) {
  for (size_t level = 0; level < splits.size(); ++level) {
    const Dims& ends = splits[level];
    if (ends.empty()) return InvalidArgument("Ragged splits may not be empty");
    if (ends[0] < 0) return InvalidArgument("Ragged splits must be non-negative");
    for (size_t i = 1; i < ends.size(); ++i) {
      if (ends[i] < ends[i - 1]) return InvalidArgument("Ragged splits must be sorted");
    }
    const int64_t size =
        level + 1 < splits.size() ? static_cast<int64_t>(splits[level + 1].size()) - 1 : num_values;
    if (ends.back() > size) return InvalidArgument("Ragged splits must not point past values");
  }
  return absl::OkStatus();
}

// "[1,0]": where number i of a tensor stands; nothing for a scalar.
std::string PlaceOf(int64_t i, const Shape& shape) {
  if (shape.rank() == 0) return "";
  std::vector<int64_t> place(static_cast<size_t>(shape.rank()));
  for (int d = shape.rank() - 1; d >= 0; --d) {
    place[d] = i % shape[d];
    i /= shape[d];
  }
  return absl::StrCat("[", absl::StrJoin(place, ","), "]");
}

absl::Status SetSplits(KernelContext& c, int output, const Dims& splits) {
  ASSIGN_OR_RETURN(Tensor* const tensor,
                   c.AllocateOutput(output, Shape({static_cast<int64_t>(splits.size())})));
  if (tensor->dtype() == DType::kInt64) {
    std::copy(splits.begin(), splits.end(), tensor->data<int64_t>());
    return absl::OkStatus();
  }
  for (size_t i = 0; i < splits.size(); ++i) {
    tensor->data<int32_t>()[i] = static_cast<int32_t>(splits[i]);
  }
  return absl::OkStatus();
}

absl::Status Run(KernelContext& c) {
  const int levels = c.num_inputs() - 2;
  const Tensor& values = c.input(levels);
  const Tensor& indices = c.input(levels + 1);
  if (values.rank() < 1) return InvalidArgument("params.rank must be nonzero");
  std::vector<Dims> splits;
  for (int i = 0; i < levels; ++i) {
    ASSIGN_OR_RETURN(Dims ends, IntegerVector(c.input(i), "params_nested_splits"));
    splits.push_back(std::move(ends));
  }
  if (splits.empty() || splits[0].empty()) {
    return InvalidArgument("Ragged splits may not be empty");
  }
  ASSIGN_OR_RETURN(const Dims wanted, IntegerValues(indices));
  const int64_t rows = static_cast<int64_t>(splits[0].size()) - 1;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] >= 0 && wanted[i] < rows) continue;
    return InvalidArgument("indices", PlaceOf(static_cast<int64_t>(i), indices.shape()), " = ",
                           wanted[i], " is not in [0, ", rows, ")");
  }
  RETURN_IF_ERROR(CheckSplits(splits, values.dim(0)));

  // The outer dims of the indices are rows of equal length.
  const int outer = std::max(0, indices.rank() - 1);
  if (c.num_outputs() != outer + levels + (indices.rank() == 0 ? 0 : 1)) {
    return InvalidArgument("OUTPUT_RAGGED_RANK must be indices.rank + params.ragged_rank - 1");
  }
  int64_t count = 1;
  for (int d = 0; d < outer; ++d) {
    // There may be a great many rows without indices.
    if (__builtin_mul_overflow(count, indices.dim(d), &count) || count > kMostRows) {
      return InvalidArgument("Cannot gather in rows of shape ", indices.shape().ToString());
    }
    Dims ends(static_cast<size_t>(count) + 1);
    for (int64_t i = 0; i <= count; ++i) ends[i] = i * indices.dim(d + 1);
    RETURN_IF_ERROR(SetSplits(c, d, ends));
  }
  // Ranges of rows that were picked, from level to level.
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const int64_t index : wanted) ranges.emplace_back(index, index + 1);
  for (int level = 0; level < levels; ++level) {
    Dims ends = {0};
    for (auto& [begin, end] : ranges) {
      if (static_cast<int64_t>(ends.size()) + (end - begin) > kMostRows) {
        return absl::ResourceExhaustedError(
            absl::StrCat("More than ", kMostRows, " rows cannot be gathered"));
      }
      for (int64_t row = begin; row < end; ++row) {
        ends.push_back(ends.back() + splits[level][row + 1] - splits[level][row]);
      }
      const int64_t first = splits[level][begin];
      end = splits[level][end];
      begin = first;
    }
    // A scalar index takes its row out: its own length is not a split.
    const int output = outer + level - (indices.rank() == 0 ? 1 : 0);
    if (output >= 0) RETURN_IF_ERROR(SetSplits(c, output, ends));
  }
  int64_t total = 0;
  for (const auto& [begin, end] : ranges) total += end - begin;
  Dims dims = values.shape().dims();
  dims[0] = total;
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(c.num_outputs() - 1, shape));
  const int64_t width = values.shape().ElementsIn(1, values.rank());
  const auto bytes = width * static_cast<int64_t>(DTypeSize(values.dtype()));
  char* to = output->raw();
  for (const auto& [begin, end] : ranges) {
    if (end == begin || width == 0) continue;
    CopyElements(values.dtype(), values.raw() + begin * bytes, to, (end - begin) * width);
    to += (end - begin) * bytes;
  }
  return absl::OkStatus();
}

absl::Status GatherShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const int64_t levels, c.Attr<int64_t>("PARAMS_RAGGED_RANK"));
  ASSIGN_OR_RETURN(const int64_t output_rank, c.Attr<int64_t>("OUTPUT_RAGGED_RANK"));
  const auto values = static_cast<int>(levels);
  const PartialShape& indices = c.input(values + 1);
  if (indices.known_rank() && output_rank != indices.rank() + levels - 1) {
    return InvalidArgument("Shape must be rank ", output_rank - levels + 1, " but is rank ",
                           indices.rank());
  }
  for (int i = 0; i + 1 < c.num_outputs(); ++i) c.SetOutput(i, PartialShape::Vector(-1));
  if (!c.input(values).known_rank()) {
    c.SetOutput(c.num_outputs() - 1, PartialShape());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const PartialShape dense, c.WithRankAtLeast(c.input(values), 1));
  c.SetOutput(c.num_outputs() - 1, ShapeContext::Concatenate(PartialShape::Vector(-1),
                                                             ShapeContext::Subshape(dense, 1)));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(RaggedGather) {
  op.Attr("Tvalues: type")
      .Attr("Tindices: {int32, int64}")
      .Attr("Tsplits: {int32, int64} = DT_INT64")
      .Attr("PARAMS_RAGGED_RANK: int >= 1")
      .Attr("OUTPUT_RAGGED_RANK: int >= 0")
      .Input("params_nested_splits: PARAMS_RAGGED_RANK * Tsplits")
      .Input("params_dense_values: Tvalues")
      .Input("indices: Tindices")
      .Output("output_nested_splits: OUTPUT_RAGGED_RANK * Tsplits")
      .Output("output_dense_values: Tvalues")
      .Doc("Rows of a ragged tensor, picked by index.")
      .Shape(GatherShape)
      .CpuDTypes("Tvalues", AllDTypes(), Stateless(Run));
}

}  // namespace muster
