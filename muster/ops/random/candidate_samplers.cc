// Candidate samplers: classes drawn as negatives, with the number of times each was to be expected
// in the draw.
#include <cfloat>
#include <cmath>
#include <fstream>
#include <limits>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

#include "muster/checkpoint/file.h"
#include "muster/ops/file_kernel.h"
#include "muster/ops/random/generator.h"

namespace muster {
namespace {

// A distribution over [0, range). Thread-compatible; the kernel locks samplers that learn.
class RangeSampler {
 public:
  explicit RangeSampler(int64_t range) : range_(range) {}
  virtual ~RangeSampler() = default;
  int64_t range() const { return range_; }
  // How many different classes can be drawn.
  virtual int64_t drawable() const { return range_; }
  virtual int64_t Sample(PhiloxWords& words) const = 0;
  virtual float Probability(int64_t value) const = 0;
  virtual bool learns() const { return false; }
  virtual void Update(absl::Span<const int64_t>) {}

 private:
  const int64_t range_;
};

class UniformSampler : public RangeSampler {
 public:
  explicit UniformSampler(int64_t range) : RangeSampler(range) {}
  int64_t Sample(PhiloxWords& words) const override {
    return static_cast<int64_t>(words.Next64() % static_cast<uint64_t>(range()));
  }
  float Probability(int64_t) const override {
    return static_cast<float>(1.0 / static_cast<double>(range()));
  }
};

// Zipf-like: small numbers are frequent, for vocabularies sorted by frequency.
class LogUniformSampler : public RangeSampler {
 public:
  explicit LogUniformSampler(int64_t range)
      : RangeSampler(range), log_range_(std::log1p(static_cast<double>(range))) {}
  int64_t Sample(PhiloxWords& words) const override {
    // Rounding may give `range` itself.
    return (static_cast<int64_t>(std::exp(words.Double() * log_range_)) - 1) % range();
  }
  float Probability(int64_t value) const override {
    const double v = static_cast<double>(value);
    return static_cast<float>(std::log((v + 2.0) / (v + 1.0)) / log_range_);
  }

 private:
  const double log_range_;
};

// Learns from the true classes: a class's weight is one more than the number of times it was seen.
// Weights are the leaves of a Fenwick tree, so that drawing and learning take logarithmic time.
class UnigramSampler : public RangeSampler {
 public:
  explicit UnigramSampler(int64_t range)
      : RangeSampler(range), weights_(range, 1), sums_(range + 1, 0), total_(range) {
    for (int64_t i = 1; i <= range; ++i) sums_[i] = i & -i;
    while (top_ * 2 <= range) top_ *= 2;
  }
  int64_t Sample(PhiloxWords& words) const override {
    int64_t rest = words.Next() % static_cast<uint32_t>(total_);
    int64_t at = 0;
    for (int64_t step = top_; step > 0; step /= 2) {
      if (at + step <= range() && sums_[at + step] <= rest) {
        at += step;
        rest -= sums_[at];
      }
    }
    return std::min(at, range() - 1);
  }
  float Probability(int64_t value) const override {
    if (value < 0 || value >= range()) return 0;
    return static_cast<float>(weights_[value]) / static_cast<float>(total_);
  }
  bool learns() const override { return true; }
  void Update(absl::Span<const int64_t> values) override {
    for (int64_t value : values) {
      // Weights stay 32-bit numbers, as TensorFlow's are.
      if (total_ == std::numeric_limits<int32_t>::max()) return;
      ++weights_[value];
      ++total_;
      for (int64_t i = value + 1; i <= range(); i += i & -i) ++sums_[i];
    }
  }

 private:
  std::vector<int32_t> weights_;
  std::vector<int64_t> sums_;
  int64_t total_;
  int64_t top_ = 1;
};

// Given weights. Draws by the alias method: a bucket, then its owner or the owner's alias.
class FixedUnigramSampler : public RangeSampler {
 public:
  FixedUnigramSampler(int64_t range, std::vector<float> weights, float total)
      : RangeSampler(range),
        weights_(std::move(weights)),
        total_(total),
        buckets_(weights_.size()) {
    const int count = static_cast<int>(weights_.size());
    double sum = 0;
    for (float weight : weights_) sum += weight;
    std::vector<double> share(count);
    std::vector<int> high, low;
    for (int i = 0; i < count; ++i) {
      share[i] = weights_[i] * static_cast<float>(count) / sum;
      (share[i] < 1.0 ? low : high).push_back(i);
      drawable_ += weights_[i] > 0;
    }
    while (!high.empty() && !low.empty()) {
      const int l = low.back();
      const int h = high.back();
      low.pop_back();
      high.pop_back();
      buckets_[l].alias = h;
      share[h] -= 1.0 - share[l];
      (share[h] < 1.0 ? low : high).push_back(h);
    }
    for (int i = 0; i < count; ++i) buckets_[i].own = static_cast<float>(share[i]);
    // What rounding left over.
    for (const std::vector<int>* rest : {&high, &low}) {
      for (int i : *rest) buckets_[i] = {1.0f, i};
    }
  }
  int64_t drawable() const override { return drawable_; }
  int64_t Sample(PhiloxWords& words) const override {
    const float u = words.Float();
    const uint32_t i = words.Next() % static_cast<uint32_t>(buckets_.size());
    return u < buckets_[i].own ? i : buckets_[i].alias;
  }
  float Probability(int64_t value) const override {
    if (value < 0 || value >= static_cast<int64_t>(weights_.size())) return 0;
    return weights_[value] / total_;
  }

