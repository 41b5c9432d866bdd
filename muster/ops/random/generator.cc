#include "muster/ops/random/generator.h"

namespace muster {

absl::Status KernelGenerator::Init(KernelSetup& setup) {
  ASSIGN_OR_RETURN(const int64_t seed, setup.Attr<int64_t>("seed"));
  ASSIGN_OR_RETURN(const int64_t seed2, setup.Attr<int64_t>("seed2"));
  const std::string& name = setup.node().name();
  state_ = MakeRef<RandomState>(
      name, seed == 0 && seed2 == 0
                ? Philox(EntropySeed(), EntropySeed())
                : Philox(static_cast<uint64_t>(seed), static_cast<uint64_t>(seed2)));
  listed_ = setup.resources().List("", name, state_);
  return absl::OkStatus();
}

absl::StatusOr<StatelessKey> KeyFromSeed(const Tensor& seed) {
  if (seed.shape() != Shape({2}))
    return InvalidArgument("seed must have shape [2], not ", seed.shape().ToString());
  ASSIGN_OR_RETURN(const Dims words, IntegerValues(seed));
  Philox mixer(uint64_t{0x02461e29} << 32 | 0x3ec8f720, static_cast<uint64_t>(words[1]));
  mixer.Skip(static_cast<uint64_t>(words[0]));
  const Philox::Block mix = mixer();
  return StatelessKey{uint64_t{mix[1]} << 32 | mix[0], uint64_t{mix[3]} << 32 | mix[2]};
}

absl::StatusOr<Shape> RequestedShape(const Tensor& tensor) {
  if (!tensor.shape().is_vector()) {
    return InvalidArgument("shape must be a vector of {int32,int64}, got shape ",
                           tensor.shape().ToString());
  }
  ASSIGN_OR_RETURN(const Dims sizes, IntegerValues(tensor));
  return Shape::Make(sizes);
}

}  // namespace muster
