// ScatterNdUpdate and its relatives: slices of a variable at index tuples.
#include <numeric>

#include "absl/strings/str_join.h"

#include "muster/ops/indexing/gpu_scatter_nd.h"
#include "muster/ops/state/scatter.h"

namespace muster {
namespace {

// What bad_indices_policy says.
absl::StatusOr<bool> IgnoresBadIndices(const KernelSetup& setup) {
  ASSIGN_OR_RETURN(const std::string policy, setup.Attr<std::string>("bad_indices_policy"));
  if (!policy.empty() && policy != "DEFAULT" && policy != "ERROR" && policy != "IGNORE")
    return InvalidArgument("Unknown bad indices handling attribute: ", policy);
  return policy == "IGNORE";
}

struct NdSlices {
  int axes = 0;  // that an index tuple names
  Shape batch;   // of the tuples
};
// A vector of indices is a column of tuples with one member.
absl::StatusOr<NdSlices> CheckNdUpdates(const Tensor& params, const Tensor& indices,
                                        const Tensor& updates) {
  if (params.rank() < 1)
    return InvalidArgument("Output must be at least 1-D, got shape: ", params.shape().ToString());
  if (params.num_elements() == 0 && (indices.num_elements() != 0 || updates.num_elements() != 0)) {
    return InvalidArgument("Indices and updates specified for empty output.  indices shape: ",
                           indices.shape().ToString());
  }
  if (indices.rank() < 1 || updates.rank() < 1 || updates.dim(0) != indices.dim(0)) {
    return InvalidArgument(
        "The outermost dimension of updates and indices must match. Got indices.shape ",
        indices.shape().ToString(), ", updates.shape ", updates.shape().ToString());
  }
  const int64_t depth = indices.rank() > 1 ? indices.dim(indices.rank() - 1) : 1;
  const int batch_dims = std::max(indices.rank() - 1, 1);
  const Shape batch(absl::MakeConstSpan(indices.shape().dims()).first(batch_dims));
  Dims wanted = batch.dims();
  const bool fits = depth <= params.rank();
  if (fits)
    wanted.insert(wanted.end(), params.shape().dims().begin() + depth, params.shape().dims().end());
  if (!fits || updates.shape().dims() != wanted) {
    return InvalidArgument(
        "Must have updates.shape = indices.shape[:batch_dim] + params_shape[slice_dim:], got "
        "updates.shape: ",
        updates.shape().ToString(), ", indices.shape: ", indices.shape().ToString(),
        ", params_shape: ", params.shape().ToString(), ", slice_dim: ", depth,
        ", and batch_dim: ", batch_dims);
  }
  return NdSlices{static_cast<int>(depth), batch};
}

template <typename Update>
class NdScatterKernel : public ScatterKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(ignore_bad_indices_, IgnoresBadIndices(setup));
    return absl::OkStatus();
  }

 protected:
  absl::Status Scatter(const KernelContext&, Tensor& params, TouchedRows& touched,
                       const Tensor& indices, const Tensor& updates) override {
    ASSIGN_OR_RETURN(const NdSlices named, CheckNdUpdates(params, indices, updates));
    const int axes = named.axes;
    ASSIGN_OR_RETURN(const Dims values, IntegerValues(indices));
    ASSIGN_OR_RETURN(const std::vector<int64_t> slices,
                     Slices(values, axes, named.batch, params.shape()));
    const Update update{params.dtype()};
    RETURN_IF_ERROR(update.Check(updates));
    if (touched.wanted()) NoteRows(slices, axes, params.shape(), touched);
    const int64_t slice_elements = params.shape().ElementsIn(axes, params.rank());
    const int64_t slice_bytes = slice_elements * static_cast<int64_t>(DTypeSize(params.dtype()));
    for (size_t i = 0; i < slices.size(); ++i) {
      if (slices[i] < 0) continue;
      update(params.raw() + slices[i] * slice_bytes, updates.raw() + i * slice_bytes, false,
             slice_elements);
    }
    return absl::OkStatus();
  }

