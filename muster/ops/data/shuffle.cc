// Datasets that give elements in a random order, drawn from a buffer.
#include <deque>
#include <limits>

#include "muster/ops/data/dataset.h"
#include "muster/ops/random/generator.h"

namespace muster {
namespace {

struct Seeds {
  uint64_t seed;
  uint64_t seed2;
};

// Reads its input `count` times (-1: for ever) through a buffer that is filled from the next
// repetition while the present one drains; a choice is made within the oldest repetition.
class Shuffler {
 public:
  Shuffler(DatasetPtr input, int64_t buffer_size, int64_t count, Seeds seeds)
      : input_(std::move(input)),
        buffer_size_(buffer_size),
        count_(count),
        words_(Philox(seeds.seed, seeds.seed2)) {}

  MaybeElement Next(const DataContext& context) {
    RETURN_IF_ERROR(Fill(context));
    while (!slices_.empty() && slices_.front().begin == slices_.front().end && slices_.size() > 1)
      slices_.pop_front();
    Slice& oldest = slices_.front();
    if (oldest.begin == oldest.end) return std::nullopt;
    const int64_t offset = words_.Next() % (oldest.end - oldest.begin);
    Element& chosen = At(oldest.begin + offset);
    Element element = std::move(chosen);
    std::swap(chosen, At(oldest.begin));
    ++oldest.begin;
    --held_;
    return element;
  }

 private:
  struct Slice {
    int64_t begin;
    int64_t end;
  };
  Element& At(int64_t position) { return buffer_[position % buffer_size_]; }

  absl::Status Fill(const DataContext& context) {
    while (!over_ && held_ < buffer_size_) {
      if (next_ == nullptr) {
        ASSIGN_OR_RETURN(next_, input_->Read(context));
      }
      ASSIGN_OR_RETURN(std::optional<Element> element, next_(context));
      if (element.has_value()) {
        any_ = true;
        Put(*std::move(element));
        continue;
      }
      next_ = nullptr;
      // Repeating an empty dataset would never end.
      over_ = ++round_ == count_ || (count_ < 0 && !any_);
      if (!over_) slices_.push_back(Slice{slices_.back().end, slices_.back().end});
    }
    return absl::OkStatus();
  }

  void Put(Element element) {
    const int64_t position = slices_.back().end++ % buffer_size_;
    // The buffer has its full size only when there is that much to hold.
    if (position == static_cast<int64_t>(buffer_.size())) buffer_.emplace_back();
    buffer_[position] = std::move(element);
    ++held_;
  }

  const DatasetPtr input_;
  const int64_t buffer_size_;
  const int64_t count_;
  PhiloxWords words_;
  NextElement next_;
  std::deque<Element> buffer_;
  std::deque<Slice> slices_{{0, 0}};
  int64_t held_ = 0;
  int64_t round_ = 0;
  bool any_ = false;
  bool over_ = false;
};

NextElement Shuffled(DatasetPtr input, int64_t buffer_size, int64_t count, Seeds seeds) {
  return [shuffler = std::make_unique<Shuffler>(std::move(input), buffer_size, count, seeds)](
             const DataContext& context) { return shuffler->Next(context); };
}

// New seeds for every reading. Thread-safe.
class SeedSequence {
 public:
  explicit SeedSequence(Seeds seeds) : words_(Philox(seeds.seed, seeds.seed2)) {}
  Seeds Next() {
    MutexLock lock(mutex_);
    const uint64_t seed = words_.Next();
    return Seeds{seed, words_.Next()};
  }