 private:
  struct Bucket {
    float own = 0;
    int alias = -1;
  };
  std::vector<float> weights_;
  float total_;
  std::vector<Bucket> buckets_;
  int64_t drawable_ = 0;
};

float ExpectedCount(float probability, int64_t sampled, int64_t tries) {
  if (tries == sampled) return probability * static_cast<float>(sampled);
  // In floats, as TensorFlow: the last bit depends on it.
  return -std::expm1(static_cast<float>(tries) * std::log1p(-probability));
}

constexpr int64_t kMostUnique = 1 << 24;

// Samplers with a weight per class keep them in memory and number them by ints.
absl::Status CheckWeightedRange(int64_t range) {
  if (range < std::numeric_limits<int32_t>::max()) return absl::OkStatus();
  return InvalidArgument("range_max must be below 2**31 - 1 for a sampler with weights, got ",
                         range);
}

class SamplerKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(generator_.Init(setup));
    ASSIGN_OR_RETURN(num_true_, setup.Attr<int64_t>("num_true"));
    ASSIGN_OR_RETURN(num_sampled_, setup.Attr<int64_t>("num_sampled"));
    ASSIGN_OR_RETURN(unique_, setup.Attr<bool>("unique"));
    // Those that were drawn already are remembered.
    if (unique_ && num_sampled_ > kMostUnique) {
      return InvalidArgument("num_sampled must be at most ", kMostUnique,
                             " where unique is set, got ", num_sampled_);
    }
    MutexLock lock(mutex_);
    ASSIGN_OR_RETURN(sampler_, MakeSampler(setup));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& true_classes = c.input(0);
    if (!true_classes.shape().is_matrix()) return InvalidArgument("true_classes must be a matrix");
    if (true_classes.dim(1) != num_true_) {
      return InvalidArgument("true_classes must have num_true columns, expected: ", num_true_,
                             " was: ", true_classes.dim(1));
    }
    ASSIGN_OR_RETURN(Tensor * sampled, c.AllocateOutput(0, Shape({num_sampled_})));
    ASSIGN_OR_RETURN(Tensor * true_expected, c.AllocateOutput(1, true_classes.shape()));
    ASSIGN_OR_RETURN(Tensor * sampled_expected, c.AllocateOutput(2, Shape({num_sampled_})));
    const Philox start = generator_.Reserve(512 * static_cast<uint64_t>(num_sampled_));
    MutexLock lock(mutex_);
    if (sampler_ == nullptr) return Internal("the vocabulary has not been read");
    if (unique_ && num_sampled_ > sampler_->drawable())
      return InvalidArgument("Sampler's range is too small.");
    for (int64_t value : true_classes.values<int64_t>()) {
      if (value < 0 || value >= sampler_->range()) {
        return InvalidArgument("`true_candidate` out of range [0, ", sampler_->range(),
                               "), received ", value);
      }
    }
    int64_t* out = sampled->data<int64_t>();
    const int64_t tries = Draw(start, out);
    for (int64_t i = 0; i < num_sampled_; ++i) {
      sampled_expected->data<float>()[i] =
          ExpectedCount(sampler_->Probability(out[i]), num_sampled_, tries);
    }
    for (int64_t i = 0; i < true_classes.num_elements(); ++i) {
      const float probability = sampler_->Probability(true_classes.data<int64_t>()[i]);
      true_expected->data<float>()[i] = ExpectedCount(probability, num_sampled_, tries);
    }
    if (sampler_->learns()) sampler_->Update(true_classes.values<int64_t>());
    return absl::OkStatus();
  }