 private:
  static void NoteRows(absl::Span<const int64_t> slices, int axes, const Shape& params,
                       TouchedRows& touched) {
    std::vector<int64_t> rows;
    if (axes == 0) {
      // Each tuple is empty and names the whole.
      rows.resize(slices.empty() ? 0 : static_cast<size_t>(params.dim(0)));
      std::iota(rows.begin(), rows.end(), 0);
    } else {
      const int64_t slices_per_row = params.ElementsIn(1, axes);
      for (const int64_t slice : slices) {
        if (slice >= 0) rows.push_back(slice / slices_per_row);
      }
    }
    touched.Note(rows);
  }

  // The number of the slice that each tuple names; -1 for a bad one that is to be ignored.
  absl::StatusOr<std::vector<int64_t>> Slices(const Dims& values, int axes, const Shape& batch,
                                              const Shape& params) const {
    std::vector<int64_t> slices(batch.num_elements(), 0);
    for (int64_t i = 0; i < batch.num_elements(); ++i) {
      int64_t slice = 0;
      for (int axis = 0; axis < axes; ++axis) {
        const int64_t index = values[i * axes + axis];
        if (index < 0 || index >= params[axis]) {
          slice = -1;
          break;
        }
        slice = slice * params[axis] + index;
      }
      if (slice < 0 && !ignore_bad_indices_) {
        const auto bad = absl::MakeConstSpan(values).subspan(i * axes, axes);
        return InvalidArgument("indices", PositionText(batch, i), " = [", absl::StrJoin(bad, ", "),
                               "] does not index into shape ", params.ToString());
      }
      slices[i] = slice;
    }
    return slices;
  }

  bool ignore_bad_indices_ = false;
};

class GpuNdScatter : public GpuKernel {
 public:
  GpuNdScatter(const char* how, DType dtype, DType index) : scatterer_(*this, how, dtype, index) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    return IgnoresBadIndices(setup).status();
  }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const RefPtr<Variable> variable, ScatterVariable(c));
    const Tensor& updates = c.input(2);
    RETURN_IF_ERROR(variable->Update([&](Tensor& params) -> absl::Status {
      ASSIGN_OR_RETURN(const NdSlices named, CheckNdUpdates(params, c.input(1), updates));
      Dims dims = named.batch.dims();
      dims.push_back(named.axes);
      const Tensor indices = c.input(1).Reshaped(Shape(absl::MakeConstSpan(dims)));
      return scatterer_.Scatter(indices, updates,
                                params.shape().ElementsIn(named.axes, params.rank()), params);
    }));
    if (c.input_is_reference(0)) c.SetOutputReference(0, c.input_reference(0));
    return absl::OkStatus();
  }

 private:
  const GpuNdScatterer scatterer_;
};

void AddGpuNdScatter(OpBuilder& op, const char* how) {
  for (const DType index : {DType::kInt32, DType::kInt64}) {
    const auto make = [how, index](DType dtype) -> KernelFactory {
      return [=] { return std::make_unique<GpuNdScatter>(how, dtype, index); };
    };
    op.GpuTypes("T",
                {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble, DType::kInt32,
                 DType::kComplex64, DType::kComplex128},
                make, {}, {{"Tindices", index}});
  }
}

