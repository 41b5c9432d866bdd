// Stacks of tensors that live for one step; loops keep intermediate values for their gradient in
// them.
#include <atomic>
#include <limits>

#include "muster/ops/control/held_elements.h"

namespace muster {
namespace {

constexpr const char* kContainer = "_stacks";

// Thread-safe.
class Stack : public Resource {
 public:
  Stack(std::string name, DType dtype, int64_t max_size)
      : name_(std::move(name)), dtype_(dtype), max_size_(max_size) {}
  std::string Describe() const override { return "Stack"; }
  DType dtype() const { return dtype_; }

  // `swapped`: the value was on a device and has been copied to host memory.
  absl::Status Push(Tensor value, bool swapped) {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(CheckOpen());
    if (static_cast<int64_t>(values_.size()) >= max_size_) {
      return InvalidArgument("Stack[", name_, "] overflowed its max_size (", max_size_, ")");
    }
    values_.push_back({std::move(value), swapped});
    return absl::OkStatus();
  }

  struct Value {
    Tensor tensor;
    bool swapped = false;
  };
  absl::StatusOr<Value> Pop() {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(CheckOpen());
    if (values_.empty()) return InvalidArgument("Stack[", name_, "] is empty when calling Pop().");
    Value value = std::move(values_.back());
    values_.pop_back();
    return value;
  }

  // TensorFlow keeps the first value and those that share its memory where they are.
  bool IsUsefulToSwap(const Tensor& value) const {
    MutexLock lock(mutex_);
    return !values_.empty() && values_.front().tensor.buffer().region() != value.buffer().region();
  }

  void Close() {
    MutexLock lock(mutex_);
    values_.clear();
    closed_ = true;
  }

 private:
  absl::Status CheckOpen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (closed_) return InvalidArgument("Stack[", name_, "] has already been closed.");
    return absl::OkStatus();
  }

  const std::string name_;
  const DType dtype_;
  const int64_t max_size_;
  mutable Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Value> values_ ABSL_GUARDED_BY(mutex_);
};

std::atomic<int64_t> next_stack{0};

class StackKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(dtype_, s.Attr<DType>("elem_type"));
    ASSIGN_OR_RETURN(name_, s.Attr<std::string>("stack_name"));
    if (name_.empty()) name_ = s.node().name();
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const int64_t max_size, MaxSize(c));
    const std::string name = absl::StrCat(name_, "_", next_stack.fetch_add(1));
    RefPtr<Stack> stack = MakeRef<Stack>(name, dtype_, max_size);
    RETURN_IF_ERROR(c.step().step_resources->Create(kContainer, name, stack));
    if (c.output_type(0) == DType::kString) {  // the older reference to a pair of strings
      auto names = MakeRef<Variable>(name, DType::kString, PartialShape::Vector(2));
      names->Assign(Tensor::Vector<std::string>({kContainer, name}));
      c.SetOutputReference(0, std::move(names));
      return absl::OkStatus();
    }
    ResourceHandle handle;
    handle.device = c.device().name();
    handle.container = kContainer;
    handle.name = name;
    handle.type_name = "tensorflow::Stack";
    handle.resource = stack;
    c.SetOutput(0, Tensor::Scalar<ResourceHandle>(std::move(handle)));
    return absl::OkStatus();
  }

 private:
  static absl::StatusOr<int64_t> MaxSize(const KernelContext& c) {
    if (c.num_inputs() == 0) return std::numeric_limits<int64_t>::max();
    const Tensor& size = c.input(0);
    if (!size.shape().is_scalar()) {
      return InvalidArgument("Stack size must be a scalar, but had shape: ",
                             size.shape().ToString());
    }
    ASSIGN_OR_RETURN(const int64_t max_size, ScalarInteger(size, "max_size"));
    return max_size < 0 ? std::numeric_limits<int64_t>::max() : max_size;
  }

  DType dtype_ = DType::kInvalid;
  std::string name_;
};

absl::StatusOr<RefPtr<Stack>> FindStack(KernelContext& c) {
  if (c.input_is_reference(0)) {
    const Tensor input = c.input_variable(0).Snapshot();
    if (!input.valid() || input.dtype() != DType::kString) {
      return InvalidArgument("Stack handle must be a pair of strings");
    }
    if (input.num_elements() != 2) {
      return InvalidArgument("Stack handle must have two elements, but had shape: ",
                             input.shape().ToString());
    }
    const std::string* const names = input.data<std::string>();
    return c.step().step_resources->LookupAs<Stack>(names[0], names[1]);
  }
  const Tensor& input = c.input(0);
  if (input.num_elements() != 1) {
    return InvalidArgument("Stack handle must be a scalar, but had shape: ",
                           input.shape().ToString());
  }
  const ResourceHandle& handle = *input.data<ResourceHandle>();
  RETURN_IF_ERROR(CheckDeviceOf(handle, c));
  if (auto* stack = dynamic_cast<Stack*>(handle.resource.get())) return RefPtr<Stack>::Share(stack);
  return c.step().step_resources->LookupAs<Stack>(handle.container, handle.name);
}

absl::StatusOr<RefPtr<Stack>> StackToPush(KernelContext& c) {
  ASSIGN_OR_RETURN(RefPtr<Stack> stack, FindStack(c));
  if (c.input(1).dtype() != stack->dtype()) {
    return InvalidArgument("Must have type ", DTypeName(stack->dtype()), " but got ",
                           DTypeName(c.input(1).dtype()));
  }
  return stack;
}

absl::Status RunPush(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<Stack> stack, StackToPush(c));
  RETURN_IF_ERROR(stack->Push(c.input(1), /*swapped=*/false));
  c.SetOutput(0, c.TakeInput(1));
  return absl::OkStatus();
}

