// Rows and slices of variables behind resource handles: ResourceGather, ResourceGatherNd.
#include "muster/ops/emit.h"
#include "muster/ops/indexing/gpu_gather.h"
#include "muster/ops/op.h"
#include "muster/ops/state/access.h"

namespace muster {
namespace {

// What both kernels do before they gather.
class ResourceGatherPlan {
 public:
  absl::Status Init(KernelSetup& setup) {
    ASSIGN_OR_RETURN(batch_dims_, setup.Attr<int64_t>("batch_dims"));
    return absl::OkStatus();
  }

  // `gather(params, indices, sizes, output)` does the rest.
  template <typename GatherBy>
  absl::Status Run(KernelContext& c, GatherBy gather) const {
    // A variable that does not exist is NotFound here; reading one is FailedPrecondition.
    ASSIGN_OR_RETURN(const ResourceHandle* handle, InputHandle(c, 0));
    RETURN_IF_ERROR(HandleVariable(c, *handle).status());
    ASSIGN_OR_RETURN(const Tensor params, ReadHandleAs(c, 0, c.output_type(0)));
    const Tensor& indices = c.input(1);
    if (params.rank() < 1) return InvalidArgument("params must be at least 1 dimensional");
    const int64_t batch = batch_dims_ < 0 ? batch_dims_ + indices.rank() : batch_dims_;
    if (batch < 0 || batch > indices.rank() || batch >= params.rank()) {
      return InvalidArgument("batch_dims = ", batch_dims_, " must be at most the rank of indices ",
                             indices.shape().ToString(), " and less than that of params ",
                             params.shape().ToString());
    }
    const int axis = static_cast<int>(batch);
    for (int i = 0; i < axis; ++i) {
      if (params.dim(i) != indices.dim(i)) {
        return InvalidArgument("params.shape[", i, "]: ", params.dim(i),
                               " should be equal to indices.shape[", i, "]: ", indices.dim(i));
      }
    }
    GatherSizes sizes;
    sizes.batch = params.shape().ElementsIn(0, axis);
    sizes.rows = params.dim(axis);
    sizes.inner = params.shape().ElementsIn(axis + 1, params.rank());
    sizes.indices = indices.shape().ElementsIn(axis, indices.rank());
    Dims dims(params.shape().dims().begin(), params.shape().dims().begin() + axis);
    dims.insert(dims.end(), indices.shape().dims().begin() + axis, indices.shape().dims().end());
    dims.insert(dims.end(), params.shape().dims().begin() + axis + 1, params.shape().dims().end());
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    return gather(params, indices, sizes, *output);
  }

 private:
  int64_t batch_dims_ = 0;
};

class ResourceGatherKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override { return plan_.Init(setup); }
  absl::Status Compute(KernelContext& c) override {
    return plan_.Run(c, [&c](const Tensor& params, const Tensor& indices, const GatherSizes& sizes,
                             Tensor& output) { return Gather(c, params, indices, sizes, output); });
  }

 private:
  static absl::Status Gather(KernelContext& c, const Tensor& params, const Tensor& indices,
                             const GatherSizes& sizes, Tensor& output) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> rows, CheckedIndices(indices, sizes.rows));
    if (output.num_elements() == 0) return absl::OkStatus();
    const int64_t row_bytes = sizes.inner * static_cast<int64_t>(DTypeSize(params.dtype()));
    c.ParallelFor(static_cast<int64_t>(rows.size()), 5 + 0.1 * static_cast<double>(row_bytes),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      const int64_t from = i / sizes.indices * sizes.rows + rows[i];
                      CopyElements(params.dtype(), params.raw() + from * row_bytes,
                                   output.raw() + i * row_bytes, sizes.inner);
                    }
                  });
    return absl::OkStatus();
  }

  ResourceGatherPlan plan_;
};

class GpuResourceGather : public GpuKernel {
 public:
  GpuResourceGather(DType dtype, DType index) : gatherer_(*this, dtype, index) {}
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
  ResourceGatherPlan plan_;
  const GpuGatherer gatherer_;
};

