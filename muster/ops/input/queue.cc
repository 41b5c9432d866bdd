#include "muster/ops/input/queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"

#include "muster/ops/resource_kernel.h"

namespace muster {
namespace {

// Row `index` of a tensor, in memory of its own.
absl::StatusOr<Tensor> RowOf(const Tensor& batch, int64_t index) {
  Shape shape = batch.shape();
  shape.Remove(0);
  ASSIGN_OR_RETURN(Tensor row, Tensor::Make(batch.dtype(), shape));
  const size_t bytes = row.size_bytes();
  CopyElements(batch.dtype(), batch.raw() + static_cast<size_t>(index) * bytes, row.raw(),
               row.num_elements());
  return row;
}

}  // namespace

std::string ShapeList(const std::vector<PartialShape>& shapes) {
  return absl::StrCat("[",
                      absl::StrJoin(shapes, ", ",
                                    [](std::string* out, const PartialShape& shape) {
                                      absl::StrAppend(out, shape.ToString());
                                    }),
                      "]");
}

Queue::Queue(std::string kind, QueueOptions options)
    : options_(std::move(options)),
      kind_(std::move(kind)),
      capacity_(options_.capacity < 0 ? kUnbounded : options_.capacity) {}

absl::Status Queue::CheckOptions() const {
  if (options_.dtypes.empty())
    return InvalidArgument("Empty component types for queue ", options_.name);
  if (!options_.shapes.empty() && options_.shapes.size() != options_.dtypes.size()) {
    return InvalidArgument("Different number of component types.  Types: ",
                           DTypeList(options_.dtypes), ", Shapes: ", ShapeList(options_.shapes));
  }
  return absl::OkStatus();
}

absl::Status Queue::CheckTypes(const Tuple& tuple) const {
  if (tuple.size() != options_.dtypes.size()) {
    return InvalidArgument("Wrong number of components in tuple. Expected ", options_.dtypes.size(),
                           ", got ", tuple.size());
  }
  for (size_t i = 0; i < tuple.size(); ++i) {
    if (tuple[i].dtype() != options_.dtypes[i]) {
      return InvalidArgument("Type mismatch in tuple component ", i, ". Expected ",
                             DTypeName(options_.dtypes[i]), ", got ", DTypeName(tuple[i].dtype()));
    }
  }
  return absl::OkStatus();
}

absl::Status Queue::CheckElement(const Tuple& element) const {
  for (size_t i = 0; i < options_.shapes.size(); ++i) {
    if (options_.shapes[i].CompatibleWith(element[i].shape())) continue;
    return InvalidArgument("Shape mismatch in tuple component ", i, ". Expected ",
                           options_.shapes[i].ToString(), ", got ", element[i].shape().ToString());
  }
  return absl::OkStatus();
}

absl::Status Queue::CheckBatch(const Tuple& batch) const {
  for (size_t i = 0; i < batch.size(); ++i) {
    if (batch[i].rank() == 0) {
      return InvalidArgument("Component ", i,
                             " of a batch must have at least one dimension, but is a scalar");
    }
  }
  const int64_t rows = batch[0].dim(0);
  for (size_t i = 0; i < options_.shapes.size(); ++i) {
    PartialShape expected({rows});
    for (const int64_t size : options_.shapes[i].dims()) expected.Append(size);
    if (expected.CompatibleWith(batch[i].shape())) continue;
    return InvalidArgument("Shape mismatch in tuple component ", i, ". Expected ",
                           expected.ToString(), ", got ", batch[i].shape().ToString());
  }
  for (size_t i = 1; i < batch.size(); ++i) {
    if (batch[i].dim(0) == rows) continue;
    return InvalidArgument("All input tensors must have the same size in the 0th dimension. ",
                           "Component ", i, " has ", batch[i].dim(0), ", and should have ", rows);
  }
  return absl::OkStatus();
}

void Queue::Enqueue(Tuple element, OnWait on_wait, Done done) {
  absl::Status valid = CheckTypes(element);
  if (valid.ok()) valid = CheckElement(element);
  if (!valid.ok()) return std::move(done)(valid);
  for (Tensor& tensor : element) tensor = KeptTensor(std::move(tensor));
  EnqueueAttempt attempt;
  attempt.elements.push_back(std::move(element));
  attempt.done = std::move(done);
  Wait(std::move(attempt), on_wait);
}

void Queue::EnqueueMany(Tuple batch, OnWait on_wait, Done done) {
  absl::Status valid = CheckTypes(batch);
  if (valid.ok()) valid = CheckBatch(batch);
  if (!valid.ok()) return std::move(done)(valid);
  const int64_t rows = batch[0].dim(0);
  if (rows == 0) return std::move(done)(absl::OkStatus());
  EnqueueAttempt attempt;
  attempt.elements.resize(rows);
  for (int64_t row = 0; row < rows; ++row) {
    for (const Tensor& tensor : batch) {
      absl::StatusOr<Tensor> element = RowOf(tensor, row);
      if (!element.ok()) return std::move(done)(element.status());
      attempt.elements[row].push_back(*std::move(element));
    }
  }
  attempt.done = std::move(done);
  Wait(std::move(attempt), on_wait);
}

void Queue::Dequeue(OnWait on_wait, TupleDone done) {
  DequeueAttempt attempt;
  attempt.done = std::move(done);
  Wait(std::move(attempt), on_wait);
}

void Queue::DequeueMany(int64_t count, bool allow_fewer, OnWait on_wait, TupleDone done) {
  if (!can_dequeue_many()) {
    return std::move(done)(
        InvalidArgument(kind_,
                        "'s DequeueMany and DequeueUpTo require the components to have specified "
                        "shapes."));
  }
  if (count <= 0) return std::move(done)(StackAll({}));
  DequeueAttempt attempt;
  attempt.is_many = true;
  attempt.allow_fewer = allow_fewer;
  attempt.missing = count;
  attempt.done = std::move(done);
  Wait(std::move(attempt), on_wait);
}

void Queue::Close(bool cancel_pending_enqueues, OnWait on_wait, Done done) {
  if (!cancel_pending_enqueues) {
    EnqueueAttempt attempt;
    attempt.is_close = true;
    attempt.done = std::move(done);
    return Wait(std::move(attempt), on_wait);
  }
  std::list<EnqueueAttempt> cancelled;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    ++epoch_;
    cancelled.swap(enqueues_);
  }
  for (EnqueueAttempt& attempt : cancelled)
    std::move(attempt.done)(absl::CancelledError("Enqueue operation was cancelled"));
  Flush();
  std::move(done)(absl::OkStatus());
}

