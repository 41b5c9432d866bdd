// Rows dealt out to outputs and put together again: DynamicPartition, DynamicStitch,
// ParallelDynamicStitch.
#include <limits>

#include "muster/ops/emit.h"
#include "muster/ops/indexing/indexing.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

bool StartsWith(const Shape& shape, const Shape& prefix) {
  if (shape.rank() < prefix.rank()) return false;
  for (int i = 0; i < prefix.rank(); ++i) {
    if (shape.dim(i) != prefix.dim(i)) return false;
  }
  return true;
}

absl::Status RunPartition(KernelContext& c) {
  const Tensor& data = c.input(0);
  const Tensor& partitions = c.input(1);
  const int outputs = c.num_outputs();
  if (!StartsWith(data.shape(), partitions.shape())) {
    return InvalidArgument(
        "data.shape must start with partitions.shape, got data.shape = ", data.shape().ToString(),
        ", partitions.shape = ", partitions.shape().ToString());
  }
  const int32_t* numbers = partitions.data<int32_t>();
  const int64_t rows = partitions.num_elements();
  std::vector<int64_t> sizes(outputs, 0);
  for (int64_t i = 0; i < rows; ++i) {
    if (numbers[i] < 0 || numbers[i] >= outputs) {
      return InvalidArgument("partitions", PositionText(partitions.shape(), i), " = ", numbers[i],
                             " is not in [0, ", outputs, ")");
    }
    ++sizes[numbers[i]];
  }
  Dims tail(data.shape().dims().begin() + partitions.rank(), data.shape().dims().end());
  const int64_t inner = data.shape().ElementsIn(partitions.rank(), data.rank());
  const int64_t row_bytes = inner * static_cast<int64_t>(DTypeSize(data.dtype()));
  std::vector<char*> next(outputs);
  for (int i = 0; i < outputs; ++i) {
    Dims dims(tail);
    dims.insert(dims.begin(), sizes[i]);
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(i, shape));
    next[i] = output->raw();
  }
  if (row_bytes == 0) return absl::OkStatus();
  for (int64_t i = 0; i < rows; ++i) {
    CopyElements(data.dtype(), data.raw() + i * row_bytes, next[numbers[i]], inner);
    next[numbers[i]] += row_bytes;
  }
  return absl::OkStatus();
}

// Rows that no index names are filled with zeros; many of them are a sign of a wrong index.
absl::Status CheckRows(int64_t rows, int64_t given, int64_t row_bytes) {
  constexpr double kMostZeros = 1 << 30;
  if (rows > std::numeric_limits<int32_t>::max())
    return InvalidArgument("Index ", rows - 1, " is too large: the result may have up to ",
                           std::numeric_limits<int32_t>::max(), " rows");
  if (rows <= given ||
      static_cast<double>(rows - given) * static_cast<double>(row_bytes) <= kMostZeros)
    return absl::OkStatus();
  return InvalidArgument("Index ", rows - 1, " asks for ", rows, " rows, but only ", given,
                         " are given");
}

absl::Status RunStitch(KernelContext& c) {
  const int count = c.num_inputs() / 2;
  int64_t given = 0;
  const Shape& first_indices = c.input(0).shape();
  const Shape& first_data = c.input(count).shape();
  int64_t rows = 0;
  for (int i = 0; i < count; ++i) {
    const Tensor& indices = c.input(i);
    const Shape& data = c.input(count + i).shape();
    if (!StartsWith(data, indices.shape())) {
      return InvalidArgument("data[", i, "].shape = ", data.ToString(),
                             " does not start with indices[", i,
                             "].shape = ", indices.shape().ToString());
    }
    if (!std::equal(data.dims().begin() + indices.rank(), data.dims().end(),
                    first_data.dims().begin() + first_indices.rank(), first_data.dims().end())) {
      return InvalidArgument(
          "Need data[0].shape[", first_indices.rank(), ":] = data[", i, "].shape[", indices.rank(),
          ":], got data[0].shape = ", first_data.ToString(), ", data[", i,
          "].shape = ", data.ToString(), ", indices[0].shape = ", first_indices.ToString(),
          ", indices[", i, "].shape = ", indices.shape().ToString());
    }
    for (int32_t index : indices.values<int32_t>())
      rows = std::max<int64_t>(rows, int64_t{index} + 1);
    given += indices.num_elements();
  }
  const int64_t inner = first_data.ElementsIn(first_indices.rank(), first_data.rank());
  const int64_t row_bytes = inner * static_cast<int64_t>(DTypeSize(c.output_type(0)));
  RETURN_IF_ERROR(CheckRows(rows, given, row_bytes));
  Dims dims(first_data.dims().begin() + first_indices.rank(), first_data.dims().end());
  dims.insert(dims.begin(), rows);
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
  if (output->num_elements() > 0 && IsPlainData(output->dtype())) {
    // Rows that no index names must not show old memory.
    std::memset(output->raw(), 0, output->size_bytes());
  }
  for (int i = 0; i < count; ++i) {
    const char* from = c.input(count + i).raw();
    const absl::Span<const int32_t> indices = c.input(i).values<int32_t>();
    for (size_t j = 0; j < indices.size(); ++j) {
      if (indices[j] < 0) return InvalidArgument("indices[", j, "] is out of range");
      if (row_bytes == 0) continue;
      CopyElements(output->dtype(), from + static_cast<int64_t>(j) * row_bytes,
                   output->raw() + indices[j] * row_bytes, inner);
    }
  }
  return absl::OkStatus();
}

