// Rows of a tensor picked by index: Gather, GatherV2.
#include <limits>

#include "muster/ops/emit.h"
#include "muster/ops/indexing/gpu_gather.h"
#include "muster/ops/indexing/indexing.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

template <typename Index>
int64_t FirstBadIndex(const Index* indices, int64_t count, int64_t limit) {
  for (int64_t i = 0; i < count; ++i) {
    if (static_cast<uint64_t>(static_cast<int64_t>(indices[i])) >= static_cast<uint64_t>(limit))
      return i;
  }
  return -1;
}

template <typename Index>
void GatherRows(KernelContext& c, const Tensor& params, const Index* indices,
                const GatherSizes& sizes, Tensor& output) {
  const DType dtype = params.dtype();
  const int64_t element = static_cast<int64_t>(DTypeSize(dtype));
  const int64_t row_bytes = sizes.inner * element;
  const int64_t slices = sizes.batch * sizes.outer;
  const char* from = params.raw();
  char* to = output.raw();
  const bool plain = IsPlainData(dtype);
  c.ParallelFor(slices * sizes.indices, 4.0 + static_cast<double>(row_bytes) / 16,
                [&](int64_t begin, int64_t end) {
                  while (begin < end) {
                    const int64_t slice = begin / sizes.indices;
                    const int64_t stop = std::min(end, (slice + 1) * sizes.indices);
                    const Index* row =
                        indices + (slice / sizes.outer) * sizes.indices - slice * sizes.indices;
                    const char* base = from + slice * sizes.rows * row_bytes;
                    if (plain) {
                      MoveRows(to + begin * row_bytes, stop - begin, row_bytes, [&](int64_t i) {
                        return base + static_cast<int64_t>(row[begin + i]) * row_bytes;
                      });
                    } else {
                      for (int64_t i = begin; i < stop; ++i) {
                        CopyElements(dtype, base + static_cast<int64_t>(row[i]) * row_bytes,
                                     to + i * row_bytes, sizes.inner);
                      }
                    }
                    begin = stop;
                  }
                });
}

// What both kernels do before they gather.
class GatherPlan {
 public:
  absl::Status Init(KernelSetup& s) {
    if (s.node().FindAttr("batch_dims") != nullptr) {
      ASSIGN_OR_RETURN(batch_dims_, s.Attr<int32_t>("batch_dims"));
    }
    return absl::OkStatus();
  }

  // `gather(params, indices, sizes, output)` does the rest.
  template <typename GatherBy>
  absl::Status Run(KernelContext& c, GatherBy gather) const {
    const Tensor& params = c.input(0);
    const Tensor& indices = c.input(1);
    if (params.rank() < 1) return InvalidArgument("params must be at least 1 dimensional");
    int64_t axis = 0;
    if (c.num_inputs() == 3) {
      if (!c.input(2).shape().is_scalar()) return InvalidArgument("axis must be scalar");
      ASSIGN_OR_RETURN(axis, ScalarInteger(c.input(2), "axis"));
    }
    if (axis == std::numeric_limits<int64_t>::max())
      return InvalidArgument("axis must be less than std::numeric_limits<int64_t>::max()");
    // Rank enough for the axis, in the words of the shape rule.
    if (axis < -params.rank() || axis >= params.rank()) {
      const uint64_t needed =
          axis < 0 ? uint64_t{0} - static_cast<uint64_t>(axis) : static_cast<uint64_t>(axis) + 1;
      return InvalidArgument("Shape must be at least rank ", needed, " but is rank ",
                             params.rank());
    }
    if (axis < 0) axis += params.rank();
    int64_t batch_dims = batch_dims_;
    if (batch_dims != 0) {
      if (batch_dims < -indices.rank() || batch_dims > indices.rank()) {
        return InvalidArgument("Expected batch_dims in the range [", -indices.rank(), ", ",
                               indices.rank(), "], but got ", batch_dims);
      }
      if (batch_dims < 0) batch_dims += indices.rank();
      if (batch_dims >= params.rank()) {
        return InvalidArgument("batch_dims (", batch_dims, ") must be less than rank(params) (",
                               params.rank(), ").");
      }
      if (axis < batch_dims) {
        return InvalidArgument("batch_dims (", batch_dims, ") must be less than or equal to axis (",
                               axis, ").");
      }
      for (int i = 0; i < batch_dims; ++i) {
        if (params.dim(i) != indices.dim(i)) {
          return InvalidArgument("params.shape[", i, "]: ", params.dim(i),
                                 " should be equal to indices.shape[", i, "]: ", indices.dim(i));
        }
      }
    }
    return Allocate(c, params, indices, static_cast<int>(axis), static_cast<int>(batch_dims),
                    gather);
  }

