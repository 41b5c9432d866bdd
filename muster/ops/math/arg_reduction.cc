// ArgMax and ArgMin: where along one axis the largest or smallest element is; the first one where
// there are several.
#include <limits>

#include "absl/strings/str_cat.h"

#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/math/float16.h"
#include "muster/ops/math/reduce_gpu.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

absl::Status InferShape(ShapeContext& c) {
  const PartialShape& input = c.input(0);
  RETURN_IF_ERROR(c.WithRank(c.input(1), 0).status());
  if (input.known_rank() && input.rank() <= 1) {
    // A scalar comes out of any valid axis; bad ones are found below or at run time.
    ASSIGN_OR_RETURN(const std::optional<int64_t> axis, c.ScalarInput(1));
    if (!axis || input.rank() == 0) {
      c.SetOutput(0, PartialShape::Scalar());
      return absl::OkStatus();
    }
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> axis, c.ScalarInput(1));
  if (!input.known_rank()) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  if (!axis) {
    c.SetOutput(0, PartialShape::OfRank(input.rank() - 1));
    return absl::OkStatus();
  }
  if (*axis < -input.rank() || *axis >= input.rank()) {
    return InvalidArgument("Dimension (", *axis, ") must be in the range [", -input.rank(), ", ",
                           input.rank(), "), where ", input.rank(),
                           " is the number of dimensions in the input.");
  }
  const int64_t at = *axis < 0 ? *axis + input.rank() : *axis;
  PartialShape output = PartialShape::Scalar();
  for (int i = 0; i < input.rank(); ++i) {
    if (i != at) output.Append(input[i]);
  }
  c.SetOutput(0, std::move(output));
  return absl::OkStatus();
}

// Indices are found as int64 and stored in the output's type by the caller.
// One result: elements `step` apart. NaN is never better than anything.
template <typename A, bool kMax>
struct Better {
  static constexpr A Worst() {
    return kMax ? std::numeric_limits<A>::lowest() : std::numeric_limits<A>::max();
  }
  static bool Is(A x, A than) { return kMax ? x > than : x < than; }
};

template <typename T, bool kMax>
void FindRow(const T* row, int64_t length, int64_t* index) {
  using A = Compute<T>;
  A best = Better<A, kMax>::Worst();
  int64_t at = 0;
  for (int64_t i = 0; i < length; ++i) {
    const A value = static_cast<A>(row[i]);
    if (Better<A, kMax>::Is(value, best)) {
      best = value;
      at = i;
    }
  }
  *index = at;
}

template <typename T, bool kMax>
void FindColumns(const T* block, int64_t length, int64_t columns, Compute<T>* best,
                 int64_t* index) {
  using A = Compute<T>;
  for (int64_t j = 0; j < columns; ++j) {
    best[j] = Better<A, kMax>::Worst();
    index[j] = 0;
  }
  for (int64_t i = 0; i < length; ++i, block += columns) {
    for (int64_t j = 0; j < columns; ++j) {
      const A value = static_cast<A>(block[j]);
      const bool better = Better<A, kMax>::Is(value, best[j]);
      best[j] = better ? value : best[j];
      index[j] = better ? i : index[j];
    }
  }
}

void StoreIndices(const int64_t* from, int64_t count, Tensor& out, int64_t at) {
  const auto store = [&]<typename I>() {
    I* to = out.data<I>() + at;
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<I>(from[i]);
  };
  switch (out.dtype()) {
    case DType::kInt16:
      return store.operator()<int16_t>();
    case DType::kUint16:
      return store.operator()<uint16_t>();
    case DType::kInt32:
      return store.operator()<int32_t>();
    default:
      return store.operator()<int64_t>();
  }
}

// The axis (int16, int32 or int64).
absl::StatusOr<int64_t> Axis(const Tensor& tensor) {
  if (tensor.rank() != 0)
    return InvalidArgument("dim must be a scalar, but received tensor of shape: ",
                           tensor.shape().ToString());
  if (tensor.dtype() == DType::kInt16) return tensor.scalar<int16_t>();
  if (tensor.dtype() == DType::kInt32) return tensor.scalar<int32_t>();
  return tensor.scalar<int64_t>();
}

// The axis of input 0 that input 1 names.
absl::StatusOr<int> CheckedAxis(KernelContext& c) {
  const Tensor& input = c.input(0);
  ASSIGN_OR_RETURN(const int64_t axis, Axis(c.input(1)));
  const int rank = input.rank();
  if (axis < -rank || axis >= rank) {
    return InvalidArgument("Expected dimension in the range [", -rank, ", ", rank, "), but got ",
                           axis);
  }
  const int at = static_cast<int>(axis < 0 ? axis + rank : axis);
  if (input.dim(at) == 0)
    return InvalidArgument("Reduction axis ", at, " is empty in shape ", input.shape().ToString());
  return at;
}

