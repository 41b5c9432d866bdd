// Calls of functions and control flow made of functions, for what is not inlined before the step:
// PartitionedCall, If, Case, While, For.
#include <algorithm>

#include "muster/ops/control/held_elements.h"
#include "muster/ops/op.h"
#include "muster/runtime/executor.h"

namespace muster {
namespace {

using CallDone = FunctionCaller::CallDone;

// `gives_decision`: the host looks at the results.
void CallFunction(KernelContext& c, const FunctionRef& function, std::vector<Tensor> arguments,
                  CallDone done, bool gives_decision = false) {
  FunctionCaller* const caller = c.step().functions;
  if (caller == nullptr) {
    std::move(done)(NotFound("Function ", function.name, " is not defined."));
    return;
  }
  CallSite site = CallSiteOf(c.device(), arguments);
  site.results_on_host = gives_decision;
  const absl::StatusOr<FunctionCaller::Handle> handle = caller->Instantiate(function, site);
  if (!handle.ok()) {
    std::move(done)(handle.status());
    return;
  }
  caller->Call(*handle, std::move(arguments), c.step(), std::move(done));
}

std::vector<Tensor> TakeInputs(KernelContext& c, int first) {
  std::vector<Tensor> inputs;
  for (int i = first; i < c.num_inputs(); ++i) inputs.push_back(c.TakeInput(i));
  return inputs;
}

absl::Status CheckTypes(const Node& node, const std::vector<Tensor>& values) {
  const std::vector<DType>& types = node.output_types();
  if (values.size() != types.size()) {
    return InvalidArgument("A function of '", node.name(), "' gave ", values.size(),
                           " values where ", types.size(), " are wanted");
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (values[i].dtype() != BaseType(types[i])) {
      return InvalidArgument("A function of '", node.name(), "' gave a ",
                             DTypeName(values[i].dtype()), " for result ", i, " of type ",
                             DTypeName(types[i]));
    }
  }
  return absl::OkStatus();
}

absl::Status SetOutputs(KernelContext& c, absl::StatusOr<std::vector<Tensor>> results) {
  if (!results.ok()) return results.status();
  RETURN_IF_ERROR(CheckTypes(c.node(), *results));
  for (int i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, std::move((*results)[i]));
  return absl::OkStatus();
}

// Results of the function become the outputs.
void CallForOutputs(KernelContext& c, const FunctionRef& function, std::vector<Tensor> arguments,
                    Done done) {
  CallFunction(c, function, std::move(arguments),
               [&c, done = std::move(done)](absl::StatusOr<std::vector<Tensor>> results) mutable {
                 std::move(done)(SetOutputs(c, std::move(results)));
               });
}

template <typename T>
bool NonZero(const Tensor& tensor) {
  return tensor.scalar<T>() != T();
}

// Scalars that are not zero or empty are true, and so is whatever else has elements.
absl::StatusOr<bool> Truth(const Tensor& tensor) {
  if (tensor.rank() > 0) return tensor.num_elements() > 0;
  switch (tensor.dtype()) {
    case DType::kBool:
      return tensor.scalar<bool>();
    case DType::kFloat:
      return NonZero<float>(tensor);
    case DType::kDouble:
      return NonZero<double>(tensor);
    case DType::kInt32:
      return NonZero<int32_t>(tensor);
    case DType::kInt64:
      return NonZero<int64_t>(tensor);
    case DType::kUint8:
      return NonZero<uint8_t>(tensor);
    case DType::kInt16:
      return NonZero<int16_t>(tensor);
    case DType::kInt8:
      return NonZero<int8_t>(tensor);
    case DType::kString:
      return !tensor.scalar<std::string>().empty();
    default:
      return InvalidArgument(DTypeName(tensor.dtype()), " cannot be converted to a boolean");
  }
}

class AsyncKernel : public Kernel {
 public:
  absl::Status Compute(KernelContext&) override { return Internal("asynchronous"); }
  bool is_async() const override { return true; }
};

class CallKernel : public AsyncKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(function_, setup.Attr<FunctionRef>("f"));
    ASSIGN_OR_RETURN(const std::string executor, setup.Attr<std::string>("executor_type"));
    executor_ = CheckExecutorType(executor);
    return absl::OkStatus();
  }
  void ComputeAsync(KernelContext& c, Done done) override {
    if (!executor_.ok()) return std::move(done)(executor_);
    CallForOutputs(c, function_, TakeInputs(c, 0), std::move(done));
  }

