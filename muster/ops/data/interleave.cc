// Datasets of datasets that a function makes of every element: one after the other, or by turns.
#include <algorithm>
#include <thread>

#include "muster/ops/data/captured_function.h"

namespace muster {
namespace {

struct Expansion {
  DatasetPtr input;
  CapturedFunctionPtr function;
  const char* name = "Interleave";

  absl::StatusOr<NextElement> Open(Element element, const DataContext& context) const {
    absl::StatusOr<Element> called = function->Call(context, std::move(element));
    RETURN_IF_ERROR(InUserFunction(called.status(), name));
    const Element& results = *called;
    if (results.size() != 1 || results[0].dtype() != DType::kVariant || results[0].rank() != 0)
      return InvalidArgument("Function must return a single scalar of dtype DT_VARIANT.");
    ASSIGN_OR_RETURN(const DatasetPtr dataset, DatasetIn(results[0]));
    return dataset->Read(context);
  }
};

absl::StatusOr<Expansion> ExpansionOf(const KernelContext& c) {
  Expansion expansion;
  ASSIGN_OR_RETURN(expansion.input, InputDataset(c, 0));
  ASSIGN_OR_RETURN(const std::vector<Tensor> captured, CapturedInputs(c, 1, "Targuments"));
  ASSIGN_OR_RETURN(expansion.function, CapturedFunction::Make(c, "f", captured));
  return expansion;
}

absl::Status MakeFlatMap(KernelContext& c) {
  ASSIGN_OR_RETURN(Expansion expansion, ExpansionOf(c));
  expansion.name = "FlatMap";
  return SetDataset(c, [expansion](const DataContext& begin) -> absl::StatusOr<NextElement> {
    ASSIGN_OR_RETURN(NextElement input, expansion.input->Read(begin));
    return [expansion, input = std::move(input),
            inner = NextElement()](const DataContext& context) mutable -> MaybeElement {
      while (true) {
        if (inner == nullptr) {
          ASSIGN_OR_RETURN(std::optional<Element> element, input(context));
          if (!element.has_value()) return std::nullopt;
          ASSIGN_OR_RETURN(inner, expansion.Open(*std::move(element), context));
        }
        ASSIGN_OR_RETURN(std::optional<Element> element, inner(context));
        if (element.has_value()) return element;
        inner = nullptr;
      }
    };
  });
}

// More threads than this do not make reading faster.
constexpr int64_t kMostThreads = 64;

// `cycle` datasets are open at a time, each gives `block` elements in turn.
class Interleaver {
 public:
  Interleaver(Expansion expansion, NextElement input, int64_t cycle, int64_t block, bool parallel)
      : expansion_(std::move(expansion)),
        input_(std::move(input)),
        cycle_(cycle),
        block_(block),
        parallel_(parallel) {}

  MaybeElement Next(const DataContext& context) {
    while (!input_ended_ || num_open_ > 0) {
      if (at_ == slots_.size()) {
        // Slots that no dataset was ever in are passed over.
        if (input_ended_) {
          Advance();
          continue;
        }
        slots_.emplace_back();
      }
      if (slots_[at_] == nullptr) {
        RETURN_IF_ERROR(OpenSlot(context));
        continue;
      }
      ASSIGN_OR_RETURN(std::optional<Element> element, slots_[at_](context));
      if (element.has_value()) {
        if (++given_ == block_) Advance();
        return element;
      }
      slots_[at_] = nullptr;
      --num_open_;
      Advance();
    }
    return std::nullopt;
  }

