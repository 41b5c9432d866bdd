// Ops that make queues. Each exists twice: with a resource handle, and with the reference to a pair
// of strings of older graphs.
#include <optional>

#include "muster/ops/input/queue.h"
#include "muster/ops/resource_kernel.h"

namespace muster {
namespace {

std::string WithoutVersion(absl::string_view op) {
  return std::string(op.substr(0, op.find("V2")));
}

class QueueKernel : public ResourceKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(ResourceKernel::Init(setup));
    op_ = setup.node().op();
    ASSIGN_OR_RETURN(options_.capacity, setup.Attr<int64_t>("capacity"));
    ASSIGN_OR_RETURN(options_.dtypes, setup.Attr<std::vector<DType>>("component_types"));
    ASSIGN_OR_RETURN(options_.shapes, setup.Attr<std::vector<PartialShape>>("shapes"));
    return absl::OkStatus();
  }

 protected:
  virtual RefPtr<Queue> New(QueueOptions options) = 0;

  absl::StatusOr<RefPtr<Resource>> Make(const std::string& name) override {
    QueueOptions options = options_;
    options.name = name;
    RefPtr<Queue> queue = New(std::move(options));
    RETURN_IF_ERROR(queue->CheckOptions());
    return RefPtr<Resource>(queue);
  }

  absl::Status Verify(Resource& resource) override {
    auto* queue = dynamic_cast<Queue*>(&resource);
    if (queue == nullptr) return InvalidArgument("Expected a queue, found a ", resource.Describe());
    if (queue->kind() != WithoutVersion(op_))
      return InvalidArgument("Expected ", queue->kind(), ", found ", op_);
    const int64_t capacity = options_.capacity < 0 ? Queue::kUnbounded : options_.capacity;
    if (queue->capacity() != capacity) {
      return InvalidArgument("Shared queue '", queue->name(), "' has capacity ", queue->capacity(),
                             " but requested capacity was ", capacity);
    }
    if (queue->dtypes() != options_.dtypes) {
      return InvalidArgument("Shared queue '", queue->name(), "' has component types ",
                             DTypeList(queue->dtypes()), " but requested component types were ",
                             DTypeList(options_.dtypes));
    }
    return VerifyShapes(*queue);
  }

  virtual absl::Status VerifyShapes(const Queue& queue) {
    if (queue.shapes() == options_.shapes) return absl::OkStatus();
    return InvalidArgument("Shared queue '", queue.name(), "' has component shapes ",
                           ShapeList(queue.shapes()), " but requested component shapes were ",
                           ShapeList(options_.shapes));
  }

  // Only padding queues know what to do with sizes that differ.
  absl::Status RequireFullShapes() const {
    for (const PartialShape& shape : options_.shapes) {
      if (!shape.fully_known())
        return InvalidArgument("Shape ", shape.ToString(), " is not fully defined");
    }
    return absl::OkStatus();
  }

  std::string type_name() const override { return Queue::kTypeName; }

  std::string op_;
  QueueOptions options_;
};

class FifoKernel : public QueueKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(QueueKernel::Init(setup));
    return RequireFullShapes();
  }

 protected:
  RefPtr<Queue> New(QueueOptions options) override { return NewFifoQueue(std::move(options)); }
};

class PaddingKernel : public QueueKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(QueueKernel::Init(setup));
    return NewPaddingFifoQueue(options_)->CheckOptions();
  }

 protected:
  RefPtr<Queue> New(QueueOptions options) override {
    return NewPaddingFifoQueue(std::move(options));
  }
  absl::Status VerifyShapes(const Queue& queue) override {
    bool compatible = queue.shapes().size() == options_.shapes.size();
    for (size_t i = 0; compatible && i < options_.shapes.size(); ++i)
      compatible = queue.shapes()[i].CompatibleWith(options_.shapes[i]);
    return compatible ? absl::OkStatus() : QueueKernel::VerifyShapes(queue);
  }
};