 private:
  FunctionRef function_;
  absl::Status executor_;  // an error of the call, not of making its kernel
};

// Runs where the gradient was not inlined before the step: mostly to report why.
class SymbolicGradientKernel : public AsyncKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(FunctionRef function, setup.Attr<FunctionRef>("f"));
    name_ = function.name;
    gradient_ = {"SymbolicGradient", {{"f", std::move(function)}}};
    return absl::OkStatus();
  }
  void ComputeAsync(KernelContext& c, Done done) override {
    if (c.step().functions == nullptr) {
      std::move(done)(NotFound("No gradient defined for op: ", name_));
      return;
    }
    CallFunction(c, gradient_, TakeInputs(c, 0),
                 [&c, done = std::move(done)](absl::StatusOr<std::vector<Tensor>> results) mutable {
                   if (results.ok() && static_cast<int>(results->size()) != c.num_outputs()) {
                     results = InvalidArgument("SymGrad expects to return ", c.num_outputs(),
                                               " tensor(s), but get ", results->size(),
                                               " tensor(s) instead.");
                   }
                   std::move(done)(SetOutputs(c, std::move(results)));
                 });
  }

 private:
  std::string name_;
  FunctionRef gradient_;
};

class IfKernel : public AsyncKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(then_, setup.Attr<FunctionRef>("then_branch"));
    ASSIGN_OR_RETURN(else_, setup.Attr<FunctionRef>("else_branch"));
    return absl::OkStatus();
  }
  void ComputeAsync(KernelContext& c, Done done) override {
    const absl::StatusOr<bool> holds = Truth(c.input(0));
    if (!holds.ok()) {
      std::move(done)(holds.status());
      return;
    }
    CallForOutputs(c, *holds ? then_ : else_, TakeInputs(c, 1), std::move(done));
  }

 private:
  FunctionRef then_;
  FunctionRef else_;
};

class CaseKernel : public AsyncKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(branches_, setup.Attr<std::vector<FunctionRef>>("branches"));
    if (branches_.empty()) return InvalidArgument("branches must not be empty");
    return absl::OkStatus();
  }
  void ComputeAsync(KernelContext& c, Done done) override {
    const absl::StatusOr<int64_t> given = ScalarInteger(c.input(0), "branch_index");
    if (!given.ok()) {
      std::move(done)(given.status());
      return;
    }
    const auto count = static_cast<int64_t>(branches_.size());
    // An index out of range means the last branch.
    const int64_t index = *given < 0 || *given >= count ? count - 1 : *given;
    CallForOutputs(c, branches_[index], TakeInputs(c, 1), std::move(done));
  }

 private:
  std::vector<FunctionRef> branches_;
};

// One execution of a While: condition and body in turn, each iteration on a stack of its own.
class Loop : public std::enable_shared_from_this<Loop> {
 public:
  Loop(KernelContext& c, const FunctionRef& cond, const FunctionRef& body, Done done)
      : c_(c), cond_(cond), body_(body), values_(TakeInputs(c, 0)), done_(std::move(done)) {}

  void Test() {
    CallFunction(
        c_, cond_, values_,
        [loop = shared_from_this()](absl::StatusOr<std::vector<Tensor>> results) {
          loop->Decide(std::move(results));
        },
        /*gives_decision=*/true);
  }