 private:
  template <typename GatherBy>
  static absl::Status Allocate(KernelContext& c, const Tensor& params, const Tensor& indices,
                               int axis, int batch_dims, GatherBy gather) {
    GatherSizes sizes;
    sizes.batch = params.shape().ElementsIn(0, batch_dims);
    sizes.outer = params.shape().ElementsIn(batch_dims, axis);
    sizes.rows = params.dim(axis);
    sizes.inner = params.shape().ElementsIn(axis + 1, params.rank());
    sizes.indices = indices.shape().ElementsIn(batch_dims, indices.rank());
    Dims dims;
    for (int i = 0; i < axis; ++i) dims.push_back(params.dim(i));
    for (int i = batch_dims; i < indices.rank(); ++i) dims.push_back(indices.dim(i));
    for (int i = axis + 1; i < params.rank(); ++i) dims.push_back(params.dim(i));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    if (output->num_elements() == 0) return absl::OkStatus();
    return gather(params, indices, sizes, *output);
  }

  int64_t batch_dims_ = 0;
};

class GatherKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override { return plan_.Init(setup); }
  absl::Status Compute(KernelContext& c) override {
    return plan_.Run(c, [&c](const Tensor& params, const Tensor& indices, const GatherSizes& sizes,
                             Tensor& output) {
      return WithIndices(indices, [&](const auto* data) -> absl::Status {
        const int64_t bad = FirstBadIndex(data, indices.num_elements(), sizes.rows);
        if (bad >= 0) {
          return InvalidArgument("indices", PositionText(indices.shape(), bad), " = ",
                                 int64_t{data[bad]}, " is not in [0, ", sizes.rows, ")");
        }
        GatherRows(c, params, data, sizes, output);
        return absl::OkStatus();
      });
    });
  }

 private:
  GatherPlan plan_;
};

class GpuGather : public GpuKernel {
 public:
  GpuGather(DType dtype, DType index) : gatherer_(*this, dtype, index) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    return plan_.Init(setup);
  }
  absl::Status Compute(KernelContext& c) override {
    return plan_.Run(
        c, [this](const Tensor& params, const Tensor& indices, const GatherSizes& sizes,
                  Tensor& output) { return gatherer_.Gather(params, indices, sizes, output); });
  }

 private:
  GatherPlan plan_;
  const GpuGatherer gatherer_;
};

void DefineOnGpu(OpBuilder& op) {
  for (const DType index : {DType::kInt32, DType::kInt64}) {
    op.GpuTypes(
        "Tparams",
        {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble, DType::kBool, DType::kInt32,
         DType::kInt64, DType::kComplex64, DType::kComplex128},
        [index](DType dtype) { return [=] { return std::make_unique<GpuGather>(dtype, index); }; },
        {}, {{"Tindices", index}});
  }
}

absl::Status GatherShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape params, c.WithRankAtLeast(c.input(0), 1));
  c.SetOutput(0, ShapeContext::Concatenate(c.input(1), ShapeContext::Subshape(params, 1)));
  return absl::OkStatus();
}

