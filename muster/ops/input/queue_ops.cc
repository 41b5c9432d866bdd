// Ops on queues: enqueueing, dequeueing, closing and asking. Those that wait hold no thread.
#include "muster/ops/input/queue.h"
#include "muster/ops/resource_kernel.h"

namespace muster {
namespace {

// The queue of input 0. InvalidArgument when the node's types are not those of its elements.
absl::StatusOr<RefPtr<Queue>> QueueFor(const KernelContext& c, absl::Span<const DType> inputs,
                                       bool dequeues) {
  ASSIGN_OR_RETURN(RefPtr<Queue> queue, InputResourceAs<Queue>(c, 0));
  const std::vector<DType>& have_in = c.node().input_types();
  const std::vector<DType>& have_out = c.node().output_types();
  std::vector<DType> in{have_in[0]};
  in.insert(in.end(), inputs.begin(), inputs.end());
  if (!dequeues) in.insert(in.end(), queue->dtypes().begin(), queue->dtypes().end());
  const std::vector<DType> out = dequeues ? queue->dtypes() : std::vector<DType>();
  if (in != have_in || out != have_out) {
    return InvalidArgument("Signature mismatch, have: ", DTypeList(have_in), "->",
                           DTypeList(have_out), " expected: ", DTypeList(in), "->", DTypeList(out));
  }
  return queue;
}

class QueueAccess : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(const int64_t timeout_ms, setup.Attr<int64_t>("timeout_ms"));
    if (timeout_ms != -1) return InvalidArgument("Timeout not supported yet.");
    return absl::OkStatus();
  }
  bool is_async() const override { return true; }
  absl::Status Compute(KernelContext&) override {
    return Internal("Queue operations run asynchronously");
  }
};

template <bool kMany>
class EnqueueKernel : public QueueAccess {
 public:
  void ComputeAsync(KernelContext& c, Done done) override {
    absl::StatusOr<RefPtr<Queue>> queue = QueueFor(c, {}, false);
    if (!queue.ok()) return std::move(done)(queue.status());
    Queue::Tuple tuple;
    for (int i = 1; i < c.num_inputs(); ++i) tuple.push_back(c.TakeInput(i));
    const StepWait wait(c, *queue);
    if (kMany) {
      (*queue)->EnqueueMany(std::move(tuple), wait.OnWait(), wait.Then(std::move(done)));
    } else {
      (*queue)->Enqueue(std::move(tuple), wait.OnWait(), wait.Then(std::move(done)));
    }
  }
};

// Hands a dequeued tuple to the outputs.
Queue::TupleDone ToOutputs(KernelContext& c, Done done) {
  return [&c, done = std::move(done)](absl::StatusOr<Queue::Tuple> tuple) mutable {
    if (tuple.ok()) {
      for (size_t i = 0; i < tuple->size(); ++i)
        c.SetOutput(static_cast<int>(i), std::move((*tuple)[i]));
    }
    std::move(done)(tuple.status());
  };
}

class DequeueKernel : public QueueAccess {
 public:
  void ComputeAsync(KernelContext& c, Done done) override {
    absl::StatusOr<RefPtr<Queue>> queue = QueueFor(c, {}, true);
    if (!queue.ok()) return std::move(done)(queue.status());
    const StepWait wait(c, *queue);
    (*queue)->Dequeue(wait.OnWait(), wait.Then(ToOutputs(c, std::move(done))));
  }
};

template <bool kUpTo>
class DequeueManyKernel : public QueueAccess {
 public:
  void ComputeAsync(KernelContext& c, Done done) override {
    absl::StatusOr<RefPtr<Queue>> queue = QueueFor(c, {DType::kInt32}, true);
    if (!queue.ok()) return std::move(done)(queue.status());
    const absl::StatusOr<int64_t> count = ScalarInteger(c.input(1), "n");
    if (!count.ok()) return std::move(done)(count.status());
    if (*count < 0) {
      return std::move(done)(InvalidArgument(kUpTo ? "DequeueUpToOp" : "DequeueManyOp",
                                             " requested ", *count, " < 0 elements"));
    }
    const StepWait wait(c, *queue);
    (*queue)->DequeueMany(*count, kUpTo, wait.OnWait(), wait.Then(ToOutputs(c, std::move(done))));
  }
};

class CloseKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(cancel_pending_enqueues_, setup.Attr<bool>("cancel_pending_enqueues"));
    return absl::OkStatus();
  }
  bool is_async() const override { return true; }
  absl::Status Compute(KernelContext&) override {
    return Internal("Queue operations run asynchronously");
  }
  void ComputeAsync(KernelContext& c, Done done) override {
    absl::StatusOr<RefPtr<Queue>> queue = InputResourceAs<Queue>(c, 0);
    if (!queue.ok()) return std::move(done)(queue.status());
    const StepWait wait(c, *queue);
    (*queue)->Close(cancel_pending_enqueues_, wait.OnWait(), wait.Then(std::move(done)));
  }

 private:
  bool cancel_pending_enqueues_ = false;
};

absl::Status Size(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<Queue> queue, InputResourceAs<Queue>(c, 0));
  c.SetOutput(0, Tensor::Scalar<int32_t>(static_cast<int32_t>(queue->size())));
  return absl::OkStatus();
}

