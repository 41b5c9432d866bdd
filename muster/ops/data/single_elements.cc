// Ops that read a dataset at once and give one element: GetElementAtIndex, DatasetToSingleElement,
// ReduceDataset; and IteratorGetNextAsOptional.
#include "muster/ops/control/optional.h"
#include "muster/ops/data/captured_function.h"
#include "muster/ops/data/iterator_resource.h"
#include "muster/ops/resource_kernel.h"

namespace muster {
namespace {

// Reads one element on an iterator's thread.
class ReadingKernel : public Kernel {
 public:
  absl::Status Compute(KernelContext&) override { return Internal("asynchronous"); }
  bool is_async() const override { return true; }

  void ComputeAsync(KernelContext& c, Done done) override {
    absl::StatusOr<RefPtr<IteratorResource>> iterator = Open(c);
    if (!iterator.ok()) return std::move(done)(iterator.status());
    const StepWait wait(c, *iterator);
    (*iterator)->GetNext(
        wait.OnWait(),
        wait.Then([this, &c, done = std::move(done)](absl::StatusOr<Element> element) mutable {
          std::move(done)(Use(c, std::move(element)));
        }));
  }

 protected:
  virtual absl::StatusOr<RefPtr<IteratorResource>> Open(KernelContext& c) = 0;
  virtual absl::Status Use(KernelContext& c, absl::StatusOr<Element> element) {
    return SetElement(c, std::move(element));
  }

  static absl::StatusOr<RefPtr<IteratorResource>> Begin(KernelContext& c, DatasetPtr dataset,
                                                        int64_t skip = 0) {
    auto iterator = MakeRef<IteratorResource>(dataset->spec());
    RETURN_IF_ERROR(iterator->Initialize(std::move(dataset), *c.step().scheduler, skip));
    return iterator;
  }
};

class ElementAtIndex : public ReadingKernel {
 protected:
  absl::StatusOr<RefPtr<IteratorResource>> Open(KernelContext& c) override {
    ASSIGN_OR_RETURN(DatasetPtr dataset, InputDataset(c, 0));
    ASSIGN_OR_RETURN(const int64_t index, ScalarInteger(c.input(1), "index"));
    const int64_t size = dataset->cardinality();
    if (index < 0 || (size >= 0 && index >= size)) {
      return OutOfRange("Index out of range [0, ", size, "):", index);
    }
    return Begin(c, std::move(dataset), index);
  }
};

class SingleElement : public ReadingKernel {
 protected:
  absl::StatusOr<RefPtr<IteratorResource>> Open(KernelContext& c) override {
    ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(c, 0));
    return Begin(
        c, std::make_shared<const Dataset>(
               input->spec(), [input](const DataContext& begin) -> absl::StatusOr<NextElement> {
                 ASSIGN_OR_RETURN(NextElement next, input->Read(begin));
                 return
                     [next = std::move(next)](const DataContext& context) mutable -> MaybeElement {
                       return OnlyOne(next, context);
                     };
               }));
  }

 private:
  static MaybeElement OnlyOne(NextElement& next, const DataContext& context) {
    ASSIGN_OR_RETURN(std::optional<Element> element, next(context));
    if (!element.has_value()) return InvalidArgument("Dataset was empty.");
    ASSIGN_OR_RETURN(const std::optional<Element> second, next(context));
    if (second.has_value()) return InvalidArgument("Dataset had more than one element.");
    return element;
  }
};

class ReduceDataset : public ReadingKernel {
 protected:
  absl::StatusOr<RefPtr<IteratorResource>> Open(KernelContext& c) override {
    ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(c, 0));
    ASSIGN_OR_RETURN(const Element initial, CapturedInputs(c, 1, "Tstate"));
    Element state;
    for (const Tensor& tensor : initial) state.push_back(KeptTensor(tensor));
    ASSIGN_OR_RETURN(const std::vector<Tensor> captured,
                     CapturedInputs(c, 1 + static_cast<int>(state.size()), "Targuments"));
    ASSIGN_OR_RETURN(const CapturedFunctionPtr function, CapturedFunction::Make(c, "f", captured));
    ASSIGN_OR_RETURN(ElementSpec spec, SpecOf(c.node()));
    return Begin(c,
                 std::make_shared<const Dataset>(
                     std::move(spec), [=](const DataContext& begin) -> absl::StatusOr<NextElement> {
                       ASSIGN_OR_RETURN(NextElement next, input->Read(begin));
                       return [=, next = std::move(next)](const DataContext& context) mutable {
                         return Reduce(next, state, *function, context);
                       };
                     }));
  }

