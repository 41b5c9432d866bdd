// ScatterAdd and its relatives: rows of a variable at indices, one after the other, so that
// repeated ones accumulate.
#include "muster/ops/state/scatter.h"

#include <bit>

#include "absl/strings/str_cat.h"

#include "muster/ops/gpu_kernel.h"
#include "muster/ops/rows_ahead.h"

namespace muster {
namespace {

constexpr double kCacheMissNanos = 20;

absl::Status CheckUpdates(const Tensor& params, const Tensor& indices, const Tensor& updates) {
  if (params.rank() < 1)
    return InvalidArgument("params must be at least 1-D, got shape ", params.shape().ToString());
  if (updates.shape().is_scalar()) return absl::OkStatus();
  Dims wanted = indices.shape().dims();
  wanted.insert(wanted.end(), params.shape().dims().begin() + 1, params.shape().dims().end());
  if (updates.shape().dims() == wanted) return absl::OkStatus();
  return InvalidArgument(
      "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got ",
      "updates.shape ", updates.shape().ToString(), ", indices.shape ", indices.shape().ToString(),
      ", params.shape ", params.shape().ToString());
}

template <typename Update>
class RowScatterKernel : public ScatterKernel {
 protected:
  absl::Status Scatter(const KernelContext& c, Tensor& params, TouchedRows& touched,
                       const Tensor& indices, const Tensor& updates) override {
    RETURN_IF_ERROR(CheckUpdates(params, indices, updates));
    ASSIGN_OR_RETURN(const std::vector<int64_t> rows, CheckedIndices(indices, params.dim(0)));
    const Update update{params.dtype()};
    RETURN_IF_ERROR(update.Check(updates));
    touched.Note(rows);
    const int64_t row_elements = params.shape().ElementsIn(1, params.rank());
    const int64_t row_bytes = row_elements * static_cast<int64_t>(DTypeSize(params.dtype()));
    const bool scalar = updates.shape().is_scalar();
    // Each thread takes the rows that are its own, in the order of the updates: what repeated rows
    // come to does not depend on how many threads there are.
    const auto count = static_cast<int64_t>(rows.size());
    const uint64_t parts =
        IsPlainData(params.dtype())
            ? std::bit_floor(static_cast<uint64_t>(c.step().scheduler->parallelism()))
            : 1;
    const double cost = (kCacheMissNanos + static_cast<double>(row_bytes) / 16) *
                        static_cast<double>(count) / static_cast<double>(parts);
    c.ParallelFor(static_cast<int64_t>(parts), cost, [&](int64_t begin, int64_t end) {
      const auto is_own = [&](int64_t row) {
        const auto part = static_cast<int64_t>(static_cast<uint64_t>(row) & (parts - 1));
        return part >= begin && part < end;
      };
      for (int64_t i = 0; i < count; ++i) {
        if (i + kRowsAhead < count && is_own(rows[i + kRowsAhead]))
          PrefetchRow(params.raw() + rows[i + kRowsAhead] * row_bytes, row_bytes);
        if (!is_own(rows[i])) continue;
        update(params.raw() + rows[i] * row_bytes, updates.raw() + (scalar ? 0 : i * row_bytes),
               scalar, row_elements);
      }
    });
    return absl::OkStatus();
  }
};

class GpuRowScatter : public GpuKernel {
 public:
  GpuRowScatter(const char* change, DType dtype, DType index)
      : run_(*this, "state/change.cu",
             absl::StrCat("ChangeRows<", change, ", ", GpuTypeName(dtype), ", ", GpuTypeName(index),
                          ">")) {}
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const RefPtr<Variable> variable, ScatterVariable(c));
    const Tensor& indices = c.input(1);
    const Tensor& updates = c.input(2);
    // Which rows are touched is known to the card only: it counts as a change of the whole.
    const absl::Status changed = variable->Update([&](Tensor& params) -> absl::Status {
      RETURN_IF_ERROR(CheckUpdates(params, indices, updates));
      const int64_t row_elements = params.shape().ElementsIn(1, params.rank());
      const int64_t count = indices.num_elements() * row_elements;
      return run_.LaunchForEach(count, GpuOut(params), GpuIn(indices), GpuIn(updates), count,
                                row_elements, params.dim(0), updates.shape().is_scalar());
    });
    RETURN_IF_ERROR(changed);
    if (c.input_is_reference(0)) c.SetOutputReference(0, c.input_reference(0));
    return absl::OkStatus();
  }

 private:
  GpuFunction run_;
};

void AddGpuRowScatter(OpBuilder& op, const char* attr, const char* change,
                      const std::vector<DType>& dtypes) {
  for (const DType index : {DType::kInt32, DType::kInt64}) {
    op.GpuTypes(attr, dtypes,
                [change, index](DType dtype) -> KernelFactory {
                  return [=] { return std::make_unique<GpuRowScatter>(change, dtype, index); };
                },
                {}, {{"Tindices", index}});
  }
}

absl::Status ScatterShape(ShapeContext& c) {
  const PartialShape variable = InputVariableShape(c, 0);
  // A scalar variable is the kernel's to refuse, as in TensorFlow.
  if (c.input(2).rank() != 0 && variable.rank() != 0) {
    const PartialShape wanted =
        ShapeContext::Concatenate(c.input(1), ShapeContext::Subshape(variable, 1));
    RETURN_IF_ERROR(ShapeContext::Merge(c.input(2), wanted).status());
  }
  if (c.num_outputs() == 1) c.SetOutput(0, variable);
  return absl::OkStatus();
}