 protected:
  // Null: it comes later, by UseSampler.
  virtual absl::StatusOr<std::unique_ptr<RangeSampler>> MakeSampler(KernelSetup& setup) = 0;
  bool has_sampler() const {
    MutexLock lock(mutex_);
    return sampler_ != nullptr;
  }
  void UseSampler(std::unique_ptr<RangeSampler> sampler) {
    MutexLock lock(mutex_);
    if (sampler_ == nullptr) sampler_ = std::move(sampler);
  }

 private:
  // Fills `out` and returns how many draws that took.
  int64_t Draw(const Philox& start, int64_t* out) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    PhiloxWords words(start);
    if (!unique_) {
      for (int64_t i = 0; i < num_sampled_; ++i) out[i] = sampler_->Sample(words);
      return num_sampled_;
    }
    absl::flat_hash_set<int64_t> seen;
    seen.reserve(num_sampled_);
    int64_t tries = 0;
    for (int64_t picked = 0; picked < num_sampled_;) {
      ++tries;
      const int64_t value = sampler_->Sample(words);
      if (seen.insert(value).second) out[picked++] = value;
    }
    return tries;
  }

  KernelGenerator generator_;
  int64_t num_true_ = 0;
  int64_t num_sampled_ = 0;
  bool unique_ = false;
  mutable Mutex mutex_;
  std::unique_ptr<RangeSampler> sampler_ ABSL_GUARDED_BY(mutex_);
};

template <typename Sampler>
class RangeSamplerKernel : public SamplerKernel {
 protected:
  absl::StatusOr<std::unique_ptr<RangeSampler>> MakeSampler(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(const int64_t range, setup.Attr<int64_t>("range_max"));
    if (std::is_same_v<Sampler, UnigramSampler>) RETURN_IF_ERROR(CheckWeightedRange(range));
    return std::make_unique<Sampler>(range);
  }
};

// The weights of words, from a list or from a file.
class Vocabulary {
 public:
  absl::Status Init(KernelSetup& setup) {
    ASSIGN_OR_RETURN(range_, setup.Attr<int64_t>("range_max"));
    RETURN_IF_ERROR(CheckWeightedRange(range_));
    ASSIGN_OR_RETURN(file_, setup.Attr<std::string>("vocab_file"));
    ASSIGN_OR_RETURN(unigrams_, setup.Attr<std::vector<float>>("unigrams"));
    if (file_.empty() == unigrams_.empty())
      return InvalidArgument("Must provide exactly one of vocab_file and unigrams");
    ASSIGN_OR_RETURN(distortion_, setup.Attr<float>("distortion"));
    ASSIGN_OR_RETURN(reserved_, setup.Attr<int64_t>("num_reserved_ids"));
    ASSIGN_OR_RETURN(num_shards_, setup.Attr<int64_t>("num_shards"));
    ASSIGN_OR_RETURN(shard_, setup.Attr<int64_t>("shard"));
    if (reserved_ < 0 || reserved_ > range_) {
      return InvalidArgument("num_reserved_ids must lie in [0, range_max = ", range_, "], got ",
                             reserved_);
    }
    const auto given = static_cast<int64_t>(unigrams_.size());
    if (!is_file() && num_shards_ == 1 && reserved_ + given != range_) {
      return InvalidArgument("range is ", range_, " must be equal to weights size ",
                             reserved_ + given);
    }
    return absl::OkStatus();
  }

  bool is_file() const { return !file_.empty(); }

  // Reads the file, if there is one.
  absl::StatusOr<std::unique_ptr<RangeSampler>> MakeSampler() const {
    Weights weights;
    for (int64_t i = 0; i < reserved_; ++i) Add(std::nullopt, weights);
    for (float unigram : unigrams_) Add(unigram, weights);
    if (is_file()) RETURN_IF_ERROR(Load(weights));
    if (!(weights.total > 0) || !std::isfinite(weights.total)) {
      return InvalidArgument("The unigram weights must have a positive, finite sum, got ",
                             weights.total);
    }
    if (num_shards_ == 1 && static_cast<int64_t>(weights.kept.size()) != range_) {
      return InvalidArgument("range is ", range_, " must be equal to weights size ",
                             weights.kept.size());
    }
    return std::make_unique<FixedUnigramSampler>(range_, std::move(weights.kept), weights.total);
  }

 private:
  struct Weights {
    int64_t next_word = 0;
    std::vector<float> kept;
    float total = 0;
  };

  // The next word's weight, nothing for a reserved one; kept when the word belongs to this shard.
  void Add(std::optional<float> weight, Weights& to) const {
    if (to.next_word++ % num_shards_ != shard_) return;
    const float distorted = weight ? std::pow(*weight, distortion_) : 0.0f;
    to.total += distorted;
    to.kept.push_back(distorted);
  }

