#include "muster/ops/random/index_shuffle.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "muster/ops/op.h"

namespace muster {
namespace {

// Words of half a block: 8 to 32 bits.
class Word {
 public:
  explicit Word(int bits) : bits_(bits), mask_((uint64_t{1} << bits) - 1) {}
  int bits() const { return bits_; }
  uint64_t Cut(uint64_t x) const { return x & mask_; }
  uint64_t Left(uint64_t x, int by) const { return Cut(x << by | x >> (bits_ - by)); }
  uint64_t Right(uint64_t x, int by) const { return Cut(x >> by | x << (bits_ - by)); }
  // The round function of the cipher.
  uint64_t Mix(uint64_t x) const { return (Left(x, 1) & Left(x, 8)) ^ Left(x, 2); }

 private:
  const int bits_;
  const uint64_t mask_;
};

std::vector<uint64_t> RoundKeys(const Word& word, const std::array<uint32_t, 3>& key,
                                int64_t rounds) {
  constexpr uint64_t kConstant = 0xfffffffc;
  uint64_t sequence = word.Cut(0x7369f885192c0ef5);
  std::vector<uint64_t> keys;
  for (const uint32_t part : key) keys.push_back(word.Cut(part));
  for (int64_t i = 3; i < rounds; ++i, sequence >>= 1) {
    const uint64_t last = keys[i - 1];
    keys.push_back(word.Cut(kConstant) ^ (sequence & 1) ^ keys[i - 3] ^ word.Right(last, 3) ^
                   word.Right(last, 4));
  }
  return keys;
}

uint64_t Encrypt(const Word& word, const std::vector<uint64_t>& keys, uint64_t value) {
  uint64_t left = word.Cut(value >> word.bits());
  uint64_t right = word.Cut(value);
  for (size_t i = 0; i + 1 < keys.size(); i += 2) {
    left ^= word.Mix(right) ^ keys[i];
    right ^= word.Mix(left) ^ keys[i + 1];
  }
  return left << word.bits() | right;
}

int BlockBits(uint64_t max_index) {
  const int bits = static_cast<int>(std::ceil(std::log2(static_cast<double>(max_index))));
  return std::clamp(bits + bits % 2, 16, 64);
}

constexpr int64_t kMaxRounds = 1024;

template <typename T>
class RandomIndexShuffle : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(rounds_, setup.Attr<int64_t>("rounds"));
    if (rounds_ < 4 || rounds_ % 2 != 0 || rounds_ > kMaxRounds) {
      return InvalidArgument("rounds must be even and from 4 to ", kMaxRounds, ", got ", rounds_);
    }
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& index = c.input(0);
    const Tensor& seed = c.input(1);
    const Tensor& max_index = c.input(2);
    const int64_t count =
        std::max({index.num_elements(), max_index.num_elements(), seed.num_elements() / 3});
    if (index.rank() != 0 && (index.rank() != 1 || index.dim(0) != count)) {
      return InvalidArgument("Index bust be a scalar or vector.");
    }
    const bool one_seed = seed.rank() == 1 && seed.dim(0) == 3;
    if (!one_seed && (seed.rank() != 2 || seed.dim(0) != count || seed.dim(1) != 3)) {
      return InvalidArgument("Seed must be a vector of size [3] or a matrix of size [", count,
                             ", 3] but got ", seed.shape().ToString(), ".");
    }
    if (max_index.rank() != 0 && (max_index.rank() != 1 || max_index.dim(0) != count)) {
      return InvalidArgument(
          "Maxval must be a scalar or a vector of the same size as index but got ",
          max_index.shape().ToString());
    }
    const bool scalar = index.rank() == 0 && seed.rank() == 1 && max_index.rank() == 0;
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, scalar ? Shape() : Shape({count})));
    for (int64_t i = 0; i < count; ++i) {
      const T at = index.data<T>()[index.rank() == 0 ? 0 : i];
      const T last = max_index.data<T>()[max_index.rank() == 0 ? 0 : i];
      if constexpr (std::is_signed_v<T>) {
        if (at < 0) return InvalidArgument("index must be >= 0 but was ", at);
        if (last < 0) return InvalidArgument("max_index must be >= 0 but was ", last);
      }
      if (at > last) return InvalidArgument("max_index must be >= index, got ", last, " and ", at);
      output->data<T>()[i] =
          static_cast<T>(ShuffledIndex(static_cast<uint64_t>(at), Key(seed, one_seed ? 0 : i),
                                       static_cast<uint64_t>(last), rounds_));
    }
    return absl::OkStatus();
  }

 private:
  static std::array<uint32_t, 3> Key(const Tensor& seed, int64_t row) {
    std::array<uint32_t, 3> key;
    const auto read = [&](const auto* values) {
      for (int i = 0; i < 3; ++i) key[i] = static_cast<uint32_t>(values[row * 3 + i]);
    };
    switch (seed.dtype()) {
      case DType::kInt32:
        read(seed.data<int32_t>());
        break;
      case DType::kUint32:
        read(seed.data<uint32_t>());
        break;
      case DType::kInt64:
        read(seed.data<int64_t>());
        break;
      default:
        read(seed.data<uint64_t>());
    }
    return key;
  }

  int64_t rounds_ = 4;
};

absl::Status IndexShuffleShape(ShapeContext& c) {
  const PartialShape& index = c.input(0);
  const PartialShape& seed = c.input(1);
  const PartialShape& max_index = c.input(2);
  if (!index.known_rank() || !seed.known_rank() || !max_index.known_rank()) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(c.WithRankAtMost(index, 1).status());
  RETURN_IF_ERROR(c.WithRankAtLeast(seed, 1).status());
  RETURN_IF_ERROR(c.WithRankAtMost(seed, 2).status());
  RETURN_IF_ERROR(c.WithRankAtMost(max_index, 1).status());
  if (index.rank() == 0 && seed.rank() == 1 && max_index.rank() == 0) {
    c.SetOutput(0, PartialShape::Scalar());
    return absl::OkStatus();
  }
  int64_t count = -1;
  if (index.rank() == 1) count = index.dim(0);
  if (count < 0 && seed.rank() == 2) count = seed.dim(0);
  if (count < 0 && max_index.rank() == 1) count = max_index.dim(0);
  c.SetOutput(0, PartialShape::Vector(count));
  return absl::OkStatus();
}

}  // namespace

uint64_t ShuffledIndex(uint64_t index, const std::array<uint32_t, 3>& key, uint64_t max_index,
                       int64_t rounds) {
  if (max_index == 0) return 0;
  const Word word(BlockBits(max_index) / 2);
  const std::vector<uint64_t> keys = RoundKeys(word, key, rounds);
  do {
    index = Encrypt(word, keys, index);
  } while (index > max_index);
  return index;
}

DEFINE_OP(RandomIndexShuffle) {
  op.Attr("rounds: int = 4")
      .Attr("dtype: {int32, uint32, int64, uint64}")
      .Attr("Tseed: {int32, uint32, int64, uint64}")
      .Input("index: dtype")
      .Input("seed: Tseed")
      .Input("max_index: dtype")
      .Output("output: dtype")
      .Doc("Where numbers go in a pseudorandom permutation of 0 .. max_index.")
      .Shape(IndexShuffleShape)
      .CpuTypes<Types<int32_t, uint32_t, int64_t, uint64_t>>(
          "dtype", []<typename T>() { return New<RandomIndexShuffle<T>>(); });
}

}  // namespace muster
