#include "muster/params/random_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "muster/base/status.h"

namespace muster {
namespace {

constexpr absl::string_view kPosition = "position";

}  // namespace

Tensor PositionTensor(const Philox& generator) {
  const Philox::Position position = generator.position();
  return Tensor::Vector<uint32_t>(position);
}

absl::StatusOr<Philox> GeneratorAt(absl::string_view what, const StatePart& part) {
  ASSIGN_OR_RETURN(const Tensor words, OnlyTensor(what, part, DType::kUint32, 1));
  Philox::Position position{};
  if (words.num_elements() != static_cast<int64_t>(position.size())) {
    return InvalidArgument(what, ": the position of a generator has ", position.size(),
                           " words, not ", words.num_elements());
  }
  std::copy_n(words.data<uint32_t>(), position.size(), position.begin());
  return Philox::At(position);
}

std::string RandomState::Named() const {
  return absl::StrCat("Random generator '", name_, "'");
}

int64_t RandomState::epoch() const {
  MutexLock lock(mutex_);
  return epoch_;
}

absl::StatusOr<StateSnapshot> RandomState::TakeSnapshot() const {
  MutexLock lock(mutex_);
  StateSnapshot snapshot;
  snapshot.epoch = epoch_;
  snapshot.parts.push_back({std::string(kPosition), {PositionTensor(generator_)}});
  return snapshot;
}

absl::StatusOr<Philox> RandomState::Whole(absl::Span<const StatePart> parts) const {
  RETURN_IF_ERROR(CheckParts(Named(), parts, {kPosition}));
  return GeneratorAt(Named(), parts[0]);
}

absl::Status RandomState::RestoreSnapshot(const StateSnapshot& snapshot) {
  ASSIGN_OR_RETURN(const Philox generator, Whole(snapshot.parts));
  MutexLock lock(mutex_);
  generator_ = generator;
  ++epoch_;
  return absl::OkStatus();
}

absl::Status RandomState::ApplyDelta(const StateDelta& delta) {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(CheckFollowsAsWhole(Named(), epoch_, delta));
  if (delta.whole) {
    ASSIGN_OR_RETURN(generator_, Whole(delta.parts));
  }
  epoch_ = delta.to;
  return absl::OkStatus();
}

}  // namespace muster
