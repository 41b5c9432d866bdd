// Sums over segments of rows that are picked by index first: SparseSegmentSum, Mean, SqrtN, and
// their gradients.
#include "muster/ops/segments/sparse_segment.h"

#include <algorithm>
#include <cmath>

#include "muster/ops/emit.h"

namespace muster {
namespace {

absl::Status CheckVectors(const Tensor& indices, const Tensor& ids) {
  if (!indices.shape().is_vector()) return InvalidArgument("indices should be a vector.");
  if (!ids.shape().is_vector()) return InvalidArgument("segment_ids should be a vector.");
  if (indices.num_elements() != ids.num_elements()) {
    return InvalidArgument("segment_ids and indices should have same size.");
  }
  return absl::OkStatus();
}

// The factor of a row that is one of `count` in its segment.
double Scale(SegmentOp op, int64_t count) {
  if (op == SegmentOp::kMean) return 1.0 / static_cast<double>(count);
  if (op == SegmentOp::kSqrtN) return 1.0 / std::sqrt(static_cast<double>(count));
  return 1.0;
}

}  // namespace

absl::Status CheckSparseSegments(const KernelContext& c) {
  if (c.num_inputs() == 4 && !c.input(3).shape().is_scalar()) {
    return InvalidArgument("num_segments should be a scalar, not shape ",
                           c.input(3).shape().ToString());
  }
  RETURN_IF_ERROR(CheckVectors(c.input(1), c.input(2)));
  if (c.input(0).rank() < 1) return InvalidArgument("Shape must be at least rank 1");
  return absl::OkStatus();
}

absl::StatusOr<int64_t> CountSparseSegments(const KernelContext& c, int64_t last) {
  constexpr int64_t kLimit = std::numeric_limits<int32_t>::max();
  if (last >= kLimit) {
    return InvalidArgument("Last segment id must be < kintmax, got ", last, " limit ", kLimit);
  }
  int64_t segments = last + 1;
  if (c.num_inputs() == 4) {
    ASSIGN_OR_RETURN(segments, ScalarInteger(c.input(3), "num_segments"));
    if (segments < last + 1 && segments >= 0)
      return InvalidArgument("segment ids must be < num_segments");
  }
  if (segments < 0 || (segments == 0 && c.input(2).num_elements() > 0))
    return InvalidArgument("segment ids must be >= 0");
  return segments;
}

absl::StatusOr<Shape> RowsLikeInput(const KernelContext& c, int64_t rows) {
  Dims dims(c.input(0).shape().dims());
  dims[0] = rows;
  return Shape::Make(dims);
}

absl::StatusOr<int64_t> CheckSparseSegmentGradient(const KernelContext& c) {
  RETURN_IF_ERROR(CheckVectors(c.input(1), c.input(2)));
  if (!c.input(3).shape().is_scalar()) return InvalidArgument("output_dim0 should be a scalar.");
  if (c.input(0).rank() < 1) return InvalidArgument("grad must be at least rank 1");
  ASSIGN_OR_RETURN(const int64_t rows, ScalarInteger(c.input(3), "output_dim0"));
  if (rows < 0) return InvalidArgument("Expected a non-negative size, got ", rows);
  return rows;
}

namespace {

template <typename T, SegmentOp kOp>
absl::Status RunSparseSegment(KernelContext& c) {
  using A = Compute<T>;
  RETURN_IF_ERROR(CheckSparseSegments(c));
  const Tensor& data = c.input(0);
  const std::vector<int64_t> indices = WideIndices(c.input(1));
  const std::vector<int64_t> ids = WideIndices(c.input(2));
  const int64_t rows = static_cast<int64_t>(ids.size());
  ASSIGN_OR_RETURN(const int64_t segments, CountSparseSegments(c, rows > 0 ? ids[rows - 1] : -1));
  for (int64_t i = 0; i < rows; ++i) {
    if (i + 1 < rows && ids[i + 1] < ids[i])
      return InvalidArgument("segment ids are not increasing");
    if (ids[i] < 0 || ids[i] >= segments) {
      return InvalidArgument("Segment id ", ids[i], " out of range [0, ", segments,
                             "), possibly because 'segment_ids' input is not sorted.");
    }
    if (indices[i] < 0 || indices[i] >= data.dim(0)) {
      return InvalidArgument("Bad: indices[", i, "] == ", indices[i], " out of range [0, ",
                             data.dim(0), ")");
    }
  }
  ASSIGN_OR_RETURN(const Shape shape, RowsLikeInput(c, segments));
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
  if (output->num_elements() == 0) return absl::OkStatus();
  const int64_t inner = data.shape().ElementsIn(1, data.rank());
  T* to = output->data<T>();
  std::fill(to, to + output->num_elements(), T(0));
  std::vector<A> sums(inner);
  for (int64_t begin = 0; begin < rows;) {
    int64_t end = begin;
    std::fill(sums.begin(), sums.end(), A(0));
    for (; end < rows && ids[end] == ids[begin]; ++end) {
      ReduceRow<SegmentOp::kSum, T>(sums.data(), data.data<T>() + indices[end] * inner, inner);
    }
    T* row = to + ids[begin] * inner;
    if constexpr (kOp == SegmentOp::kSum) {
      for (int64_t i = 0; i < inner; ++i) row[i] = T(sums[i]);
    } else {
      const A scale = static_cast<A>(Scale(kOp, end - begin));
      for (int64_t i = 0; i < inner; ++i) row[i] = T(sums[i] * scale);
    }
    begin = end;
  }
  return absl::OkStatus();
}

// Numbers each row that occurs by its place among them; gives the rows in order.
std::vector<int64_t> Compact(std::vector<int64_t>& indices) {
  std::vector<int64_t> rows = indices;
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  for (int64_t& index : indices)
    index = std::lower_bound(rows.begin(), rows.end(), index) - rows.begin();
  return rows;
}

absl::Status SetRows(KernelContext& c, const std::vector<int64_t>& rows) {
  ASSIGN_OR_RETURN(Tensor* const output,
                   c.AllocateOutput(1, Shape({static_cast<int64_t>(rows.size())})));
  if (output->dtype() == DType::kInt64) {
    std::copy(rows.begin(), rows.end(), output->data<int64_t>());
  } else {
    std::transform(rows.begin(), rows.end(), output->data<int32_t>(),
                   [](int64_t row) { return static_cast<int32_t>(row); });
  }
  return absl::OkStatus();
}

// kCompact: only the rows that occur, and which they are.
template <typename T, SegmentOp kOp, bool kCompact = false>
absl::Status RunGradient(KernelContext& c) {
  using A = Compute<T>;
  const Tensor& gradient = c.input(0);
  ASSIGN_OR_RETURN(int64_t output_rows, CheckSparseSegmentGradient(c));
  std::vector<int64_t> indices = WideIndices(c.input(1));
  const std::vector<int64_t> ids = WideIndices(c.input(2));
  const int64_t segments = gradient.dim(0);
  if (!ids.empty() && ids.back() >= segments) return InvalidArgument("Invalid number of segments");
  std::vector<int64_t> counts(segments, 0);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= segments) {
      return InvalidArgument("Segment id ", ids[i], " out of range [0, ", segments, ").");
    }
    if (indices[i] < 0 || indices[i] >= output_rows) {
      return InvalidArgument("Index ", indices[i], " out of range [0, ", output_rows, ").");
    }
    ++counts[ids[i]];
  }
  if constexpr (kCompact) {
    const std::vector<int64_t> rows = Compact(indices);
    RETURN_IF_ERROR(SetRows(c, rows));
    output_rows = static_cast<int64_t>(rows.size());
  }
  ASSIGN_OR_RETURN(const Shape shape, RowsLikeInput(c, output_rows));
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
  const int64_t inner = gradient.shape().ElementsIn(1, gradient.rank());
  std::vector<A> sums(output->num_elements(), A(0));
  const T* from = gradient.data<T>();
  for (size_t i = 0; i < ids.size(); ++i) {
    const A scale = static_cast<A>(Scale(kOp, counts[ids[i]]));
    A* to = sums.data() + indices[i] * inner;
    const T* row = from + ids[i] * inner;
    for (int64_t j = 0; j < inner; ++j) to[j] += static_cast<A>(row[j]) * scale;
  }
  for (int64_t i = 0; i < output->num_elements(); ++i) output->data<T>()[i] = T(sums[i]);
  return absl::OkStatus();
}

