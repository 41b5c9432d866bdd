// Variables behind resource handles: reading, assigning, asking and destroying. A handle names a
// variable; the variable itself comes into being with the first assignment.
#include <limits>

#include "absl/strings/str_join.h"

#include "muster/graph/gradients/gradient_context.h"
#include "muster/ops/op.h"
#include "muster/ops/state/access.h"

namespace muster {
namespace {

class VarHandleKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ResourceHandle handle;
    ASSIGN_OR_RETURN(handle.container, setup.Attr<std::string>("container"));
    if (handle.container.empty()) handle.container = setup.resources().default_container();
    ASSIGN_OR_RETURN(handle.name, setup.Attr<std::string>("shared_name"));
    if (handle.name.empty()) handle.name = setup.node().name();
    handle.device = setup.device().name();
    handle.type_name = "N10tensorflow3VarE";
    DTypeAndShape held;
    ASSIGN_OR_RETURN(held.dtype, setup.Attr<DType>("dtype"));
    ASSIGN_OR_RETURN(held.shape, setup.Attr<PartialShape>("shape"));
    handle.dtypes_and_shapes.push_back(std::move(held));
    handle_ = Tensor::Scalar<ResourceHandle>(std::move(handle));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    c.SetOutput(0, handle_);
    return absl::OkStatus();
  }

 private:
  Tensor handle_;
};

absl::Status VarHandleShape(ShapeContext& c) {
  DTypeAndShape held;
  ASSIGN_OR_RETURN(held.dtype, c.Attr<DType>("dtype"));
  ASSIGN_OR_RETURN(held.shape, c.Attr<PartialShape>("shape"));
  c.SetOutput(0, PartialShape::Scalar());
  c.SetOutputHandle(0, {std::move(held)});
  return absl::OkStatus();
}

// TensorFlow's words for reading what does not exist.
absl::Status UnreadableVariable(const ResourceHandle& handle, const absl::Status& reason) {
  return FailedPrecondition(
      "Error while reading resource variable ", handle.name, " from Container: ", handle.container,
      ". This could mean that the variable was uninitialized. Not found: ", reason.message());
}

absl::StatusOr<Tensor> ReadHandle(KernelContext& c, int i) {
  ASSIGN_OR_RETURN(const ResourceHandle* handle, InputHandle(c, i));
  const absl::StatusOr<RefPtr<Variable>> variable = HandleVariable(c, *handle);
  if (absl::IsNotFound(variable.status())) return UnreadableVariable(*handle, variable.status());
  RETURN_IF_ERROR(variable.status());
  Tensor value = (*variable)->Snapshot();
  if (!value.valid()) return (*variable)->Uninitialized();
  return value;
}

absl::StatusOr<Tensor> ReadHandleAs(KernelContext& c, int i, DType dtype) {
  ASSIGN_OR_RETURN(Tensor value, ReadHandle(c, i));
  if (value.dtype() != dtype) {
    return InvalidArgument("Trying to read variable with wrong dtype. Expected ", DTypeName(dtype),
                           " got ", DTypeName(value.dtype()));
  }
  return value;
}

absl::Status Read(KernelContext& c) {
  ASSIGN_OR_RETURN(Tensor value, ReadHandleAs(c, 0, c.output_type(0)));
  c.SetOutput(0, std::move(value));
  return absl::OkStatus();
}

absl::Status ReadShape(ShapeContext& c) {
  const std::vector<DTypeAndShape>& handle = c.input_handle(0);
  ASSIGN_OR_RETURN(const DType dtype, c.Attr<DType>("dtype"));
  if (!handle.empty() && handle[0].dtype != DType::kInvalid && handle[0].dtype != dtype) {
    return InvalidArgument("Trying to read variable with wrong dtype. Expected ", DTypeName(dtype),
                           " got ", DTypeName(handle[0].dtype));
  }
  c.SetOutput(0, InputVariableShape(c, 0));
  return absl::OkStatus();
}

absl::Status ReadGradient(GradientContext& c) {
  c.SetDx(0, c.gradient(0));
  return absl::OkStatus();
}

class AssignVariableKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(validate_shape_, setup.Attr<bool>("validate_shape"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const ResourceHandle* handle, InputHandle(c, 0));
    ASSIGN_OR_RETURN(const RefPtr<Variable> variable, FindOrMake(c, *handle, c.input_type(1)));
    Tensor value = c.TakeInput(1);
    if (variable->dtype() != value.dtype()) {
      return InvalidArgument("Variable and value dtypes don't match; respectively, ",
                             DTypeName(variable->dtype()), " and ", DTypeName(value.dtype()));
    }
    if (validate_shape_) {
      const Tensor old = variable->Snapshot();
      if (old.valid() && old.shape() != value.shape()) {
        return InvalidArgument(
            "Trying to assign to variable with tensor with wrong shape. Expected ",
            old.shape().ToString(), " got ", value.shape().ToString());
      }
    }
    return AssignValue(c, *variable, std::move(value));
  }

 private:
  static absl::StatusOr<RefPtr<Variable>> FindOrMake(KernelContext& c, const ResourceHandle& handle,
                                                     DType dtype) {
    if (handle.resource) return HandleVariable(c, handle);
    ASSIGN_OR_RETURN(
        const RefPtr<Resource> resource,
        c.resources().LookupOrCreate(handle.container, VariableName(handle.name, handle.device),
                                     [&]() -> absl::StatusOr<RefPtr<Resource>> {
                                       PartialShape shape;
                                       if (!handle.dtypes_and_shapes.empty())
                                         shape = handle.dtypes_and_shapes[0].shape;
                                       return RefPtr<Resource>(
                                           MakeRef<Variable>(handle.name, dtype, std::move(shape)));
                                     }));
    Variable* variable = dynamic_cast<Variable*>(resource.get());
    if (variable == nullptr)
      return InvalidArgument("Resource ", handle.name, " is a ", resource->Describe(),
                             ", not a variable");
    return RefPtr<Variable>::Share(variable);
  }

  bool validate_shape_ = false;
};

