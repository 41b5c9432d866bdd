// Conditional accumulators: where the gradients of synchronous training meet.
#include "muster/ops/resource_kernel.h"
#include "muster/params/accumulator.h"

namespace muster {
namespace {

constexpr const char* kNumberType =
    "dtype: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
    "bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}";

template <typename A>
class AccumulatorKernel : public ResourceKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(ResourceKernel::Init(setup));
    ASSIGN_OR_RETURN(dtype_, setup.Attr<DType>("dtype"));
    ASSIGN_OR_RETURN(shape_, setup.Attr<PartialShape>("shape"));
    ASSIGN_OR_RETURN(const std::string reduction, setup.Attr<std::string>("reduction_type"));
    reduction_ = reduction == "SUM" ? Accumulator::Reduction::kSum : Accumulator::Reduction::kMean;
    return absl::OkStatus();
  }

 protected:
  absl::StatusOr<RefPtr<Resource>> Make(const std::string& name) override {
    return RefPtr<Resource>(MakeRef<A>(name, dtype_, shape_, reduction_));
  }
  std::string type_name() const override { return Accumulator::kTypeName; }

 private:
  DType dtype_ = DType::kInvalid;
  PartialShape shape_;
  Accumulator::Reduction reduction_ = Accumulator::Reduction::kMean;
};

// A scalar argument in TensorFlow's words.
absl::StatusOr<int64_t> ScalarArgument(const Tensor& tensor, absl::string_view name) {
  if (!tensor.shape().is_scalar()) {
    return InvalidArgument("Argument ", name, " must be scalar, but had bad shape ",
                           tensor.shape().ToString());
  }
  return ScalarInteger(tensor, name);
}

// InvalidArgument when the node's types besides the handle are not these.
absl::Status CheckSignature(const KernelContext& c, std::vector<DType> in,
                            const std::vector<DType>& out) {
  const std::vector<DType>& have_in = c.node().input_types();
  const std::vector<DType>& have_out = c.node().output_types();
  in.insert(in.begin(), have_in[0]);
  if (in == have_in && out == have_out) return absl::OkStatus();
  return InvalidArgument("Signature mismatch, have: ", DTypeList(have_in), "->",
                         DTypeList(have_out), " expected: ", DTypeList(in), "->", DTypeList(out));
}

absl::Status ApplyDense(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<DenseAccumulator> accumulator,
                   InputResourceAs<DenseAccumulator>(c, 0));
  RETURN_IF_ERROR(CheckSignature(c, {DType::kInt64, accumulator->dtype()}, {}));
  ASSIGN_OR_RETURN(const int64_t local_step, ScalarArgument(c.input(1), "local_step"));
  return accumulator->Apply(local_step, c.TakeInput(2));
}

class ApplySparseKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(has_known_shape_, setup.Attr<bool>("has_known_shape"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const RefPtr<SparseAccumulator> accumulator,
                     InputResourceAs<SparseAccumulator>(c, 0));
    RETURN_IF_ERROR(
        CheckSignature(c, {DType::kInt64, DType::kInt64, accumulator->dtype(), DType::kInt64}, {}));
    ASSIGN_OR_RETURN(const int64_t local_step, ScalarArgument(c.input(1), "local_step"));
    SparseGradient gradient;
    gradient.indices = c.TakeInput(2);
    gradient.values = KeptTensor(c.TakeInput(3));
    gradient.dense_shape = c.TakeInput(4);
    return accumulator->Apply(local_step, has_known_shape_, gradient);
  }

 private:
  bool has_known_shape_ = false;
};

template <typename A>
class TakeKernel : public Kernel {
 public:
  bool is_async() const override { return true; }
  absl::Status Compute(KernelContext&) override { return Internal("Takes run asynchronously"); }
  void ComputeAsync(KernelContext& c, Done done) override {
    absl::StatusOr<RefPtr<A>> accumulator = Find(c);
    if (!accumulator.ok()) return std::move(done)(accumulator.status());
    const absl::StatusOr<int64_t> required = ScalarArgument(c.input(1), "num_required");
    if (!required.ok()) return std::move(done)(required.status());
    const StepWait wait(c, *accumulator);
    (*accumulator)
        ->Take(*required, wait.OnWait(),
               wait.Then(
                   [&c, done = std::move(done)](absl::StatusOr<Accumulator::Tuple> taken) mutable {
                     if (taken.ok()) {
                       for (size_t i = 0; i < taken->size(); ++i)
                         c.SetOutput(static_cast<int>(i), std::move((*taken)[i]));
                     }
                     std::move(done)(taken.status());
                   }));
  }

 private:
  static absl::StatusOr<RefPtr<A>> Find(const KernelContext& c) {
    ASSIGN_OR_RETURN(RefPtr<A> accumulator, InputResourceAs<A>(c, 0));
    std::vector<DType> out{accumulator->dtype()};
    if (std::is_same_v<A, SparseAccumulator>)
      out = {DType::kInt64, accumulator->dtype(), DType::kInt64};
    RETURN_IF_ERROR(CheckSignature(c, {DType::kInt32}, out));
    return accumulator;
  }
};

