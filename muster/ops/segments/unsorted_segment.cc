// Reductions over segments whose ids come in any order; negative ids drop their row.
#include "muster/ops/emit.h"
#include "muster/ops/indexing/indexing.h"
#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/segments/segment.h"
#include "muster/ops/segments/segment_gpu.h"

namespace muster {
namespace {

template <typename T, typename Index>
absl::Status ReduceRows(SegmentOp op, const Tensor& data, const Index* ids, const Shape& ids_shape,
                        int64_t segments, int64_t inner, Compute<T>* sums) {
  const T* from = data.data<T>();
  for (int64_t i = 0; i < ids_shape.num_elements(); ++i) {
    const int64_t id = static_cast<int64_t>(ids[i]);
    if (id < 0) continue;
    if (id >= segments) {
      return InvalidArgument("segment_ids", PositionText(ids_shape, i), " = ", id,
                             " is out of range [0, ", segments, ")");
    }
    ReduceRow<T>(op, sums + id * inner, from + i * inner, inner);
  }
  return absl::OkStatus();
}

struct UnsortedPlan {
  Shape output;
  int64_t segments = 0;
  int64_t inner = 1;  // elements of a row
};
absl::StatusOr<UnsortedPlan> PlanUnsorted(KernelContext& c) {
  const Tensor& data = c.input(0);
  const Tensor& ids = c.input(1);
  if (!c.input(2).shape().is_scalar()) {
    return InvalidArgument("num_segments should be a scalar, not shape ",
                           c.input(2).shape().ToString());
  }
  UnsortedPlan plan;
  ASSIGN_OR_RETURN(plan.segments, ScalarInteger(c.input(2), "num_segments"));
  if (plan.segments < 0)
    return InvalidArgument("Input num_segments == ", plan.segments, " must not be negative.");
  bool starts = data.rank() >= ids.rank();
  for (int i = 0; starts && i < ids.rank(); ++i) starts = data.dim(i) == ids.dim(i);
  if (!starts) {
    return InvalidArgument("data.shape = ", data.shape().ToString(),
                           " does not start with segment_ids.shape = ", ids.shape().ToString());
  }
  Dims dims(data.shape().dims().begin() + ids.rank(), data.shape().dims().end());
  dims.insert(dims.begin(), plan.segments);
  ASSIGN_OR_RETURN(plan.output, Shape::Make(dims));
  plan.inner = data.shape().ElementsIn(ids.rank(), data.rank());
  return plan;
}

template <typename T, SegmentOp kOp>
absl::Status RunUnsorted(KernelContext& c) {
  const Tensor& data = c.input(0);
  const Tensor& ids = c.input(1);
  ASSIGN_OR_RETURN(const UnsortedPlan plan, PlanUnsorted(c));
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, plan.output));
  using A = Compute<T>;
  // 16-bit floats are summed in float and rounded once.
  std::vector<A> wide;
  A* sums;
  if constexpr (std::is_same_v<A, T>) {
    sums = output->data<T>();
  } else {
    wide.resize(output->num_elements());
    sums = wide.data();
  }
  std::fill(sums, sums + output->num_elements(), SegmentStart<T>(kOp));
  RETURN_IF_ERROR(WithIndices(ids, [&](const auto* numbers) {
    return ReduceRows<T>(kOp, data, numbers, ids.shape(), plan.segments, plan.inner, sums);
  }));
  if constexpr (!std::is_same_v<A, T>) {
    for (int64_t i = 0; i < output->num_elements(); ++i) output->data<T>()[i] = T(sums[i]);
  }
  return absl::OkStatus();
}

class GpuUnsorted final : public GpuKernel {
 public:
  GpuUnsorted(const char* op, DType dtype, DType index) : segments_(*this, op, dtype, index) {}
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const UnsortedPlan plan, PlanUnsorted(c));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, plan.output));
    return segments_.Run(c, c.input(0), c.input(1), plan.inner, *output);
  }

 private:
  const GpuSegments segments_;
};
// `function` is a struct of unsorted_segment.cu.
void AddUnsortedKernelsOnGpu(OpBuilder& op, const char* function,
                             const std::vector<DType>& dtypes) {
  for (const DType index : {DType::kInt32, DType::kInt64}) {
    const auto make = [=](DType dtype) -> KernelFactory {
      return [=] { return std::make_unique<GpuUnsorted>(function, dtype, index); };
    };
    op.GpuTypes("T", dtypes, make, {}, {{"Tindices", index}});
  }
}