 private:
  void Decide(absl::StatusOr<std::vector<Tensor>> results) {
    if (!results.ok()) return Finish(results.status());
    if (results->size() != 1) {
      return Finish(InvalidArgument("Expected a single scalar return value from WhileOp cond got ",
                                    results->size(), " tensors."));
    }
    const absl::StatusOr<bool> going = Truth((*results)[0]);
    if (!going.ok()) return Finish(going.status());
    if (!*going) return Finish(SetOutputs(c_, std::move(values_)));
    CallFunction(c_, body_, std::move(values_),
                 [loop = shared_from_this()](absl::StatusOr<std::vector<Tensor>> next) {
                   loop->Continue(std::move(next));
                 });
  }

  void Continue(absl::StatusOr<std::vector<Tensor>> next) {
    if (!next.ok()) return Finish(next.status());
    if (static_cast<int>(next->size()) != c_.num_outputs()) {
      return Finish(InvalidArgument("While loop body returned ", next->size(),
                                    " arguments. Expected: ", c_.num_outputs()));
    }
    if (absl::Status status = CheckTypes(c_.node(), *next); !status.ok()) return Finish(status);
    values_ = *std::move(next);
    if (c_.step().cancellation != nullptr && c_.step().cancellation->cancelled())
      return Finish(c_.step().cancellation->reason());
    c_.step().scheduler->Schedule([loop = shared_from_this()] { loop->Test(); });
  }

  void Finish(const absl::Status& status) { std::move(done_)(status); }

  KernelContext& c_;
  const FunctionRef& cond_;
  const FunctionRef& body_;
  std::vector<Tensor> values_;
  Done done_;
};

class WhileKernel : public AsyncKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(cond_, setup.Attr<FunctionRef>("cond"));
    ASSIGN_OR_RETURN(body_, setup.Attr<FunctionRef>("body"));
    return absl::OkStatus();
  }
  void ComputeAsync(KernelContext& c, Done done) override {
    std::make_shared<Loop>(c, cond_, body_, std::move(done))->Test();
  }

 private:
  FunctionRef cond_;
  FunctionRef body_;
};

// One execution of a For: the body gets the counter and what it gave the last time.
class CountedLoop : public std::enable_shared_from_this<CountedLoop> {
 public:
  CountedLoop(KernelContext& c, const FunctionRef& body, Done done)
      : c_(c), body_(body), done_(std::move(done)) {}

  void Start() {
    int32_t bounds[3];
    constexpr const char* kNames[] = {"start", "limit", "delta"};
    for (int i = 0; i < 3; ++i) {
      if (c_.input(i).rank() != 0) {
        return Finish(InvalidArgument(kNames[i], " must be a scalar, not shape ",
                                      c_.input(i).shape().ToString()));
      }
      bounds[i] = c_.input(i).scalar<int32_t>();
    }
    at_ = bounds[0];
    limit_ = bounds[1];
    delta_ = bounds[2];
    if (!((delta_ > 0 && at_ <= limit_) || (delta_ < 0 && at_ >= limit_) ||
          (delta_ == 0 && at_ == limit_))) {
      return Finish(InvalidArgument("Invalid start/limit/delta: ", at_, " ", limit_, " ", delta_));
    }
    values_ = TakeInputs(c_, 3);
    Next();
  }

 private:
  void Next() {
    if (delta_ >= 0 ? at_ >= limit_ : at_ <= limit_)
      return Finish(SetOutputs(c_, std::move(values_)));
    std::vector<Tensor> arguments = {Tensor::Scalar(static_cast<int32_t>(at_))};
    for (Tensor& value : values_) arguments.push_back(std::move(value));
    CallFunction(c_, body_, std::move(arguments),
                 [loop = shared_from_this()](absl::StatusOr<std::vector<Tensor>> next) {
                   loop->Continue(std::move(next));
                 });
  }

