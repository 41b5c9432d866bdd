// Ops of iterators: making them, giving them a dataset, getting elements, handles as strings.
#include <atomic>

#include "muster/ops/data/handle_text_proto.h"
#include "muster/ops/data/iterator_resource.h"
#include "muster/ops/resource_kernel.h"

namespace muster {
namespace {

class IteratorKernel : public ResourceKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(spec_, SpecOf(setup.node()));
    return ResourceKernel::Init(setup);
  }

 protected:
  absl::StatusOr<RefPtr<Resource>> Make(const std::string&) override {
    return RefPtr<Resource>(MakeRef<IteratorResource>(spec_));
  }
  absl::Status Verify(Resource& resource) override {
    auto* const iterator = dynamic_cast<IteratorResource*>(&resource);
    if (iterator == nullptr)
      return InvalidArgument(name().name, " is a ", resource.Describe(), ", not an iterator");
    return CheckSpec(spec_, iterator->spec());
  }
  std::string type_name() const override { return IteratorResource::kTypeName; }

 private:
  ElementSpec spec_;
};

// The dataset comes from a function, which is called once.
class OneShotKernel : public ResourceKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(spec_, SpecOf(setup.node()));
    ASSIGN_OR_RETURN(factory_, setup.Attr<FunctionRef>("dataset_factory"));
    return ResourceKernel::Init(setup);
  }
  bool is_async() const override { return true; }

  void ComputeAsync(KernelContext& c, Done done) override {
    {
      MutexLock lock(factory_mutex_);
      if (state_ == State::kCalling) {
        waiting_.push_back(Waiting{&c, std::move(done)});
        return;
      }
      if (state_ == State::kNew) {
        waiting_.push_back(Waiting{&c, std::move(done)});
        state_ = State::kCalling;
      }
    }
    if (done) {
      std::move(done)(status_.ok() ? Compute(c) : status_);
    } else {
      CallFactory(c);
    }
  }

 protected:
  absl::StatusOr<RefPtr<Resource>> Make(const std::string&) override {
    return RefPtr<Resource>(MakeRef<IteratorResource>(spec_));
  }
  std::string type_name() const override { return IteratorResource::kTypeName; }

 private:
  enum class State { kNew, kCalling, kDone };
  struct Waiting {
    KernelContext* c;
    Done done;
  };

  void CallFactory(KernelContext& c) {
    FunctionCaller* const caller = c.step().functions;
    if (caller == nullptr)
      return Finish(c, NotFound("Function ", factory_.name, " is not defined."));
    const absl::StatusOr<FunctionCaller::Handle> handle =
        caller->Instantiate(factory_, CallSiteOf(c.device(), {}));
    if (!handle.ok()) return Finish(c, handle.status());
    caller->Call(*handle, {}, c.step(), [this, &c](absl::StatusOr<Element> results) {
      Finish(c, Use(c, std::move(results)));
    });
  }

  absl::Status Use(KernelContext& c, absl::StatusOr<Element> results) {
    RETURN_IF_ERROR(results.status());
    if (results->size() != 1) {
      return InvalidArgument(
          "The `dataset_factory` function must return a single scalar of dtype DT_VARIANT.");
    }
    ASSIGN_OR_RETURN(DatasetPtr dataset, DatasetIn((*results)[0]));
    ASSIGN_OR_RETURN(const RefPtr<Resource> resource, Get(c.resources()));
    auto* const iterator = dynamic_cast<IteratorResource*>(resource.get());
    if (iterator == nullptr) return WrongResource(c, *resource, IteratorResource::kTypeName);
    return iterator->Initialize(std::move(dataset), *c.step().scheduler);
  }

  void Finish(KernelContext& c, absl::Status status) {
    // A step that was cancelled says nothing about the next.
    const bool again = c.step().cancellation != nullptr && c.step().cancellation->cancelled();
    std::vector<Waiting> waiting;
    {
      MutexLock lock(factory_mutex_);
      status_ = again ? absl::OkStatus() : status;
      state_ = again && !status.ok() ? State::kNew : State::kDone;
      waiting.swap(waiting_);
    }
    for (Waiting& one : waiting) std::move(one.done)(status.ok() ? Compute(*one.c) : status);
  }

  ElementSpec spec_;
  FunctionRef factory_;
  Mutex factory_mutex_;
  State state_ ABSL_GUARDED_BY(factory_mutex_) = State::kNew;
  std::vector<Waiting> waiting_ ABSL_GUARDED_BY(factory_mutex_);
  absl::Status status_;  // constant once the state is kDone
};