void DefineReference(OpBuilder& op, const char* type, const char* use_locking) {
  op.Attr(type).Attr("Tindices: {int32, int64}").Attr(use_locking);
  op.Input("ref: Ref(T)")
      .Input("indices: Tindices")
      .Input("updates: T")
      .Output("output_ref: Ref(T)")
      .Shape(ScatterShape);
}

void DefineResource(OpBuilder& op, const char* type) {
  op.Attr(type).Attr("Tindices: {int32, int64}");
  op.Input("resource: resource")
      .Input("indices: Tindices")
      .Input("updates: dtype")
      .Stateful()
      .Shape(ScatterShape);
}

template <Change kChange, typename List>
void AddKernels(OpBuilder& op, const char* attr,
                const std::vector<DType>& on_gpu = {DType::kFloat, DType::kDouble}) {
  op.CpuTypes<List>(attr, []<typename T>() {
    return New<RowScatterKernel<SliceUpdate::Arithmetic<kChange, T>>>();
  });
  AddGpuRowScatter(op, attr, GpuChangeName(kChange), on_gpu);
}

constexpr const char* kNumbers = "T: numbertype";
constexpr const char* kOrdered = "T: {half, bfloat16, float, double, int32, int64}";
constexpr const char* kLocking = "use_locking: bool = true";
constexpr const char* kNoLocking = "use_locking: bool = false";
using OrderedTypes = Join<Floats, Indices>;
std::vector<DType> GpuFloatTypes() {
  return {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble};
}

}  // namespace

DEFINE_OP(ScatterUpdate) {
  DefineReference(op, "T: type", kLocking);
  op.Doc("Replaces rows of a variable.")
      .NoGradient("changes a variable")
      .Cpu(New<RowScatterKernel<SliceUpdate::Assign>>());
  AddGpuRowScatter(op, "T", "Update", GpuVariableTypes());
}

DEFINE_OP(ScatterAdd) {
  DefineReference(op, kNumbers, kNoLocking);
  op.Doc("Adds to rows of a variable.").NoGradient("changes a variable");
  AddKernels<Change::kAdd, Numbers>(op, "T", GpuFloatTypes());
}

DEFINE_OP(ScatterSub) {
  DefineReference(op, kNumbers, kNoLocking);
  op.Doc("Subtracts from rows of a variable.").NoGradient("changes a variable");
  AddKernels<Change::kSub, Numbers>(op, "T", GpuFloatTypes());
}

DEFINE_OP(ScatterMul) {
  DefineReference(op, kNumbers, kNoLocking);
  op.Doc("Multiplies rows of a variable.").NoGradient("changes a variable");
  AddKernels<Change::kMul, Numbers>(op, "T");
}

DEFINE_OP(ScatterDiv) {
  DefineReference(op, kNumbers, kNoLocking);
  op.Doc("Divides rows of a variable.").NoGradient("changes a variable");
  AddKernels<Change::kDiv, Numbers>(op, "T");
}

DEFINE_OP(ScatterMin) {
  DefineReference(op, kOrdered, kNoLocking);
  op.Doc("Keeps the smaller of a variable's rows and the updates.");
  AddKernels<Change::kMin, OrderedTypes>(op, "T", GpuFloatTypes());
}

DEFINE_OP(ScatterMax) {
  DefineReference(op, kOrdered, kNoLocking);
  op.Doc("Keeps the larger of a variable's rows and the updates.");
  AddKernels<Change::kMax, OrderedTypes>(op, "T", GpuFloatTypes());
}

DEFINE_OP(ResourceScatterUpdate) {
  DefineResource(op, "dtype: type");
  op.Doc("Replaces rows of a variable.")
      .NoGradient("changes a variable")
      .Cpu(New<RowScatterKernel<SliceUpdate::Assign>>());
  AddGpuRowScatter(op, "dtype", "Update", GpuResourceVariableTypes());
}

DEFINE_OP(ResourceScatterAdd) {
  DefineResource(op, "dtype: numbertype");
  op.Doc("Adds to rows of a variable.").NoGradient("changes a variable");
  AddKernels<Change::kAdd, Numbers>(op, "dtype", GpuFloatTypes());
}

DEFINE_OP(ResourceScatterSub) {
  DefineResource(op, "dtype: numbertype");
  op.Doc("Subtracts from rows of a variable.").NoGradient("changes a variable");
  AddKernels<Change::kSub, Numbers>(op, "dtype", GpuFloatTypes());
}

DEFINE_OP(ResourceScatterMul) {
  DefineResource(op, "dtype: numbertype");
  op.Doc("Multiplies rows of a variable.");
  AddKernels<Change::kMul, Numbers>(op, "dtype");
}

DEFINE_OP(ResourceScatterDiv) {
  DefineResource(op, "dtype: numbertype");
  op.Doc("Divides rows of a variable.");
  AddKernels<Change::kDiv, Numbers>(op, "dtype");
}

DEFINE_OP(ResourceScatterMin) {
  DefineResource(op, "dtype: numbertype");
  op.Doc("Keeps the smaller of a variable's rows and the updates.");
  AddKernels<Change::kMin, Reals>(op, "dtype");
}

DEFINE_OP(ResourceScatterMax) {
  DefineResource(op, "dtype: numbertype");
  op.Doc("Keeps the larger of a variable's rows and the updates.");
  AddKernels<Change::kMax, Reals>(op, "dtype");
}

}  // namespace muster