absl::Status SparseShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape data, c.WithRankAtLeast(c.input(0), 1));
  ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(c.input(1), 1));
  ASSIGN_OR_RETURN(const PartialShape ids, c.WithRank(c.input(2), 1));
  RETURN_IF_ERROR(indices.Merge(ids).status());
  int64_t segments = -1;
  if (c.num_inputs() == 4) {
    RETURN_IF_ERROR(c.WithRank(c.input(3), 0).status());
    ASSIGN_OR_RETURN(const std::optional<int64_t> known, c.ScalarInput(3));
    if (known.has_value() && *known < 0)
      return InvalidArgument("Cannot specify a negative value for num_segments");
    segments = known.value_or(-1);
  }
  c.SetOutput(0, ShapeContext::Concatenate(PartialShape::Vector(segments),
                                           ShapeContext::Subshape(data, 1)));
  return absl::OkStatus();
}

absl::Status GradientShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape data, c.WithRankAtLeast(c.input(0), 1));
  ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(c.input(1), 1));
  RETURN_IF_ERROR(c.WithRank(c.input(2), 1).status());
  RETURN_IF_ERROR(indices.Merge(c.input(2)).status());
  RETURN_IF_ERROR(c.WithRank(c.input(3), 0).status());
  ASSIGN_OR_RETURN(const std::optional<int64_t> rows, c.ScalarInput(3));
  if (rows.has_value() && *rows < 0) {
    return InvalidArgument("Dimension size, given by scalar input 3, must be non-negative but is ",
                           *rows);
  }
  c.SetOutput(0, ShapeContext::Concatenate(PartialShape::Vector(rows.value_or(-1)),
                                           ShapeContext::Subshape(data, 1)));
  return absl::OkStatus();
}