// A new iterator with every execution, known by its handle alone.
absl::Status MakeAnonymous(KernelContext& c) {
  static std::atomic<int64_t> next{0};
  ASSIGN_OR_RETURN(ElementSpec spec, SpecOf(c.node()));
  ResourceHandle handle;
  handle.device = c.device().name();
  handle.container = "AnonymousIterator";
  handle.name = absl::StrCat("AnonymousIterator", next.fetch_add(1));
  handle.type_name = IteratorResource::kTypeName;
  handle.resource = MakeRef<IteratorResource>(std::move(spec));
  c.SetOutput(0, Tensor::Scalar<ResourceHandle>(std::move(handle)));
  return absl::OkStatus();
}

absl::Status Initialize(KernelContext& c) {
  ASSIGN_OR_RETURN(DatasetPtr dataset, InputDataset(c, 0));
  ASSIGN_OR_RETURN(const RefPtr<IteratorResource> iterator,
                   InputResourceAs<IteratorResource>(c, 1));
  return iterator->Initialize(std::move(dataset), *c.step().scheduler);
}

// --- Elements ----------------------------------------------------------------------------------

class GetNextKernel : public Kernel {
 public:
  absl::Status Compute(KernelContext&) override { return Internal("asynchronous"); }
  bool is_async() const override { return true; }
  void ComputeAsync(KernelContext& c, Done done) override {
    const absl::StatusOr<RefPtr<IteratorResource>> iterator =
        InputResourceAs<IteratorResource>(c, 0);
    if (!iterator.ok()) {
      std::move(done)(iterator.status());
      return;
    }
    const StepWait wait(c, *iterator);
    (*iterator)->GetNext(
        wait.OnWait(),
        wait.Then([&c, done = std::move(done)](absl::StatusOr<Element> element) mutable {
          std::move(done)(SetElement(c, std::move(element)));
        }));
  }
};

// --- Handles as strings ------------------------------------------------------------------------

absl::Status ToString(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<IteratorResource> iterator,
                   InputResourceAs<IteratorResource>(c, 0));
  const ResourceHandle& handle = c.input(0).scalar<ResourceHandle>();
  // The receiver of the string looks the iterator up by name, so that a private one becomes shared.
  const absl::Status made = c.resources().Create(
      handle.container, ResourceKey(handle.name, IteratorResource::kTypeName), iterator);
  if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
  c.SetOutput(0, Tensor::Scalar(HandleToString(handle)));
  return absl::OkStatus();
}

absl::Status FromString(KernelContext& c) {
  ASSIGN_OR_RETURN(const std::string text, ScalarString(c.input(0), "string_handle"));
  ASSIGN_OR_RETURN(ResourceHandle handle, HandleFromString(text));
  if (!handle.device.empty() && handle.device != c.device().name()) {
    return InvalidArgument("Attempted create an iterator on device \"", c.device().name(),
                           "\" from handle defined on device \"", handle.device, "\"");
  }
  ASSIGN_OR_RETURN(const RefPtr<IteratorResource> iterator,
                   c.resources().LookupAs<IteratorResource>(
                       handle.container, ResourceKey(handle.name, IteratorResource::kTypeName)));
  ASSIGN_OR_RETURN(ElementSpec wanted, [&]() -> absl::StatusOr<ElementSpec> {
    ElementSpec spec;
    ASSIGN_OR_RETURN(spec.types, c.node().Attr<std::vector<DType>>("output_types"));
    ASSIGN_OR_RETURN(spec.shapes, c.node().Attr<std::vector<PartialShape>>("output_shapes"));
    return spec;
  }());
  if (!wanted.types.empty()) RETURN_IF_ERROR(CheckSpec(wanted, iterator->spec()));
  handle.resource = iterator;
  c.SetOutput(0, Tensor::Scalar<ResourceHandle>(std::move(handle)));
  return absl::OkStatus();
}

