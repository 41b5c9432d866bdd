// Variables behind reference edges: VariableV2 and its old form, temporary variables, assignment
// and counting.
#include <cstring>

#include "absl/strings/str_cat.h"

#include "muster/ops/gpu_kernel.h"
#include "muster/ops/op.h"
#include "muster/ops/state/access.h"
#include "muster/ops/state/arithmetic.h"

namespace muster {
namespace {

// Looks the variable up in every step: its container may have been cleared since the last one.
class VariableKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(shape_, setup.Attr<PartialShape>("shape"));
    ASSIGN_OR_RETURN(dtype_, setup.Attr<DType>("dtype"));
    ASSIGN_OR_RETURN(container_, setup.Attr<std::string>("container"));
    ASSIGN_OR_RETURN(name_, setup.Attr<std::string>("shared_name"));
    if (name_.empty()) name_ = setup.node().name();
    placed_name_ = VariableName(name_, setup.device().name());
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const RefPtr<Resource> resource,
                     c.resources().LookupOrCreate(
                         container_, placed_name_, [&]() -> absl::StatusOr<RefPtr<Resource>> {
                           return RefPtr<Resource>(MakeRef<Variable>(name_, dtype_, shape_));
                         }));
    Variable* variable = dynamic_cast<Variable*>(resource.get());
    if (variable == nullptr)
      return InvalidArgument("Resource ", name_, " is a ", resource->Describe(),
                             ", not a variable");
    if (variable->dtype() != dtype_) {
      return InvalidArgument("Variable ", name_, " exists with type ", DTypeName(variable->dtype()),
                             ", not ", DTypeName(dtype_));
    }
    c.SetOutputReference(0, RefPtr<Variable>::Share(variable));
    return absl::OkStatus();
  }

 private:
  PartialShape shape_;
  DType dtype_ = DType::kInvalid;
  std::string container_;
  std::string name_;
  std::string placed_name_;
};

absl::Status VariableShapeRule(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.Attr<PartialShape>("shape"));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

// In old graphs an empty shape means that it is not known.
absl::Status OldVariableShapeRule(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.Attr<PartialShape>("shape"));
  c.SetOutput(0, shape.rank() == 0 ? PartialShape() : std::move(shape));
  return absl::OkStatus();
}

absl::Status IsInitialized(KernelContext& c) {
  c.SetOutput(0, Tensor::Scalar<bool>(c.input_variable(0).initialized()));
  return absl::OkStatus();
}

// The name under which a temporary variable lives during a step; loop iterations have their own.
std::string TemporaryName(const KernelContext& c, absl::string_view name) {
  return absl::StrCat(name, "#", c.frame_and_iteration());
}

class TemporaryVariableKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(const PartialShape shape, setup.Attr<PartialShape>("shape"));
    const std::optional<Shape> known = shape.ToShape();
    if (!known)
      return InvalidArgument("TemporaryVariable needs a fully known shape, got ", shape.ToString());
    shape_ = *known;
    ASSIGN_OR_RETURN(dtype_, setup.Attr<DType>("dtype"));
    ASSIGN_OR_RETURN(name_, setup.Attr<std::string>("var_name"));
    if (name_.empty()) name_ = setup.node().name();
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    RefPtr<Variable> variable = MakeRef<Variable>(name_, dtype_, shape_);
    ASSIGN_OR_RETURN(Tensor value, Tensor::Make(dtype_, shape_, c.device().allocator()));
    if (IsPlainData(dtype_) && !value.is_on_device())
      std::memset(value.raw(), 0, value.size_bytes());
    variable->Assign(std::move(value));
    RETURN_IF_ERROR(c.step().step_resources->Create("", TemporaryName(c, name_), variable));
    c.SetOutputReference(0, std::move(variable));
    return absl::OkStatus();
  }

 private:
  Shape shape_;
  DType dtype_ = DType::kInvalid;
  std::string name_;
};

class DestroyTemporaryVariableKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(name_, setup.Attr<std::string>("var_name"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    c.SetOutput(0, c.input_variable(0).Snapshot());
    return c.step().step_resources->Delete("", TemporaryName(c, name_));
  }

 private:
  std::string name_;
};

class AssignKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(validate_shape_, setup.Attr<bool>("validate_shape"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    Variable& variable = c.input_variable(0);
    Tensor value = c.TakeInput(1);
    if (value.dtype() != variable.dtype()) {
      return InvalidArgument("Variable ", variable.name(), " has type ",
                             DTypeName(variable.dtype()), "; cannot assign ",
                             DTypeName(value.dtype()));
    }
    if (validate_shape_) {
      const Tensor old = variable.Snapshot();
      const PartialShape shape =
          old.valid() ? PartialShape(old.shape()) : variable.declared_shape();
      if (!shape.CompatibleWith(value.shape())) {
        return InvalidArgument("Assign requires shapes of both tensors to match. lhs shape= ",
                               shape.ToString(), " rhs shape= ", value.shape().ToString());
      }
    }
    RETURN_IF_ERROR(AssignValue(c, variable, std::move(value)));
    c.SetOutputReference(0, c.input_reference(0));
    return absl::OkStatus();
  }

 private:
  bool validate_shape_ = true;
};

