// Reading ahead, and what passes its input on: prefetch, cache in memory, the hints for
// TensorFlow's optimizer.
#include <algorithm>
#include <deque>
#include <thread>

#include "muster/base/cancel_callback.h"
#include "muster/base/threads/thread_name.h"
#include "muster/device/gpu/gpu.h"
#include "muster/ops/data/dataset.h"

namespace muster {
namespace {

class Prefetcher {
 public:
  Prefetcher(NextElement input, size_t limit, const DataContext& parent)
      : limit_(std::max<size_t>(limit, 1)),
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
      ReadAhead();
    });
  }

  ~Prefetcher() {
    context_.cancellation->Cancel(absl::CancelledError("The iterator is gone"));
    thread_.join();
  }

  MaybeElement Next() {
    MutexLock lock(mutex_);
    while (ready_.empty()) {
      if (ended_) return std::nullopt;
      if (context_.cancellation->cancelled()) return context_.cancellation->reason();
      changed_.Wait(mutex_);
    }
    MaybeElement element = std::move(ready_.front());
    ready_.pop_front();
    changed_.NotifyAll();
    return element;
  }

 private:
  void ReadAhead() {
    while (WaitForRoom()) {
      MaybeElement element = ReadNext(input_, context_);
      MutexLock lock(mutex_);
      ended_ = element.ok() && !element->has_value();
      if (!ended_) ready_.push_back(std::move(element));
      changed_.NotifyAll();
    }
  }

  // False when there is nothing left to do.
  bool WaitForRoom() {
    MutexLock lock(mutex_);
    while (true) {
      if (ended_ || context_.cancellation->cancelled()) return false;
      if (ready_.size() < limit_) return true;
      changed_.Wait(mutex_);
    }
  }

  const size_t limit_;
  ChildCancellation cancellation_;
  DataContext context_;
  NextElement input_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<MaybeElement> ready_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
  CancelCallback wake_;
};

// The components in host memory that the card reads by itself.
absl::StatusOr<Element> Pinned(Element element, Allocator& pinned) {
  for (Tensor& component : element) {
    if (!IsPlainData(component.dtype()) || component.size_bytes() == 0) continue;
    if (component.buffer().region()->kind() != MemoryKind::kHost) continue;
    ASSIGN_OR_RETURN(component, TryClone(component, pinned));
  }
  return element;
}

// On a GPU the elements are made ready for the card as they are read, ahead of the step. The copy
// itself belongs to the step that takes them: work that another thread adds to the card's would
// come at another place in every step, and no step would be replayed.
DatasetPtr ForGpu(DatasetPtr input, Gpu& gpu) {
  return std::make_shared<const Dataset>(
      input->spec(),
      [input, &gpu](const DataContext& begin) -> absl::StatusOr<NextElement> {
        ASSIGN_OR_RETURN(NextElement next, input->Read(begin));
        return [next = std::move(next), &gpu](const DataContext& context) mutable -> MaybeElement {
          ASSIGN_OR_RETURN(std::optional<Element> element, next(context));
          if (!element.has_value()) return std::nullopt;
          ASSIGN_OR_RETURN(Element ready, Pinned(*std::move(element), gpu.pinned()));
          return ready;
        };
      },
      nullptr, input->cardinality());
}

absl::Status MakePrefetch(KernelContext& c) {
  ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(c, 0));
  Gpu* const gpu = c.device().gpu();
  if (gpu != nullptr) input = ForGpu(std::move(input), *gpu);
  ASSIGN_OR_RETURN(int64_t size, ScalarInteger(c.input(1), "buffer_size"));
  if (size < -1) {
    return InvalidArgument("buffer_size must be >= 0 or set buffer_size to be -1 for auto-tuning");
  }
  if (size == -1) size = std::max(2, c.step().scheduler->parallelism());
  return SetDataset(c, [input, size](const DataContext& begin) -> absl::StatusOr<NextElement> {
    if (size == 0) return input->Read(begin);
    ASSIGN_OR_RETURN(NextElement next, input->Read(begin));
    return Prefetched(std::move(next), static_cast<size_t>(size), begin);
  });
}