template <typename T, bool kMax>
absl::Status Run(KernelContext& c) {
  const Tensor& input = c.input(0);
  ASSIGN_OR_RETURN(const int at, CheckedAxis(c));
  const int rank = input.rank();
  const int64_t length = input.dim(at);
  Shape shape = input.shape();
  shape.Remove(at);
  ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
  if (shape.num_elements() == 0) return absl::OkStatus();
  const int64_t outer = input.shape().ElementsIn(0, at);
  const int64_t inner = input.shape().ElementsIn(at + 1, rank);
  const T* const from = input.data<T>();
  if (inner == 1) {
    c.ParallelFor(outer, static_cast<double>(length) + 2, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t index;
        FindRow<T, kMax>(from + i * length, length, &index);
        StoreIndices(&index, 1, *out, i);
      }
    });
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(Tensor indices, c.AllocateTemporary(DType::kInt64, shape));
  ASSIGN_OR_RETURN(Tensor best, c.AllocateTemporary(kDTypeOf<Compute<T>>, shape));
  c.ParallelFor(outer, static_cast<double>(length * inner), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t* const index = indices.data<int64_t>() + i * inner;
      FindColumns<T, kMax>(from + i * length * inner, length, inner,
                           best.data<Compute<T>>() + i * inner, index);
      StoreIndices(index, inner, *out, i * inner);
    }
  });
  return absl::OkStatus();
}

constexpr int64_t kCandidateBytes = 16;  // of a value and its index
class GpuArgReduction final : public GpuKernel {
 public:
  explicit GpuArgReduction(const std::string& op) : reducer_(*this, op, kCandidateBytes) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(const int at, CheckedAxis(c));
    const Tensor axis = Tensor::Vector<int32_t>({at});
    ASSIGN_OR_RETURN(const ReductionPlan plan, PlanReduction(input.shape(), axis, false));
    ASSIGN_OR_RETURN(Tensor* const out, c.AllocateOutput(0, plan.output));
    return reducer_.Run(c, plan, input, *out);
  }

 private:
  const GpuReducer reducer_;
};
// `function` is a struct of reduction.cu.
void AddArgKernelsOnGpu(OpBuilder& op, const char* function) {
  for (const DType index : {DType::kInt32, DType::kInt64}) {
    const auto make = [=](DType dtype) -> KernelFactory {
      const std::string name =
          absl::StrCat(function, "<", GpuTypeName(dtype), ", ", GpuTypeName(index), ">");
      return [=] { return std::make_unique<GpuArgReduction>(name); };
    };
    op.GpuTypes("T", kGpuFloats, make, {}, {{"output_type", index}});
  }
}

using ArgTypes = Join<Reals, Types<bool>>;
constexpr char kArgTypes[] =
    "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, "
    "qint8, quint8, qint32, "
    "qint16, quint16, bool}";

DEFINE_OP(ArgMax) {
  op.Attr(kArgTypes)
      .Attr("Tidx: {int16, int32, int64} = DT_INT32")
      .Attr("output_type: {int16, uint16, int32, int64} = DT_INT64")
      .Input("input: T")
      .Input("dimension: Tidx")
      .Output("output: output_type")
      .Doc("Index of the first largest element along an axis.")
      .Shape(InferShape)
      .NoGradient("Indices do not vary smoothly")
      .HostMemory({"dimension"})
      .CpuTypes<ArgTypes>("T", []<typename T>() { return Stateless(Run<T, true>); });
  AddArgKernelsOnGpu(op, "ArgMax");
}

DEFINE_OP(ArgMin) {
  op.Attr(kArgTypes)
      .Attr("Tidx: {int32, int64} = DT_INT32")
      .Attr("output_type: {int32, int64} = DT_INT64")
      .Input("input: T")
      .Input("dimension: Tidx")
      .Output("output: output_type")
      .Doc("Index of the first smallest element along an axis.")
      .Shape(InferShape)
      .NoGradient("Indices do not vary smoothly")
      .HostMemory({"dimension"})
      .CpuTypes<ArgTypes>("T", []<typename T>() { return Stateless(Run<T, false>); });
  AddArgKernelsOnGpu(op, "ArgMin");
}

}  // namespace
}  // namespace muster