absl::Status VarIsInitialized(KernelContext& c) {
  ASSIGN_OR_RETURN(const ResourceHandle* handle, InputHandle(c, 0));
  const absl::StatusOr<RefPtr<Variable>> variable = HandleVariable(c, *handle);
  if (!variable.ok() && !absl::IsNotFound(variable.status())) return variable.status();
  c.SetOutput(0, Tensor::Scalar<bool>(variable.ok() && (*variable)->initialized()));
  return absl::OkStatus();
}

// Readers share a variable's value until it changes: there is no copy that could be left out.
absl::Status DisableCopyOnRead(KernelContext& c) {
  ASSIGN_OR_RETURN(const ResourceHandle* handle, InputHandle(c, 0));
  return HandleVariable(c, *handle).status();
}

class DestroyResourceKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(ignore_lookup_error_, setup.Attr<bool>("ignore_lookup_error"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const ResourceHandle* handle, InputHandle(c, 0));
    const absl::Status deleted =
        c.resources().Delete(handle->container, VariableName(handle->name, handle->device));
    return ignore_lookup_error_ && absl::IsNotFound(deleted) ? absl::OkStatus() : deleted;
  }

 private:
  bool ignore_lookup_error_ = true;
};

template <typename T>
absl::Status VariableShapeKernel(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<Variable> variable, InputVariable(c, 0));
  const Tensor value = variable->Snapshot();
  if (!value.valid()) return variable->Uninitialized();
  std::vector<T> sizes;
  for (int64_t size : value.shape().dims()) {
    if (size > std::numeric_limits<T>::max()) {
      return InvalidArgument("Dimension ", size, " of variable ", variable->name(),
                             " does not fit into int32");
    }
    sizes.push_back(static_cast<T>(size));
  }
  c.SetOutput(0, Tensor::Vector<T>(sizes));
  return absl::OkStatus();
}

absl::Status VariableShapeRule(ShapeContext& c) {
  c.SetOutput(0, PartialShape::Vector(InputVariableShape(c, 0).rank()));
  return absl::OkStatus();
}

class ResourceGatherKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(batch_dims_, setup.Attr<int64_t>("batch_dims"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
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
    ASSIGN_OR_RETURN(const std::vector<int64_t> rows, CheckedIndices(indices, params.dim(axis)));
    Dims dims(params.shape().dims().begin(), params.shape().dims().begin() + axis);
    dims.insert(dims.end(), indices.shape().dims().begin() + axis, indices.shape().dims().end());
    dims.insert(dims.end(), params.shape().dims().begin() + axis + 1, params.shape().dims().end());
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return absl::OkStatus();
    const int64_t row_elements = params.shape().ElementsIn(axis + 1, params.rank());
    const int64_t row_bytes = row_elements * static_cast<int64_t>(DTypeSize(params.dtype()));
    const int64_t rows_per_batch = indices.shape().ElementsIn(axis, indices.rank());
    c.ParallelFor(static_cast<int64_t>(rows.size()), 5 + 0.1 * static_cast<double>(row_bytes),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      const int64_t from = i / rows_per_batch * params.dim(axis) + rows[i];
                      CopyElements(params.dtype(), params.raw() + from * row_bytes,
                                   output->raw() + i * row_bytes, row_elements);
                    }
                  });
    return absl::OkStatus();
  }

 private:
  int64_t batch_dims_ = 0;
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

