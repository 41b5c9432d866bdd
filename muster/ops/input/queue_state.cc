// Queues as states.
#include <utility>

#include "absl/strings/str_cat.h"

#include "muster/ops/input/queue.h"
#include "muster/params/kept_tensor.h"

namespace muster {
namespace {

constexpr absl::string_view kClosed = "closed";
constexpr absl::string_view kExtra = "extra";
constexpr size_t kFixedParts = 2;

std::string ComponentName(size_t i) {
  return absl::StrCat("component ", i);
}

}  // namespace

std::string Queue::Named() const {
  return absl::StrCat(kind_, " '", options_.name, "'");
}

int64_t Queue::epoch() const {
  MutexLock lock(mutex_);
  return epoch_;
}

absl::StatusOr<StateSnapshot> Queue::TakeSnapshot() const {
  MutexLock lock(mutex_);
  StateSnapshot snapshot;
  snapshot.epoch = epoch_;
  snapshot.parts.resize(kFixedParts + options_.dtypes.size());
  snapshot.parts[0] = {std::string(kClosed), {Tensor::Scalar<bool>(closed_)}};
  snapshot.parts[1].name = std::string(kExtra);
  if (Tensor extra = ExtraLocked(); extra.valid())
    snapshot.parts[1].tensors.push_back(std::move(extra));
  // Only the first dequeue takes elements while it waits for more.
  static const std::vector<Tuple> kNone;
  std::vector<Tuple> elements = ListLocked(dequeues_.empty() ? kNone : dequeues_.front().taken);
  for (size_t i = 0; i < options_.dtypes.size(); ++i) {
    StatePart& part = snapshot.parts[kFixedParts + i];
    part.name = ComponentName(i);
    part.tensors.reserve(elements.size());
    for (Tuple& element : elements) part.tensors.push_back(std::move(element[i]));
  }
  return snapshot;
}

absl::Status Queue::CheckExtra(const StatePart& part) const {
  if (part.tensors.empty()) return absl::OkStatus();
  return InvalidArgument(Named(), " keeps elements only; the part '", part.name, "' has ",
                         part.tensors.size(), " tensors");
}

absl::StatusOr<std::vector<Queue::Tuple>> Queue::Elements(absl::Span<const StatePart> parts) const {
  const size_t count = parts[0].tensors.size();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].name != ComponentName(i) || parts[i].tensors.size() != count) {
      return InvalidArgument(Named(), ": the part '", parts[i].name, "' with ",
                             parts[i].tensors.size(), " tensors stands where '", ComponentName(i),
                             "' with ", count, " is expected");
    }
  }
  std::vector<Tuple> elements(count);
  for (size_t k = 0; k < count; ++k) {
    for (const StatePart& part : parts) elements[k].push_back(KeptTensor(part.tensors[k]));
    RETURN_IF_ERROR(CheckTypes(elements[k]));
    RETURN_IF_ERROR(CheckElement(elements[k]));
  }
  return elements;
}

absl::Status Queue::SetWholeLocked(absl::Span<const StatePart> parts) {
  if (parts.size() != kFixedParts + options_.dtypes.size()) {
    return InvalidArgument(Named(), " has ", kFixedParts + options_.dtypes.size(),
                           " parts; what is to be put into it has ", parts.size());
  }
  RETURN_IF_ERROR(CheckParts(Named(), parts.first(kFixedParts), {kClosed, kExtra}));
  ASSIGN_OR_RETURN(const Tensor closed, OnlyTensor(Named(), parts[0], DType::kBool, 0));
  RETURN_IF_ERROR(CheckExtra(parts[1]));
  ASSIGN_OR_RETURN(std::vector<Tuple> elements, Elements(parts.subspan(kFixedParts)));
  RETURN_IF_ERROR(ReplaceLocked(std::move(elements)));
  if (!parts[1].tensors.empty()) SetExtraLocked(parts[1].tensors[0]);
  closed_ = closed.scalar<bool>();
  // What a waiting dequeue had taken was among the elements that are gone.
  for (DequeueAttempt& attempt : dequeues_) {
    attempt.missing += static_cast<int64_t>(attempt.taken.size());
    attempt.taken.clear();
  }
  return absl::OkStatus();
}

absl::Status Queue::RestoreSnapshot(const StateSnapshot& snapshot) {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(SetWholeLocked(snapshot.parts));
  ++epoch_;
  return absl::OkStatus();
}

absl::Status Queue::ApplyDelta(const StateDelta& delta) {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(CheckFollowsAsWhole(Named(), epoch_, delta));
  if (delta.whole) RETURN_IF_ERROR(SetWholeLocked(delta.parts));
  epoch_ = delta.to;
  return absl::OkStatus();
}

}  // namespace muster
