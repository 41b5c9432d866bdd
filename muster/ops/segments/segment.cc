// Reductions over segments whose ids are sorted: SegmentSum, SegmentMean, SegmentProd, SegmentMin,
// SegmentMax.
#include "muster/ops/segments/segment.h"

#include "muster/ops/emit.h"
#include "muster/ops/indexing/indexing.h"
#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/segments/segment_gpu.h"

namespace muster {

std::vector<int64_t> WideIndices(const Tensor& tensor) {
  std::vector<int64_t> wide(tensor.num_elements());
  const absl::Status status = WithIndices(tensor, [&](const auto* data) -> absl::Status {
    std::copy(data, data + tensor.num_elements(), wide.begin());
    return absl::OkStatus();
  });
  DCHECK(status.ok());
  return wide;
}

namespace {

template <typename T>
void Divide(Compute<T>* row, int64_t count, int64_t divisor) {
  using A = Compute<T>;
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_unsigned_v<A>) {
      row[i] = static_cast<A>(uint64_t{row[i]} / static_cast<uint64_t>(divisor));
    } else if constexpr (std::is_integral_v<A>) {
      row[i] = static_cast<A>(int64_t{row[i]} / divisor);
    } else {
      row[i] /= static_cast<A>(divisor);
    }
  }
}

// The shape of the result for these ids.
absl::StatusOr<Shape> CheckSegments(const Tensor& data, absl::Span<const int64_t> ids) {
  const int64_t rows = static_cast<int64_t>(ids.size());
  const int64_t segments = rows > 0 ? ids[rows - 1] : -1;
  if (rows > 0 && (segments < 0 || segments == std::numeric_limits<int64_t>::max())) {
    return InvalidArgument("segment ids must be >= 0");
  }
  Dims dims(data.shape().dims());
  dims[0] = segments + 1;
  ASSIGN_OR_RETURN(Shape shape, Shape::Make(dims));
  for (int64_t i = 0; i < rows; ++i) {
    if (i + 1 < rows && ids[i + 1] < ids[i])
      return InvalidArgument("segment ids are not increasing");
    if (ids[i] < 0 || ids[i] > segments) {
      return InvalidArgument("Segment id ", ids[i], " out of range [0, ", segments + 1,
                             "), possibly because 'segment_ids' input is not sorted.");
    }
  }
  return shape;
}

absl::Status CheckSegmentRows(const Tensor& data, const Tensor& ids) {
  if (!ids.shape().is_vector()) return InvalidArgument("segment_ids should be a vector.");
  if (data.rank() < 1) return InvalidArgument("input must be at least rank 1");
  if (ids.num_elements() != data.dim(0))
    return InvalidArgument("segment_ids should be the same size as dimension 0 of input.");
  return absl::OkStatus();
}

template <typename T, SegmentOp kOp>
absl::Status RunSegment(KernelContext& c) {
  using A = Compute<T>;
  const Tensor& data = c.input(0);
  RETURN_IF_ERROR(CheckSegmentRows(data, c.input(1)));
  const int64_t rows = data.dim(0);
  const std::vector<int64_t> ids = WideIndices(c.input(1));
  ASSIGN_OR_RETURN(const Shape shape, CheckSegments(data, ids));
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
  if (output->num_elements() == 0) return absl::OkStatus();
  const int64_t inner = data.shape().ElementsIn(1, data.rank());
  const T* from = data.data<T>();
  T* to = output->data<T>();
  const T gap = T(kOp == SegmentOp::kProd ? 1 : 0);
  std::vector<A> sums(inner);
  int64_t next = 0;  // the first segment that is not written yet
  for (int64_t begin = 0; begin < rows;) {
    int64_t end = begin + 1;
    while (end < rows && ids[end] == ids[begin]) ++end;
    std::fill(to + next * inner, to + ids[begin] * inner, gap);
    for (int64_t i = 0; i < inner; ++i) sums[i] = static_cast<A>(from[begin * inner + i]);
    for (int64_t row = begin + 1; row < end; ++row)
      ReduceRow<T>(kOp, sums.data(), from + row * inner, inner);
    if (kOp == SegmentOp::kMean && end - begin > 1) Divide<T>(sums.data(), inner, end - begin);
    for (int64_t i = 0; i < inner; ++i) to[ids[begin] * inner + i] = T(sums[i]);
    next = ids[begin] + 1;
    begin = end;
  }
  return absl::OkStatus();
}

