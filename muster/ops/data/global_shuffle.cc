// GlobalShuffleDataset: all elements in a random order. DummySeedGenerator: what stands where a
// generator of seeds might.
#include <array>

#include "muster/ops/data/dataset.h"
#include "muster/ops/random/generator.h"
#include "muster/ops/random/index_shuffle.h"

namespace muster {
namespace {

struct Seeds {
  uint64_t seed = 0;
  uint64_t seed2 = 0;
};

// Reads all of its input before it gives the first element.
class GlobalShuffler {
 public:
  GlobalShuffler(NextElement input, Seeds seeds)
      : input_(std::move(input)),
        key_{static_cast<uint32_t>(seeds.seed), static_cast<uint32_t>(seeds.seed2),
             static_cast<uint32_t>(seeds.seed >> 32 ^ seeds.seed2 >> 32)} {}

  MaybeElement Next(const DataContext& context) {
    while (input_ != nullptr) {
      ASSIGN_OR_RETURN(std::optional<Element> element, input_(context));
      if (element.has_value()) {
        elements_.push_back(*std::move(element));
      } else {
        input_ = nullptr;
      }
    }
    if (next_ == elements_.size()) return std::nullopt;
    return std::move(elements_[ShuffledIndex(next_++, key_, elements_.size() - 1, kRounds)]);
  }

 private:
  static constexpr int64_t kRounds = 8;

  NextElement input_;
  const std::array<uint32_t, 3> key_;
  std::vector<Element> elements_;
  size_t next_ = 0;
};

// Seeds for one reading after the other. Thread-safe.
class SeedSequence {
 public:
  SeedSequence(Seeds seeds, bool changing)
      : changing_(changing), first_(seeds), words_(Philox(seeds.seed, seeds.seed2)) {}
  Seeds Next() {
    if (!changing_) return first_;
    MutexLock lock(mutex_);
    const uint64_t seed = words_.Next();
    return Seeds{seed, words_.Next()};
  }

 private:
  const bool changing_;
  const Seeds first_;
  Mutex mutex_;
  PhiloxWords words_ ABSL_GUARDED_BY(mutex_);
};

absl::Status MakeGlobalShuffle(KernelContext& c) {
  ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(c, 0));
  ASSIGN_OR_RETURN(const int64_t seed, ScalarInteger(c.input(1), "seed"));
  ASSIGN_OR_RETURN(const int64_t seed2, ScalarInteger(c.input(2), "seed2"));
  ASSIGN_OR_RETURN(const bool reshuffle, c.node().Attr<bool>("reshuffle_each_iteration"));
  if (input->cardinality() < 0) {
    return FailedPrecondition(
        "`global_shuffle` requires all upstream transformations be compatible with random access. "
        "The number of elements of this input is not known, or without end.");
  }
  Seeds seeds{static_cast<uint64_t>(seed), static_cast<uint64_t>(seed2)};
  if (seed == 0 && seed2 == 0) seeds = Seeds{EntropySeed(), EntropySeed()};
  const auto sequence = std::make_shared<SeedSequence>(seeds, reshuffle);
  return SetDataset(c, [input, sequence](const DataContext& begin) -> absl::StatusOr<NextElement> {
    ASSIGN_OR_RETURN(NextElement next, input->Read(begin));
    return [shuffler = std::make_unique<GlobalShuffler>(std::move(next), sequence->Next())](
               const DataContext& context) { return shuffler->Next(context); };
  });
}

class NoSeeds : public Resource {
 public:
  std::string Describe() const override { return "DummySeedGenerator"; }
};

absl::Status MakeDummy(KernelContext& c) {
  ResourceHandle handle;
  handle.device = c.device().name();
  handle.container = "DummySeedGenerator";
  handle.name = c.node().name();
  handle.type_name = "tensorflow::data::SeedGeneratorManager";
  handle.resource = MakeRef<NoSeeds>();
  c.SetOutput(0, Tensor::Scalar<ResourceHandle>(std::move(handle)));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(GlobalShuffleDataset) {
  op.Attr("reshuffle_each_iteration: bool = true");
  ElementAttrs(op)
      .Attr("metadata: string = ''")
      .Input("input_dataset: variant")
      .Input("seed: int64")
      .Input("seed2: int64")
      .Input("seed_generator: resource")
      .Stateful();
  DefineDataset(op, "All elements in a random order.", MakeGlobalShuffle);
}

DEFINE_OP(DummySeedGenerator) {
  op.Output("handle: resource")
      .Stateful()
      .Doc("A handle of nothing, for shuffles that have their own seeds.")
      .Shape(ScalarShape)
      .NoGradient("a handle is not a number")
      .Cpu(MakeDummy);
}

}  // namespace muster