absl::Status GatherV2Shape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape params, c.WithRankAtLeast(c.input(0), 1));
  const PartialShape& indices = c.input(1);
  RETURN_IF_ERROR(c.WithRank(c.input(2), 0).status());
  ASSIGN_OR_RETURN(const std::optional<int64_t> axis_input, c.ScalarInput(2));
  ASSIGN_OR_RETURN(int64_t batch_dims, c.Attr<int64_t>("batch_dims"));
  if (!axis_input.has_value()) {
    // All that is known is the rank.
    if (params.known_rank() && indices.known_rank() && batch_dims >= 0) {
      const int64_t rank = params.rank() - 1 + indices.rank() - batch_dims;
      c.SetOutput(0, rank >= 0 ? PartialShape::OfRank(static_cast<int>(rank)) : PartialShape());
    } else {
      c.SetOutput(0, PartialShape());
    }
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(c.Attr<int32_t>("batch_dims").status());  // too large is refused
  int64_t axis = *axis_input;
  if (axis < -Shape::kMaxRank || axis >= Shape::kMaxRank)
    return InvalidArgument("axis ", axis, " is out of range");
  // Enough dims for the axis to exist.
  ASSIGN_OR_RETURN(const PartialShape wide,
                   c.WithRankAtLeast(params, static_cast<int>(axis < 0 ? -axis : axis + 1)));
  // And one behind the batch.
  if (batch_dims > 0)
    RETURN_IF_ERROR(
        c.WithRankAtLeast(params,
                          static_cast<int>(std::min<int64_t>(batch_dims, Shape::kMaxRank)) + 1)
            .status());
  if (batch_dims < 0) {
    // Which axes that are turns out when the step runs.
    if (!indices.known_rank()) {
      c.SetOutput(0, PartialShape());
      return absl::OkStatus();
    }
    batch_dims += indices.rank();
  }
  if (!wide.known_rank() || (!indices.known_rank() && batch_dims != 0)) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  if (axis < 0) axis += wide.rank();
  if (indices.known_rank() && batch_dims > indices.rank()) {
    return InvalidArgument("batch_dims must be less than or equal to the rank of indices, got ",
                           batch_dims, " and ", indices.rank());
  }
  if (batch_dims < 0 || batch_dims > axis) return UnknownShape(c);  // the kernel refuses it
  const int at = static_cast<int>(axis);
  const PartialShape picked =
      batch_dims == 0 ? indices : ShapeContext::Subshape(indices, static_cast<int>(batch_dims));
  c.SetOutput(0, ShapeContext::Concatenate(
                     ShapeContext::Concatenate(ShapeContext::Subshape(wide, 0, at), picked),
                     ShapeContext::Subshape(wide, at + 1)));
  return absl::OkStatus();
}

// Rows of dy at flat indices, for params whose first axis was picked from.
IndexedSlices SparseRows(GradientContext& c, Output params_shape, Output indices_size) {
  const Scope& scope = c.scope();
  const Output tail = EmitSlice(scope, params_shape, 1, {});
  const Output values_shape =
      EmitConcatOf(scope, {ConcatPart::Of(indices_size), ConcatPart::Of(tail)});
  const Output values = c.Op("Reshape", {c.dy(), values_shape});
  const Output indices = c.Op("Reshape", {c.input(1), indices_size});
  return IndexedSlices{values, indices, params_shape};
}

// params can be large: its shape is computed beside it, in 64 bits.
Output ParamsShape(GradientContext& c) {
  const Scope beside = c.scope().ColocatedWith(*c.input(0).node);
  return EmitCast(beside, EmitShape(beside, c.input(0), "Shape", DType::kInt64), DType::kInt32);
}

absl::Status GatherGradient(GradientContext& c) {
  const Output params_shape = ParamsShape(c);
  const Output indices_size = EmitExpandDims(c.scope(), EmitSize(c.scope(), c.input(1)), 0);
  c.SetDx(0, SparseRows(c, params_shape, indices_size));
  return absl::OkStatus();
}

