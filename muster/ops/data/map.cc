// Datasets that call a function for every element: map, in order or several at once, and filter.
#include <algorithm>
#include <deque>
#include <thread>

#include "muster/base/cancel_callback.h"
#include "muster/base/threads/thread_name.h"
#include "muster/ops/data/captured_function.h"

namespace muster {
namespace {

// OutOfRange from the function ends the sequence, unless that was promised not to happen.
MaybeElement Mapped(absl::StatusOr<Element> results, bool keeps_length) {
  if (results.ok()) return *std::move(results);
  if (!absl::IsOutOfRange(results.status())) return InUserFunction(results.status(), "Map");
  if (!keeps_length) return std::nullopt;
  return InvalidArgument("Function invocation produced OutOfRangeError: ",
                         results.status().message());
}

struct Mapping {
  DatasetPtr input;
  CapturedFunctionPtr function;
  bool keeps_length = false;
};

absl::StatusOr<Mapping> MappingOf(const KernelContext& c) {
  Mapping mapping;
  ASSIGN_OR_RETURN(mapping.input, InputDataset(c, 0));
  ASSIGN_OR_RETURN(const std::vector<Tensor> captured, CapturedInputs(c, 1, "Targuments"));
  ASSIGN_OR_RETURN(mapping.function, CapturedFunction::Make(c, "f", captured));
  ASSIGN_OR_RETURN(mapping.keeps_length, c.node().Attr<bool>("preserve_cardinality"));
  return mapping;
}

absl::Status MakeMap(KernelContext& c) {
  ASSIGN_OR_RETURN(const Mapping mapping, MappingOf(c));
  return SetDataset(c, [mapping](const DataContext& begin) -> absl::StatusOr<NextElement> {
    ASSIGN_OR_RETURN(NextElement next, mapping.input->Read(begin));
    return [mapping, next = std::move(next)](const DataContext& context) mutable -> MaybeElement {
      ASSIGN_OR_RETURN(std::optional<Element> element, next(context));
      if (!element.has_value()) return std::nullopt;
      return Mapped(mapping.function->Call(context, *std::move(element)), mapping.keeps_length);
    };
  });
}

// --- Several calls at once ---------------------------------------------------------------------

// A thread of its own reads the input and starts calls, at most `limit` ahead of what was taken;
// the calls run on the scheduler's threads.
class ParallelMapper {
 public:
  ParallelMapper(Mapping mapping, NextElement input, size_t limit, const DataContext& parent)
      : mapping_(std::move(mapping)),
        limit_(limit),
        cancellation_(parent.cancellation),
        context_(parent),
        input_(std::move(input)) {
    context_.cancellation = &cancellation_.get();
    wake_.Start(context_.cancellation, [this](const absl::Status&) {
      MutexLock lock(mutex_);
      changed_.NotifyAll();
    });
    thread_ = std::thread([this] {
      NameThread("muster-dataset");
      StartCalls();
    });
  }

  ~ParallelMapper() {
    context_.cancellation->Cancel(absl::CancelledError("The iterator is gone"));
    thread_.join();
    {
      MutexLock lock(mutex_);
      while (running_ > 0) changed_.Wait(mutex_);
    }
  }

  MaybeElement Next() {
    MutexLock lock(mutex_);
    while (slots_.empty() || !slots_.front()->has_value()) {
      if (slots_.empty() && ended_) return std::nullopt;
      if (context_.cancellation->cancelled()) return context_.cancellation->reason();
      changed_.Wait(mutex_);
    }
    MaybeElement element = **std::move(slots_.front());
    slots_.pop_front();
    changed_.NotifyAll();
    return element;
  }

 private:
  using Slot = std::optional<MaybeElement>;

  void StartCalls() {
    while (WaitForRoom()) {
      MaybeElement element = ReadNext(input_, context_);
      auto slot = std::make_shared<Slot>();
      {
        MutexLock lock(mutex_);
        if (element.ok() && !element->has_value()) {
          ended_ = true;
          changed_.NotifyAll();
          return;
        }
        slots_.push_back(slot);
        if (!element.ok()) {
          *slot = std::move(element);
          changed_.NotifyAll();
          continue;
        }
        ++running_;
      }
      mapping_.function->scheduler().Schedule(
          [this, slot, arguments = **std::move(element)]() mutable {
            Call(slot, std::move(arguments));
          });
    }
  }

  void Call(const std::shared_ptr<Slot>& slot, Element arguments) {
    // This may be gone once the call is done, before it has returned.
    const CapturedFunctionPtr function = mapping_.function;
    function->CallAsync(context_, std::move(arguments),
                        [this, slot](absl::StatusOr<Element> results) {
                          MutexLock lock(mutex_);
                          *slot = Mapped(std::move(results), mapping_.keeps_length);
                          --running_;
                          changed_.NotifyAll();
                        });
  }