class ShuffleKernel : public QueueKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(QueueKernel::Init(setup));
    RETURN_IF_ERROR(RequireFullShapes());
    ASSIGN_OR_RETURN(shuffle_.min_after_dequeue, setup.Attr<int64_t>("min_after_dequeue"));
    ASSIGN_OR_RETURN(shuffle_.seed, setup.Attr<int64_t>("seed"));
    ASSIGN_OR_RETURN(shuffle_.seed2, setup.Attr<int64_t>("seed2"));
    return NewRandomShuffleQueue(options_, shuffle_)->CheckOptions();
  }

 protected:
  RefPtr<Queue> New(QueueOptions options) override {
    return NewRandomShuffleQueue(std::move(options), shuffle_);
  }
  absl::Status Verify(Resource& resource) override {
    RETURN_IF_ERROR(QueueKernel::Verify(resource));
    const auto& queue = static_cast<const Queue&>(resource);
    const ShuffleOptions& found = *ShuffleOptionsOf(queue);
    if (found.min_after_dequeue != shuffle_.min_after_dequeue) {
      return InvalidArgument("Shared queue '", queue.name(), "' has min_after_dequeue ",
                             found.min_after_dequeue, " but requested min_after_dequeue was ",
                             shuffle_.min_after_dequeue, ".");
    }
    const bool any_seed = shuffle_.seed == 0 && shuffle_.seed2 == 0;
    if (!any_seed && (found.seed != shuffle_.seed || found.seed2 != shuffle_.seed2)) {
      return InvalidArgument("Shared queue '", queue.name(), "' has random seeds (", found.seed,
                             ", ", found.seed2, ") but requested seeds are (", shuffle_.seed, ", ",
                             shuffle_.seed2, ").");
    }
    return absl::OkStatus();
  }

 private:
  ShuffleOptions shuffle_;
};

class PriorityKernel : public QueueKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(QueueKernel::Init(setup));
    RETURN_IF_ERROR(RequireFullShapes());
    options_.dtypes.insert(options_.dtypes.begin(), DType::kInt64);
    options_.shapes.insert(options_.shapes.begin(), PartialShape::Scalar());
    return absl::OkStatus();
  }

 protected:
  RefPtr<Queue> New(QueueOptions options) override { return NewPriorityQueue(std::move(options)); }
};

constexpr const char* kReference = "handle: Ref(string)";
constexpr const char* kResource = "handle: resource";

OpBuilder& Maker(OpBuilder& op, const char* types, const char* shapes) {
  return op.Attr(types).Attr(shapes).Attr("capacity: int = -1");
}
OpBuilder& Named(OpBuilder& op, const char* handle) {
  return op.Attr("container: string = ''")
      .Attr("shared_name: string = ''")
      .Output(handle)
      .Stateful()
      .Shape(HandleOutputShape)
      .NoGradient("a queue is not a function of its inputs");
}

void Fifo(OpBuilder& op, const char* handle) {
  Maker(op, "component_types: list(type) >= 1", "shapes: list(shape) >= 0 = []");
  Named(op, handle).Doc("A queue that gives elements in the order they came.");
  op.Cpu(New<FifoKernel>());
}
void Padding(OpBuilder& op, const char* handle) {
  Maker(op, "component_types: list(type) >= 1", "shapes: list(shape) >= 0 = []");
  Named(op, handle).Doc("A queue whose elements may differ in size; batches are padded.");
  op.Cpu(New<PaddingKernel>());
}
void Shuffle(OpBuilder& op, const char* handle) {
  Maker(op, "component_types: list(type) >= 1", "shapes: list(shape) >= 0 = []")
      .Attr("min_after_dequeue: int = 0")
      .Attr("seed: int = 0")
      .Attr("seed2: int = 0");
  Named(op, handle).Doc("A queue that gives elements in random order.");
  op.Cpu(New<ShuffleKernel>());
}
void Priority(OpBuilder& op, const char* handle) {
  Maker(op, "component_types: list(type) >= 0 = []", "shapes: list(shape) >= 0");
  Named(op, handle).Doc("A queue that gives the element with the smallest first component.");
  op.Cpu(New<PriorityKernel>());
}

}  // namespace

DEFINE_OP(FIFOQueue) {
  Fifo(op, kReference);
}
DEFINE_OP(FIFOQueueV2) {
  Fifo(op, kResource);
}
DEFINE_OP(PaddingFIFOQueue) {
  Padding(op, kReference);
}
DEFINE_OP(PaddingFIFOQueueV2) {
  Padding(op, kResource);
}
DEFINE_OP(RandomShuffleQueue) {
  Shuffle(op, kReference);
}
DEFINE_OP(RandomShuffleQueueV2) {
  Shuffle(op, kResource);
}
DEFINE_OP(PriorityQueue) {
  Priority(op, kReference);
}
DEFINE_OP(PriorityQueueV2) {
  Priority(op, kResource);
}

}  // namespace muster