// indices plus the offsets of their batches, so that all batches share one flat axis.
Output BatchIndices(const Scope& scope, Output params_shape, Output indices, int batch_dims) {
  const DType dtype = indices.base_dtype();
  Output result = indices;
  const Output sizes = EmitCast(scope, params_shape, dtype);
  Output stride = EmitScalar(scope, dtype, 1, "ones");
  for (int dim = batch_dims; dim > 0; --dim) {
    const Output dim_size = EmitElement(scope, sizes, dim - 1);
    stride = scope.Op("Mul", {stride, EmitElement(scope, sizes, dim)}, {}, "mul");
    const Output start = EmitScalar(scope, dtype, 0, "zeros");
    const Output step = EmitScalar(scope, dtype, 1, "ones");
    Output offsets = scope.Op("Range", {start, dim_size, step}, {}, "range");
    offsets = scope.Op("Mul", {offsets, stride}, {}, "mul");
    const NamedOp before(scope, "Tile");
    const Output before_input = EmitOne(before.inner(), dtype, "input");
    const Output before_multiples = before.inner().ConstVector({dim - 1}, "multiples");
    const Output ones_before = before.Op("Tile", {before_input, before_multiples});
    const Output rest = EmitBinary(scope, "Sub", "sub", EmitRank(scope, indices), dim);
    const NamedOp after(scope, "Tile");
    const Output after_input = EmitOne(after.inner(), dtype, "input");
    const Output after_multiples =
        after.inner().Op("Pack", {std::vector<Output>{rest}}, {}, "multiples");
    const Output ones_after = after.Op("Tile", {after_input, after_multiples});
    const Output shape = EmitConcatOf(
        scope,
        {ConcatPart::Of(ones_before), ConcatPart::Packed(dim_size), ConcatPart::Of(ones_after)});
    result = scope.Op("AddV2", {result, scope.Op("Reshape", {offsets, shape})}, {}, "add");
  }
  return result;
}

// The dense gradient of params when the axis is the first one after the batch dims.
Output BatchGatherGradient(const Scope& scope, Output params_shape, Output values, Output indices,
                           int batch_dims, Output rows) {
  const Output indices_size = EmitExpandDims(scope, EmitSize(scope, indices), 0);
  Output outer_shape;
  Output flat_shape;
  if (batch_dims > 0) {
    const Output values_shape = EmitShape(scope, values);
    outer_shape = EmitSlice(scope, values_shape, {}, batch_dims);
    const Output inner_shape =
        EmitSlice(scope, EmitSlice(scope, values_shape, batch_dims, {}), 1, {});
    const NamedOp prod(scope, "Prod");
    const Output axes = prod.inner().ConstVector({0}, "reduction_indices");
    const Output batch_size = prod.Op("Prod", {outer_shape, axes}, {{"keep_dims", false}});
    flat_shape = EmitConcatOf(scope, {ConcatPart::Numbers({-1}), ConcatPart::Of(inner_shape)});
    rows = scope.Op("Mul", {rows, batch_size}, {}, "mul");
    indices = BatchIndices(scope, params_shape, indices, batch_dims);
    values = scope.Op("Reshape", {values, flat_shape});
  }
  indices = scope.Op("Reshape", {indices, indices_size});
  Output gradient = scope.Op("UnsortedSegmentSum", {values, indices, rows});
  if (batch_dims > 0) {
    const Output shape =
        EmitConcatOf(scope, {ConcatPart::Of(outer_shape), ConcatPart::Of(flat_shape)});
    gradient = scope.Op("Reshape", {gradient, shape});
  }
  return gradient;
}