absl::Status ResourceGatherNdKernel(KernelContext& c) {
  ASSIGN_OR_RETURN(const Tensor params, ReadHandleAs(c, 0, c.output_type(0)));
  const Tensor& indices = c.input(1);
  if (params.rank() < 1) return InvalidArgument("params must be at least a vector");
  if (indices.rank() < 1) return InvalidArgument("indices must be at least a vector");
  const int64_t depth = indices.dim(indices.rank() - 1);
  if (depth > params.rank()) {
    return InvalidArgument("index innermost dimension length must be <= params rank; saw: ", depth,
                           " vs. ", params.rank());
  }
  const int axes = static_cast<int>(depth);
  const Shape outer(absl::MakeConstSpan(indices.shape().dims()).first(indices.rank() - 1));
  Dims dims = outer.dims();
  dims.insert(dims.end(), params.shape().dims().begin() + axes, params.shape().dims().end());
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  if (outer.num_elements() > 0 && params.num_elements() == 0) {
    return InvalidArgument("Requested more than 0 entries, but params is empty.  Params shape: ",
                           params.shape().ToString());
  }
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
  ASSIGN_OR_RETURN(const Dims values, IntegerValues(indices));
  const int64_t row_elements = params.shape().ElementsIn(axes, params.rank());
  const int64_t row_bytes = row_elements * static_cast<int64_t>(DTypeSize(params.dtype()));
  for (int64_t i = 0; i < outer.num_elements(); ++i) {
    int64_t row = 0;
    for (int axis = 0; axis < axes; ++axis) {
      const int64_t index = values[i * axes + axis];
      if (index < 0 || index >= params.dim(axis)) {
        const auto bad = absl::MakeConstSpan(values).subspan(i * axes, axes);
        return InvalidArgument("indices", PositionText(outer, i), " = [", absl::StrJoin(bad, ", "),
                               "] does not index into param shape ", params.shape().ToString());
      }
      row = row * params.dim(axis) + index;
    }
    CopyElements(params.dtype(), params.raw() + row * row_bytes, output->raw() + i * row_bytes,
                 row_elements);
  }
  return absl::OkStatus();
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

DEFINE_OP(VarHandleOp) {
  op.Attr("container: string = ''")
      .Attr("shared_name: string = ''")
      .Attr2x("debug_name: string = ''")
      .Attr("dtype: type");
  op.Attr("shape: shape")
      .Attr2x("allowed_devices: list(string) = []")
      .Output("resource: resource")
      .Stateful();
  op.Doc("A handle that names a variable.")
      .Shape(VarHandleShape)
      .Cpu(New<VarHandleKernel>())
      .GpuDTypes("dtype", GpuResourceVariableTypes(), New<VarHandleKernel>())
      .Gpu(New<VarHandleKernel>(), {{"dtype", DType::kVariant}});
}

DEFINE_OP(ReadVariableOp) {
  op.Attr("dtype: type").Input("resource: resource").Output("value: dtype").Stateful();
  op.Doc("The value of a variable at this moment.")
      .Shape(ReadShape)
      .Gradient(ReadGradient)
      .Cpu(Read)
      .GpuDTypes("dtype", GpuResourceVariableTypes(), Stateless(Read))
      .Gpu(Read, {{"dtype", DType::kVariant}});
}

DEFINE_OP(AssignVariableOp) {
  op.Attr("dtype: type")
      .Attr2x("validate_shape: bool = false")
      .Input("resource: resource")
      .Input("value: dtype")
      .Stateful();
  op.Doc("Gives the variable a new value, making it if need be.")
      .Shape(AssignedHandleShape)
      .NoGradient("changes a variable");
  op.Cpu(New<AssignVariableKernel>())
      .GpuDTypes("dtype", GpuResourceVariableTypes(), New<AssignVariableKernel>())
      .Gpu(New<AssignVariableKernel>(), {{"dtype", DType::kVariant}});
}

DEFINE_OP(VarIsInitializedOp) {
  op.Input("resource: resource")
      .Output("is_initialized: bool")
      .Stateful()
      .Doc("Whether the variable has a value.");
  op.Shape(ScalarShape)
      .NoGradient("boolean")
      .Cpu(VarIsInitialized)
      .Gpu(VarIsInitialized, {}, {"is_initialized"});
}

DEFINE_OP(DestroyResourceOp) {
  op.Attr("ignore_lookup_error: bool = true").Input("resource: resource").Stateful();
  op.Doc("Forgets the named resource.")
      .Shape(NoOutputs)
      .Cpu(New<DestroyResourceKernel>())
      .Gpu(New<DestroyResourceKernel>());
}

DEFINE_OP(DisableCopyOnRead) {
  op.Input("resource: resource").Stateful();
  op.Doc("Lets reads share the variable's value; savers of TensorFlow 2.x put it before theirs.")
      .Shape(NoOutputs)
      .Cpu(DisableCopyOnRead);
}

DEFINE_OP(VariableShape) {
  op.Attr("out_type: {int32, int64} = DT_INT32")
      .Input("input: resource")
      .Output("output: out_type")
      .Stateful();
  op.Doc("The shape of a variable's value.").Shape(VariableShapeRule).NoGradient("integers");
  op.CpuTypes<Indices>("out_type", []<typename T>() { return Stateless(VariableShapeKernel<T>); });
  op.GpuOnHost("out_type", {DType::kInt32, DType::kInt64});
}

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
}

DEFINE_OP(ResourceGatherNd) {
  op.Attr("dtype: type")
      .Attr("Tindices: {int32, int64}")
      .Input("resource: resource")
      .Input("indices: Tindices");
  op.Output("output: dtype").Stateful().Doc("Slices of a variable at index tuples.");
  op.Shape(ResourceGatherNdShape).Gradient(ResourceGatherNdGradient).Cpu(ResourceGatherNdKernel);
}

}  // namespace muster