int64_t Queue::size() const {
  MutexLock lock(mutex_);
  return SizeLocked();
}

bool Queue::closed() const {
  MutexLock lock(mutex_);
  return closed_;
}

void Queue::Wait(EnqueueAttempt attempt, OnWait on_wait) {
  Finished finished;
  {
    MutexLock lock(mutex_);
    const Ticket ticket = attempt.ticket = ++last_ticket_;
    enqueues_.push_back(std::move(attempt));
    AdvanceLocked(finished);
    // Tickets ascend: the newest attempt is the last of its line, or is over.
    if (!enqueues_.empty() && enqueues_.back().ticket == ticket && !on_wait(ticket)) {
      finished.push_back([done = std::move(enqueues_.back().done)]() mutable {
        std::move(done)(absl::CancelledError("Enqueue operation was cancelled"));
      });
      enqueues_.pop_back();
    }
  }
  for (auto& call : finished) std::move(call)();
}

void Queue::Wait(DequeueAttempt attempt, OnWait on_wait) {
  Finished finished;
  {
    MutexLock lock(mutex_);
    const Ticket ticket = attempt.ticket = ++last_ticket_;
    dequeues_.push_back(std::move(attempt));
    AdvanceLocked(finished);
    if (!dequeues_.empty() && dequeues_.back().ticket == ticket && !on_wait(ticket)) {
      PutBackLocked(dequeues_.back());
      finished.push_back([done = std::move(dequeues_.back().done)]() mutable {
        std::move(done)(absl::CancelledError("Dequeue operation was cancelled"));
      });
      dequeues_.pop_back();
    }
  }
  for (auto& call : finished) std::move(call)();
}

bool Queue::Cancel(Ticket ticket) {
  std::list<EnqueueAttempt> enqueue;
  std::list<DequeueAttempt> dequeue;
  {
    MutexLock lock(mutex_);
    const auto has_ticket = [ticket](const auto& attempt) { return attempt.ticket == ticket; };
    const auto e = std::find_if(enqueues_.begin(), enqueues_.end(), has_ticket);
    const auto d = std::find_if(dequeues_.begin(), dequeues_.end(), has_ticket);
    if (e != enqueues_.end()) enqueue.splice(enqueue.end(), enqueues_, e);
    if (d != dequeues_.end()) {
      PutBackLocked(*d);
      dequeue.splice(dequeue.end(), dequeues_, d);
    }
  }
  for (EnqueueAttempt& attempt : enqueue)
    std::move(attempt.done)(absl::CancelledError("Enqueue operation was cancelled"));
  for (DequeueAttempt& attempt : dequeue)
    std::move(attempt.done)(absl::CancelledError("Dequeue operation was cancelled"));
  return !enqueue.empty() || !dequeue.empty();
}