// The last id says how many segments there are: the host waits for the ids.
class GpuSegmentSum final : public GpuKernel {
 public:
  GpuSegmentSum(DType dtype, DType index) : segments_(*this, "Sum", dtype, index) {}
  bool is_async() const override { return true; }
  absl::Status Compute(KernelContext&) override { return Internal("SegmentSum is asynchronous"); }
  void ComputeAsync(KernelContext& c, Done done) override {
    if (const absl::Status status = CheckSegmentRows(c.input(0), c.input(1)); !status.ok())
      return std::move(done)(status);
    c.device().CopyToHost(c.input(1),
                          [this, &c, done = std::move(done)](absl::StatusOr<Tensor> ids) mutable {
                            std::move(done)(ids.ok() ? Finish(c, *ids) : ids.status());
                          });
  }

 private:
  absl::Status Finish(KernelContext& c, const Tensor& ids) const {
    const Tensor& data = c.input(0);
    ASSIGN_OR_RETURN(const Shape shape, CheckSegments(data, WideIndices(ids)));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    return segments_.Run(c, data, c.input(1), data.shape().ElementsIn(1, data.rank()), *output);
  }

  const GpuSegments segments_;
};

absl::Status SegmentShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape data, c.WithRankAtLeast(c.input(0), 1));
  RETURN_IF_ERROR(c.WithRank(c.input(1), 1).status());
  c.SetOutput(0,
              ShapeContext::Concatenate(PartialShape::Vector(-1), ShapeContext::Subshape(data, 1)));
  return absl::OkStatus();
}

absl::Status SumGradient(GradientContext& c) {
  c.SetDx(0, EmitGather(c.scope(), c.dy(), c.input(1)));
  return absl::OkStatus();
}

absl::Status MeanGradient(GradientContext& c) {
  const Scope& scope = c.scope();
  const Output rank = EmitRank(scope, c.input(0));
  const Output ids_shape = EmitShape(scope, c.input(1));
  const Output inner_rank = EmitExpandDims(scope, EmitBinary(scope, "Sub", "sub", rank, 1), 0);
  const NamedOp fill(scope, "Fill");
  const Output inner_ones =
      fill.Op("Fill", {inner_rank, fill.inner().ConstScalar<int32_t>(1, "value")});
  const Output ones_shape =
      EmitConcatOf(scope, {ConcatPart::Of(ids_shape), ConcatPart::Of(inner_ones)});
  const Output one = EmitScalar(scope, c.dy().base_dtype(), 1);
  const Output ones = c.Op("Fill", {ones_shape, one});
  const Output counts = c.Op("SegmentSum", {ones, c.input(1)});
  const Output scaled = c.Op("RealDiv", {c.dy(), counts}, {}, "truediv");
  c.SetDx(0, EmitGather(scope, scaled, c.input(1)));
  return absl::OkStatus();
}

// The gradient of a segment is shared evenly by the elements that attain its extreme.
absl::Status ExtremeGradient(GradientContext& c) {
  const Scope& scope = c.scope();
  const Output zeros = EmitZerosLike(scope, c.input(0));
  const Output extremes = EmitGather(scope, c.output(), c.input(1));
  const Output selected = c.Op("Equal", {c.input(0), extremes});
  const Output counts =
      c.Op("SegmentSum", {EmitCast(scope, selected, c.dy().base_dtype()), c.input(1)});
  const Output weighted = c.Op("RealDiv", {c.dy(), counts}, {}, "truediv");
  const Output gathered = EmitGather(scope, weighted, c.input(1));
  c.SetDx(0, c.Op("Select", {selected, gathered, zeros}));
  return absl::OkStatus();
}

