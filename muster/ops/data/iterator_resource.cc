#include "muster/ops/data/iterator_resource.h"

#include <atomic>
#include <deque>
#include <thread>

#include "muster/base/threads/thread_name.h"
#include "muster/base/threads/waiting_thread.h"

namespace muster {

// Reads one dataset for all requests, on a thread that starts with the first one.
class ElementPump {
 public:
  using Got = IteratorResource::Got;

  ElementPump(DatasetPtr dataset, Scheduler& scheduler, int64_t skip)
      : dataset_(std::move(dataset)), scheduler_(scheduler), skip_(skip), position_(skip) {}

  ~ElementPump() { Stop(); }

  // Ends the thread. This may be a thread of the scheduler, whose tasks the reading may wait for:
  // it runs them meanwhile.
  void Stop() {
    cancellation_.Cancel(absl::CancelledError("The iterator is gone"));
    {
      MutexLock lock(mutex_);
      if (stopped_) return;
      stopped_ = true;
      stopping_thread_ = WaitingThread::Current().Share();
      changed_.NotifyAll();
    }
    if (thread_.joinable()) {
      scheduler_.HelpUntil([this] { return finished_.load(std::memory_order_acquire); });
      thread_.join();
    }
    {
      MutexLock lock(mutex_);
      for (Request& request : requests_) withdrawn_.push_back(std::move(request.got));
      requests_.clear();
    }
    Flush();
  }

  void Get(IteratorResource::Accept accept, Got got) {
    {
      MutexLock lock(mutex_);
      const uint64_t ticket = next_ticket_++;
      if (!stopped_ && accept(ticket)) {
        requests_.push_back(Request{ticket, std::move(got)});
        if (!thread_.joinable())
          thread_ = std::thread([this] {
            NameThread("muster-dataset");
            Run();
          });
        changed_.NotifyAll();
        return;
      }
    }
    std::move(got)(Withdrawn());
  }

  const DatasetPtr& dataset() const { return dataset_; }
  int64_t position() const {
    MutexLock lock(mutex_);
    return position_;
  }

  bool Cancel(uint64_t ticket) {
    MutexLock lock(mutex_);
    for (auto request = requests_.begin(); request != requests_.end(); ++request) {
      if (request->ticket != ticket) continue;
      withdrawn_.push_back(std::move(request->got));
      requests_.erase(request);
      return true;
    }
    return false;
  }

  void Flush() {
    std::vector<Got> withdrawn;
    {
      MutexLock lock(mutex_);
      withdrawn.swap(withdrawn_);
    }
    for (Got& got : withdrawn) std::move(got)(Withdrawn());
  }

 private:
  struct Request {
    uint64_t ticket;
    Got got;
  };

  static absl::Status Withdrawn() { return absl::CancelledError("GetNext was cancelled"); }

  void Run() {
    {
      const DataContext context{&cancellation_};
      absl::StatusOr<NextElement> next = dataset_->Read(context);
      if (next.ok()) PassOver(*next, context);
      while (WaitForRequest()) {
        absl::StatusOr<Element> element = next.ok() ? ReadOne(*next, context) : next.status();
        Hand(std::move(element));
      }
    }
    std::shared_ptr<WaitingThread> stopping;
    {
      MutexLock lock(mutex_);
      stopping = stopping_thread_;
    }
    finished_.store(true, std::memory_order_release);
    stopping->Wake();  // it has only ended because it was stopped
  }

  void PassOver(NextElement& next, const DataContext& context) {
    for (int64_t i = 0; i < skip_ && !ended_ && !cancellation_.cancelled(); ++i) {
      const MaybeElement element = ReadNext(next, context);
      ended_ = element.ok() && !element->has_value();
    }
  }

  absl::StatusOr<Element> ReadOne(NextElement& next, const DataContext& context) {
    if (!ended_) {
      ASSIGN_OR_RETURN(std::optional<Element> element, ReadNext(next, context));
      if (element.has_value()) return *std::move(element);
      ended_ = true;
    }
    return OutOfRange("End of sequence");
  }

  // Gives an element that was not taken to requests that wait now. False when it is over.
  bool WaitForRequest() {
    MutexLock lock(mutex_);
    while (true) {
      if (stopped_) return false;
      if (!requests_.empty()) {
        if (!kept_.has_value()) return true;
        HandLocked(*std::move(kept_));
        kept_.reset();
        continue;
      }
      changed_.Wait(mutex_);
    }
  }

  void Hand(absl::StatusOr<Element> element) {
    MutexLock lock(mutex_);
    if (requests_.empty()) {
      kept_ = std::move(element);
    } else {
      HandLocked(std::move(element));
    }
  }

  // The step does not continue on this thread, which must not outlive its iterator.
  void HandLocked(absl::StatusOr<Element> element) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Got got = std::move(requests_.front().got);
    requests_.pop_front();
    if (!absl::IsOutOfRange(element.status())) ++position_;
    scheduler_.Schedule([got = std::move(got), element = std::move(element)]() mutable {
      std::move(got)(std::move(element));
    });
  }

  const DatasetPtr dataset_;
  Scheduler& scheduler_;
  const int64_t skip_;
  Cancellation cancellation_;
  bool ended_ = false;  // of the thread alone
  std::atomic<bool> finished_{false};