  // The last comma-separated field of every line is a weight.
  absl::Status Load(Weights& to) const {
    std::ifstream file(LocalPath(file_));
    if (!file) return NotFound(file_, "; No such file or directory");
    std::string line;
    while (std::getline(file, line)) {
      const std::vector<absl::string_view> columns = absl::StrSplit(line, ',');
      float weight = 0;
      if (!absl::SimpleAtof(columns.back(), &weight))
        return InvalidArgument("Wrong vocabulary format at line: ", line);
      Add(weight, to);
    }
    return absl::OkStatus();
  }

  int64_t range_ = 0;
  std::string file_;
  std::vector<float> unigrams_;
  int64_t reserved_ = 0;
  float distortion_ = 1;
  int64_t num_shards_ = 1;
  int64_t shard_ = 0;
};

// A file is read in the first step, on a thread that may block.
class FixedUnigramKernel : public SamplerKernel {
 public:
  bool is_async() const override { return vocabulary_.is_file(); }
  void ComputeAsync(KernelContext& c, Done done) override {
    if (has_sampler()) return std::move(done)(Compute(c));
    auto read = std::make_shared<std::unique_ptr<RangeSampler>>();
    FileCall::Start(
        c,
        [vocabulary = vocabulary_, read](FileCall&) -> absl::Status {
          ASSIGN_OR_RETURN(*read, vocabulary.MakeSampler());
          return absl::OkStatus();
        },
        [this, &c, read, done = std::move(done)](absl::Status status) mutable {
          if (!status.ok()) return std::move(done)(std::move(status));
          UseSampler(std::move(*read));
          std::move(done)(Compute(c));
        },
        FileCall::Inputs::kLeft);
  }

 protected:
  absl::StatusOr<std::unique_ptr<RangeSampler>> MakeSampler(KernelSetup& setup) override {
    RETURN_IF_ERROR(vocabulary_.Init(setup));
    if (vocabulary_.is_file()) return nullptr;
    return vocabulary_.MakeSampler();
  }

 private:
  Vocabulary vocabulary_;
};

// Every class once, whatever the seed.
class AllSamplerKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(num_true_, setup.Attr<int64_t>("num_true"));
    ASSIGN_OR_RETURN(num_sampled_, setup.Attr<int64_t>("num_sampled"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& true_classes = c.input(0);
    if (!true_classes.shape().is_matrix()) return InvalidArgument("true_classes must be a matrix");
    if (true_classes.dim(1) != num_true_) {
      return InvalidArgument("true_classes must have num_true columns, expected: ", num_true_,
                             " was: ", true_classes.dim(1));
    }
    for (int64_t value : true_classes.values<int64_t>()) {
      if (value < 0 || value >= num_sampled_) {
        return InvalidArgument("`true_candidate` out of range [0, ", num_sampled_, "), received ",
                               value);
      }
    }
    ASSIGN_OR_RETURN(Tensor * sampled, c.AllocateOutput(0, Shape({num_sampled_})));
    ASSIGN_OR_RETURN(Tensor * true_expected, c.AllocateOutput(1, true_classes.shape()));
    ASSIGN_OR_RETURN(Tensor * sampled_expected, c.AllocateOutput(2, Shape({num_sampled_})));
    for (int64_t i = 0; i < num_sampled_; ++i) sampled->data<int64_t>()[i] = i;
    std::fill_n(true_expected->data<float>(), true_expected->num_elements(), 1.0f);
    std::fill_n(sampled_expected->data<float>(), num_sampled_, 1.0f);
    return absl::OkStatus();
  }

 private:
  int64_t num_true_ = 0;
  int64_t num_sampled_ = 0;
};

class AccidentalHitsKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(num_true_, setup.Attr<int64_t>("num_true"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& true_classes = c.input(0);
    const Tensor& sampled = c.input(1);
    if (!true_classes.shape().is_matrix() || true_classes.dim(1) != num_true_) {
      return InvalidArgument("true_candidates must be a batch_size * num_true matrix");
    }
    if (!sampled.shape().is_vector()) {
      return InvalidArgument(
          "sampled_candidates must be a vector, which is typically an output from "
          "CandidateSampler");
    }
    absl::flat_hash_map<int64_t, int64_t> position;
    for (int64_t i = 0; i < sampled.dim(0); ++i) position[sampled.data<int64_t>()[i]] = i;
    std::vector<int32_t> rows;
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < true_classes.num_elements(); ++i) {
      const auto found = position.find(true_classes.data<int64_t>()[i]);
      if (found == position.end()) continue;
      rows.push_back(static_cast<int32_t>(i / num_true_));
      ids.push_back(found->second);
    }
    const std::vector<float> weights(rows.size(), -FLT_MAX);
    c.SetOutput(0, Tensor::Vector<int32_t>(rows));
    c.SetOutput(1, Tensor::Vector<int64_t>(ids));
    c.SetOutput(2, Tensor::Vector<float>(weights));
    return absl::OkStatus();
  }

 private:
  int64_t num_true_ = 0;
};