// The product without one element is the product divided by it; zeros are left out and counted
// instead.
absl::Status ProdGradient(GradientContext& c) {
  const Scope& scope = c.scope();
  const Output data = c.input(0);
  const Output ids = c.input(1);
  const Output is_zero = EmitBinary(scope, "Equal", "Equal", data, 0);
  const Output zeros = c.Op("SegmentSum", {EmitCast(scope, is_zero, DType::kInt32), ids});
  const Output many = EmitBinary(scope, "Greater", "Greater", zeros, 1);
  const Output dy = c.Op("SelectV2", {many, EmitZerosLike(scope, c.dy()), c.dy()});
  const Output ones = EmitOnesLike(scope, data, data.base_dtype());
  const Output non_zero = c.Op("SelectV2", {is_zero, ones, data});
  const Output non_zero_prod = c.Op("SegmentProd", {non_zero, ids});
  const Output prod = EmitGather(scope, c.output(), ids);
  const Output prod_of_others = EmitGather(scope, non_zero_prod, ids);
  const Output divided = c.Op("RealDiv", {prod, non_zero}, {}, "truediv");
  const Output partial = c.Op("SelectV2", {is_zero, prod_of_others, divided});
  const Output gathered = EmitGather(scope, dy, ids);
  c.SetDx(0, c.Op("Mul", {gathered, partial}, {}, "mul"));
  return absl::OkStatus();
}

constexpr const char* kNumberTypes =
    "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
    "bfloat16, qint16, quint16, "
    "uint16, complex128, half, uint32, uint64}";
constexpr const char* kRealTypes =
    "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}";

void Define(OpBuilder& op, const char* types) {
  op.Attr(types)
      .Attr("Tindices: {int32, int64}")
      .Input("data: T")
      .Input("segment_ids: Tindices")
      .Output("output: T")
      .Shape(SegmentShape);
}

}  // namespace

DEFINE_OP(SegmentSum) {
  Define(op, kNumberTypes);
  op.Doc("Sums of rows with equal, sorted segment ids; 0 for ids without rows.")
      .Gradient(SumGradient)
      .CpuTypes<Numbers>("T",
                         []<typename T>() { return Stateless(RunSegment<T, SegmentOp::kSum>); });
  for (const DType index : {DType::kInt32, DType::kInt64}) {
    const auto make = [=](DType dtype) -> KernelFactory {
      return [=] { return std::make_unique<GpuSegmentSum>(dtype, index); };
    };
    op.GpuTypes("T", kGpuFloats, make, {}, {{"Tindices", index}});
  }
}

DEFINE_OP(SegmentMean) {
  Define(op, kNumberTypes);
  op.Doc("Means of rows with equal, sorted segment ids; 0 for ids without rows.")
      .Gradient(MeanGradient)
      .CpuTypes<Numbers>("T",
                         []<typename T>() { return Stateless(RunSegment<T, SegmentOp::kMean>); });
}

DEFINE_OP(SegmentProd) {
  Define(op, kNumberTypes);
  op.Doc("Products of rows with equal, sorted segment ids; 1 for ids without rows.")
      .Gradient(ProdGradient)
      .CpuTypes<Numbers>("T",
                         []<typename T>() { return Stateless(RunSegment<T, SegmentOp::kProd>); });
}

DEFINE_OP(SegmentMin) {
  Define(op, kRealTypes);
  op.Doc("Minima of rows with equal, sorted segment ids; 0 for ids without rows.")
      .Gradient(ExtremeGradient)
      .CpuTypes<Reals>("T", []<typename T>() { return Stateless(RunSegment<T, SegmentOp::kMin>); });
}

DEFINE_OP(SegmentMax) {
  Define(op, kRealTypes);
  op.Doc("Maxima of rows with equal, sorted segment ids; 0 for ids without rows.")
      .Gradient(ExtremeGradient)
      .CpuTypes<Reals>("T", []<typename T>() { return Stateless(RunSegment<T, SegmentOp::kMax>); });
}

}  // namespace muster
