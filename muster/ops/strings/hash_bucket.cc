// Strings hashed into buckets: StringToHashBucket, StringToHashBucketFast,
// StringToHashBucketStrong.
#include "muster/ops/op.h"
#include "muster/ops/strings/hash.h"

namespace muster {
namespace {

class HashKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(buckets_, s.Attr<int64_t>("num_buckets"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, input.shape()));
    for (int64_t i = 0; i < input.num_elements(); ++i) {
      // The bucket number is a remainder of the unsigned hash.
      output->data<int64_t>()[i] = static_cast<int64_t>(Hash(input.data<std::string>()[i]) %
                                                        static_cast<uint64_t>(buckets_));
    }
    return absl::OkStatus();
  }

 protected:
  virtual uint64_t Hash(absl::string_view text) const = 0;

 private:
  int64_t buckets_ = 1;
};

class FastKernel : public HashKernel {
  uint64_t Hash(absl::string_view text) const override { return Fingerprint64(text); }
};

class OldKernel : public HashKernel {
  uint64_t Hash(absl::string_view text) const override { return Hash64(text); }
};

class StrongKernel : public HashKernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(const std::vector<int64_t> key, s.Attr<std::vector<int64_t>>("key"));
    if (key.size() != 2) return InvalidArgument("Key must have 2 elements");
    key0_ = static_cast<uint64_t>(key[0]);
    key1_ = static_cast<uint64_t>(key[1]);
    return HashKernel::Init(s);
  }

 private:
  uint64_t Hash(absl::string_view text) const override { return SipHash24(key0_, key1_, text); }
  uint64_t key0_ = 0;
  uint64_t key1_ = 0;
};

constexpr const char* kReason = "Strings have no gradient.";

}  // namespace

DEFINE_OP(StringToHashBucketFast) {
  op.Attr("num_buckets: int >= 1")
      .Input("input: string")
      .Output("output: int64")
      .Doc("FarmHash fingerprints of strings, modulo the number of buckets.")
      .Shape(UnchangedShape)
      .NoGradient(kReason)
      .Cpu(New<FastKernel>());
}

DEFINE_OP(StringToHashBucket) {
  op.Attr("num_buckets: int >= 1")
      .Input("string_tensor: string")
      .Output("output: int64")
      .Doc("Murmur hashes of strings, modulo the number of buckets.")
      .Shape(UnchangedShape)
      .NoGradient(kReason)
      .Cpu(New<OldKernel>());
}

DEFINE_OP(StringToHashBucketStrong) {
  op.Attr("num_buckets: int >= 1")
      .Attr("key: list(int)")
      .Input("input: string")
      .Output("output: int64")
      .Doc("Keyed SipHash values of strings, modulo the number of buckets.")
      .Shape(UnchangedShape)
      .NoGradient(kReason)
      .Cpu(New<StrongKernel>());
}

}  // namespace muster