absl::Status SamplerShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const int64_t sampled, c.Attr<int64_t>("num_sampled"));
  ASSIGN_OR_RETURN(const int64_t num_true, c.Attr<int64_t>("num_true"));
  ASSIGN_OR_RETURN(const PartialShape true_classes, c.WithRank(c.input(0), 2));
  c.SetOutput(0, PartialShape::Vector(sampled));
  c.SetOutput(1, PartialShape::Matrix(true_classes.known_rank() ? true_classes[0] : -1, num_true));
  c.SetOutput(2, PartialShape::Vector(sampled));
  return absl::OkStatus();
}

absl::Status AccidentalHitsShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const int64_t num_true, c.Attr<int64_t>("num_true"));
  ASSIGN_OR_RETURN(const PartialShape true_classes, c.WithRank(c.input(0), 2));
  if (true_classes.known_rank())
    RETURN_IF_ERROR(ShapeContext::MergeDims(true_classes[1], num_true).status());
  for (int i = 0; i < 3; ++i) c.SetOutput(i, PartialShape::Vector(-1));
  return absl::OkStatus();
}

void DefineSampler(OpBuilder& op, bool has_range) {
  op.Attr("num_true: int >= 1").Attr("num_sampled: int >= 1").Attr("unique: bool");
  if (has_range) op.Attr("range_max: int >= 1");
}

void DefineSamplerArguments(OpBuilder& op) {
  op.Attr("seed: int = 0")
      .Attr("seed2: int = 0")
      .Input("true_classes: int64")
      .Output("sampled_candidates: int64");
  op.Output("true_expected_count: float").Output("sampled_expected_count: float").Stateful();
  op.Shape(SamplerShape).NoGradient("random classes");
}

}  // namespace

DEFINE_OP(UniformCandidateSampler) {
  DefineSampler(op, true);
  DefineSamplerArguments(op);
  op.Doc("Classes drawn evenly.").Cpu(New<RangeSamplerKernel<UniformSampler>>());
}

DEFINE_OP(LogUniformCandidateSampler) {
  DefineSampler(op, true);
  DefineSamplerArguments(op);
  op.Doc("Classes drawn with probabilities that fall like one over the class.");
  op.Cpu(New<RangeSamplerKernel<LogUniformSampler>>());
}

DEFINE_OP(LearnedUnigramCandidateSampler) {
  DefineSampler(op, true);
  DefineSamplerArguments(op);
  op.Doc("Classes drawn as often as they were seen as true classes.")
      .Cpu(New<RangeSamplerKernel<UnigramSampler>>());
}

DEFINE_OP(ThreadUnsafeUnigramCandidateSampler) {
  DefineSampler(op, true);
  DefineSamplerArguments(op);
  op.Doc("LearnedUnigramCandidateSampler under another name; safe with threads as well.");
  op.Cpu(New<RangeSamplerKernel<UnigramSampler>>());
}

DEFINE_OP(FixedUnigramCandidateSampler) {
  DefineSampler(op, true);
  op.Attr("vocab_file: string = ''")
      .Attr("distortion: float = 1.0")
      .Attr("num_reserved_ids: int = 0");
  op.Attr("num_shards: int >= 1 = 1")
      .Attr("shard: int >= 0 = 0")
      .Attr("unigrams: list(float) = []");
  DefineSamplerArguments(op);
  op.Doc("Classes drawn with given weights, from a list or a file.").Cpu(New<FixedUnigramKernel>());
}

DEFINE_OP(AllCandidateSampler) {
  DefineSampler(op, false);
  DefineSamplerArguments(op);
  op.Doc("All classes, each once.").Cpu(New<AllSamplerKernel>());
}

DEFINE_OP(ComputeAccidentalHits) {
  op.Attr("num_true: int").Attr("seed: int = 0").Attr("seed2: int = 0");
  op.Input("true_classes: int64").Input("sampled_candidates: int64");
  op.Output("indices: int32").Output("ids: int64").Output("weights: float");
  op.Doc(
      "Positions of sampled classes that are true ones, with a weight that removes them from a "
      "softmax.");
  op.Shape(AccidentalHitsShape).NoGradient("positions").Cpu(New<AccidentalHitsKernel>());
}

}  // namespace muster