// With `swap_memory`, values that are large go to host memory while little memory of the device is
// left, by TensorFlow's measures.
class PushKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(swaps_, s.Attr<bool>("swap_memory"));
    swaps_ = swaps_ && s.device().has_own_memory();
    return absl::OkStatus();
  }
  bool is_async() const override { return swaps_; }
  absl::Status Compute(KernelContext& c) override { return RunPush(c); }
  void ComputeAsync(KernelContext& c, Done done) override {
    absl::StatusOr<RefPtr<Stack>> stack = StackToPush(c);
    if (!stack.ok()) return std::move(done)(stack.status());
    if (!IsToBeSwapped(c, **stack)) return std::move(done)(RunPush(c));
    c.device().CopyToHost(c.input(1), [&c, stack = *std::move(stack), done = std::move(done)](
                                          absl::StatusOr<Tensor> copy) mutable {
      absl::Status status = copy.status();
      if (status.ok()) status = stack->Push(*std::move(copy), /*swapped=*/true);
      if (status.ok()) c.SetOutput(0, c.TakeInput(1));
      std::move(done)(std::move(status));
    });
  }

 private:
  static constexpr size_t kLeastBytes = 2048;
  static constexpr double kOccupancy = 0.7;

  static bool IsToBeSwapped(KernelContext& c, const Stack& stack) {
    const Tensor& value = c.input(1);
    if (!IsInDeviceMemory(value) || value.size_bytes() <= kLeastBytes) return false;
    const auto in_use = static_cast<double>(c.device().allocator().usage().bytes_in_use);
    const auto limit = static_cast<double>(c.device().attributes().memory_limit_bytes);
    return in_use > limit * kOccupancy && stack.IsUsefulToSwap(value);
  }

  bool swaps_ = false;
};

absl::Status RunPop(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<Stack> stack, FindStack(c));
  ASSIGN_OR_RETURN(Stack::Value value, stack->Pop());
  if (value.tensor.dtype() != c.output_type(0)) {
    return InvalidArgument("Must have type ", DTypeName(c.output_type(0)), " but got ",
                           DTypeName(value.tensor.dtype()));
  }
  if (value.swapped) {
    ASSIGN_OR_RETURN(value.tensor, c.device().CopyFromHost(value.tensor));
  }
  c.SetOutput(0, std::move(value.tensor));
  return absl::OkStatus();
}

absl::Status RunClose(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<Stack> stack, FindStack(c));
  stack->Close();
  return absl::OkStatus();
}

// Handles have always been declared as pairs of strings.
absl::Status HandleShape(ShapeContext& c) {
  c.SetOutput(0, PartialShape::Vector(2));
  return absl::OkStatus();
}

absl::Status PushShape(ShapeContext& c) {
  c.SetOutput(0, c.input(1));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(StackV2) {
  op.Attr("elem_type: type")
      .Attr("stack_name: string = ''")
      .Input("max_size: int32")
      .Output("handle: resource")
      .Stateful()
      .Doc("A new stack for this step.")
      .Shape(HandleShape)
      .HostMemory({"max_size", "handle"})
      .Cpu(New<StackKernel>())
      .Gpu(New<StackKernel>());
}

DEFINE_OP(StackPushV2) {
  op.Attr("T: type")
      .Attr("swap_memory: bool = false")
      .Input("handle: resource")
      .Input("elem: T")
      .Output("output: T")
      .Stateful()
      .Doc("Puts a tensor on a stack and gives it on.")
      .Shape(PushShape)
      .HostMemory({"handle"})
      .Cpu(New<PushKernel>())
      .GpuForwards(New<PushKernel>(), "T", {"elem", "output"}, {DType::kInt32, DType::kBool});
}

DEFINE_OP(StackPopV2) {
  op.Attr("elem_type: type")
      .Input("handle: resource")
      .Output("elem: elem_type")
      .Stateful()
      .Doc("Takes the tensor that was put on a stack last.")
      .Shape(UnknownShape)
      .HostMemory({"handle"})
      .Cpu(RunPop)
      .GpuForwards(RunPop, "elem_type", {"elem"}, {DType::kInt32, DType::kBool});
}

DEFINE_OP(StackCloseV2) {
  op.Input("handle: resource")
      .Stateful()
      .Doc("Empties a stack and refuses its further use.")
      .Shape(NoOutputs)
      .HostMemory({"handle"})
      .Cpu(RunClose)
      .Gpu(RunClose);
}

DEFINE_OP(Stack) {
  op.Attr("elem_type: type")
      .Attr("stack_name: string = ''")
      .Output("handle: Ref(string)")
      .Stateful()
      .Doc("A new stack for this step, by an older kind of handle.")
      .Shape(HandleShape)
      .Cpu(New<StackKernel>());
}

DEFINE_OP(StackPush) {
  op.Attr("T: type")
      .Attr("swap_memory: bool = false")
      .Input("handle: Ref(string)")
      .Input("elem: T")
      .Output("output: T")
      .Doc("Puts a tensor on a stack and gives it on.")
      .Shape(PushShape)
      .Cpu(RunPush);
}

DEFINE_OP(StackPop) {
  op.Attr("elem_type: type")
      .Input("handle: Ref(string)")
      .Output("elem: elem_type")
      .Doc("Takes the tensor that was put on a stack last.")
      .Shape(UnknownShape)
      .Cpu(RunPop);
}

DEFINE_OP(StackClose) {
  op.Input("handle: Ref(string)")
      .Doc("Empties a stack and refuses its further use.")
      .Shape(NoOutputs)
      .Cpu(RunClose);
}

}  // namespace muster