absl::Status AssignShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const bool validate, c.Attr<bool>("validate_shape"));
  if (!validate) {
    c.SetOutput(0, c.input(1));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(PartialShape shape, ShapeContext::Merge(c.input(0), c.input(1)));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

// Calls `change` with the elements of the variable, once `value` is known to fit them.
absl::Status ChangeVariable(Variable& variable, const Tensor& value, bool is_resource,
                            absl::FunctionRef<absl::Status(Tensor&)> change) {
  if (variable.dtype() != value.dtype()) {
    return InvalidArgument("Variable and value dtypes don't match; respectively, ",
                           DTypeName(variable.dtype()), " and ", DTypeName(value.dtype()));
  }
  return variable.Update([&](Tensor& current) {
    if (current.shape() != value.shape()) {
      return is_resource
                 ? InvalidArgument("Cannot update variable with shape ", current.shape().ToString(),
                                   " using a Tensor with shape ", value.shape().ToString(),
                                   ", shapes must be equal.")
                 : InvalidArgument("Parameters and update must be the same size");
    }
    return change(current);
  });
}

// Serves references and resources.
absl::Status ChangeInput(KernelContext& c, absl::FunctionRef<absl::Status(Tensor&)> change) {
  const bool is_resource = !c.input_is_reference(0);
  ASSIGN_OR_RETURN(const RefPtr<Variable> variable, InputVariable(c, 0));
  RETURN_IF_ERROR(ChangeVariable(*variable, c.input(1), is_resource, change));
  if (!is_resource) c.SetOutputReference(0, c.input_reference(0));
  return absl::OkStatus();
}

template <Change kChange, typename T>
absl::Status AssignChange(KernelContext& c) {
  return ChangeInput(c, [&](Tensor& current) {
    T* to = current.data<T>();
    const T* from = c.input(1).data<T>();
    c.ParallelFor(current.num_elements(), 0.2, [&](int64_t begin, int64_t end) {
      CombineElements<kChange>(to + begin, from + begin, end - begin);
    });
    return absl::OkStatus();
  });
}

class GpuAssignChange : public GpuKernel {
 public:
  GpuAssignChange(Change change, DType dtype)
      : run_(*this, "state/change.cu",
             absl::StrCat("Change<", GpuChangeName(change), ", ", GpuTypeName(dtype), ">")) {}
  absl::Status Compute(KernelContext& c) override {
    return ChangeInput(c, [&](Tensor& current) {
      const int64_t count = current.num_elements();
      return run_.LaunchForEach(count, GpuOut(current), GpuIn(c.input(1)), count);
    });
  }

 private:
  GpuFunction run_;
};

void AddGpuAssignChange(OpBuilder& op, const char* attr, Change change) {
  op.GpuTypes(attr, GpuVariableTypes(), [change](DType dtype) -> KernelFactory {
    return [change, dtype] { return std::make_unique<GpuAssignChange>(change, dtype); };
  });
}

template <Change kChange>
void DefineAssignChange(OpBuilder& op) {
  op.Attr("T: numbertype").Attr("use_locking: bool = false").Input("ref: Ref(T)").Input("value: T");
  op.Output("output_ref: Ref(T)").Shape(MergedShape).NoGradient("changes a variable");
  op.CpuTypes<Numbers>("T", []<typename T>() { return Stateless(AssignChange<kChange, T>); });
  AddGpuAssignChange(op, "T", kChange);
}

template <Change kChange>
void DefineAssignChangeResource(OpBuilder& op) {
  op.Attr("dtype: type")
      .Input("resource: resource")
      .Input("value: dtype")
      .Stateful()
      .Shape(AssignedHandleShape);
  op.NoGradient("changes a variable");
  op.CpuTypes<Numbers>("dtype", []<typename T>() { return Stateless(AssignChange<kChange, T>); });
  AddGpuAssignChange(op, "dtype", kChange);
}

// Gives the old value and adds one, up to a limit. Serves references and resources.
template <typename T>
class CountUpToKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(limit_, setup.Attr<int64_t>("limit"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const RefPtr<Variable> variable, InputVariable(c, 0));
    if (variable->dtype() != kDTypeOf<T>) {
      return InvalidArgument("CountUpTo of ", DTypeName(kDTypeOf<T>), " on a variable of ",
                             DTypeName(variable->dtype()));
    }
    T before = 0;
    RETURN_IF_ERROR(variable->Update([&](Tensor& value) {
      if (!value.shape().is_scalar())
        return InvalidArgument("input is not a scalar: ", value.shape().ToString());
      before = value.scalar<T>();
      if (before >= limit_) return OutOfRange("Reached limit of ", limit_);
      value.data<T>()[0] = Combine<Change::kAdd, T>(before, 1);
      return absl::OkStatus();
    }));
    c.SetOutput(0, Tensor::Scalar<T>(before));
    return absl::OkStatus();
  }

 private:
  int64_t limit_ = 0;
};

