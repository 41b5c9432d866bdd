// The four ways in which queues keep their elements.
#include <algorithm>
#include <deque>
#include <iterator>
#include <tuple>
#include <utility>

#include "muster/base/random.h"
#include "muster/ops/input/queue.h"
#include "muster/ops/op.h"
#include "muster/ops/random/generator.h"

namespace muster {
namespace {

class FifoQueue : public Queue {
 public:
  explicit FifoQueue(QueueOptions options) : FifoQueue("FIFOQueue", std::move(options)) {}

 protected:
  FifoQueue(std::string kind, QueueOptions options) : Queue(std::move(kind), std::move(options)) {}

  int64_t SizeLocked() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return static_cast<int64_t>(elements_.size());
  }
  void PushLocked(Tuple element) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    elements_.push_back(std::move(element));
  }
  Tuple PopLocked() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Tuple element = std::move(elements_.front());
    elements_.pop_front();
    return element;
  }
  void UnpopLocked(Tuple element) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    elements_.push_front(std::move(element));
  }
  std::vector<Tuple> ListLocked(const std::vector<Tuple>& taken) const override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<Tuple> list = taken;
    list.insert(list.end(), elements_.begin(), elements_.end());
    return list;
  }
  absl::Status ReplaceLocked(std::vector<Tuple> elements) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    elements_.assign(std::make_move_iterator(elements.begin()),
                     std::make_move_iterator(elements.end()));
    return absl::OkStatus();
  }

 private:
  std::deque<Tuple> elements_ ABSL_GUARDED_BY(mutex_);
};

// Copies `from` into the corner of `to`; both have the same rank and `to` is as large everywhere.
void CopyIntoCorner(const Tensor& from, const Shape& to_shape, char* to) {
  const int rank = from.rank();
  const size_t element_bytes = DTypeSize(from.dtype());
  if (rank == 0) return CopyElements(from.dtype(), from.raw(), to, 1);
  const int64_t row = from.dim(rank - 1);
  if (from.num_elements() == 0) return;
  const int64_t rows = from.num_elements() / row;
  Dims at(rank - 1, 0);
  for (int64_t i = 0; i < rows; ++i) {
    int64_t offset = 0;
    for (int d = 0; d < rank - 1; ++d) offset = offset * to_shape.dim(d) + at[d];
    CopyElements(from.dtype(), from.raw() + static_cast<size_t>(i * row) * element_bytes,
                 to + static_cast<size_t>(offset * to_shape.dim(rank - 1)) * element_bytes, row);
    for (int d = rank - 2; d >= 0 && ++at[d] == from.dim(d); --d) at[d] = 0;
  }
}

class PaddingFifoQueue : public FifoQueue {
 public:
  explicit PaddingFifoQueue(QueueOptions options)
      : FifoQueue("PaddingFIFOQueue", std::move(options)) {}

  absl::Status CheckOptions() const override {
    for (const PartialShape& shape : options_.shapes) {
      if (!shape.known_rank())
        return InvalidArgument("shape ", shape.ToString(), " must have known rank.");
    }
    if (options_.shapes.size() != options_.dtypes.size()) {
      return InvalidArgument("Shapes must be provided for all components, but received ",
                             options_.dtypes.size(), " dtypes and ", options_.shapes.size(),
                             " shapes.");
    }
    return FifoQueue::CheckOptions();
  }

 protected:
  bool can_dequeue_many() const override { return true; }
  std::string kind_of_single() const override { return "FIFOQueue"; }

  absl::StatusOr<Tensor> Stack(int component, const std::vector<Tuple>& elements) const override {
    Dims dims(options_.shapes[component].dims());
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d] >= 0) continue;
      dims[d] = 0;
      for (const Tuple& element : elements)
        dims[d] = std::max(dims[d], element[component].dim(static_cast<int>(d)));
    }
    ASSIGN_OR_RETURN(const Shape row, Shape::Make(dims));
    dims.insert(dims.begin(), static_cast<int64_t>(elements.size()));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    const DType dtype = options_.dtypes[component];
    ASSIGN_OR_RETURN(Tensor batch, Tensor::Make(dtype, shape));
    if (IsPlainData(dtype)) std::fill_n(batch.raw(), batch.size_bytes(), '\0');
    const size_t row_bytes = static_cast<size_t>(row.num_elements()) * DTypeSize(dtype);
    for (size_t i = 0; i < elements.size(); ++i)
      CopyIntoCorner(elements[i][component], row, batch.raw() + i * row_bytes);
    return batch;
  }
};

class RandomShuffleQueue : public Queue {
 public:
  RandomShuffleQueue(QueueOptions options, const ShuffleOptions& shuffle)
      : Queue("RandomShuffleQueue", std::move(options)),
        shuffle_(shuffle),
        words_(Generator(shuffle)) {}

  const ShuffleOptions& shuffle() const { return shuffle_; }
  absl::Status CheckOptions() const override {
    if (shuffle_.min_after_dequeue < 0)
      return InvalidArgument("min_after_dequeue ", shuffle_.min_after_dequeue, " must be >= 0");
    if (shuffle_.min_after_dequeue >= capacity()) {
      return InvalidArgument("min_after_dequeue ", shuffle_.min_after_dequeue,
                             " must be < capacity ", capacity());
    }
    return Queue::CheckOptions();
  }