 private:
  Mutex mutex_;
  PhiloxWords words_ ABSL_GUARDED_BY(mutex_);
};

struct ShuffleInputs {
  DatasetPtr input;
  int64_t buffer_size = 0;
  Seeds seeds;
};

absl::StatusOr<ShuffleInputs> InputsOf(const KernelContext& c) {
  ShuffleInputs inputs;
  ASSIGN_OR_RETURN(inputs.input, InputDataset(c, 0));
  ASSIGN_OR_RETURN(inputs.buffer_size, ScalarInteger(c.input(1), "buffer_size"));
  // Unknown: all that there is.
  if (inputs.buffer_size == kUnknownCardinality) {
    inputs.buffer_size = std::numeric_limits<int64_t>::max();
  }
  if (inputs.buffer_size <= 0) return InvalidArgument("buffer_size must be greater than zero.");
  ASSIGN_OR_RETURN(const int64_t seed, ScalarInteger(c.input(2), "seed"));
  ASSIGN_OR_RETURN(const int64_t seed2, ScalarInteger(c.input(3), "seed2"));
  inputs.seeds = Seeds{static_cast<uint64_t>(seed), static_cast<uint64_t>(seed2)};
  if (seed == 0 && seed2 == 0) inputs.seeds = Seeds{EntropySeed(), EntropySeed()};
  return inputs;
}

absl::Status MakeShuffle(KernelContext& c) {
  ASSIGN_OR_RETURN(const ShuffleInputs in, InputsOf(c));
  ASSIGN_OR_RETURN(const bool reshuffle, c.node().Attr<bool>("reshuffle_each_iteration"));
  if (!reshuffle) {
    return SetDataset(c, [in](const DataContext&) -> absl::StatusOr<NextElement> {
      return Shuffled(in.input, in.buffer_size, 1, in.seeds);
    });
  }
  const auto sequence = std::make_shared<SeedSequence>(in.seeds);
  return SetDataset(
      c,
      [in, sequence](const DataContext&) -> absl::StatusOr<NextElement> {
        return Shuffled(in.input, in.buffer_size, 1, sequence->Next());
      },
      [in](const DataContext&, int64_t count) -> absl::StatusOr<NextElement> {
        if (count == 0) return [](const DataContext&) -> MaybeElement { return std::nullopt; };
        return Shuffled(in.input, in.buffer_size, count, in.seeds);
      });
}

absl::Status MakeShuffleAndRepeat(KernelContext& c) {
  ASSIGN_OR_RETURN(const ShuffleInputs in, InputsOf(c));
  ASSIGN_OR_RETURN(const int64_t count, ScalarInteger(c.input(4), "count"));
  if (count <= 0 && count != -1)
    return InvalidArgument("count must be greater than zero or equal to -1.");
  return SetDataset(c, [in, count](const DataContext&) -> absl::StatusOr<NextElement> {
    return Shuffled(in.input, in.buffer_size, count, in.seeds);
  });
}

void ShuffleArgs(OpBuilder& op) {
  op.Input("input_dataset: variant")
      .Input("buffer_size: int64")
      .Input("seed: int64")
      .Input("seed2: int64");
}

}  // namespace

DEFINE_OP(ShuffleDataset) {
  op.Attr("reshuffle_each_iteration: bool = true");
  ElementAttrs(op).Attr2x("metadata: string = ''");
  ShuffleArgs(op);
  DefineDataset(op, "The elements in a random order, each drawn from a buffer.", MakeShuffle);
}

DEFINE_OP(ShuffleDatasetV3) {
  op.Attr("reshuffle_each_iteration: bool = true");
  ElementAttrs(op).Attr("metadata: string = ''");
  ShuffleArgs(op);
  op.Input("seed_generator: resource").Stateful();
  DefineDataset(op, "ShuffleDataset, with a place for a generator of seeds that is not used.",
                MakeShuffle);
}

DEFINE_OP(ShuffleAndRepeatDataset) {
  ElementAttrs(op).Attr2x("reshuffle_each_iteration: bool = true").Attr2x("metadata: string = ''");
  ShuffleArgs(op);
  op.Input("count: int64");
  DefineDataset(op, "The elements in a random order, several times over, through one buffer.",
                MakeShuffleAndRepeat);
}

}  // namespace muster
