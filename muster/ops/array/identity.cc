// Ops that pass their inputs on, and ops that only order others.
#include "muster/graph/gradients/gradients.h"
#include "muster/ops/array/gradients.h"
#include "muster/ops/gpu_kernel.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

absl::Status SameShapes(ShapeContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) {
    c.SetOutput(i, c.input(i));
    c.SetOutputHandle(i, c.input_handle(i));
  }
  return absl::OkStatus();
}

// Also de-references: a reference input has been read by the time the kernel runs, unless the
// consumer of the output is to read it.
absl::Status Forward(KernelContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.PassInput(i, i);
  return absl::OkStatus();
}

absl::Status DeepCopy(KernelContext& c) {
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, c.input(0).shape()));
  CopyElements(output->dtype(), c.input(0).raw(), output->raw(), output->num_elements());
  return absl::OkStatus();
}

class GpuDeepCopy : public GpuKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, x.shape()));
    return gpu().CopyWithin(output->raw(), x.raw(), x.size_bytes());
  }
};

absl::Status DoNothing(KernelContext&) {
  return absl::OkStatus();
}

absl::Status PassGradients(GradientContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) c.SetDx(i, c.gradient(i));
  return absl::OkStatus();
}

absl::Status RefuseGradient(GradientContext& c) {
  return WithErrorKind(NotFound("Gradient explicitly disabled. Reason: ",
                                PythonBytes(c.Attr<std::string>("message"))),
                       kLookupError);
}

class EnsureShapeKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(shape_, setup.Attr<PartialShape>("shape"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Shape& shape = c.input(0).shape();
    if (!shape_.CompatibleWith(shape)) {
      return InvalidArgument("Shape of tensor ", c.node().input(0).node->name(), " ",
                             shape.ToString(), " is not compatible with expected shape ",
                             shape_.ToString(), ".");
    }
    return Forward(c);
  }

 private:
  PartialShape shape_;
};

absl::Status EnsureShapeShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape declared, c.Attr<PartialShape>("shape"));
  ASSIGN_OR_RETURN(PartialShape shape, c.Merge(declared, c.input(0)));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

DEFINE_OP(Identity) {
  op.Attr("T: type")
      .Input("input: T")
      .Output("output: T")
      .Doc("Its input.")
      .Shape(SameShapes)
      .Gradient(PassGradients)
      .Cpu(Forward)
      .GpuForwards(Forward, "T", {"input", "output"}, {DType::kInt32, DType::kBool});
}

DEFINE_OP(IdentityN) {
  op.Attr("T: list(type) >= 1")
      .Input("input: T")
      .Output("output: T")
      .Doc("Its inputs; all of them are there before any is passed on.")
      .Shape(SameShapes)
      .Gradient(PassGradients)
      .Cpu(Forward);
}

DEFINE_OP(NoOp) {
  op.Doc("Does nothing; groups control dependencies.")
      .Shape(NoOutputs)
      .Cpu(DoNothing)
      .Gpu(DoNothing);
}

DEFINE_OP(ControlTrigger) {
  op.Doc("Does nothing; runs even when some of its control inputs are dead.")
      .Shape(NoOutputs)
      .Cpu(DoNothing)
      .Gpu(DoNothing);
}

DEFINE_OP(StopGradient) {
  op.Attr("T: type")
      .Input("input: T")
      .Output("output: T")
      .Doc("Its input, seen as a constant when gradients are built.")
      .Shape(SameShapes)
      .NoGradient("StopGradient cuts gradients by design")
      .Cpu(Forward)
      .GpuForwards(Forward, "T", {"input", "output"}, {DType::kInt32, DType::kBool});
}

DEFINE_OP(PreventGradient) {
  op.Attr("T: type")
      .Attr("message: string = ''")
      .Input("input: T")
      .Output("output: T")
      .Doc("Its input; building a gradient through it is an error.")
      .Shape(SameShapes)
      .Gradient(RefuseGradient)
      .Cpu(Forward)
      .GpuForwards(Forward, "T", {"input", "output"}, {DType::kInt32, DType::kBool});
}

DEFINE_OP(Snapshot) {
  op.Attr("T: type")
      .Input("input: T")
      .Output("output: T")
      .Doc("A copy of its input as it is now.")
      .Shape(UnchangedShape)
      .CpuDTypes("T", PlainDTypes(), Stateless(DeepCopy))
      .GpuTypes("T",
                {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble, DType::kBool,
                 DType::kInt8, DType::kUint8, DType::kInt16, DType::kUint16, DType::kInt32,
                 DType::kInt64, DType::kComplex64, DType::kComplex128},
                [](DType) { return New<GpuDeepCopy>(); });
}

DEFINE_OP(DeepCopy) {
  op.Attr("T: type")
      .Input("x: T")
      .Output("y: T")
      .Stateful()
      .Doc("A copy of `x` with memory of its own.")
      .Shape(UnchangedShape)
      .Cpu(DeepCopy)
      .Gpu(DeepCopy, {{"T", DType::kInt32}}, {"x", "y"})
      .GpuTypes("T", {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble, DType::kInt64},
                [](DType) { return New<GpuDeepCopy>(); });
}

absl::Status ForwardValue(KernelContext& c) {
  if (c.input(0).dtype() == DType::kResource) {
    return InvalidArgument("Input tensor to GuaranteeConst cannot be a resource variable.");
  }
  return Forward(c);
}

DEFINE_OP(GuaranteeConst) {
  op.Attr("T: type")
      .Input("input: T")
      .Output("output: T")
      .Stateful()
      .Doc("Its input, which the caller promises never changes.")
      .Shape(SameShapes)
      .Cpu(ForwardValue);
}

DEFINE_OP(DebugGradientIdentity) {
  op.Attr("T: type")
      .Input("input: T")
      .Output("output: T")
      .AllowsUninitializedInput()
      .Doc("Its input; marks a tensor whose gradient a debugger watches.")
      .Shape(SameShapes)
      .Cpu(Forward)
      .GpuForwards(Forward, "T", {"input", "output"}, {DType::kInt32, DType::kBool});
}

DEFINE_OP(EnsureShape) {
  op.Attr("shape: shape")
      .Attr("T: type")
      .Input("input: T")
      .Output("output: T")
      .Doc("Its input, after a check that it has the given shape.")
      .Shape(EnsureShapeShape)
      .Gradient(PassGradients)
      .Cpu(New<EnsureShapeKernel>())
      .GpuForwards(New<EnsureShapeKernel>(), "T", {"input", "output"},
                   {DType::kInt32, DType::kBool});
}

}  // namespace
}  // namespace muster