 protected:
  int64_t SizeLocked() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return static_cast<int64_t>(elements_.size());
  }
  int64_t AvailableLocked() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return SizeLocked() - shuffle_.min_after_dequeue;
  }
  void PushLocked(Tuple element) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    elements_.push_back(std::move(element));
  }
  Tuple PopLocked() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::swap(elements_[words_.Next() % elements_.size()], elements_.back());
    Tuple element = std::move(elements_.back());
    elements_.pop_back();
    return element;
  }
  void UnpopLocked(Tuple element) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    elements_.push_back(std::move(element));
  }
  std::vector<Tuple> ListLocked(const std::vector<Tuple>& taken) const override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<Tuple> list = elements_;
    list.insert(list.end(), taken.rbegin(), taken.rend());
    return list;
  }
  absl::Status ReplaceLocked(std::vector<Tuple> elements) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    elements_ = std::move(elements);
    return absl::OkStatus();
  }
  // Where the generator is: its position, the words it gave last, and how many of them are used.
  Tensor ExtraLocked() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Philox::Position position = words_.generator().position();
    std::vector<uint32_t> extra(position.begin(), position.end());
    extra.insert(extra.end(), words_.block().begin(), words_.block().end());
    extra.push_back(static_cast<uint32_t>(words_.used()));
    return Tensor::Vector<uint32_t>(extra);
  }
  absl::Status CheckExtra(const StatePart& part) const override {
    ASSIGN_OR_RETURN(const Tensor extra, OnlyTensor(Named(), part, DType::kUint32, 1));
    if (extra.dim(0) == kExtraWords && extra.data<uint32_t>()[kExtraWords - 1] <= kBlockWords)
      return absl::OkStatus();
    return InvalidArgument(Named(), ": the part '", part.name,
                           "' is not the position of a generator: ", extra.ToString());
  }
  void SetExtraLocked(const Tensor& extra) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const uint32_t* from = extra.data<uint32_t>();
    Philox::Position position{};
    std::copy_n(from, kPositionWords, position.begin());
    Philox::Block block{};
    std::copy_n(from + kPositionWords, kBlockWords, block.begin());
    words_ = PhiloxWords(Philox::At(position), block, static_cast<int>(from[kExtraWords - 1]));
  }

 private:
  static constexpr int64_t kPositionWords = std::tuple_size_v<Philox::Position>;
  static constexpr int64_t kBlockWords = std::tuple_size_v<Philox::Block>;
  static constexpr int64_t kExtraWords = kPositionWords + kBlockWords + 1;
  static Philox Generator(const ShuffleOptions& shuffle) {
    if (shuffle.seed == 0 && shuffle.seed2 == 0) return Philox(EntropySeed(), EntropySeed());
    return Philox(static_cast<uint64_t>(shuffle.seed), static_cast<uint64_t>(shuffle.seed2));
  }

  const ShuffleOptions shuffle_;
  PhiloxWords words_ ABSL_GUARDED_BY(mutex_);
  std::vector<Tuple> elements_ ABSL_GUARDED_BY(mutex_);
};

class PriorityQueue : public Queue {
 public:
  explicit PriorityQueue(QueueOptions options) : Queue("PriorityQueue", std::move(options)) {}

  absl::Status CheckOptions() const override {
    if (options_.shapes.size() <= 1 && options_.dtypes.size() > 1) {
      return InvalidArgument("Shared queue '", name(), "' has component shapes [] but requested ",
                             "component shapes were ", ShapeList(options_.shapes));
    }
    return Queue::CheckOptions();
  }

 protected:
  int64_t SizeLocked() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return static_cast<int64_t>(heap_.size());
  }
  void PushLocked(Tuple element) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    heap_.push_back(std::move(element));
    std::push_heap(heap_.begin(), heap_.end(), Later);
  }
  Tuple PopLocked() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::pop_heap(heap_.begin(), heap_.end(), Later);
    Tuple element = std::move(heap_.back());
    heap_.pop_back();
    return element;
  }
  void UnpopLocked(Tuple element) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    PushLocked(std::move(element));
  }
  // A dequeue takes all at once, so none waits with elements.
  std::vector<Tuple> ListLocked(const std::vector<Tuple>&) const override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return heap_;
  }
  absl::Status ReplaceLocked(std::vector<Tuple> elements) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!std::is_heap(elements.begin(), elements.end(), Later))
      return InvalidArgument(Named(), ": the elements are not in the order of a heap");
    heap_ = std::move(elements);
    return absl::OkStatus();
  }
  // A later element may have to leave before those that are there.
  bool takes_all_at_once() const override { return true; }

 private:
  // Elements of equal priority come in the order of the heap, as TensorFlow's do.
  static bool Later(const Tuple& a, const Tuple& b) {
    return a[0].scalar<int64_t>() > b[0].scalar<int64_t>();
  }

  std::vector<Tuple> heap_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

RefPtr<Queue> NewFifoQueue(QueueOptions options) {
  return MakeRef<FifoQueue>(std::move(options));
}

RefPtr<Queue> NewPaddingFifoQueue(QueueOptions options) {
  return MakeRef<PaddingFifoQueue>(std::move(options));
}

RefPtr<Queue> NewRandomShuffleQueue(QueueOptions options, const ShuffleOptions& shuffle) {
  return MakeRef<RandomShuffleQueue>(std::move(options), shuffle);
}

const ShuffleOptions* ShuffleOptionsOf(const Queue& queue) {
  const auto* shuffled = dynamic_cast<const RandomShuffleQueue*>(&queue);
  return shuffled == nullptr ? nullptr : &shuffled->shuffle();
}

RefPtr<Queue> NewPriorityQueue(QueueOptions options) {
  return MakeRef<PriorityQueue>(std::move(options));
}

}  // namespace muster