// --- Hints -------------------------------------------------------------------------------------

absl::Status MakePassThrough(KernelContext& c) {
  ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(c, 0));
  return SetDataset(c, [input](const DataContext& context) { return input->Read(context); });
}

// Only one effect of the optimizer is visible: the order of shuffle(...).repeat(...).
absl::Status MakeOptimized(KernelContext& c) {
  ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(c, 0));
  const Tensor& names = c.input(1);
  const absl::Span<const std::string> chosen = names.values<std::string>();
  const bool fuse =
      std::find(chosen.begin(), chosen.end(), "shuffle_and_repeat_fusion") != chosen.end();
  return SetDataset(c, [input, fuse](const DataContext& begin) -> absl::StatusOr<NextElement> {
    DataContext inner = begin;
    inner.fuse_shuffle_and_repeat |= fuse;
    ASSIGN_OR_RETURN(NextElement next, input->Read(inner));
    return [next = std::move(next), fuse](const DataContext& context) mutable {
      DataContext changed = context;
      changed.fuse_shuffle_and_repeat |= fuse;
      return next(changed);
    };
  });
}

}  // namespace

NextElement Prefetched(NextElement input, size_t limit, const DataContext& parent) {
  // The thread starts with the first element that is asked for: to begin reading costs nothing.
  struct Source {
    NextElement input;
    std::unique_ptr<Prefetcher> prefetcher;
  };
  return [state = Source{std::move(input), nullptr}, limit,
          fuse = parent.fuse_shuffle_and_repeat](const DataContext& context) mutable {
    if (state.prefetcher == nullptr) {
      DataContext own = context;
      own.fuse_shuffle_and_repeat = fuse;
      state.prefetcher = std::make_unique<Prefetcher>(std::move(state.input), limit, own);
    }
    return state.prefetcher->Next();
  };
}

DEFINE_OP(PrefetchDataset) {
  ElementAttrs(op)
      .Attr("slack_period: int = 0")
      .Attr("legacy_autotune: bool = true")
      .Attr2x("buffer_size_min: int = 0")
      .Attr2x("metadata: string = ''")
      .Input("input_dataset: variant")
      .Input("buffer_size: int64");
  DefineDataset(op, "The elements, read ahead on another thread.", MakePrefetch);
  op.HostMemory({"input_dataset", "buffer_size", "handle"}).Gpu(MakePrefetch).GpuIfAsked();
}

DEFINE_OP(OptimizeDataset) {
  ElementAttrs(op)
      .Attr("optimization_configs: list(string) = []")
      .Input("input_dataset: variant")
      .Input("optimizations: string");
  DefineDataset(op, "The same elements in the order that TensorFlow's optimizations give them.",
                MakeOptimized);
}

DEFINE_OP(ModelDataset) {
  op.Attr("algorithm: int = 0").Attr("cpu_budget: int = 0").Attr2x("ram_budget: int = 0");
  ElementAttrs(op).Input("input_dataset: variant");
  DefineDataset(op, "The same elements; a place for hints about how to read them.",
                MakePassThrough);
}

DEFINE_OP(OptionsDataset) {
  op.Attr("serialized_options: string");
  ElementAttrs(op).Attr("metadata: string = ''").Input("input_dataset: variant");
  DefineDataset(op, "The same elements; a place for hints about how to read them.",
                MakePassThrough);
}

DEFINE_OP(RewriteDataset) {
  ElementAttrs(op).Input("input_dataset: variant").Input("rewrite_name: string");
  DefineDataset(op, "The same elements; TensorFlow's rewrites change how they are made.",
                MakePassThrough);
}

}  // namespace muster