// `shape` must begin with `prefix`; "Dimensions must be equal, but are 2 and 1".
absl::Status MergePrefix(ShapeContext& c, const PartialShape& shape, const PartialShape& prefix) {
  if (!shape.known_rank() || !prefix.known_rank()) return absl::OkStatus();
  RETURN_IF_ERROR(c.WithRankAtLeast(shape, prefix.rank()).status());
  for (int i = 0; i < prefix.rank(); ++i)
    RETURN_IF_ERROR(ShapeContext::MergeDims(shape[i], prefix[i]).status());
  return absl::OkStatus();
}

absl::Status PartitionShape(ShapeContext& c) {
  const PartialShape& data = c.input(0);
  const PartialShape& partitions = c.input(1);
  if (!partitions.known_rank()) return UnknownShape(c);
  RETURN_IF_ERROR(MergePrefix(c, data, partitions));
  PartialShape output;
  if (data.known_rank()) {
    output = ShapeContext::Concatenate(PartialShape::Vector(-1),
                                       ShapeContext::Subshape(data, partitions.rank()));
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, output);
  return absl::OkStatus();
}

absl::Status StitchShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const int64_t count, c.Attr<int64_t>("N"));
  bool all_constant = true;
  int64_t rows = 0;
  PartialShape extra;
  for (int i = 0; i < count; ++i) {
    const std::optional<Tensor> constant = c.ConstantInput(i);
    if (constant.has_value() && constant->dtype() == DType::kInt32) {
      for (int32_t index : constant->values<int32_t>())
        rows = std::max<int64_t>(rows, int64_t{index} + 1);
    } else {
      all_constant = false;
    }
    const PartialShape& indices = c.input(i);
    if (!indices.known_rank()) continue;
    const PartialShape& data = c.input(static_cast<int>(count) + i);
    RETURN_IF_ERROR(MergePrefix(c, data, indices));
    if (!data.known_rank()) continue;
    ASSIGN_OR_RETURN(extra, extra.Merge(ShapeContext::Subshape(data, indices.rank())));
  }
  c.SetOutput(0, ShapeContext::Concatenate(PartialShape::Vector(all_constant ? rows : -1), extra));
  return absl::OkStatus();
}

absl::Status PartitionGradient(GradientContext& c) {
  const Scope& scope = c.scope();
  const int64_t count = c.Attr<int64_t>("num_partitions");
  const Output prefix = EmitShape(scope, c.input(1));
  const Output range = EmitRange(scope, 0, EmitProd(scope, prefix));
  const Output original = c.Op("Reshape", {range, prefix});
  Node* dealt = scope.Add("DynamicPartition", {original, c.input(1)}, {{"num_partitions", count}});
  if (dealt == nullptr) return scope.status();
  std::vector<Output> indices;
  std::vector<Output> gradients;
  for (int i = 0; i < count; ++i) {
    indices.push_back(dealt->output(i));
    gradients.push_back(c.dy(i));
  }
  const Output stitched = c.Op("ParallelDynamicStitch", {indices, gradients});
  c.SetDx(0, c.Op("Reshape", {stitched, EmitShape(scope, c.input(0))}));
  return absl::OkStatus();
}

absl::Status StitchGradient(GradientContext& c) {
  const Scope& scope = c.scope();
  const int count = c.num_inputs() / 2;
  Output gradient;
  if (const IndexedSlices* sparse = std::get_if<IndexedSlices>(&c.gradient(0))) {
    const Output rows = EmitElement(scope, EmitShape(scope, c.output()), 0);
    gradient = c.Op("UnsortedSegmentSum", {sparse->values, sparse->indices, rows});
  } else {
    gradient = c.dy();
  }
  for (int i = 0; i < count; ++i) c.SetDx(count + i, EmitGather(scope, gradient, c.input(i)));
  return absl::OkStatus();
}

void DefineStitch(OpBuilder& op) {
  op.Attr("N: int >= 1")
      .Attr("T: type")
      .Input("indices: N * int32")
      .Input("data: N * T")
      .Output("merged: T")
      .Shape(StitchShape)
      .Gradient(StitchGradient)
      .CpuDTypes("T", AllDTypes(), Stateless(RunStitch));
}

}  // namespace

DEFINE_OP(DynamicPartition) {
  op.Attr("num_partitions: int >= 1")
      .Attr("T: type")
      .Input("data: T")
      .Input("partitions: int32")
      .Output("outputs: num_partitions * T")
      .Doc("Output i holds the rows of data whose partition is i, in their order.")
      .Shape(PartitionShape)
      .Gradient(PartitionGradient)
      .CpuDTypes("T", AllDTypes(), Stateless(RunPartition));
}

DEFINE_OP(DynamicStitch) {
  DefineStitch(op);
  op.Doc("Rows of all data put at their indices; of rows with one index the last wins.");
}

DEFINE_OP(ParallelDynamicStitch) {
  DefineStitch(op);
  op.Doc("DynamicStitch without a promise about rows that share an index.");
}

}  // namespace muster
