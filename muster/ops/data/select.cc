// Datasets that pass elements on, or not: take_while, scan, ignore_errors, unique, a choice among
// several datasets, random numbers.
#include "absl/container/flat_hash_set.h"

#include "muster/ops/data/captured_function.h"
#include "muster/ops/random/generator.h"
#include "muster/ops/resource_kernel.h"

namespace muster {
namespace {

absl::Status MakeTakeWhile(KernelContext& c) {
  ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(c, 0));
  ASSIGN_OR_RETURN(const std::vector<Tensor> captured, CapturedInputs(c, 1, "Targuments"));
  ASSIGN_OR_RETURN(const CapturedFunctionPtr predicate,
                   CapturedFunction::Make(c, "predicate", captured));
  return SetDataset(c, [=](const DataContext& begin) -> absl::StatusOr<NextElement> {
    ASSIGN_OR_RETURN(NextElement next, input->Read(begin));
    return [predicate, next = std::move(next),
            over = false](const DataContext& context) mutable -> MaybeElement {
      if (over) return std::nullopt;
      ASSIGN_OR_RETURN(std::optional<Element> element, next(context));
      over = !element.has_value();
      if (over) return std::nullopt;
      absl::StatusOr<Element> holds = predicate->Call(context, *element);
      over = absl::IsOutOfRange(holds.status());
      if (over) return std::nullopt;
      RETURN_IF_ERROR(InUserFunction(holds.status(), "TakeWhile"));
      if (holds->size() != 1 || (*holds)[0].dtype() != DType::kBool ||
          (*holds)[0].num_elements() != 1) {
        return InvalidArgument("`predicate` must returns a scalar bool tensor.");
      }
      over = !(*holds)[0].data<bool>()[0];
      if (over) return std::nullopt;
      return element;
    };
  });
}

absl::Status MakeScan(KernelContext& c) {
  ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(c, 0));
  ASSIGN_OR_RETURN(const Element given, CapturedInputs(c, 1, "Tstate"));
  Element initial;
  for (const Tensor& tensor : given) initial.push_back(KeptTensor(tensor));
  const size_t size = initial.size();
  ASSIGN_OR_RETURN(const std::vector<Tensor> captured,
                   CapturedInputs(c, 1 + static_cast<int>(size), "Targuments"));
  ASSIGN_OR_RETURN(const CapturedFunctionPtr function, CapturedFunction::Make(c, "f", captured));
  return SetDataset(c, [=](const DataContext& begin) -> absl::StatusOr<NextElement> {
    ASSIGN_OR_RETURN(NextElement next, input->Read(begin));
    return [=, next = std::move(next),
            state = initial](const DataContext& context) mutable -> MaybeElement {
      ASSIGN_OR_RETURN(std::optional<Element> element, next(context));
      if (!element.has_value()) return std::nullopt;
      Element arguments = state;
      for (Tensor& component : *element) arguments.push_back(std::move(component));
      absl::StatusOr<Element> results = function->Call(context, std::move(arguments));
      if (absl::IsOutOfRange(results.status())) return std::nullopt;
      RETURN_IF_ERROR(InUserFunction(results.status(), "Scan"));
      if (results->size() < size) {
        return InvalidArgument("The scan function gave ", results->size(),
                               " values where the state alone has ", size);
      }
      const auto border = results->begin() + static_cast<int64_t>(size);
      std::move(results->begin(), border, state.begin());
      return Element(std::make_move_iterator(border), std::make_move_iterator(results->end()));
    };
  });
}

absl::Status MakeIgnoreErrors(KernelContext& c) {
  ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(c, 0));
  return SetDataset(c, [input](const DataContext& begin) -> absl::StatusOr<NextElement> {
    ASSIGN_OR_RETURN(NextElement next, input->Read(begin));
    return [next = std::move(next)](const DataContext& context) mutable -> MaybeElement {
      while (true) {
        MaybeElement element = next(context);
        if (element.ok() || context.cancellation->cancelled()) return element;
      }
    };
  });
}

absl::Status MakeUnique(KernelContext& c) {
  ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(c, 0));
  if (input->spec().types.size() != 1) {
    return InvalidArgument("UniqueDataset only supports inputs with a single component, not ",
                           input->spec().types.size());
  }
  const DType type = input->spec().types[0];
  if (type != DType::kInt32 && type != DType::kInt64 && type != DType::kString) {
    return InvalidArgument(
        "UniqueDataset only supports inputs with a single `tf.int32`, `tf.int64`, or `tf.string` "
        "component, not ",
        DTypeName(type));
  }
  return SetDataset(c, [input](const DataContext& begin) -> absl::StatusOr<NextElement> {
    ASSIGN_OR_RETURN(NextElement next, input->Read(begin));
    return [next = std::move(next), seen = absl::flat_hash_set<std::string>()](
               const DataContext& context) mutable -> MaybeElement {
      while (true) {
        ASSIGN_OR_RETURN(std::optional<Element> element, next(context));
        if (!element.has_value()) return std::nullopt;
        const Tensor& value = (*element)[0];
        std::string key = value.shape().ToString();
        if (value.dtype() == DType::kString) {
          for (const std::string& text : value.values<std::string>()) {
            absl::StrAppend(&key, text.size(), ":", text);
          }
        } else {
          key.append(value.raw(), static_cast<size_t>(value.size_bytes()));
        }
        if (seen.insert(std::move(key)).second) return element;
      }
    };
  });
}

