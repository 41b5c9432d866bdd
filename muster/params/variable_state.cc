// A variable as a state: its snapshot has the part "value", or none while it is uninitialized.
#include <utility>

#include "absl/strings/str_cat.h"

#include "muster/params/change_log.h"
#include "muster/params/kept_tensor.h"
#include "muster/params/variable.h"
#include "muster/tensor/clone.h"

namespace muster {
namespace {

constexpr absl::string_view kValue = "value";

}  // namespace

std::string Variable::Named() const {
  return absl::StrCat("Variable '", name_, "'");
}

MemoryKind Variable::memory_kind() const {
  MutexLock lock(mutex_);
  const Region* region = value_.buffer().region();
  return region == nullptr ? MemoryKind::kHost : region->kind();
}

absl::StatusOr<StateSnapshot> Variable::TakeSnapshot() const {
  MutexLock lock(mutex_);
  StateSnapshot snapshot;
  snapshot.epoch = epoch_;
  if (value_.valid()) snapshot.parts.push_back({std::string(kValue), {value_}});
  return snapshot;
}

absl::StatusOr<Tensor> Variable::WholeValue(absl::Span<const StatePart> parts) const {
  if (parts.empty()) return Tensor();
  RETURN_IF_ERROR(CheckParts(Named(), parts, {kValue}));
  ASSIGN_OR_RETURN(Tensor value, OnlyTensor(Named(), parts[0], dtype_));
  return KeptTensor(std::move(value));
}

absl::Status Variable::RestoreSnapshot(const StateSnapshot& snapshot) {
  ASSIGN_OR_RETURN(Tensor value, WholeValue(snapshot.parts));
  Assign(std::move(value));
  return absl::OkStatus();
}

absl::Status Variable::ApplyDelta(const StateDelta& delta) {
  Tensor value;  // the old one is freed outside the lock
  if (delta.whole) {
    ASSIGN_OR_RETURN(value, WholeValue(delta.parts));
  }
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(CheckFollows(Named(), epoch_, delta));
  if (!delta.whole) return ApplyRowsLocked(delta);
  std::swap(value_, value);
  epoch_ = delta.to;
  if (log_ != nullptr) NoteWholeLocked();
  return absl::OkStatus();
}

absl::Status Variable::ApplyRowsLocked(const StateDelta& delta) {
  if (delta.rows.empty() && delta.parts.empty()) {
    epoch_ = delta.to;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckParts(Named(), delta.parts, {kValue}));
  ASSIGN_OR_RETURN(const Tensor values, OnlyTensor(Named(), delta.parts[0], dtype_));
  if (!value_.valid() || value_.rank() == 0) {
    return InvalidArgument(Named(), value_.valid() ? " is a scalar" : " is uninitialized",
                           "; the delta is one of ", delta.rows.size(), " rows");
  }
  RETURN_IF_ERROR(CheckRows(Named(), delta.rows, value_.dim(0)));
  Shape shape = value_.shape();
  shape.Set(0, static_cast<int64_t>(delta.rows.size()));
  if (values.shape() != shape) {
    return InvalidArgument(Named(), " has shape ", value_.shape().ToString(), "; the delta has ",
                           delta.rows.size(), " rows of shape ", values.shape().ToString());
  }
  MakeExclusiveLocked(true);
  const int64_t elements = shape.ElementsIn(1, shape.rank());
  const auto bytes = elements * static_cast<int64_t>(DTypeSize(dtype_));
  const char* from = values.raw();
  for (const int64_t row : delta.rows) {
    CopyElements(dtype_, from, value_.raw() + row * bytes, elements);
    from += bytes;
  }
  epoch_ = delta.to;
  if (log_ != nullptr) log_->NoteRows(epoch_, delta.rows, NumRowsLocked());
  return absl::OkStatus();
}

absl::StatusOr<StateDelta> Variable::ChangesSince(int64_t since, uint64_t watch) {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(CheckReached(Named(), epoch_, since));
  StateDelta delta;
  delta.from = since;
  delta.to = epoch_;
  std::optional<std::vector<int64_t>> rows;
  if (log_ != nullptr) rows = log_->RowsSince(since, watch);
  if (since == epoch_) rows.emplace();
  delta.whole = !rows.has_value();
  if (delta.whole) {
    if (value_.valid()) delta.parts.push_back({std::string(kValue), {value_}});
    return delta;
  }
  if (rows->empty()) return delta;
  ASSIGN_OR_RETURN(Tensor values, GatherRows(value_, *rows));
  delta.rows = *std::move(rows);
  delta.parts.push_back({std::string(kValue), {std::move(values)}});
  return delta;
}

void Variable::AddWatch(uint64_t watch) {
  MutexLock lock(mutex_);
  if (log_ == nullptr) log_ = std::make_unique<ChangeLog>(epoch_);
  log_->AddWatch(watch, epoch_);
}

void Variable::RemoveWatch(uint64_t watch) {
  MutexLock lock(mutex_);
  if (log_ != nullptr && !log_->RemoveWatch(watch)) log_.reset();
}

}  // namespace muster