absl::Status UnsortedShape(ShapeContext& c) {
  const PartialShape& data = c.input(0);
  const PartialShape& ids = c.input(1);
  RETURN_IF_ERROR(c.WithRank(c.input(2), 0).status());
  ASSIGN_OR_RETURN(const std::optional<int64_t> segments, c.ScalarInput(2));
  if (segments.has_value() && *segments < 0) {
    return InvalidArgument("Dimension size, given by scalar input 2, must be non-negative but is ",
                           *segments);
  }
  if (!data.known_rank() || !ids.known_rank()) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(c.WithRankAtLeast(data, ids.rank()).status());
  for (int i = 0; i < ids.rank(); ++i)
    RETURN_IF_ERROR(ShapeContext::MergeDims(data[i], ids[i]).status());
  c.SetOutput(0, ShapeContext::Concatenate(PartialShape::Vector(segments.value_or(-1)),
                                           ShapeContext::Subshape(data, ids.rank())));
  return absl::OkStatus();
}

// params gathered by id, with zeros for negative ids. `clipped` and `positive` are made when absent
// and can be reused.
struct Dropped {
  Output gathered;
  Output clipped;
  Output positive;
};

absl::StatusOr<Dropped> GatherDropNegatives(GradientContext& c, Output params, Output ids,
                                            Output clipped, Output positive) {
  const Scope& scope = c.scope();
  Dropped result{Output(), clipped, positive};
  if (!result.clipped) result.clipped = c.Op("Maximum", {ids, EmitZerosLike(scope, ids)});
  const Output gathered = EmitGather(scope, params, result.clipped);
  if (!gathered) return scope.status();
  if (!result.positive) {
    result.positive = EmitBinary(scope, "GreaterEqual", "GreaterEqual", ids, 0);
    if (!result.positive) return scope.status();
    if (!gathered.shape().known_rank() || !result.positive.shape().known_rank()) {
      return InvalidArgument("The gradient of '", c.node().name(),
                             "' needs known ranks of data and segment_ids");
    }
    const int missing = gathered.shape().rank() - result.positive.shape().rank();
    for (int i = 0; i < missing; ++i) result.positive = EmitExpandDims(scope, result.positive, -1);
    result.positive = c.Op(
        "LogicalAnd", {result.positive, EmitOnesLike(scope, gathered, DType::kBool)}, {}, "and");
  }
  const Output zeros = EmitZerosLike(scope, gathered);
  result.gathered = c.Op("Select", {result.positive, gathered, zeros});
  return result;
}

absl::Status SumGradient(GradientContext& c) {
  ASSIGN_OR_RETURN(const Dropped rows,
                   GatherDropNegatives(c, c.dy(), c.input(1), Output(), Output()));
  c.SetDx(0, rows.gathered);
  return absl::OkStatus();
}

absl::Status ExtremeGradient(GradientContext& c) {
  const Scope& scope = c.scope();
  ASSIGN_OR_RETURN(const Dropped extremes,
                   GatherDropNegatives(c, c.output(), c.input(1), Output(), Output()));
  const Output equal = c.Op("Equal", {c.input(0), extremes.gathered});
  const Output selected = c.Op("LogicalAnd", {equal, extremes.positive});
  const Output counted = EmitCast(scope, selected, c.dy().base_dtype());
  const Output counts = c.Op("UnsortedSegmentSum", {counted, c.input(1), c.input(2)});
  const Output weighted = c.Op("RealDiv", {c.dy(), counts}, {}, "truediv");
  ASSIGN_OR_RETURN(
      const Dropped gradients,
      GatherDropNegatives(c, weighted, c.input(1), extremes.clipped, extremes.positive));
  const Output zeros = EmitZerosLike(scope, gradients.gathered);
  c.SetDx(0, c.Op("Select", {selected, gradients.gathered, zeros}));
  return absl::OkStatus();
}