absl::Status CountUpToShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.WithRank(InputVariableShape(c, 0), 0));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(VariableV2) {
  op.Attr("shape: shape")
      .Attr("dtype: type")
      .Attr("container: string = ''")
      .Attr("shared_name: string = ''");
  op.Output("ref: Ref(dtype)").Stateful().Doc("A reference to a variable that outlives the step.");
  op.Shape(VariableShapeRule)
      .Cpu(New<VariableKernel>())
      .GpuDTypes("dtype", GpuVariableTypes(), New<VariableKernel>());
}

DEFINE_OP(Variable) {
  op.Attr("shape: shape")
      .Attr("dtype: type")
      .Attr("container: string = ''")
      .Attr("shared_name: string = ''");
  op.Output("ref: Ref(dtype)")
      .Stateful()
      .Doc("VariableV2 of old graphs, where a scalar shape means an unknown one.");
  op.Shape(OldVariableShapeRule)
      .Cpu(New<VariableKernel>())
      .GpuDTypes("dtype", GpuVariableTypes(), New<VariableKernel>());
}

DEFINE_OP(IsVariableInitialized) {
  op.Attr("dtype: type")
      .Input("ref: Ref(dtype)")
      .Output("is_initialized: bool")
      .AllowsUninitializedInput();
  op.Doc("Whether the variable has a value.")
      .Shape(ScalarShape)
      .NoGradient("boolean")
      .Cpu(IsInitialized)
      .GpuDTypes("dtype", GpuVariableTypes(), Stateless(IsInitialized), {"is_initialized"});
}

DEFINE_OP(TemporaryVariable) {
  op.Attr("shape: shape")
      .Attr("dtype: type")
      .Attr("var_name: string = ''")
      .Output("ref: Ref(dtype)")
      .Stateful();
  op.Doc("A variable that lives until DestroyTemporaryVariable or the end of the step.");
  op.Shape(VariableShapeRule)
      .NoGradient("state")
      .Cpu(New<TemporaryVariableKernel>())
      .GpuDTypes("dtype", GpuVariableTypes(), New<TemporaryVariableKernel>());
}

DEFINE_OP(DestroyTemporaryVariable) {
  op.Attr("T: type").Attr("var_name: string").Input("ref: Ref(T)").Output("value: T");
  op.Doc("The last value of a temporary variable, which is gone afterwards.");
  op.Shape(UnchangedShape)
      .NoGradient("state")
      .Cpu(New<DestroyTemporaryVariableKernel>())
      .GpuDTypes("T", GpuVariableTypes(), New<DestroyTemporaryVariableKernel>());
}

DEFINE_OP(Assign) {
  op.Attr("T: type").Attr("validate_shape: bool = true").Attr("use_locking: bool = true");
  op.Input("ref: Ref(T)").Input("value: T").Output("output_ref: Ref(T)").AllowsUninitializedInput();
  op.Doc("Gives the variable a new value.")
      .Shape(AssignShape)
      .NoGradient("changes a variable")
      .Cpu(New<AssignKernel>())
      .GpuDTypes("T", GpuResourceVariableTypes(), New<AssignKernel>());
}

DEFINE_OP(AssignAdd) {
  DefineAssignChange<Change::kAdd>(op);
  op.Doc("Adds a value to the variable.");
}

DEFINE_OP(AssignSub) {
  DefineAssignChange<Change::kSub>(op);
  op.Doc("Subtracts a value from the variable.");
}

DEFINE_OP(AssignAddVariableOp) {
  DefineAssignChangeResource<Change::kAdd>(op);
  op.Doc("Adds a value to the variable.");
}

DEFINE_OP(AssignSubVariableOp) {
  DefineAssignChangeResource<Change::kSub>(op);
  op.Doc("Subtracts a value from the variable.");
}

DEFINE_OP(CountUpTo) {
  op.Attr("limit: int").Attr("T: {int32, int64}").Input("ref: Ref(T)").Output("output: T");
  op.Doc("The variable before it is counted up by one; OutOfRange at the limit.")
      .Shape(CountUpToShape);
  op.NoGradient("integer").CpuTypes<Indices>(
      "T", []<typename T>() { return New<CountUpToKernel<T>>(); });
}

DEFINE_OP(ResourceCountUpTo) {
  op.Attr("limit: int")
      .Attr("T: {int32, int64}")
      .Input("resource: resource")
      .Output("output: T")
      .Stateful();
  op.Doc("The variable before it is counted up by one; OutOfRange at the limit.")
      .Shape(CountUpToShape);
  op.NoGradient("integer").CpuTypes<Indices>(
      "T", []<typename T>() { return New<CountUpToKernel<T>>(); });
}

}  // namespace muster