absl::Status CompactGradientShape(ShapeContext& c) {
  RETURN_IF_ERROR(GradientShape(c));
  c.SetOutput(0, ShapeContext::Concatenate(PartialShape::Vector(-1),
                                           ShapeContext::Subshape(c.input(0), 1)));
  c.SetOutput(1, PartialShape::Vector(-1));
  return absl::OkStatus();
}

absl::Status RefuseSparseGradient(GradientContext& c) {
  if (c.Attr<bool>("sparse_gradient")) {
    return Unimplemented("The gradient of ", c.node().op(),
                         " with sparse_gradient is not supported");
  }
  return absl::OkStatus();
}

absl::Status SumGradient(GradientContext& c) {
  RETURN_IF_ERROR(RefuseSparseGradient(c));
  const Output rows = EmitElement(c.scope(), EmitShape(c.scope(), c.input(0)), 0);
  const Output gathered = EmitGather(c.scope(), c.dy(), c.input(2));
  c.SetDx(0, c.Op("UnsortedSegmentSum", {gathered, c.input(1), rows}));
  return absl::OkStatus();
}

absl::Status ScaledGradient(GradientContext& c, absl::string_view op) {
  RETURN_IF_ERROR(RefuseSparseGradient(c));
  const Output rows = EmitElement(c.scope(), EmitShape(c.scope(), c.input(0)), 0);
  c.SetDx(0, c.Op(op, {c.dy(), c.input(1), c.input(2), rows}));
  return absl::OkStatus();
}
absl::Status MeanGradient(GradientContext& c) {
  return ScaledGradient(c, "SparseSegmentMeanGrad");
}
absl::Status SqrtNGradient(GradientContext& c) {
  return ScaledGradient(c, "SparseSegmentSqrtNGrad");
}

constexpr const char* kRealTypes =
    "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}";
constexpr const char* kFloatTypes = "T: {bfloat16, half, float, double}";

void Define(OpBuilder& op, const char* types) {
  op.Attr(types)
      .Attr("Tidx: {int32, int64} = DT_INT32")
      .Attr2x("Tsegmentids: {int32, int64} = DT_INT32")
      .Attr2x("sparse_gradient: bool = false")
      .Input("data: T")
      .Input("indices: Tidx")
      .Input("segment_ids: Tsegmentids")
      .Output("output: T")
      .Shape(SparseShape);
}

void DefineWithCount(OpBuilder& op, const char* types) {
  op.Attr(types)
      .Attr("Tidx: {int32, int64} = DT_INT32")
      .Attr("Tnumsegments: {int32, int64} = DT_INT32")
      .Attr2x("Tsegmentids: {int32, int64} = DT_INT32")
      .Attr2x("sparse_gradient: bool = false")
      .Input("data: T")
      .Input("indices: Tidx")
      .Input("segment_ids: Tsegmentids")
      .Input("num_segments: Tnumsegments")
      .Output("output: T")
      .Shape(SparseShape)
      .HostMemory({"num_segments"});
}

void DefineGradient(OpBuilder& op) {
  op.Attr(kFloatTypes)
      .Attr("Tidx: {int32, int64} = DT_INT32")
      .Attr2x("Tsegmentids: {int32, int64} = DT_INT32")
      .Input("grad: T")
      .Input("indices: Tidx")
      .Input("segment_ids: Tsegmentids")
      .Input("output_dim0: int32")
      .Output("output: T")
      .Shape(GradientShape)
      .HostMemory({"output_dim0"});
}

template <SegmentOp kOp>
void DefineCompactGradient(OpBuilder& op) {
  op.Attr(kFloatTypes)
      .Attr("Tidx: {int32, int64} = DT_INT32")
      .Attr("Tsegmentids: {int32, int64} = DT_INT32")
      .Input("grad: T")
      .Input("indices: Tidx")
      .Input("segment_ids: Tsegmentids")
      .Input("dense_output_dim0: int32")
      .Output("output: T")
      .Output("sorted_unique_indices: Tidx")
      .Doc("Gradient of a sum over segments of rows: the rows that occur, and which they are.")
      .Shape(CompactGradientShape)
      .HostMemory({"dense_output_dim0"});
  op.CpuTypes<Floats>("T", []<typename T>() { return Stateless(RunGradient<T, kOp, true>); });
}