absl::Status ResourceGatherShape(ShapeContext& c) {
  const PartialShape params = InputVariableShape(c, 0);
  const PartialShape& indices = c.input(1);
  ASSIGN_OR_RETURN(int64_t batch, c.Attr<int64_t>("batch_dims"));
  RETURN_IF_ERROR(c.WithRankAtLeast(params, 1).status());
  if (!params.known_rank() || !indices.known_rank()) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  if (batch < 0) batch += indices.rank();
  if (batch < 0 || batch > indices.rank() || batch >= params.rank()) {
    return InvalidArgument("batch_dims must be at most the rank of indices, ", indices.rank(),
                           ", and less than that of params, ", params.rank());
  }
  const int axis = static_cast<int>(batch);
  const PartialShape outer = ShapeContext::Concatenate(ShapeContext::Subshape(params, 0, axis),
                                                       ShapeContext::Subshape(indices, axis));
  c.SetOutput(0, ShapeContext::Concatenate(outer, ShapeContext::Subshape(params, axis + 1)));
  return absl::OkStatus();
}

// The variable's shape as a node: a constant where the handle tells it.
Output ShapeNode(GradientContext& c, DType dtype) {
  const std::vector<DTypeAndShape>& handle = c.input(0).node->output_handle(c.input(0).index);
  const std::optional<Shape> known = handle.empty() ? std::nullopt : handle[0].shape.ToShape();
  if (!known) return c.Op("VariableShape", {c.input(0)}, {{"out_type", dtype}});
  if (dtype == DType::kInt64) return c.scope().Const(Tensor::Vector<int64_t>(known->dims()));
  const std::vector<int32_t> sizes(known->dims().begin(), known->dims().end());
  return c.scope().ConstVector(sizes);
}

absl::Status ResourceGatherGradient(GradientContext& c) {
  const Output shape = ShapeNode(c, DType::kInt32);
  const Output indices = c.input(1);
  const int64_t known_size = indices.shape().num_elements();
  const Output count =
      known_size >= 0 ? c.scope().ConstScalar<int32_t>(static_cast<int32_t>(known_size), "Size")
                      : c.Op("Size", {indices}, {{"out_type", DType::kInt32}});
  const Output axis = c.scope().ConstScalar<int32_t>(0, "ExpandDims/dim");
  const Output size = c.Op("ExpandDims", {count, axis});
  const Output begin = c.scope().ConstVector(std::vector<int32_t>{1}, "strided_slice/stack");
  const Output end = c.scope().ConstVector(std::vector<int32_t>{0}, "strided_slice/stack_1");
  const Output step = c.scope().ConstVector(std::vector<int32_t>{1}, "strided_slice/stack_2");
  const Output row_shape =
      c.Op("StridedSlice", {shape, begin, end, step}, {{"end_mask", 1}}, "strided_slice");
  const Output concat_axis = c.scope().ConstScalar<int32_t>(0, "concat/axis");
  const Output values_shape =
      c.Op("ConcatV2", {std::vector<Output>{size, row_shape}, concat_axis}, {}, "concat");
  const Output values = c.Op("Reshape", {c.dy(), values_shape});
  const Output flat_indices = c.Op("Reshape", {indices, size});
  c.SetDx(0, IndexedSlices{values, flat_indices, shape});
  return absl::OkStatus();
}

// `gather(params, depth, count, output)` does the rest.
template <typename GatherBy>
absl::Status PlanResourceGatherNd(KernelContext& c, GatherBy gather) {
  ASSIGN_OR_RETURN(const Tensor params, ReadHandleAs(c, 0, c.output_type(0)));
  ASSIGN_OR_RETURN(const GatherNdPlan plan, PlanGatherNd(params, c.input(1)));
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, plan.shape));
  return gather(params, plan, *output);
}