// See SegmentProd: zeros are left out of the products and counted.
absl::Status ProdGradient(GradientContext& c) {
  const Scope& scope = c.scope();
  const Output data = c.input(0);
  const Output ids = c.input(1);
  const Output is_zero = EmitBinary(scope, "Equal", "Equal", data, 0);
  const Output zeros =
      c.Op("UnsortedSegmentSum", {EmitCast(scope, is_zero, DType::kInt32), ids, c.input(2)});
  const Output many = EmitBinary(scope, "Greater", "Greater", zeros, 1);
  const Output dy = c.Op("Select", {many, EmitZerosLike(scope, c.dy()), c.dy()});
  const Output non_zero =
      c.Op("Select", {is_zero, EmitOnesLike(scope, data, data.base_dtype()), data});
  const Output non_zero_prod = c.Op("UnsortedSegmentProd", {non_zero, ids, c.input(2)});
  const Output clipped = c.Op("Maximum", {ids, EmitZerosLike(scope, ids)});
  const Output prod = EmitGather(scope, c.output(), clipped);
  const Output prod_of_others = EmitGather(scope, non_zero_prod, clipped);
  const Output divided = c.Op("RealDiv", {prod, data}, {}, "truediv");
  const Output partial = c.Op("Select", {is_zero, prod_of_others, divided});
  ASSIGN_OR_RETURN(const Dropped gathered, GatherDropNegatives(c, dy, ids, clipped, Output()));
  c.SetDx(0, c.Op("Mul", {gathered.gathered, partial}, {}, "mul"));
  return absl::OkStatus();
}

constexpr const char* kNumberTypes =
    "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
    "bfloat16, qint16, quint16, "
    "uint16, complex128, half, uint32, uint64}";
constexpr const char* kRealTypes =
    "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}";

void Define(OpBuilder& op, const char* types, const char* indices) {
  op.Attr(types)
      .Attr(indices)
      .Attr("Tnumsegments: {int32, int64} = DT_INT32")
      .Input("data: T")
      .Input("segment_ids: Tindices")
      .Input("num_segments: Tnumsegments")
      .Output("output: T")
      .Shape(UnsortedShape)
      .HostMemory({"num_segments"});
}

}  // namespace

DEFINE_OP(UnsortedSegmentSum) {
  Define(op, kNumberTypes, "Tindices: {int16, int32, int64}");
  op.Doc("Sums of rows with equal segment ids; 0 for ids without rows.")
      .Gradient(SumGradient)
      .CpuTypes<Numbers>("T",
                         []<typename T>() { return Stateless(RunUnsorted<T, SegmentOp::kSum>); });
  AddUnsortedKernelsOnGpu(op, "Sum", With(kGpuFields, {DType::kInt32}));
}

DEFINE_OP(UnsortedSegmentProd) {
  Define(op, kNumberTypes, "Tindices: {int32, int64}");
  op.Doc("Products of rows with equal segment ids; 1 for ids without rows.")
      .Gradient(ProdGradient)
      .CpuTypes<Numbers>("T",
                         []<typename T>() { return Stateless(RunUnsorted<T, SegmentOp::kProd>); });
  AddUnsortedKernelsOnGpu(op, "Prod", With(kGpuFloats, {DType::kInt32}));
}

DEFINE_OP(UnsortedSegmentMin) {
  Define(op, kRealTypes, "Tindices: {int32, int64}");
  op.Doc(
        "Minima of rows with equal segment ids; the largest value of the type for ids without "
        "rows.")
      .Gradient(ExtremeGradient)
      .CpuTypes<Reals>("T",
                       []<typename T>() { return Stateless(RunUnsorted<T, SegmentOp::kMin>); });
  AddUnsortedKernelsOnGpu(op, "Min", With(kGpuFloats, {DType::kInt32}));
}

DEFINE_OP(UnsortedSegmentMax) {
  Define(op, kRealTypes, "Tindices: {int32, int64}");
  op.Doc(
        "Maxima of rows with equal segment ids; the lowest value of the type for ids without rows.")
      .Gradient(ExtremeGradient)
      .CpuTypes<Reals>("T",
                       []<typename T>() { return Stateless(RunUnsorted<T, SegmentOp::kMax>); });
  AddUnsortedKernelsOnGpu(op, "Max", With(kGpuFloats, {DType::kInt32}));
}

}  // namespace muster