constexpr auto kSum = []<typename T>() { return Stateless(RunSparseSegment<T, SegmentOp::kSum>); };
constexpr auto kMean = []<typename T>() {
  return Stateless(RunSparseSegment<T, SegmentOp::kMean>);
};
constexpr auto kSqrtN = []<typename T>() {
  return Stateless(RunSparseSegment<T, SegmentOp::kSqrtN>);
};

}  // namespace

DEFINE_OP(SparseSegmentSum) {
  Define(op, kRealTypes);
  op.Doc("Sums of picked rows by sorted segment id.")
      .Gradient(SumGradient)
      .CpuTypes<Reals>("T", kSum);
  AddSparseSegmentsOnGpu(op, SegmentOp::kSum, /*has_count=*/false);
}

DEFINE_OP(SparseSegmentMean) {
  Define(op, kFloatTypes);
  op.Doc("Means of picked rows by sorted segment id.")
      .Gradient(MeanGradient)
      .CpuTypes<Floats>("T", kMean);
  AddSparseSegmentsOnGpu(op, SegmentOp::kMean, /*has_count=*/false);
}

DEFINE_OP(SparseSegmentSqrtN) {
  Define(op, kFloatTypes);
  op.Doc("Sums of picked rows by sorted segment id, divided by the root of their number.")
      .Gradient(SqrtNGradient)
      .CpuTypes<Floats>("T", kSqrtN);
  AddSparseSegmentsOnGpu(op, SegmentOp::kSqrtN, /*has_count=*/false);
}

DEFINE_OP(SparseSegmentSumWithNumSegments) {
  DefineWithCount(op, kRealTypes);
  op.Doc("SparseSegmentSum with a given number of segments.")
      .Gradient(SumGradient)
      .CpuTypes<Reals>("T", kSum);
  AddSparseSegmentsOnGpu(op, SegmentOp::kSum, /*has_count=*/true);
}

DEFINE_OP(SparseSegmentMeanWithNumSegments) {
  DefineWithCount(op, kFloatTypes);
  op.Doc("SparseSegmentMean with a given number of segments.")
      .Gradient(MeanGradient)
      .CpuTypes<Floats>("T", kMean);
  AddSparseSegmentsOnGpu(op, SegmentOp::kMean, /*has_count=*/true);
}

DEFINE_OP(SparseSegmentSqrtNWithNumSegments) {
  DefineWithCount(op, kFloatTypes);
  op.Doc("SparseSegmentSqrtN with a given number of segments.")
      .Gradient(SqrtNGradient)
      .CpuTypes<Floats>("T", kSqrtN);
  AddSparseSegmentsOnGpu(op, SegmentOp::kSqrtN, /*has_count=*/true);
}

DEFINE_OP(SparseSegmentSumGrad) {
  DefineGradient(op);
  op.Doc("The gradient of SparseSegmentSum for its data.").CpuTypes<Floats>("T", []<typename T>() {
    return Stateless(RunGradient<T, SegmentOp::kSum>);
  });
  AddSparseSegmentGradientOnGpu(op, SegmentOp::kSum);
}

DEFINE_OP(SparseSegmentMeanGrad) {
  DefineGradient(op);
  op.Doc("The gradient of SparseSegmentMean for its data.").CpuTypes<Floats>("T", []<typename T>() {
    return Stateless(RunGradient<T, SegmentOp::kMean>);
  });
  AddSparseSegmentGradientOnGpu(op, SegmentOp::kMean);
}

DEFINE_OP(SparseSegmentSqrtNGrad) {
  DefineGradient(op);
  op.Doc("The gradient of SparseSegmentSqrtN for its data.")
      .CpuTypes<Floats>("T",
                        []<typename T>() { return Stateless(RunGradient<T, SegmentOp::kSqrtN>); });
  AddSparseSegmentGradientOnGpu(op, SegmentOp::kSqrtN);
}

DEFINE_OP(SparseSegmentSumGradV2) {
  DefineCompactGradient<SegmentOp::kSum>(op);
}

DEFINE_OP(SparseSegmentMeanGradV2) {
  DefineCompactGradient<SegmentOp::kMean>(op);
}

DEFINE_OP(SparseSegmentSqrtNGradV2) {
  DefineCompactGradient<SegmentOp::kSqrtN>(op);
}

}  // namespace muster
