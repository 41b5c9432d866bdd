// Datasets that choose among the elements of others: repeat, take, skip, concatenate, zip, shard.
#include "muster/ops/data/dataset.h"

namespace muster {
namespace {

absl::StatusOr<NextElement> Repeated(const DatasetPtr& input, int64_t count,
                                     const DataContext& begin) {
  if (begin.fuse_shuffle_and_repeat && input->begin_repeated() != nullptr)
    return input->begin_repeated()(begin, count);
  struct State {
    NextElement next;
    int64_t round = 0;
    bool empty = true;  // nothing came in this round so far
    bool over = false;
  };
  return [input, count, state = State()](const DataContext& context) mutable -> MaybeElement {
    while (!state.over && (count < 0 || state.round < count)) {
      if (state.next == nullptr) {
        ASSIGN_OR_RETURN(state.next, input->Read(context));
        state.empty = true;
      }
      ASSIGN_OR_RETURN(std::optional<Element> element, state.next(context));
      if (element.has_value()) {
        state.empty = false;
        return element;
      }
      // Repeating an empty dataset would never end.
      if (count < 0 && state.empty) state.over = true;
      ++state.round;
      state.next = nullptr;
    }
    return std::nullopt;
  };
}

absl::Status MakeRepeat(KernelContext& c) {
  ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(c, 0));
  ASSIGN_OR_RETURN(const int64_t count, ScalarInteger(c.input(1), "count"));
  return SetDataset(
      c, [input, count](const DataContext& context) { return Repeated(input, count, context); });
}

absl::Status MakeTake(KernelContext& c) {
  ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(c, 0));
  ASSIGN_OR_RETURN(const int64_t count, ScalarInteger(c.input(1), "count"));
  return SetDataset(c, [input, count](const DataContext& begin) -> absl::StatusOr<NextElement> {
    if (count < 0) return input->Read(begin);
    ASSIGN_OR_RETURN(NextElement next, input->Read(begin));
    return
        [next = std::move(next), left = count](const DataContext& context) mutable -> MaybeElement {
          if (left == 0) return std::nullopt;
          ASSIGN_OR_RETURN(std::optional<Element> element, next(context));
          left = element.has_value() ? left - 1 : 0;
          return element;
        };
  });
}

absl::Status MakeSkip(KernelContext& c) {
  ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(c, 0));
  ASSIGN_OR_RETURN(const int64_t count, ScalarInteger(c.input(1), "count"));
  return SetDataset(c, [input, count](const DataContext& begin) -> absl::StatusOr<NextElement> {
    ASSIGN_OR_RETURN(NextElement next, input->Read(begin));
    return [next = std::move(next), left = count,
            over = count < 0](const DataContext& context) mutable -> MaybeElement {
      for (; !over && left > 0; --left) {
        ASSIGN_OR_RETURN(const std::optional<Element> skipped, next(context));
        over = !skipped.has_value();
      }
      if (over) return std::nullopt;
      return next(context);
    };
  });
}

absl::Status MakeConcatenate(KernelContext& c) {
  ASSIGN_OR_RETURN(const DatasetPtr first, InputDataset(c, 0));
  ASSIGN_OR_RETURN(const DatasetPtr second, InputDataset(c, 1));
  if (first->spec().types != second->spec().types)
    return InvalidArgument("input dataset and another dataset must have the same types.");
  return SetDataset(c, [first, second](const DataContext& begin) -> absl::StatusOr<NextElement> {
    ASSIGN_OR_RETURN(NextElement next, first->Read(begin));
    return [next = std::move(next), second,
            in_second = false](const DataContext& context) mutable -> MaybeElement {
      while (true) {
        ASSIGN_OR_RETURN(std::optional<Element> element, next(context));
        if (element.has_value() || in_second) return element;
        in_second = true;
        ASSIGN_OR_RETURN(next, second->Read(context));
      }
    };
  });
}

absl::Status MakeZip(KernelContext& c) {
  std::vector<DatasetPtr> inputs;
  for (int i = 0; i < c.num_inputs(); ++i) {
    ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(c, i));
    inputs.push_back(std::move(input));
  }
  return SetDataset(c, [inputs](const DataContext& begin) -> absl::StatusOr<NextElement> {
    std::vector<NextElement> parts;
    for (const DatasetPtr& input : inputs) {
      ASSIGN_OR_RETURN(NextElement part, input->Read(begin));
      parts.push_back(std::move(part));
    }
    return [parts = std::move(parts),
            over = false](const DataContext& context) mutable -> MaybeElement {
      if (over) return std::nullopt;
      Element all;
      absl::Status status;
      // All are asked, also when one has failed or is at its end: they stay side by side, and a
      // cache learns that its input has ended too.
      for (NextElement& part : parts) {
        MaybeElement element = part(context);
        if (!element.ok()) {
          if (status.ok()) status = element.status();
        } else if (!element->has_value()) {
          over = true;
        } else {
          for (Tensor& component : **element) all.push_back(std::move(component));
        }
      }
      if (over) return std::nullopt;
      RETURN_IF_ERROR(status);
      return all;
    };
  });
}