absl::Status IsClosed(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<Queue> queue, InputResourceAs<Queue>(c, 0));
  c.SetOutput(0, Tensor::Scalar<bool>(queue->closed()));
  return absl::OkStatus();
}

absl::Status DequeueManyShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> count, c.ScalarInput(1));
  if (count && *count < 0) return InvalidArgument("Input 'n' must be >= 0, but is ", *count);
  return UnknownShape(c);
}

// Both forms of an op: resource handles make it stateful.
OpBuilder& Handle(OpBuilder& op, bool is_resource) {
  op.Input(is_resource ? "handle: resource" : "handle: Ref(string)");
  if (is_resource) op.Stateful();
  return op.HostMemory({"handle"}).NoGradient("queues carry values from step to step");
}

void Enqueue(OpBuilder& op, bool is_resource) {
  op.Attr("Tcomponents: list(type) >= 1").Attr("timeout_ms: int = -1");
  Handle(op, is_resource)
      .Input("components: Tcomponents")
      .Doc("Puts one element into a queue; waits while it is full.")
      .Shape(NoOutputs)
      .Cpu(New<EnqueueKernel<false>>());
}
void EnqueueMany(OpBuilder& op, bool is_resource) {
  op.Attr("Tcomponents: list(type) >= 1").Attr("timeout_ms: int = -1");
  Handle(op, is_resource)
      .Input("components: Tcomponents")
      .Doc("Puts the rows of the components into a queue, one element after the other.")
      .Shape(NoOutputs)
      .Cpu(New<EnqueueKernel<true>>());
}
void Dequeue(OpBuilder& op, bool is_resource) {
  op.Attr("component_types: list(type) >= 1").Attr("timeout_ms: int = -1");
  Handle(op, is_resource)
      .Output("components: component_types")
      .Doc("Takes one element out of a queue; waits while it is empty.")
      .Shape(UnknownShape)
      .Cpu(New<DequeueKernel>());
}
void DequeueMany(OpBuilder& op, bool is_resource) {
  op.Attr("component_types: list(type) >= 1").Attr("timeout_ms: int = -1");
  Handle(op, is_resource)
      .Input("n: int32")
      .Output("components: component_types")
      .Doc("Takes n elements out of a queue and stacks them.")
      .Shape(DequeueManyShape)
      .HostMemory({"handle", "n"})
      .Cpu(New<DequeueManyKernel<false>>());
}
void DequeueUpTo(OpBuilder& op, bool is_resource) {
  op.Attr("component_types: list(type) >= 1").Attr("timeout_ms: int = -1");
  Handle(op, is_resource)
      .Input("n: int32")
      .Output("components: component_types")
      .Doc("Takes n elements, or what a closed queue still has, and stacks them.")
      .Shape(UnknownShape)
      .HostMemory({"handle", "n"})
      .Cpu(New<DequeueManyKernel<true>>());
}
void Close(OpBuilder& op, bool is_resource) {
  op.Attr("cancel_pending_enqueues: bool = false");
  Handle(op, is_resource)
      .Doc("Says that no more elements will come.")
      .Shape(NoOutputs)
      .Cpu(New<CloseKernel>());
}
void SizeOp(OpBuilder& op, bool is_resource) {
  Handle(op, is_resource)
      .Output("size: int32")
      .Doc("The number of elements in a queue.")
      .Shape(ScalarShape)
      .Cpu(Size);
}
void IsClosedOp(OpBuilder& op, bool is_resource) {
  Handle(op, is_resource)
      .Output("is_closed: bool")
      .Doc("Whether a queue has been closed.")
      .Shape(ScalarShape)
      .Cpu(IsClosed);
}

}  // namespace

DEFINE_OP(QueueEnqueue) {
  Enqueue(op, false);
}
DEFINE_OP(QueueEnqueueV2) {
  Enqueue(op, true);
}
DEFINE_OP(QueueEnqueueMany) {
  EnqueueMany(op, false);
}
DEFINE_OP(QueueEnqueueManyV2) {
  EnqueueMany(op, true);
}
DEFINE_OP(QueueDequeue) {
  Dequeue(op, false);
}
DEFINE_OP(QueueDequeueV2) {
  Dequeue(op, true);
}
DEFINE_OP(QueueDequeueMany) {
  DequeueMany(op, false);
}
DEFINE_OP(QueueDequeueManyV2) {
  DequeueMany(op, true);
}
DEFINE_OP(QueueDequeueUpTo) {
  DequeueUpTo(op, false);
}
DEFINE_OP(QueueDequeueUpToV2) {
  DequeueUpTo(op, true);
}
DEFINE_OP(QueueClose) {
  Close(op, false);
}
DEFINE_OP(QueueCloseV2) {
  Close(op, true);
}
DEFINE_OP(QueueSize) {
  SizeOp(op, false);
}
DEFINE_OP(QueueSizeV2) {
  SizeOp(op, true);
}
DEFINE_OP(QueueIsClosed) {
  IsClosedOp(op, false);
}
DEFINE_OP(QueueIsClosedV2) {
  IsClosedOp(op, true);
}

}  // namespace muster
