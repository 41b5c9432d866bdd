// Variables behind resource handles: reading, assigning, asking and destroying. A handle names a
// variable; the variable itself comes into being with the first assignment.
#include <limits>

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
      .GpuDTypes("dtype", GpuResourceVariableTypes(), New<VarHandleKernel>());
}

DEFINE_OP(ReadVariableOp) {
  op.Attr("dtype: type").Input("resource: resource").Output("value: dtype").Stateful();
  op.Doc("The value of a variable at this moment.")
      .Shape(ReadShape)
      .Gradient(ReadGradient)
      .Cpu(Read)
      .GpuDTypes("dtype", GpuResourceVariableTypes(), Stateless(Read));
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
      .GpuDTypes("dtype", GpuResourceVariableTypes(), New<AssignVariableKernel>());
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

}  // namespace muster