absl::Status MakeShard(KernelContext& c) {
  ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(c, 0));
  ASSIGN_OR_RETURN(const int64_t shards, ScalarInteger(c.input(1), "num_shards"));
  ASSIGN_OR_RETURN(const int64_t index, ScalarInteger(c.input(2), "index"));
  ASSIGN_OR_RETURN(const bool non_empty, c.node().Attr<bool>("require_non_empty"));
  if (shards <= 0) {
    return InvalidArgument(
        "Number of shards must be greater than zero (currently num_shards = ", shards, ").");
  }
  if (index < 0 || index >= shards) {
    return InvalidArgument("Index must be between 0 and ", shards - 1,
                           " (currently index = ", index, ").");
  }
  return SetDataset(c, [=](const DataContext& begin) -> absl::StatusOr<NextElement> {
    ASSIGN_OR_RETURN(NextElement next, input->Read(begin));
    return [=, next = std::move(next),
            seen = int64_t{0}](const DataContext& context) mutable -> MaybeElement {
      while (true) {
        ASSIGN_OR_RETURN(std::optional<Element> element, next(context));
        if (!element.has_value()) {
          if (non_empty && seen < shards) {
            return InvalidArgument(
                "There aren't enough elements in this dataset for each shard to have at least one "
                "element (# elems = ",
                seen, ", # shards = ", shards, ").");
          }
          return std::nullopt;
        }
        if (seen++ % shards == index) return element;
      }
    };
  });
}

std::string Elements(int64_t count) {
  return absl::StrCat(count, count == 1 ? " element" : " elements");
}

// Fails where there are more elements than promised, or fewer.
absl::Status MakeAsserted(KernelContext& c) {
  ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(c, 0));
  ASSIGN_OR_RETURN(const int64_t promised, ScalarInteger(c.input(1), "cardinality"));
  return SetDataset(c, [=](const DataContext& begin) -> absl::StatusOr<NextElement> {
    ASSIGN_OR_RETURN(NextElement next, input->Read(begin));
    return [promised, next = std::move(next),
            seen = int64_t{0}](const DataContext& context) mutable -> MaybeElement {
      ASSIGN_OR_RETURN(std::optional<Element> element, next(context));
      if (element.has_value()) ++seen;
      if (!element.has_value() && promised != seen && promised != kUnknownCardinality) {
        return FailedPrecondition("Input dataset was expected to contain ",
                                  promised == kInfiniteCardinality
                                      ? "an infinite number of elements"
                                      : Elements(promised),
                                  " but contained only ", Elements(seen), ".");
      }
      if (element.has_value() && promised >= 0 && seen > promised) {
        return FailedPrecondition("Input dataset was expected to contain ", Elements(promised),
                                  " but contained at least ", Elements(seen), ".");
      }
      return element;
    };
  });
}

void DefineCounted(OpBuilder& op, const char* doc, KernelFunction make) {
  ElementAttrs(op)
      .Attr2x("metadata: string = ''")
      .Input("input_dataset: variant")
      .Input("count: int64");
  DefineDataset(op, doc, make);
}

}  // namespace

DEFINE_OP(RepeatDataset) {
  DefineCounted(op, "The elements repeated `count` times; for ever when the count is negative.",
                MakeRepeat);
}

DEFINE_OP(TakeDataset) {
  DefineCounted(op, "The first elements; all when the count is negative.", MakeTake);
}

DEFINE_OP(SkipDataset) {
  DefineCounted(op, "All but the first elements; none when the count is negative.", MakeSkip);
}

DEFINE_OP(ConcatenateDataset) {
  ElementAttrs(op)
      .Attr2x("metadata: string = ''")
      .Input("input_dataset: variant")
      .Input("another_dataset: variant");
  DefineDataset(op, "The elements of one dataset, then those of another.", MakeConcatenate);
}

DEFINE_OP(ZipDataset) {
  ElementAttrs(op)
      .Attr("N: int >= 1")
      .Attr2x("metadata: string = ''")
      .Input("input_datasets: N * variant");
  DefineDataset(op, "Elements of several datasets side by side; the shortest one ends it.",
                MakeZip);
}

DEFINE_OP(ShardDataset) {
  op.Attr("require_non_empty: bool = false");
  ElementAttrs(op)
      .Attr2x("metadata: string = ''")
      .Input("input_dataset: variant")
      .Input("num_shards: int64")
      .Input("index: int64");
  DefineDataset(op, "Every num_shards-th element, beginning with that of the index.", MakeShard);
}

DEFINE_OP(AssertCardinalityDataset) {
  ElementAttrs(op).Input("input_dataset: variant").Input("cardinality: int64");
  DefineDataset(op, "The same elements, which must be as many as is said.", MakeAsserted);
}

}  // namespace muster
