// Queues of tuples of tensors. Operations that cannot proceed wait: enqueues in one line, dequeues
// in another, each served strictly in order.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"

#include "muster/base/mutex.h"
#include "muster/base/status.h"
#include "muster/params/state.h"
#include "muster/tensor/tensor.h"

namespace muster {

struct QueueOptions {
  std::string name;
  int64_t capacity = -1;  // negative: unbounded
  std::vector<DType> dtypes;
  std::vector<PartialShape> shapes;  // empty: elements may have any shape
};

// Thread-safe. Never blocks: what has to wait is called back.
class Queue : public State {
 public:
  static constexpr const char* kTypeName = "N10tensorflow14QueueInterfaceE";
  static constexpr int64_t kUnbounded = 2147483647;  // TensorFlow's number, which errors show
  using Tuple = std::vector<Tensor>;
  using Ticket = uint64_t;
  using Done = absl::AnyInvocable<void(absl::Status) &&>;
  using TupleDone = absl::AnyInvocable<void(absl::StatusOr<Tuple>) &&>;
  // Called under the queue's lock when an operation has to wait; from then on Cancel(ticket) may be
  // called at any time. Returns false when the operation is cancelled already and must not wait.
  using OnWait = absl::FunctionRef<bool(Ticket)>;

  const std::string& name() const { return options_.name; }
  int64_t capacity() const { return capacity_; }
  const std::vector<DType>& dtypes() const { return options_.dtypes; }
  const std::vector<PartialShape>& shapes() const { return options_.shapes; }
  std::string Describe() const override { return kind_; }
  // "FIFOQueue": the op, without its version.
  const std::string& kind() const { return kind_; }

  // InvalidArgument when options contradict each other; called once, before anything else.
  virtual absl::Status CheckOptions() const;

  // One element, or the rows of a batch, which enter one by one. InvalidArgument comes before
  // anything waits.
  void Enqueue(Tuple element, OnWait on_wait, Done done);
  void EnqueueMany(Tuple batch, OnWait on_wait, Done done);
  void Dequeue(OnWait on_wait, TupleDone done);
  // `allow_fewer`: after a close what is left, as long as there is something.
  void DequeueMany(int64_t count, bool allow_fewer, OnWait on_wait, TupleDone done);
  // Takes effect after the enqueues that wait already, unless they are cancelled.
  void Close(bool cancel_pending_enqueues, OnWait on_wait, Done done);
  int64_t size() const;
  bool closed() const;

  // Withdraws what waits under that ticket: its callback gets Cancelled, and what it had taken goes
  // back to its place. False: it was over already. Flush afterwards.
  bool Cancel(Ticket ticket);
  // Serves the waiting operations as far as possible.
  void Flush();

  // The parts are whether it is closed, what a kind of queue needs to go on, and each component of
  // the elements. Elements that a waiting dequeue has taken are in their place in it; enqueues that
  // wait are not in it.
  absl::string_view state_kind() const override { return kind_; }
  int64_t epoch() const override;
  absl::StatusOr<StateSnapshot> TakeSnapshot() const override;
  absl::Status RestoreSnapshot(const StateSnapshot& snapshot) override;
  absl::Status ApplyDelta(const StateDelta& delta) override;

 protected:
  Queue(std::string kind, QueueOptions options);

  // How elements are kept.
  virtual int64_t SizeLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  virtual void PushLocked(Tuple element) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  virtual Tuple PopLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // Puts back what was popped, the last one popped first.
  virtual void UnpopLocked(Tuple element) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // All elements as they are kept, with those of `taken` put back, the last one first.
  virtual std::vector<Tuple> ListLocked(const std::vector<Tuple>& taken) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // Replaces them by such a list. InvalidArgument for one that the queue cannot keep.
  virtual absl::Status ReplaceLocked(std::vector<Tuple> elements)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // What the queue keeps besides elements, as one tensor, and back; an invalid one: nothing.
  virtual Tensor ExtraLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Tensor(); }
  virtual absl::Status CheckExtra(const StatePart& part) const;
  virtual void SetExtraLocked(const Tensor&) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {}
  std::string Named() const;  // "FIFOQueue 'q'"
  // How many of SizeLocked() elements may be taken while the queue is open.
  virtual int64_t AvailableLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return SizeLocked();
  }

  // Whether elements are taken only when all that are wanted are there.
  virtual bool takes_all_at_once() const { return false; }

  // Beyond types and number of components.
  virtual absl::Status CheckElement(const Tuple& element) const;
  virtual absl::Status CheckBatch(const Tuple& batch) const;
  virtual bool can_dequeue_many() const { return !options_.shapes.empty(); }
  virtual absl::StatusOr<Tensor> Stack(int component, const std::vector<Tuple>& elements) const;
  // What errors of a single dequeue and of enqueues call the queue.
  virtual std::string kind_of_single() const { return kind_; }

  const QueueOptions options_;
  mutable Mutex mutex_;

 private:
  struct EnqueueAttempt {
    Ticket ticket = 0;
    bool is_close = false;
    std::vector<Tuple> elements;
    size_t next = 0;
    Done done;
  };
  struct DequeueAttempt {
    Ticket ticket = 0;
    bool is_many = false;
    bool allow_fewer = false;
    int64_t missing = 1;
    std::vector<Tuple> taken;
    TupleDone done;
  };
  // Callbacks, to be run without the lock.
  using Finished = std::vector<absl::AnyInvocable<void() &&>>;

  absl::Status CheckTypes(const Tuple& tuple) const;
  void Wait(EnqueueAttempt attempt, OnWait on_wait);
  void Wait(DequeueAttempt attempt, OnWait on_wait);
  void AdvanceLocked(Finished& finished) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AdvanceEnqueuesLocked(Finished& finished) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AdvanceDequeuesLocked(Finished& finished) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PutBackLocked(DequeueAttempt& attempt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishDequeueLocked(Finished& finished) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Tuple> StackAll(const std::vector<Tuple>& elements) const;
  absl::StatusOr<std::vector<Tuple>> Elements(absl::Span<const StatePart> parts) const;
  absl::Status SetWholeLocked(absl::Span<const StatePart> parts)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string kind_;
  const int64_t capacity_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  Ticket last_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  std::list<EnqueueAttempt> enqueues_ ABSL_GUARDED_BY(mutex_);
  std::list<DequeueAttempt> dequeues_ ABSL_GUARDED_BY(mutex_);
};

RefPtr<Queue> NewFifoQueue(QueueOptions options);
// Unknown dims of the shapes may differ from element to element; batches are padded with zeros.
RefPtr<Queue> NewPaddingFifoQueue(QueueOptions options);
struct ShuffleOptions {
  int64_t min_after_dequeue = 0;
  int64_t seed = 0;
  int64_t seed2 = 0;  // both zero: from the operating system
};
RefPtr<Queue> NewRandomShuffleQueue(QueueOptions options, const ShuffleOptions& shuffle);
// Null when the queue is of another kind.
const ShuffleOptions* ShuffleOptionsOf(const Queue& queue);
// Smallest first; the first component, an int64 scalar, is the priority.
RefPtr<Queue> NewPriorityQueue(QueueOptions options);

// "[[2], [3,4]]".
std::string ShapeList(const std::vector<PartialShape>& shapes);

}  // namespace muster