absl::Status GatherV2Gradient(GradientContext& c) {
  const Scope& scope = c.scope();
  const Output params_shape = ParamsShape(c);
  const Output indices = c.input(1);
  const Output indices_size = EmitExpandDims(scope, EmitSize(scope, indices), 0);
  const Output axis = c.input(2);
  const std::optional<Tensor> axis_value = ConstantValue(axis);
  int64_t batch_dims = c.Attr<int64_t>("batch_dims");
  if (batch_dims < 0) {
    if (!indices.shape().known_rank()) {
      return InvalidArgument(
          "Currently, it is unsupported to take the gradient of tf.gather when batch_dims < 0 and ",
          "the rank of the indices is unknown. Got batch_dims=", batch_dims);
    }
    batch_dims += indices.shape().rank();
  }
  if (axis_value.has_value()) {
    ASSIGN_OR_RETURN(const int64_t number, ScalarInteger(*axis_value, "axis"));
    if (number == 0) {
      c.SetDx(0, SparseRows(c, params_shape, indices_size));
      return absl::OkStatus();
    }
  }
  const int batches = static_cast<int>(batch_dims);
  // The axis is moved to the first place after the batch dims, and back afterwards.
  const Output outer_shape = EmitSlice(scope, params_shape, {}, axis);
  const Output inner_shape = EmitSlice(scope, EmitSlice(scope, params_shape, axis, {}), 1, {});
  const Output values_shape = EmitConcatOf(
      scope, {ConcatPart::Of(outer_shape), ConcatPart::Numbers({-1}), ConcatPart::Of(inner_shape)});
  const Output values_dims = EmitSize(scope, values_shape);
  const Output axis_dims = EmitSize(scope, outer_shape);
  const Output outer_batches = EmitRange(scope, 0, batches);
  const Output batch_axes = EmitRange(scope, batches, axis_dims);
  const Output inner_axes =
      EmitRange(scope, EmitBinary(scope, "AddV2", "add", axis_dims, 1), values_dims);
  const Output values = c.Op("Reshape", {c.dy(), values_shape});
  const Output forward =
      EmitConcatOf(scope, {ConcatPart::Of(outer_batches), ConcatPart::Packed(axis_dims),
                           ConcatPart::Of(batch_axes), ConcatPart::Of(inner_axes)});
  const Output moved = c.Op("Transpose", {values, forward}, {}, "transpose");
  const Output moved_shape = EmitGather(scope, params_shape, forward);
  const Output rows = EmitElementAt(scope, params_shape, axis);
  const Output gradient = BatchGatherGradient(scope, moved_shape, moved, indices, batches, rows);
  const Output batch_axes_after = EmitBinary(scope, "AddV2", "add", batch_axes, 1);
  const Output back =
      EmitConcatOf(scope, {ConcatPart::Of(outer_batches), ConcatPart::Of(batch_axes_after),
                           ConcatPart::Numbers({batches}), ConcatPart::Of(inner_axes)});
  c.SetDx(0, c.Op("Transpose", {gradient, back}, {}, "transpose"));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(Gather) {
  op.Attr("validate_indices: bool = true")
      .Attr("Tparams: type")
      .Attr("Tindices: {int32, int64}")
      .Input("params: Tparams")
      .Input("indices: Tindices")
      .Output("output: Tparams")
      .Doc("Rows of params at the given indices.")
      .Shape(GatherShape)
      .Gradient(GatherGradient)
      .CpuDTypes("Tparams", AllDTypes(), New<GatherKernel>());
  DefineOnGpu(op);
}

DEFINE_OP(GatherV2) {
  op.Attr("batch_dims: int = 0")
      .Attr("Tparams: type")
      .Attr("Tindices: {int16, int32, int64}")
      .Attr("Taxis: {int32, int64}")
      .Input("params: Tparams")
      .Input("indices: Tindices")
      .Input("axis: Taxis")
      .Output("output: Tparams")
      .Doc("Slices of params along an axis at the given indices.")
      .Shape(GatherV2Shape)
      .Gradient(GatherV2Gradient)
      .HostMemory({"axis"})
      .CpuDTypes("Tparams", AllDTypes(), New<GatherKernel>());
  DefineOnGpu(op);
}

}  // namespace muster