  bool WaitForRoom() {
    MutexLock lock(mutex_);
    while (true) {
      if (ended_ || context_.cancellation->cancelled()) return false;
      if (slots_.size() < limit_) return true;
      changed_.Wait(mutex_);
    }
  }

  const Mapping mapping_;
  const size_t limit_;
  ChildCancellation cancellation_;
  DataContext context_;
  NextElement input_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<Slot>> slots_ ABSL_GUARDED_BY(mutex_);
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
  CancelCallback wake_;
};

absl::Status MakeParallelMap(KernelContext& c) {
  ASSIGN_OR_RETURN(const Mapping mapping, MappingOf(c));
  ASSIGN_OR_RETURN(int64_t calls, ScalarInteger(c.input(c.num_inputs() - 1), "num_parallel_calls"));
  if (calls < -1 || calls == 0)
    return InvalidArgument("num_parallel_calls must be greater than zero.");
  if (calls == -1) calls = std::max(2, c.step().scheduler->parallelism());
  return SetDataset(c, [mapping, calls](const DataContext& begin) -> absl::StatusOr<NextElement> {
    ASSIGN_OR_RETURN(NextElement input, mapping.input->Read(begin));
    struct State {
      NextElement input;
      std::unique_ptr<ParallelMapper> mapper;
    };
    return [mapping, calls, state = State{std::move(input), nullptr}](
               const DataContext& context) mutable -> MaybeElement {
      if (state.mapper == nullptr) {
        state.mapper = std::make_unique<ParallelMapper>(mapping, std::move(state.input),
                                                        static_cast<size_t>(calls), context);
      }
      return state.mapper->Next();
    };
  });
}

// --- Filter ------------------------------------------------------------------------------------

absl::Status MakeFilter(KernelContext& c) {
  ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(c, 0));
  ASSIGN_OR_RETURN(const std::vector<Tensor> captured, CapturedInputs(c, 1, "Targuments"));
  ASSIGN_OR_RETURN(const CapturedFunctionPtr predicate,
                   CapturedFunction::Make(c, "predicate", captured));
  return SetDataset(c, [input, predicate](const DataContext& begin) -> absl::StatusOr<NextElement> {
    ASSIGN_OR_RETURN(NextElement next, input->Read(begin));
    return [predicate, next = std::move(next)](const DataContext& context) mutable -> MaybeElement {
      while (true) {
        ASSIGN_OR_RETURN(std::optional<Element> element, next(context));
        if (!element.has_value()) return std::nullopt;
        absl::StatusOr<Element> holds = predicate->Call(context, *element);
        if (absl::IsOutOfRange(holds.status())) return std::nullopt;
        RETURN_IF_ERROR(InUserFunction(holds.status(), "Filter"));
        if (holds->size() != 1 || (*holds)[0].dtype() != DType::kBool ||
            (*holds)[0].num_elements() != 1) {
          return InvalidArgument("Filter predicate `f` must return a scalar bool.");
        }
        if ((*holds)[0].scalar<bool>()) return element;
      }
    };
  });
}

void MapArgs(OpBuilder& op) {
  op.Input("input_dataset: variant").Input("other_arguments: Targuments");
}

}  // namespace

DEFINE_OP(MapDataset) {
  op.Attr("f: func").Attr("Targuments: list(type) >= 0");
  ElementAttrs(op)
      .Attr("use_inter_op_parallelism: bool = true")
      .Attr("preserve_cardinality: bool = false")
      .Attr2x("force_synchronous: bool = false")
      .Attr2x("metadata: string = ''");
  MapArgs(op);
  DefineDataset(op, "What the function makes of every element.", MakeMap);
}

DEFINE_OP(ParallelMapDataset) {
  op.Attr("f: func").Attr("Targuments: list(type) >= 0");
  ElementAttrs(op)
      .Attr("use_inter_op_parallelism: bool = true")
      .Attr("sloppy: bool = false")
      .Attr("preserve_cardinality: bool = false")
      .Attr2x("metadata: string = ''");
  MapArgs(op);
  op.Input("num_parallel_calls: int32");
  DefineDataset(op, "What the function makes of every element, several at a time.",
                MakeParallelMap);
}

DEFINE_OP(ParallelMapDatasetV2) {
  op.Attr("f: func").Attr("Targuments: list(type) >= 0");
  ElementAttrs(op)
      .Attr("use_inter_op_parallelism: bool = true")
      .Attr("deterministic: string = 'default'")
      .Attr("preserve_cardinality: bool = false")
      .Attr("use_unbounded_threadpool: bool = false")
      .Attr("metadata: string = ''");
  MapArgs(op);
  op.Input("num_parallel_calls: int64");
  DefineDataset(op, "What the function makes of every element, several at a time.",
                MakeParallelMap);
}

DEFINE_OP(FilterDataset) {
  op.Attr("predicate: func").Attr("Targuments: list(type) >= 0");
  ElementAttrs(op).Attr2x("metadata: string = ''");
  MapArgs(op);
  DefineDataset(op, "The elements for which the function gives true.", MakeFilter);
}

}  // namespace muster