  mutable Mutex mutex_;
  CondVar changed_;
  int64_t position_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<WaitingThread> stopping_thread_ ABSL_GUARDED_BY(mutex_);  // once it is stopped
  uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 1;
  std::deque<Request> requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<Got> withdrawn_ ABSL_GUARDED_BY(mutex_);
  // Read for a request that was cancelled.
  std::optional<absl::StatusOr<Element>> kept_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // starts under the mutex
};

IteratorResource::~IteratorResource() {
  // Other owners of the pump only cancel requests.
  if (pump_ != nullptr) pump_->Stop();
}

absl::StatusOr<int64_t> IteratorResource::Position() const {
  const std::shared_ptr<ElementPump> pump = this->pump();
  if (pump == nullptr) {
    return FailedPrecondition(
        "Save() failed because the iterator has not been initialized. Ensure that you have run the "
        "initializer operation for this iterator before saving it.");
  }
  return pump->position();
}

absl::Status IteratorResource::Restore(int64_t position, Scheduler& scheduler) {
  const std::shared_ptr<ElementPump> pump = this->pump();
  if (pump == nullptr) {
    return FailedPrecondition(
        "Restore() failed because the iterator has not been initialized. Ensure that you have run "
        "the initializer operation for this iterator before restoring it.");
  }
  return Initialize(pump->dataset(), scheduler, position);
}

absl::Status IteratorResource::Initialize(DatasetPtr dataset, Scheduler& scheduler, int64_t skip) {
  RETURN_IF_ERROR(CheckSpec(spec_, dataset->spec()));
  auto fresh = std::make_shared<ElementPump>(std::move(dataset), scheduler, skip);
  std::shared_ptr<ElementPump> old;
  {
    MutexLock lock(mutex_);
    old = std::move(pump_);
    pump_ = std::move(fresh);
  }
  if (old != nullptr) old->Stop();
  return absl::OkStatus();
}

std::shared_ptr<ElementPump> IteratorResource::pump() const {
  MutexLock lock(mutex_);
  return pump_;
}

void IteratorResource::GetNext(Accept accept, Got got) {
  const std::shared_ptr<ElementPump> pump = this->pump();
  if (pump == nullptr) {
    std::move(got)(FailedPrecondition(
        "GetNext() failed because the iterator has not been initialized. Ensure that you have run "
        "the initializer operation for this iterator before getting the next element."));
    return;
  }
  pump->Get(accept, std::move(got));
}

bool IteratorResource::Cancel(uint64_t ticket) {
  const std::shared_ptr<ElementPump> pump = this->pump();
  return pump != nullptr && pump->Cancel(ticket);
}

void IteratorResource::Flush() {
  const std::shared_ptr<ElementPump> pump = this->pump();
  if (pump != nullptr) pump->Flush();
}

absl::Status CheckSpec(const ElementSpec& wanted, const ElementSpec& given) {
  if (wanted.types.size() != given.types.size()) {
    return InvalidArgument("Number of components does not match: expected ", wanted.types.size(),
                           " types but got ", given.types.size(), ".");
  }
  for (size_t i = 0; i < wanted.types.size(); ++i) {
    if (wanted.types[i] != given.types[i]) {
      return InvalidArgument("Data type mismatch at component ", i, ": expected ",
                             DTypeName(wanted.types[i]), " but got ", DTypeName(given.types[i]),
                             ".");
    }
    if (i < wanted.shapes.size() && i < given.shapes.size() &&
        !wanted.shapes[i].CompatibleWith(given.shapes[i])) {
      return InvalidArgument("Incompatible shapes at component ", i, ": expected ",
                             wanted.shapes[i].ToString(), " but got ", given.shapes[i].ToString(),
                             ".");
    }
  }
  return absl::OkStatus();
}

absl::Status SetElement(KernelContext& c, absl::StatusOr<Element> element) {
  if (element.ok()) element = InMemoryOf(c.device(), *std::move(element));
  RETURN_IF_ERROR(element.status());
  if (static_cast<int>(element->size()) != c.num_outputs()) {
    return InvalidArgument("Number of components does not match: expected ", c.num_outputs(),
                           " types but got ", element->size(), ".");
  }
  ASSIGN_OR_RETURN(const ElementSpec spec, SpecOf(c.node()));
  for (int i = 0; i < c.num_outputs(); ++i) {
    Tensor& component = (*element)[i];
    if (component.dtype() != c.output_type(i)) {
      return InvalidArgument("Data type mismatch at component ", i, ": expected ",
                             DTypeName(c.output_type(i)), " but got ", DTypeName(component.dtype()),
                             ".");
    }
    if (!spec.shapes[i].CompatibleWith(component.shape())) {
      return InvalidArgument("Incompatible shapes at component ", i, ": expected ",
                             spec.shapes[i].ToString(), " but got ", component.shape().ToString(),
                             ".");
    }
    c.SetOutput(i, std::move(component));
  }
  return absl::OkStatus();
}

absl::Status ElementShapes(ShapeContext& c) {
  ASSIGN_OR_RETURN(const std::vector<PartialShape> shapes,
                   c.Attr<std::vector<PartialShape>>("output_shapes"));
  if (static_cast<int>(shapes.size()) != c.num_outputs()) {
    return InvalidArgument("`output_shapes` must be the same length as `output_types` (",
                           shapes.size(), " vs. ", c.num_outputs(), ").");
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.SetOutput(i, shapes[i]);
  return absl::OkStatus();
}

}  // namespace muster