  void Continue(absl::StatusOr<std::vector<Tensor>> next) {
    if (!next.ok()) return Finish(next.status());
    if (static_cast<int>(next->size()) != c_.num_outputs()) {
      return Finish(InvalidArgument("For loop body returned ", next->size(),
                                    " arguments. Expected: ", c_.num_outputs()));
    }
    if (absl::Status status = CheckTypes(c_.node(), *next); !status.ok()) return Finish(status);
    values_ = *std::move(next);
    at_ += delta_;
    if (c_.step().cancellation != nullptr && c_.step().cancellation->cancelled())
      return Finish(c_.step().cancellation->reason());
    c_.step().scheduler->Schedule([loop = shared_from_this()] { loop->Next(); });
  }

  void Finish(const absl::Status& status) { std::move(done_)(status); }

  KernelContext& c_;
  const FunctionRef& body_;
  int64_t at_ = 0;
  int64_t limit_ = 0;
  int64_t delta_ = 0;
  std::vector<Tensor> values_;
  Done done_;
};

class ForKernel : public AsyncKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(body_, setup.Attr<FunctionRef>("body"));
    return absl::OkStatus();
  }
  void ComputeAsync(KernelContext& c, Done done) override {
    std::make_shared<CountedLoop>(c, body_, std::move(done))->Start();
  }

 private:
  FunctionRef body_;
};

absl::Status ToBool(KernelContext& c) {
  ASSIGN_OR_RETURN(const bool value, Truth(c.input(0)));
  c.SetOutput(0, Tensor::Scalar(value));
  return absl::OkStatus();
}

// A value that is never read: what a branch gives for an output that only the other one has.
class FakeParamKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(const PartialShape partial, setup.Attr<PartialShape>("shape"));
    Dims dims;
    for (int i = 0; partial.known_rank() && i < partial.rank(); ++i)
      dims.push_back(std::max<int64_t>(partial.dim(i), 0));
    ASSIGN_OR_RETURN(shape_, Shape::Make(dims));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(Tensor value, Zeros(c, c.output_type(0), shape_));
    c.SetOutput(0, std::move(value));
    return absl::OkStatus();
  }

 private:
  Shape shape_;
};

// --- Shapes ------------------------------------------------------------------------------------

// From the attribute, where it is given; `or_inputs`: otherwise as the inputs.
absl::Status GivenShapes(ShapeContext& c, bool or_inputs) {
  ASSIGN_OR_RETURN(const std::vector<PartialShape> shapes,
                   c.Attr<std::vector<PartialShape>>("output_shapes"));
  if (!shapes.empty() && static_cast<int>(shapes.size()) != c.num_outputs()) {
    return InvalidArgument("`output_shapes` must be the same length as num outputs (",
                           shapes.size(), " vs. ", c.num_outputs());
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    c.SetOutput(i, !shapes.empty() ? shapes[i] : or_inputs ? c.input(i) : PartialShape());
    if (or_inputs) c.SetOutputHandle(i, c.input_handle(i));
  }
  return absl::OkStatus();
}
absl::Status BranchShapes(ShapeContext& c) {
  return GivenShapes(c, false);
}
absl::Status LoopShapes(ShapeContext& c) {
  return GivenShapes(c, true);
}

absl::Status FakeParamShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.Attr<PartialShape>("shape"));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

// --- Definitions -------------------------------------------------------------------------------

void DefineCall(OpBuilder& op) {
  op.Attr("Tin: list(type) >= 0")
      .Attr("Tout: list(type) >= 0")
      .Attr("f: func")
      .Attr("config: string = ''")
      .Attr("config_proto: string = ''")
      .Attr("executor_type: string = ''")
      .Input("args: Tin")
      .Output("output: Tout")
      .Shape(UnknownShape)
      .Cpu(New<CallKernel>())
      .GpuCalls(New<CallKernel>());
}

void DefineIf(OpBuilder& op) {
  op.Attr("Tcond: type")
      .Attr("Tin: list(type) >= 0")
      .Attr("Tout: list(type) >= 0")
      .Attr("then_branch: func")
      .Attr("else_branch: func")
      .Attr("output_shapes: list(shape) = []")
      .Input("cond: Tcond")
      .Input("input: Tin")
      .Output("output: Tout")
      .Shape(BranchShapes)
      .Cpu(New<IfKernel>())
      .GpuCalls(New<IfKernel>(), {"cond"});
}