 private:
  static MaybeElement Reduce(NextElement& next, Element state, const CapturedFunction& function,
                             const DataContext& context) {
    while (true) {
      ASSIGN_OR_RETURN(std::optional<Element> element, next(context));
      if (!element.has_value()) return state;
      const size_t size = state.size();
      for (Tensor& component : *element) state.push_back(std::move(component));
      absl::StatusOr<Element> results = function.Call(context, std::move(state));
      RETURN_IF_ERROR(InUserFunction(results.status(), "Reduce"));
      if (results->size() != size) {
        return InvalidArgument("The reduce function gave ", results->size(),
                               " values where the state has ", size);
      }
      state = *std::move(results);
    }
  }
};

// No value at the end, instead of an error.
class NextAsOptional : public ReadingKernel {
 protected:
  absl::StatusOr<RefPtr<IteratorResource>> Open(KernelContext& c) override {
    return InputResourceAs<IteratorResource>(c, 0);
  }
  absl::Status Use(KernelContext& c, absl::StatusOr<Element> element) override {
    auto value = std::make_shared<OptionalValue>();
    if (element.ok()) {
      ASSIGN_OR_RETURN(value->components, InMemoryOf(c.device(), *std::move(element)));
    } else if (!absl::IsOutOfRange(element.status())) {
      return element.status();
    }
    c.SetOutput(0, Tensor::Scalar(Variant(std::shared_ptr<const OptionalValue>(std::move(value)))));
    return absl::OkStatus();
  }
};

void DefineElement(OpBuilder& op, const char* doc, KernelFactory factory) {
  op.Output("components: output_types")
      .Doc(doc)
      .Shape(ElementShapes)
      .NoGradient("elements come from elsewhere")
      .Cpu(std::move(factory));
}

}  // namespace

DEFINE_OP(GetElementAtIndex) {
  ElementAttrs(op).Input("dataset: variant").Input("index: int64");
  DefineElement(op, "The element of a dataset at an index.", New<ElementAtIndex>());
}

DEFINE_OP(DatasetToSingleElement) {
  ElementAttrs(op).Attr2x("metadata: string = ''").Input("dataset: variant").Stateful();
  DefineElement(op, "The only element of a dataset.", New<SingleElement>());
}

DEFINE_OP(ReduceDataset) {
  op.Attr("f: func").Attr("Tstate: list(type) >= 1").Attr("Targuments: list(type) >= 0");
  ElementAttrs(op)
      .Attr("use_inter_op_parallelism: bool = true")
      .Attr2x("metadata: string = ''")
      .Input("input_dataset: variant")
      .Input("initial_state: Tstate")
      .Input("other_arguments: Targuments")
      .Stateful();
  DefineElement(op, "What a function makes of a state and all elements, one after the other.",
                New<ReduceDataset>());
}

DEFINE_OP(IteratorGetNextAsOptional) {
  ElementAttrs(op)
      .Input("iterator: resource")
      .Output("optional: variant")
      .Stateful()
      .Doc("The next element as an optional value, which is absent at the end.")
      .Shape(ScalarShape)
      .NoGradient("elements come from elsewhere")
      .Cpu(New<NextAsOptional>())
      .Gpu(New<NextAsOptional>())
      .GpuIfAsked();
}

}  // namespace muster