absl::Status ScatterNdShape(ShapeContext& c) {
  const PartialShape params = InputVariableShape(c, 0);
  const PartialShape& indices = c.input(1);
  const PartialShape& updates = c.input(2);
  if (params.num_elements() == 0 && (indices.num_elements() > 0 || updates.num_elements() > 0)) {
    return InvalidArgument("Indices and updates specified for empty output");
  }
  if (params.known_rank() && indices.rank() > 0 && updates.known_rank()) {
    const int outer = indices.rank() - 1;
    const int64_t depth = indices[outer];
    RETURN_IF_ERROR(c.WithRankAtLeast(updates, outer).status());
    const absl::Status prefix = ShapeContext::Merge(ShapeContext::Subshape(indices, 0, outer),
                                                    ShapeContext::Subshape(updates, 0, outer))
                                    .status();
    if (!prefix.ok()) {
      return InvalidArgument("Dimensions [0,", outer, ") of indices[shape=", indices.ToString(),
                             "] must match dimensions [0,", outer,
                             ") of updates[shape=", updates.ToString(), "]");
    }
    if (params.rank() == 0) return InvalidArgument("Output must be at least 1-D, got shape: []");
    if (depth > params.rank()) {
      return InvalidArgument("indices.shape[-1] = ", depth,
                             " must be at most the rank of the variable, ", params.rank());
    }
    if (depth >= 0) {
      const int from = static_cast<int>(depth);
      const absl::Status suffix = ShapeContext::Merge(ShapeContext::Subshape(params, from),
                                                      ShapeContext::Subshape(updates, outer))
                                      .status();
      if (!suffix.ok()) {
        return InvalidArgument("Dimensions [", depth, ",", params.rank(),
                               ") of input[shape=", params.ToString(), "] must match dimensions [",
                               outer, ",", updates.rank(),
                               ") of updates[shape=", updates.ToString(), "]");
      }
    }
  }
  if (c.num_outputs() == 1) c.SetOutput(0, params);
  return absl::OkStatus();
}

void DefineReference(OpBuilder& op, const char* type, const char* use_locking) {
  op.Attr(type)
      .Attr("Tindices: {int32, int64}")
      .Attr(use_locking)
      .Attr2x("bad_indices_policy: string = ''");
  op.Input("ref: Ref(T)")
      .Input("indices: Tindices")
      .Input("updates: T")
      .Output("output_ref: Ref(T)")
      .Shape(ScatterNdShape);
}

void DefineResource(OpBuilder& op) {
  op.Attr("T: type")
      .Attr("Tindices: {int32, int64}")
      .Attr("use_locking: bool = true")
      .Attr2x("bad_indices_policy: string = ''");
  op.Input("ref: resource")
      .Input("indices: Tindices")
      .Input("updates: T")
      .Stateful()
      .Shape(ScatterNdShape);
}

template <Change kChange, typename List>
void AddKernels(OpBuilder& op) {
  op.CpuTypes<List>("T", []<typename T>() {
    return New<NdScatterKernel<SliceUpdate::Arithmetic<kChange, T>>>();
  });
  AddGpuNdScatter(op, kChange == Change::kAdd ? "ScatterAdd" : "ScatterSub");
}

using NumbersAndBool = Join<Numbers, Types<bool>>;

}  // namespace

DEFINE_OP(ScatterNdUpdate) {
  DefineReference(op, "T: type", "use_locking: bool = true");
  op.Doc("Replaces slices of a variable.")
      .NoGradient("changes a variable")
      .Cpu(New<NdScatterKernel<SliceUpdate::Assign>>());
  AddGpuNdScatter(op, "ScatterUpdate");
}

DEFINE_OP(ScatterNdAdd) {
  DefineReference(op, "T: numbertype", "use_locking: bool = false");
  op.Doc("Adds to slices of a variable.").NoGradient("changes a variable");
  AddKernels<Change::kAdd, Numbers>(op);
}

DEFINE_OP(ScatterNdSub) {
  DefineReference(op, "T: numbertype", "use_locking: bool = false");
  op.Doc("Subtracts from slices of a variable.").NoGradient("changes a variable");
  AddKernels<Change::kSub, Numbers>(op);
}

DEFINE_OP(ResourceScatterNdUpdate) {
  DefineResource(op);
  op.Doc("Replaces slices of a variable.").Cpu(New<NdScatterKernel<SliceUpdate::Assign>>());
  AddGpuNdScatter(op, "ScatterUpdate");
}

DEFINE_OP(ResourceScatterNdAdd) {
  DefineResource(op);
  op.Doc("Adds to slices of a variable.");
  AddKernels<Change::kAdd, NumbersAndBool>(op);
}

DEFINE_OP(ResourceScatterNdSub) {
  DefineResource(op);
  op.Doc("Subtracts from slices of a variable.");
  AddKernels<Change::kSub, NumbersAndBool>(op);
}

}  // namespace muster