void DefineCase(OpBuilder& op) {
  op.Attr("Tin: list(type) >= 0")
      .Attr("Tout: list(type) >= 0")
      .Attr("branches: list(func) >= 1")
      .Attr("output_shapes: list(shape) = []")
      .Input("branch_index: int32")
      .Input("input: Tin")
      .Output("output: Tout")
      .Shape(BranchShapes)
      .Cpu(New<CaseKernel>())
      .GpuCalls(New<CaseKernel>(), {"branch_index"});
}

void DefineWhile(OpBuilder& op) {
  op.Attr("T: list(type) >= 0")
      .Attr("cond: func")
      .Attr("body: func")
      .Attr("output_shapes: list(shape) = []")
      .Attr("parallel_iterations: int = 10")
      .Input("input: T")
      .Output("output: T")
      .Shape(LoopShapes)
      .Cpu(New<WhileKernel>())
      .GpuCalls(New<WhileKernel>());
}

DEFINE_OP(PartitionedCall) {
  DefineCall(op);
  op.Doc("Calls a function whose nodes may be on several devices.");
}

DEFINE_OP(StatefulPartitionedCall) {
  DefineCall(op);
  op.Stateful().DistributedCommunication().Doc("PartitionedCall of a function with effects.");
}

DEFINE_OP(SymbolicGradient) {
  op.Attr("Tin: list(type) >= 1")
      .Attr("Tout: list(type) >= 1")
      .Attr("f: func")
      .Input("input: Tin")
      .Output("output: Tout")
      .Doc("The gradients of a function's arguments, given them and the gradients of its results.")
      .Shape(UnknownShape)
      .Cpu(New<SymbolicGradientKernel>())
      .GpuCalls(New<SymbolicGradientKernel>());
}

DEFINE_OP(If) {
  DefineIf(op);
  op.Stateful().Doc("Calls one function or another, as the condition says.");
}

DEFINE_OP(StatelessIf) {
  DefineIf(op);
  op.Doc("If with branches that have no effects.");
}

DEFINE_OP(Case) {
  DefineCase(op);
  op.Stateful().Doc("Calls the branch with the given index; the last one for an index beyond.");
}

DEFINE_OP(StatelessCase) {
  DefineCase(op);
  op.Doc("Case with branches that have no effects.");
}

DEFINE_OP(While) {
  DefineWhile(op);
  op.Stateful().Doc("Calls the body on what it gave the last time as long as the condition holds.");
}

DEFINE_OP(StatelessWhile) {
  DefineWhile(op);
  op.Doc("While with a condition and a body that have no effects.");
}

DEFINE_OP(For) {
  op.Attr("T: list(type) >= 0")
      .Attr("body: func")
      .Input("start: int32")
      .Input("limit: int32")
      .Input("delta: int32")
      .Input("input: T")
      .Output("output: T")
      .Doc("Calls the body once for every value of a counter.")
      .Shape(UnknownShape)
      .Cpu(New<ForKernel>())
      .GpuCalls(New<ForKernel>(), {"start", "limit", "delta"});
}

DEFINE_OP(ToBool) {
  op.Attr("T: type")
      .Input("input: T")
      .Output("output: bool")
      .Doc("Whether a scalar is not zero or empty, or whether there are any elements.")
      .Shape(ScalarShape)
      .Cpu(ToBool);
}

DEFINE_OP(FakeParam) {
  op.Attr("dtype: type")
      .Attr("shape: shape")
      .Output("output: dtype")
      .Doc("A value of the type and shape that is never read.")
      .Shape(FakeParamShape)
      .Cpu(New<FakeParamKernel>())
      .GpuUntyped(New<FakeParamKernel>());
}

}  // namespace
}  // namespace muster