 private:
  absl::Status OpenSlot(const DataContext& context) {
    if (input_ended_) {
      Advance();
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(std::optional<Element> element, input_(context));
    if (!element.has_value()) {
      input_ended_ = true;
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(NextElement opened, expansion_.Open(*std::move(element), context));
    if (parallel_ && num_open_ < kMostThreads) {
      const auto ahead = static_cast<size_t>(std::clamp<int64_t>(block_, 1, 16));
      opened = Prefetched(std::move(opened), ahead, context);
    }
    slots_[at_] = std::move(opened);
    ++num_open_;
    return absl::OkStatus();
  }

  void Advance() {
    given_ = 0;
    ++at_;
    if (static_cast<int64_t>(at_) == cycle_ || (input_ended_ && at_ >= slots_.size())) at_ = 0;
  }

  const Expansion expansion_;
  NextElement input_;
  const int64_t cycle_;
  const int64_t block_;
  const bool parallel_;
  std::vector<NextElement> slots_;  // grows up to the length of the cycle as it is needed
  size_t at_ = 0;
  int64_t given_ = 0;
  int64_t num_open_ = 0;
  bool input_ended_ = false;
};

absl::Status SetInterleaved(KernelContext& c, bool has_num_calls, bool parallel) {
  ASSIGN_OR_RETURN(const Expansion expansion, ExpansionOf(c));
  ASSIGN_OR_RETURN(const std::vector<DType> captured,
                   c.node().Attr<std::vector<DType>>("Targuments"));
  const int first = 1 + static_cast<int>(captured.size());
  ASSIGN_OR_RETURN(int64_t cycle, ScalarInteger(c.input(first), "cycle_length"));
  ASSIGN_OR_RETURN(const int64_t block, ScalarInteger(c.input(first + 1), "block_length"));
  // As TensorFlow chooses for AUTOTUNE.
  const int64_t processors = std::max(1U, std::thread::hardware_concurrency());
  if (has_num_calls) {
    ASSIGN_OR_RETURN(const int64_t calls,
                     ScalarInteger(c.input(c.num_inputs() - 1), "num_parallel_calls"));
    if (calls < -1 || calls == 0)
      return InvalidArgument("num_parallel_calls must be greater than zero.");
    parallel = calls != 1;
    if (cycle == -1) cycle = calls == -1 ? (processors + 2) / 3 : std::min(calls, processors);
  }
  if (cycle == -1) cycle = processors;
  if (cycle <= 0) return InvalidArgument("cycle_length must be greater than zero.");
  if (block <= 0) return InvalidArgument("block_length must be greater than zero.");
  return SetDataset(c, [=](const DataContext& begin) -> absl::StatusOr<NextElement> {
    ASSIGN_OR_RETURN(NextElement input, expansion.input->Read(begin));
    return [interleaver =
                std::make_unique<Interleaver>(expansion, std::move(input), cycle, block, parallel)](
               const DataContext& context) { return interleaver->Next(context); };
  });
}

absl::Status MakeInterleave(KernelContext& c) {
  return SetInterleaved(c, false, false);
}
absl::Status MakeParallelInterleave(KernelContext& c) {
  return SetInterleaved(c, true, true);
}
absl::Status MakeAheadInterleave(KernelContext& c) {
  return SetInterleaved(c, false, true);
}

void ExpansionArgs(OpBuilder& op) {
  op.Input("input_dataset: variant").Input("other_arguments: Targuments");
}

}  // namespace

DEFINE_OP(FlatMapDataset) {
  op.Attr("f: func").Attr("Targuments: list(type) >= 0");
  ElementAttrs(op).Attr2x("metadata: string = ''");
  ExpansionArgs(op);
  DefineDataset(op, "The elements of the datasets that the function makes, one after the other.",
                MakeFlatMap);
}

DEFINE_OP(InterleaveDataset) {
  op.Attr("f: func").Attr("Targuments: list(type) >= 0");
  ElementAttrs(op).Attr2x("metadata: string = ''");
  ExpansionArgs(op);
  op.Input("cycle_length: int64").Input("block_length: int64");
  DefineDataset(op, "Blocks of elements of the datasets that the function makes, by turns.",
                MakeInterleave);
}

DEFINE_OP(ParallelInterleaveDatasetV2) {
  op.Attr("f: func").Attr("Targuments: list(type) >= 0");
  ElementAttrs(op).Attr("sloppy: bool = false").Attr2x("metadata: string = ''");
  ExpansionArgs(op);
  op.Input("cycle_length: int64").Input("block_length: int64").Input("num_parallel_calls: int64");
  DefineDataset(op, "InterleaveDataset whose datasets are read ahead on threads of their own.",
                MakeParallelInterleave);
}

DEFINE_OP(LegacyParallelInterleaveDatasetV2) {
  op.Attr("f: func").Attr("deterministic: string = 'default'").Attr("Targuments: list(type) >= 0");
  ElementAttrs(op).Attr("metadata: string = ''");
  ExpansionArgs(op);
  op.Input("cycle_length: int64")
      .Input("block_length: int64")
      .Input("buffer_output_elements: int64")
      .Input("prefetch_input_elements: int64");
  DefineDataset(op, "InterleaveDataset whose datasets are read ahead on threads of their own.",
                MakeAheadInterleave);
}

DEFINE_OP(ParallelInterleaveDatasetV4) {
  op.Attr("f: func").Attr("deterministic: string = 'default'").Attr("Targuments: list(type) >= 0");
  ElementAttrs(op).Attr("metadata: string = ''");
  ExpansionArgs(op);
  op.Input("cycle_length: int64")
      .Input("block_length: int64")
      .Input("buffer_output_elements: int64")
      .Input("prefetch_input_elements: int64")
      .Input("num_parallel_calls: int64");
  DefineDataset(op, "InterleaveDataset whose datasets are read ahead on threads of their own.",
                MakeParallelInterleave);
}

}  // namespace muster
