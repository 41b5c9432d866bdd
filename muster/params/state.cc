#include "muster/params/state.h"

#include <atomic>
#include <utility>

#include "muster/base/status.h"
#include "muster/tensor/clone.h"

namespace muster {
namespace {

uint64_t NextWatch() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

StateDelta StateDelta::Whole(StateSnapshot snapshot) {
  StateDelta delta;
  delta.to = snapshot.epoch;
  delta.parts = std::move(snapshot.parts);
  return delta;
}

absl::StatusOr<StateDelta> State::ChangesSince(int64_t since, uint64_t) {
  ASSIGN_OR_RETURN(StateSnapshot snapshot, TakeSnapshot());
  RETURN_IF_ERROR(CheckReached(state_kind(), snapshot.epoch, since));
  StateDelta delta = StateDelta::Whole(std::move(snapshot));
  delta.from = since;
  if (since == delta.to) {
    delta.whole = false;
    delta.parts.clear();
  }
  return delta;
}

void State::AddWatch(uint64_t) {}

void State::RemoveWatch(uint64_t) {}

StateWatch::StateWatch(RefPtr<State> state) : state_(std::move(state)), id_(NextWatch()) {
  state_->AddWatch(id_);
}

StateWatch::~StateWatch() {
  state_->RemoveWatch(id_);
}

absl::StatusOr<StateDelta> StateWatch::ChangesSince(int64_t epoch) {
  return state_->ChangesSince(epoch, id_);
}

absl::Status CheckReached(absl::string_view what, int64_t epoch, int64_t since) {
  if (since >= 0 && since <= epoch) return absl::OkStatus();
  return FailedPrecondition(what, " is at epoch ", epoch, "; changes since epoch ", since,
                            " were asked for");
}

absl::Status CheckFollows(absl::string_view what, int64_t epoch, const StateDelta& delta) {
  if (delta.from == StateDelta::kAnyEpoch && delta.whole && delta.to >= 0) return absl::OkStatus();
  if (delta.from != epoch) {
    return FailedPrecondition(what, " is at epoch ", epoch, "; the delta leads from epoch ",
                              delta.from, " to ", delta.to);
  }
  if (delta.to < delta.from) {
    return FailedPrecondition(what, ": the delta leads back from epoch ", delta.from, " to ",
                              delta.to);
  }
  return absl::OkStatus();
}

absl::Status CheckFollowsAsWhole(absl::string_view what, int64_t epoch, const StateDelta& delta) {
  RETURN_IF_ERROR(CheckFollows(what, epoch, delta));
  if (delta.whole || (delta.rows.empty() && delta.parts.empty())) return absl::OkStatus();
  return InvalidArgument(what, " has no rows; the delta is one of ", delta.rows.size(), " rows");
}

absl::Status CheckParts(absl::string_view what, absl::Span<const StatePart> parts,
                        std::initializer_list<absl::string_view> names) {
  if (parts.size() != names.size()) {
    return InvalidArgument(what, " has ", names.size(), " parts; what is to be put into it has ",
                           parts.size());
  }
  const StatePart* part = parts.data();
  for (const absl::string_view name : names) {
    if (part->name != name) {
      return InvalidArgument(what, ": the part '", part->name, "' stands where '", name,
                             "' is expected");
    }
    ++part;
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> OnlyTensor(absl::string_view what, const StatePart& part, DType dtype,
                                  int rank) {
  if (part.tensors.size() != 1) {
    return InvalidArgument(what, ": the part '", part.name, "' has ", part.tensors.size(),
                           " tensors, not 1");
  }
  const Tensor& tensor = part.tensors[0];
  if (tensor.dtype() != dtype) {
    return InvalidArgument(what, ": the part '", part.name, "' is of type ",
                           DTypeName(tensor.dtype()), ", not ", DTypeName(dtype));
  }
  if (rank >= 0 && tensor.rank() != rank) {
    return InvalidArgument(what, ": the part '", part.name, "' has shape ",
                           tensor.shape().ToString(), ", not rank ", rank);
  }
  return tensor;
}

absl::Status CheckRows(absl::string_view what, absl::Span<const int64_t> rows, int64_t limit) {
  int64_t last = -1;
  for (const int64_t row : rows) {
    if (row < 0 || row >= limit)
      return InvalidArgument(what, " has ", limit, " rows; the delta changes row ", row);
    if (row <= last) {
      return InvalidArgument(what, ": the rows of the delta do not ascend: ", row, " follows ",
                             last);
    }
    last = row;
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> GatherRows(const Tensor& tensor, absl::Span<const int64_t> rows) {
  Shape shape = tensor.shape();
  const int64_t elements = shape.ElementsIn(1, shape.rank());
  shape.Set(0, static_cast<int64_t>(rows.size()));
  ASSIGN_OR_RETURN(Tensor gathered, Tensor::Make(tensor.dtype(), shape));
  const auto bytes = elements * static_cast<int64_t>(DTypeSize(tensor.dtype()));
  char* to = gathered.raw();
  for (const int64_t row : rows) {
    CopyElements(tensor.dtype(), tensor.raw() + row * bytes, to, elements);
    to += bytes;
  }
  return gathered;
}

}  // namespace muster