absl::Status NumAccumulated(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<Accumulator> accumulator, InputResourceAs<Accumulator>(c, 0));
  c.SetOutput(0, Tensor::Scalar<int32_t>(static_cast<int32_t>(accumulator->num_accumulated())));
  return absl::OkStatus();
}

absl::Status SetGlobalStep(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<Accumulator> accumulator, InputResourceAs<Accumulator>(c, 0));
  ASSIGN_OR_RETURN(const int64_t step, ScalarArgument(c.input(1), "new_global_step"));
  accumulator->SetGlobalStep(step);
  return absl::OkStatus();
}

absl::Status PairShape(ShapeContext& c) {
  c.SetOutput(0, PartialShape::Vector(2));
  return absl::OkStatus();
}

template <typename A>
void Maker(OpBuilder& op, const char* handle) {
  op.Attr(kNumberType)
      .Attr("shape: shape")
      .Attr("container: string = ''")
      .Attr("shared_name: string = ''")
      .Attr("reduction_type: {'MEAN', 'SUM'} = 'MEAN'")
      .Output(handle)
      .Stateful()
      .Shape(PairShape)
      .CpuTypes<Floats>("dtype", []<typename T>() { return New<AccumulatorKernel<A>>(); });
}

OpBuilder& Handle(OpBuilder& op, bool is_resource) {
  op.Input(is_resource ? "handle: resource" : "handle: Ref(string)");
  if (is_resource) op.Stateful();
  return op;
}

void ApplyOp(OpBuilder& op, bool is_resource) {
  op.Attr(kNumberType);
  Handle(op, is_resource)
      .Input("local_step: int64")
      .Input("gradient: dtype")
      .Doc("Adds a gradient to an accumulator, unless it is older than the accumulator's step.")
      .Shape(NoOutputs)
      .Cpu(ApplyDense);
}
void TakeOp(OpBuilder& op, bool is_resource) {
  op.Attr(kNumberType);
  Handle(op, is_resource)
      .Input("num_required: int32")
      .Output("average: dtype")
      .Doc("Waits for enough gradients and takes their mean or sum.")
      .Shape(UnknownShape)
      .Cpu(New<TakeKernel<DenseAccumulator>>());
}
void NumOp(OpBuilder& op, bool is_resource) {
  Handle(op, is_resource)
      .Output("num_accumulated: int32")
      .Doc("The number of gradients since the last take.")
      .Shape(ScalarShape)
      .Cpu(NumAccumulated);
}
void SetStepOp(OpBuilder& op, bool is_resource) {
  Handle(op, is_resource)
      .Input("new_global_step: int64")
      .Doc("Sets the step that gradients must have reached to be accepted.")
      .Shape(NoOutputs)
      .Cpu(SetGlobalStep);
}

}  // namespace

DEFINE_OP(ConditionalAccumulator) {
  Maker<DenseAccumulator>(op, "handle: Ref(string)");
  op.Doc("Sums dense gradients until enough have come.");
}
DEFINE_OP(ResourceConditionalAccumulator) {
  Maker<DenseAccumulator>(op, "handle: resource");
  op.Doc("Sums dense gradients until enough have come.");
}
DEFINE_OP(SparseConditionalAccumulator) {
  Maker<SparseAccumulator>(op, "handle: Ref(string)");
  op.Doc("Sums gradients of some rows until enough have come.");
}

DEFINE_OP(AccumulatorApplyGradient) {
  ApplyOp(op, false);
}
DEFINE_OP(ResourceAccumulatorApplyGradient) {
  ApplyOp(op, true);
}
DEFINE_OP(AccumulatorTakeGradient) {
  TakeOp(op, false);
}
DEFINE_OP(ResourceAccumulatorTakeGradient) {
  TakeOp(op, true);
}
DEFINE_OP(AccumulatorNumAccumulated) {
  NumOp(op, false);
}
DEFINE_OP(ResourceAccumulatorNumAccumulated) {
  NumOp(op, true);
}
DEFINE_OP(AccumulatorSetGlobalStep) {
  SetStepOp(op, false);
}
DEFINE_OP(ResourceAccumulatorSetGlobalStep) {
  SetStepOp(op, true);
}

DEFINE_OP(SparseAccumulatorApplyGradient) {
  op.Attr(kNumberType)
      .Attr("has_known_shape: bool")
      .Input("handle: Ref(string)")
      .Input("local_step: int64")
      .Input("gradient_indices: int64")
      .Input("gradient_values: dtype")
      .Input("gradient_shape: int64")
      .Doc("Adds a gradient of some rows to an accumulator, unless it is too old.")
      .Shape(NoOutputs)
      .Cpu(New<ApplySparseKernel>());
}
DEFINE_OP(SparseAccumulatorTakeGradient) {
  op.Attr(kNumberType)
      .Input("handle: Ref(string)")
      .Input("num_required: int32")
      .Output("indices: int64")
      .Output("values: dtype")
      .Output("shape: int64")
      .Doc("Waits for enough gradients and takes each row's mean or sum.")
      .Shape(UnknownShape)
      .Cpu(New<TakeKernel<SparseAccumulator>>());
}

}  // namespace muster