void DefineHandle(OpBuilder& op, const char* doc, KernelFactory factory) {
  op.Output("handle: resource")
      .Stateful()
      .Doc(doc)
      .Shape(ScalarShape)
      .NoGradient("an iterator is not a number")
      .Cpu(std::move(factory));
}

// An iterator on a GPU gives elements in the card's memory.
void DefineIterator(OpBuilder& op) {
  op.Attr("shared_name: string").Attr("container: string");
  ElementAttrs(op);
  DefineHandle(op, "An iterator that is given its dataset later.", New<IteratorKernel>());
  op.Gpu(New<IteratorKernel>()).GpuIfAsked();
}

void DefineGetNext(OpBuilder& op) {
  ElementAttrs(op)
      .Input("iterator: resource")
      .Output("components: output_types")
      .Stateful()
      .Doc("The next element; OutOfRange at the end.")
      .Shape(ElementShapes)
      .NoGradient("elements come from elsewhere")
      .Cpu(New<GetNextKernel>())
      .Gpu(New<GetNextKernel>())
      .GpuIfAsked();
}

void DefineFromString(OpBuilder& op) {
  op.Attr("output_types: list(type) >= 0 = []")
      .Attr("output_shapes: list(shape) >= 0 = []")
      .Input("string_handle: string")
      .Output("resource_handle: resource")
      .Stateful()
      .Doc("The iterator that a string names.")
      .Shape(ScalarShape)
      .NoGradient("an iterator is not a number")
      .Cpu(FromString)
      .Gpu(FromString)
      .GpuIfAsked();
}

}  // namespace

DEFINE_OP(Iterator) {
  DefineIterator(op);
}
DEFINE_OP(IteratorV2) {
  DefineIterator(op);
}

DEFINE_OP(OneShotIterator) {
  op.Attr("dataset_factory: func");
  ElementAttrs(op).Attr("container: string = ''").Attr("shared_name: string = ''");
  DefineHandle(op, "An iterator over the dataset that a function makes.", New<OneShotKernel>());
}

DEFINE_OP(AnonymousIterator) {
  ElementAttrs(op);
  DefineHandle(op, "A new iterator that lives as long as its handle.", Stateless(MakeAnonymous));
  op.Gpu(MakeAnonymous).GpuIfAsked();
}

DEFINE_OP(MakeIterator) {
  op.Input("dataset: variant")
      .Input("iterator: resource")
      .Stateful()
      .Doc("Starts an iterator over with a dataset.")
      .Shape(NoOutputs)
      .NoGradient("an iterator is not a number")
      .HostMemory({"dataset"})
      .Cpu(Initialize)
      .Gpu(Initialize)
      .GpuIfAsked();
}

DEFINE_OP(IteratorGetNext) {
  DefineGetNext(op);
}
DEFINE_OP(IteratorGetNextSync) {
  DefineGetNext(op);
}

DEFINE_OP(IteratorToStringHandle) {
  op.Input("resource_handle: resource")
      .Output("string_handle: string")
      .Stateful()
      .Doc("A string that names an iterator and may be fed.")
      .Shape(ScalarShape)
      .NoGradient("an iterator is not a number")
      .Cpu(ToString)
      .Gpu(ToString)
      .GpuIfAsked();
}

DEFINE_OP(IteratorFromStringHandle) {
  DefineFromString(op);
}
DEFINE_OP(IteratorFromStringHandleV2) {
  DefineFromString(op);
}

}  // namespace muster