absl::Status RunResourceGatherNd(KernelContext& c) {
  return PlanResourceGatherNd(
      c, [&c](const Tensor& params, const GatherNdPlan& plan, Tensor& output) -> absl::Status {
        ASSIGN_OR_RETURN(const std::vector<int64_t> slices,
                         FlatSlices(c.input(1), params.shape(), "param shape", c.node()));
        const int64_t inner = params.shape().ElementsIn(plan.depth, params.rank());
        const int64_t row_bytes = inner * static_cast<int64_t>(DTypeSize(params.dtype()));
        for (int64_t i = 0; i < plan.count; ++i) {
          CopyElements(params.dtype(), params.raw() + slices[i] * row_bytes,
                       output.raw() + i * row_bytes, inner);
        }
        return absl::OkStatus();
      });
}

class GpuResourceGatherNd : public GpuKernel {
 public:
  GpuResourceGatherNd(DType dtype, DType index) : gatherer_(*this, dtype, index) {}
  absl::Status Compute(KernelContext& c) override {
    return PlanResourceGatherNd(
        c, [&](const Tensor& params, const GatherNdPlan& plan, Tensor& output) {
          return gatherer_.Gather(params, c.input(1), plan, output);
        });
  }

 private:
  const GpuNdGatherer gatherer_;
};

template <typename K>
void AddGpuGather(OpBuilder& op) {
  for (const DType index : {DType::kInt32, DType::kInt64}) {
    const auto make = [index](DType dtype) -> KernelFactory {
      return [=] { return std::make_unique<K>(dtype, index); };
    };
    op.GpuTypes("dtype", {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble}, make, {},
                {{"Tindices", index}});
  }
}

absl::Status ResourceGatherNdShape(ShapeContext& c) {
  const PartialShape params = InputVariableShape(c, 0);
  ASSIGN_OR_RETURN(const PartialShape indices, c.WithRankAtLeast(c.input(1), 1));
  const int64_t depth = indices.known_rank() ? indices[indices.rank() - 1] : -1;
  if (!params.known_rank() || depth < 0) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  if (depth > params.rank()) {
    return InvalidArgument("indices.shape[-1] must be <= params.rank, but saw indices shape: ",
                           indices.ToString(), " and params shape: ", params.ToString());
  }
  c.SetOutput(0,
              ShapeContext::Concatenate(ShapeContext::Subshape(indices, 0, -1),
                                        ShapeContext::Subshape(params, static_cast<int>(depth))));
  return absl::OkStatus();
}

absl::Status ResourceGatherNdGradient(GradientContext& c) {
  const Output indices = c.input(1);
  const Output shape = ShapeNode(c, indices.base_dtype());
  if (indices.shape().rank() == 2 && indices.shape()[1] == 1) {
    const Output rows = c.Op("Squeeze", {indices}, {{"squeeze_dims", std::vector<int64_t>{-1}}});
    c.SetDx(0, IndexedSlices{c.dy(), rows, shape});
  } else {
    c.SetDx(0, c.Op("ScatterNd", {indices, c.dy(), shape}));
  }
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(ResourceGather) {
  op.Attr("batch_dims: int = 0")
      .Attr("validate_indices: bool = true")
      .Attr("dtype: type")
      .Attr("Tindices: {int32, int64}");
  op.Input("resource: resource").Input("indices: Tindices").Output("output: dtype").Stateful();
  op.Doc("Rows of a variable.")
      .Shape(ResourceGatherShape)
      .Gradient(ResourceGatherGradient)
      .Cpu(New<ResourceGatherKernel>());
  AddGpuGather<GpuResourceGather>(op);
}

DEFINE_OP(ResourceGatherNd) {
  op.Attr("dtype: type")
      .Attr("Tindices: {int32, int64}")
      .Input("resource: resource")
      .Input("indices: Tindices");
  op.Output("output: dtype").Stateful().Doc("Slices of a variable at index tuples.");
  op.Shape(ResourceGatherNdShape).Gradient(ResourceGatherNdGradient).Cpu(RunResourceGatherNd);
  AddGpuGather<GpuResourceGatherNd>(op);
}

}  // namespace muster