// A dataset of numbers says from which of the others the next element comes.
absl::Status MakeDirected(KernelContext& c) {
  ASSIGN_OR_RETURN(const DatasetPtr selector, InputDataset(c, 0));
  ASSIGN_OR_RETURN(const bool stops, c.node().Attr<bool>("stop_on_empty_dataset"));
  std::vector<DatasetPtr> inputs;
  for (int i = 1; i < c.num_inputs(); ++i) {
    ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(c, i));
    inputs.push_back(std::move(input));
  }
  return SetDataset(c, [=](const DataContext& begin) -> absl::StatusOr<NextElement> {
    ASSIGN_OR_RETURN(NextElement choose, selector->Read(begin));
    std::vector<NextElement> parts;
    for (const DatasetPtr& input : inputs) {
      ASSIGN_OR_RETURN(NextElement part, input->Read(begin));
      parts.push_back(std::move(part));
    }
    return [stops, choose = std::move(choose), parts = std::move(parts),
            over = false](const DataContext& context) mutable -> MaybeElement {
      while (!over) {
        ASSIGN_OR_RETURN(const std::optional<Element> choice, choose(context));
        over = !choice.has_value();
        if (over) break;
        ASSIGN_OR_RETURN(const int64_t index, ScalarInteger(choice->at(0), "selector"));
        if (index < 0 || index >= static_cast<int64_t>(parts.size())) {
          return InvalidArgument("Selector index out of range: ", index, " >= ", parts.size());
        }
        if (parts[index] == nullptr) continue;
        ASSIGN_OR_RETURN(std::optional<Element> element, parts[index](context));
        if (element.has_value()) return element;
        parts[index] = nullptr;
        over = stops || std::all_of(parts.begin(), parts.end(),
                                    [](const NextElement& part) { return part == nullptr; });
      }
      return std::nullopt;
    };
  });
}

absl::Status MakeRandom(KernelContext& c) {
  ASSIGN_OR_RETURN(const int64_t seed, ScalarInteger(c.input(0), "seed"));
  ASSIGN_OR_RETURN(const int64_t seed2, ScalarInteger(c.input(1), "seed2"));
  const bool any = seed == 0 && seed2 == 0;
  const uint64_t key = any ? EntropySeed() : static_cast<uint64_t>(seed);
  const uint64_t counter = any ? EntropySeed() : static_cast<uint64_t>(seed2);
  return SetDataset(c, [key, counter](const DataContext&) -> absl::StatusOr<NextElement> {
    return [words = PhiloxWords(Philox(key, counter))](const DataContext&) mutable -> MaybeElement {
      return Element{Tensor::Scalar(static_cast<int64_t>(words.Next()))};
    };
  });
}

}  // namespace

DEFINE_OP(TakeWhileDataset) {
  op.Attr("predicate: func").Attr("Targuments: list(type) >= 0");
  ElementAttrs(op)
      .Attr2x("metadata: string = ''")
      .Input("input_dataset: variant")
      .Input("other_arguments: Targuments");
  DefineDataset(op, "The elements before the first for which the function gives false.",
                MakeTakeWhile);
}

DEFINE_OP(ScanDataset) {
  op.Attr("f: func").Attr("Tstate: list(type) >= 1").Attr("Targuments: list(type) >= 0");
  ElementAttrs(op)
      .Attr("preserve_cardinality: bool = false")
      .Attr2x("use_default_device: bool = true")
      .Attr2x("metadata: string = ''")
      .Input("input_dataset: variant")
      .Input("initial_state: Tstate")
      .Input("other_arguments: Targuments");
  DefineDataset(op, "What a function makes of every element and a state that it changes.",
                MakeScan);
}

DEFINE_OP(IgnoreErrorsDataset) {
  ElementAttrs(op).Attr2x("log_warning: bool = false").Input("input_dataset: variant");
  DefineDataset(op, "The elements that come without an error.", MakeIgnoreErrors);
}

DEFINE_OP(UniqueDataset) {
  ElementAttrs(op).Attr2x("metadata: string = ''").Input("input_dataset: variant");
  DefineDataset(op, "The elements that are not equal to an earlier one.", MakeUnique);
}

DEFINE_OP(DirectedInterleaveDataset) {
  ElementAttrs(op)
      .Attr("N: int >= 1")
      .Attr2x("stop_on_empty_dataset: bool = false")
      .Input("selector_input_dataset: variant")
      .Input("data_input_datasets: N * variant");
  DefineDataset(op, "Elements of several datasets; another one says whose is next.", MakeDirected);
}

DEFINE_OP(RandomDataset) {
  ElementAttrs(op)
      .Attr2x("metadata: string = ''")
      .Input("seed: int64")
      .Input("seed2: int64")
      .Stateful();
  DefineDataset(op, "Pseudorandom numbers of 32 bits without end.", MakeRandom);
}

}  // namespace muster
