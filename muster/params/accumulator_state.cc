// Accumulators as states: how many gradients there are, the step, and what they come to.
#include <utility>

#include "absl/strings/str_cat.h"

#include "muster/params/accumulator.h"
#include "muster/params/kept_tensor.h"

namespace muster {
namespace {

constexpr absl::string_view kCount = "count";
constexpr absl::string_view kGlobalStep = "global_step";
constexpr absl::string_view kSum = "sum";
constexpr absl::string_view kIndices = "indices";
constexpr absl::string_view kCounts = "counts";
constexpr absl::string_view kValues = "values";
constexpr size_t kSharedParts = 2;

StatePart Part(absl::string_view name, Tensor tensor) {
  StatePart part;
  part.name = std::string(name);
  part.tensors.push_back(std::move(tensor));
  return part;
}

}  // namespace

std::string Accumulator::Named() const {
  return absl::StrCat("Accumulator '", name_, "'");
}

int64_t Accumulator::epoch() const {
  MutexLock lock(mutex_);
  return epoch_;
}

absl::StatusOr<StateSnapshot> Accumulator::TakeSnapshot() const {
  MutexLock lock(mutex_);
  StateSnapshot snapshot;
  snapshot.epoch = epoch_;
  snapshot.parts.push_back(Part(kCount, Tensor::Scalar<int64_t>(count_)));
  snapshot.parts.push_back(Part(kGlobalStep, Tensor::Scalar<int64_t>(global_step_)));
  if (count_ == 0) return snapshot;
  ASSIGN_OR_RETURN(std::vector<StatePart> parts, PartsLocked());
  for (StatePart& part : parts) snapshot.parts.push_back(std::move(part));
  return snapshot;
}

absl::Status Accumulator::SetWholeLocked(absl::Span<const StatePart> parts) {
  RETURN_IF_ERROR(CheckParts(Named(), parts.first(std::min(parts.size(), kSharedParts)),
                             {kCount, kGlobalStep}));
  ASSIGN_OR_RETURN(const Tensor count, OnlyTensor(Named(), parts[0], DType::kInt64, 0));
  ASSIGN_OR_RETURN(const Tensor step, OnlyTensor(Named(), parts[1], DType::kInt64, 0));
  if (count.scalar<int64_t>() < 0)
    return InvalidArgument(Named(), " cannot have ", count.scalar<int64_t>(), " gradients");
  RETURN_IF_ERROR(SetPartsLocked(count.scalar<int64_t>(), parts.subspan(kSharedParts)));
  count_ = count.scalar<int64_t>();
  global_step_ = step.scalar<int64_t>();
  return absl::OkStatus();
}

absl::Status Accumulator::RestoreSnapshot(const StateSnapshot& snapshot) {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(SetWholeLocked(snapshot.parts));
  ++epoch_;
  return absl::OkStatus();
}

absl::Status Accumulator::ApplyDelta(const StateDelta& delta) {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(CheckFollowsAsWhole(Named(), epoch_, delta));
  if (delta.whole) RETURN_IF_ERROR(SetWholeLocked(delta.parts));
  epoch_ = delta.to;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StatePart>> DenseAccumulator::PartsLocked() const {
  std::vector<StatePart> parts;
  parts.push_back(Part(kSum, sum_));
  return parts;
}

absl::Status DenseAccumulator::SetPartsLocked(int64_t count, absl::Span<const StatePart> parts) {
  Tensor sum;
  if (count > 0) {
    RETURN_IF_ERROR(CheckParts(Named(), parts, {kSum}));
    ASSIGN_OR_RETURN(sum, OnlyTensor(Named(), parts[0], dtype_));
    if (!shape_.CompatibleWith(sum.shape())) {
      return InvalidArgument(Named(), " has shape ", shape_.ToString(),
                             "; the sum of gradients has ", sum.shape().ToString());
    }
  } else {
    RETURN_IF_ERROR(CheckParts(Named(), parts, {}));
  }
  sum_ = KeptTensor(std::move(sum));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StatePart>> SparseAccumulator::PartsLocked() const {
  std::vector<StatePart> parts;
  parts.push_back(Part(kIndices, Tensor::Vector<int64_t>(indices_)));
  parts.push_back(Part(kCounts, Tensor::Vector<int64_t>(counts_)));
  parts.push_back(Part(kValues, values_));
  return parts;
}

absl::Status SparseAccumulator::SetPartsLocked(int64_t count, absl::Span<const StatePart> parts) {
  if (count == 0) {
    RETURN_IF_ERROR(CheckParts(Named(), parts, {}));
    indices_.clear();
    counts_.clear();
    values_ = Tensor();
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckParts(Named(), parts, {kIndices, kCounts, kValues}));
  ASSIGN_OR_RETURN(const Tensor indices, OnlyTensor(Named(), parts[0], DType::kInt64, 1));
  ASSIGN_OR_RETURN(const Tensor counts, OnlyTensor(Named(), parts[1], DType::kInt64, 1));
  ASSIGN_OR_RETURN(Tensor values, OnlyTensor(Named(), parts[2], dtype_));
  if (values.rank() < 1 || values.dim(0) != indices.dim(0) || counts.dim(0) != indices.dim(0)) {
    return InvalidArgument(Named(), ": ", indices.dim(0), " indices, ", counts.dim(0),
                           " counts and values of shape ", values.shape().ToString(),
                           " do not belong together");
  }
  for (int64_t i = 0; i < counts.dim(0); ++i) {
    const int64_t index = indices.data<int64_t>()[i];
    const int64_t of_row = counts.data<int64_t>()[i];
    if (of_row < 1 || of_row > count) {
      return InvalidArgument(Named(), ": row ", index, " counts ", of_row, " gradients of ", count);
    }
    if (shape_.rank() > 0 && shape_[0] >= 0 && index >= shape_[0])
      return InvalidArgument(Named(), " has ", shape_[0], " rows; index ", index, " is none");
  }
  for (int i = 1; i < shape_.rank(); ++i) {
    if (i < values.rank() && (shape_[i] < 0 || shape_[i] == values.dim(i))) continue;
    return InvalidArgument(Named(), " has shape ", shape_.ToString(), "; the values have ",
                           values.shape().ToString());
  }
  indices_.assign(indices.data<int64_t>(), indices.data<int64_t>() + indices.dim(0));
  counts_.assign(counts.data<int64_t>(), counts.data<int64_t>() + counts.dim(0));
  values_ = KeptTensor(std::move(values));
  return absl::OkStatus();
}

}  // namespace muster