void Queue::Flush() {
  Finished finished;
  {
    MutexLock lock(mutex_);
    AdvanceLocked(finished);
  }
  for (auto& call : finished) std::move(call)();
}

void Queue::AdvanceLocked(Finished& finished) {
  bool changed = true;
  while (changed) {
    changed = AdvanceEnqueuesLocked(finished);
    changed = AdvanceDequeuesLocked(finished) || changed;
    if (changed) ++epoch_;
  }
}

bool Queue::AdvanceEnqueuesLocked(Finished& finished) {
  bool changed = false;
  while (!enqueues_.empty()) {
    EnqueueAttempt& attempt = enqueues_.front();
    absl::Status status;
    if (attempt.is_close) {
      if (closed_) {
        status =
            absl::CancelledError(absl::StrCat("Queue '", options_.name, "' is already closed."));
      }
      closed_ = true;
    } else if (closed_) {
      status =
          absl::CancelledError(absl::StrCat(kind_of_single(), " '", options_.name, "' is closed."));
    } else {
      while (attempt.next < attempt.elements.size() && SizeLocked() < capacity_) {
        PushLocked(std::move(attempt.elements[attempt.next++]));
        changed = true;
      }
      if (attempt.next < attempt.elements.size()) return changed;
    }
    changed = true;
    finished.push_back(
        [done = std::move(attempt.done), status]() mutable { std::move(done)(status); });
    enqueues_.pop_front();
  }
  return changed;
}

bool Queue::AdvanceDequeuesLocked(Finished& finished) {
  bool changed = false;
  while (!dequeues_.empty()) {
    DequeueAttempt& attempt = dequeues_.front();
    const int64_t size = SizeLocked();
    if (closed_ && size < attempt.missing) {
      PutBackLocked(attempt);
      if (attempt.allow_fewer && SizeLocked() > 0) {
        attempt.missing = SizeLocked();
      } else {
        changed = true;
        absl::Status status =
            OutOfRange(attempt.is_many ? kind_ : kind_of_single(), " '", options_.name,
                       "' is closed and has insufficient elements (requested ", attempt.missing,
                       ", current size ", size, ")");
        finished.push_back([done = std::move(attempt.done), status = std::move(status)]() mutable {
          std::move(done)(std::move(status));
        });
        dequeues_.pop_front();
        continue;
      }
    }
    int64_t available = closed_ ? SizeLocked() : AvailableLocked();
    if (takes_all_at_once() && !closed_ && available < attempt.missing) return changed;
    for (; available > 0 && attempt.missing > 0; --available, --attempt.missing) {
      attempt.taken.push_back(PopLocked());
      changed = true;
    }
    if (attempt.missing > 0) return changed;
    FinishDequeueLocked(finished);
  }
  return changed;
}

void Queue::PutBackLocked(DequeueAttempt& attempt) {
  while (!attempt.taken.empty()) {
    UnpopLocked(std::move(attempt.taken.back()));
    attempt.taken.pop_back();
  }
}

// Batches are made without the lock, by the thread that runs the callbacks.
void Queue::FinishDequeueLocked(Finished& finished) {
  DequeueAttempt attempt = std::move(dequeues_.front());
  dequeues_.pop_front();
  finished.push_back([this, attempt = std::move(attempt)]() mutable {
    if (attempt.is_many) return std::move(attempt.done)(StackAll(attempt.taken));
    std::move(attempt.done)(std::move(attempt.taken[0]));
  });
}

absl::StatusOr<Queue::Tuple> Queue::StackAll(const std::vector<Tuple>& elements) const {
  Tuple batch;
  for (size_t i = 0; i < options_.dtypes.size(); ++i) {
    ASSIGN_OR_RETURN(Tensor stacked, Stack(static_cast<int>(i), elements));
    batch.push_back(std::move(stacked));
  }
  return batch;
}

absl::StatusOr<Tensor> Queue::Stack(int component, const std::vector<Tuple>& elements) const {
  Dims dims(options_.shapes[component].dims());
  dims.insert(dims.begin(), static_cast<int64_t>(elements.size()));
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  ASSIGN_OR_RETURN(Tensor batch, Tensor::Make(options_.dtypes[component], shape));
  char* to = batch.raw();
  for (const Tuple& element : elements) {
    const Tensor& row = element[component];
    CopyElements(row.dtype(), row.raw(), to, row.num_elements());
    to += row.size_bytes();
  }
  return batch;
}

}  // namespace muster
