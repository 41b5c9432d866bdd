// Ops on readers: reading one record or several, counting, resetting, saving and restoring.
#include <atomic>

#include "muster/base/threads/blocking_threads.h"
#include "muster/ops/input/queue.h"
#include "muster/ops/input/reader.h"
#include "muster/ops/op.h"
#include "muster/ops/resource_kernel.h"

namespace muster {
namespace {

absl::StatusOr<RefPtr<Reader>> InputReader(KernelContext& c) {
  return InputResourceAs<Reader>(c, 0);
}

// An operation inside a reader. It waits its turn without a thread and ends with its step.
class Visit : public std::enable_shared_from_this<Visit> {
 public:
  Visit(KernelContext& c, RefPtr<Reader> reader, Done done)
      : c_(c), reader_(std::move(reader)), done_(std::move(done)) {}
  virtual ~Visit() = default;

  void Start() {
    // Once it can be cancelled, the step may end at any moment.
    Scheduler& scheduler = *c_.step().scheduler;
    if (!waits_.Start(c_.step().cancellation, [this](const absl::Status&) { Abandon(); })) return;
    reader_->Enter(scheduler, [self = shared_from_this()] {
      if (!self->waits_.Release()) return self->reader_->Leave();
      self->Work();
    });
  }

 protected:
  // Called once inside the reader; calls Finish in the end.
  virtual void Work() = 0;

  void Finish(absl::Status status) {
    reader_->Leave();
    std::move(done_)(std::move(status));
  }
  // The step ends; its caller is still inside the reader.
  void Abandon() {
    // Not inside the cancellation, which goes with the step.
    c_.step().scheduler->Schedule(
        [done = std::move(done_)]() mutable { std::move(done)(Cancelled()); });
  }
  static absl::Status Cancelled() { return absl::CancelledError("Read was cancelled"); }

  KernelContext& c_;
  const RefPtr<Reader> reader_;

 private:
  Done done_;
  CancelCallback waits_;  // for its turn
};

// Reads up to `wanted` records; more work units are taken from the queue as long as there is none.
class ReadVisit : public Visit {
 public:
  ReadVisit(KernelContext& c, RefPtr<Reader> reader, RefPtr<Queue> queue, int64_t wanted,
            bool several, Done done)
      : Visit(c, std::move(reader), std::move(done)),
        queue_(std::move(queue)),
        wanted_(wanted),
        several_(several) {}

 protected:
  void Work() override {
    while (static_cast<int64_t>(records_.size()) < wanted_) {
      if (std::optional<RecordSource::Next> ahead = reader_->ReadAhead()) {
        records_.push_back(std::move(ahead->record));
        continue;
      }
      const bool is_new = !reader_->working();
      if (is_new && !TakeWork()) return;  // goes on when the queue has something
      return ReadOn(is_new);
    }
    Finish(Emit());
  }

 private:
  using Next = RecordSource::Next;

  // Goes on with the work unit in `taken_`, or with the one that is being read.
  void ReadOn(bool is_new) {
    if (is_new && !taken_.ok()) return Finish(taken_.status());
    if (!reader_->may_block()) return GoOn(ReadNow(is_new));
    auto self = std::static_pointer_cast<ReadVisit>(shared_from_this());
    const auto caller = OrThisProcess(c_.step().caller);
    // Either the reading ends or the step.
    auto on_cancel = std::make_shared<CancelCallback>();
    const auto abandon = [self](const absl::Status&) { self->Abandon(); };
    if (!on_cancel->TryStart(c_.step().cancellation, abandon)) return Finish(Cancelled());
    // One that waits for a thread when its step ends stays in line: a reader has one at most.
    const auto begun = BlockingThreads::Global().Run(*caller, [self, on_cancel, is_new] {
      absl::StatusOr<Next> next = self->ReadNow(is_new);
      if (!on_cancel->Release()) return self->LeaveBehind(std::move(next));
      self->GoOn(std::move(next));
    });
    if (begun.ok()) return;
    if (!on_cancel->Release()) return reader_->Leave();
    Finish(begun.status());
  }

  absl::StatusOr<Next> ReadNow(bool is_new) {
    if (is_new) RETURN_IF_ERROR(reader_->StartWork(*taken_));
    return reader_->ReadRecord();
  }

  void GoOn(absl::StatusOr<Next> next) {
    if (!next.ok()) return Finish(next.status());
    if (next->has_record) records_.push_back(std::move(next->record));
    // A batch does not go beyond its file.
    if (next->at_end && !records_.empty()) return Finish(Emit());
    Work();
  }

  // The step has ended meanwhile: others get what was read for it.
  void LeaveBehind(absl::StatusOr<Next> next) {
    if (next.ok() && next->has_record) records_.push_back(std::move(next->record));
    reader_->PutBack(std::move(records_));
    reader_->Leave();
  }

  // Asks the queue for a work unit; true when it is in taken_ already, otherwise Work is called
  // again.
  bool TakeWork() {
    auto self = std::static_pointer_cast<ReadVisit>(shared_from_this());
    auto answered = std::make_shared<std::atomic<bool>>(false);
    const StepWait wait(c_, queue_);
    queue_->Dequeue(wait.OnWait(), wait.Then([self, answered](absl::StatusOr<Queue::Tuple> tuple) {
      self->taken_ = WorkIn(std::move(tuple));
      if (!answered->exchange(true)) return;
      self->c_.step().scheduler->Schedule([self] { self->ReadOn(true); });
    }));
    return answered->exchange(true);
  }

  static absl::StatusOr<std::string> WorkIn(absl::StatusOr<Queue::Tuple> tuple) {
    RETURN_IF_ERROR(tuple.status());
    if (tuple->size() != 1) return InvalidArgument("Expected single component queue");
    const Tensor& work = (*tuple)[0];
    if (work.dtype() != DType::kString)
      return InvalidArgument("Expected queue with single string component");
    if (work.num_elements() != 1)
      return InvalidArgument("Expected to dequeue a one-element string tensor");
    return work.scalar<std::string>();
  }

  absl::Status Emit() {
    const Shape shape = several_ ? Shape({static_cast<int64_t>(records_.size())}) : Shape();
    ASSIGN_OR_RETURN(Tensor* const keys, c_.AllocateOutput(0, shape));
    ASSIGN_OR_RETURN(Tensor* const values, c_.AllocateOutput(1, shape));
    for (size_t i = 0; i < records_.size(); ++i) {
      keys->data<std::string>()[i] = std::move(records_[i].key);
      values->data<std::string>()[i] = std::move(records_[i].value);
    }
    return absl::OkStatus();
  }

  const RefPtr<Queue> queue_;
  const int64_t wanted_;
  const bool several_;
  absl::StatusOr<std::string> taken_ = std::string();
  std::vector<Record> records_;
};

// Something short inside the reader.
class CallVisit : public Visit {
 public:
  using Call = absl::Status (*)(KernelContext& c, Reader& reader);
  CallVisit(KernelContext& c, RefPtr<Reader> reader, Call call, Done done)
      : Visit(c, std::move(reader), std::move(done)), call_(call) {}

 protected:
  void Work() override { Finish(call_(c_, *reader_)); }

 private:
  const Call call_;
};

class AsyncKernel : public Kernel {
 public:
  absl::Status Compute(KernelContext&) override {
    return Internal("a reader op was not run asynchronously");
  }
  bool is_async() const override { return true; }
};

class ReadKernel : public AsyncKernel {
 public:
  void ComputeAsync(KernelContext& c, Done done) override {
    const absl::Status started = Begin(c, done);
    if (!started.ok()) std::move(done)(started);
  }

 private:
  // Takes `done` unless it fails.
  static absl::Status Begin(KernelContext& c, Done& done) {
    ASSIGN_OR_RETURN(const RefPtr<Reader> reader, InputReader(c));
    ASSIGN_OR_RETURN(const RefPtr<Queue> queue, InputResourceAs<Queue>(c, 1));
    int64_t wanted = 1;
    const bool several = c.num_inputs() == 3;
    if (several) {
      ASSIGN_OR_RETURN(wanted, ScalarInteger(c.input(2), "num_records"));
      if (wanted <= 0) return InvalidArgument("num_records must be > 0, got ", wanted);
    }
    std::make_shared<ReadVisit>(c, reader, queue, wanted, several, std::move(done))->Start();
    return absl::OkStatus();
  }
};

template <CallVisit::Call kCall>
class CallKernel : public AsyncKernel {
 public:
  void ComputeAsync(KernelContext& c, Done done) override {
    const absl::StatusOr<RefPtr<Reader>> reader = InputReader(c);
    if (!reader.ok()) return std::move(done)(reader.status());
    std::make_shared<CallVisit>(c, *reader, kCall, std::move(done))->Start();
  }
};

absl::Status Reset(KernelContext&, Reader& reader) {
  reader.Reset();
  return absl::OkStatus();
}

absl::Status Save(KernelContext& c, Reader& reader) {
  ASSIGN_OR_RETURN(std::string state, reader.SaveState());
  c.SetOutput(0, Tensor::Scalar<std::string>(std::move(state)));
  return absl::OkStatus();
}

absl::Status Restore(KernelContext& c, Reader& reader) {
  const Tensor& state = c.input(1);
  if (!state.shape().is_scalar()) {
    return InvalidArgument("Reader state must be scalar, but had shape: ",
                           state.shape().ToString());
  }
  return reader.RestoreState(state.scalar<std::string>());
}

absl::Status CountRecords(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<Reader> reader, InputReader(c));
  c.SetOutput(0, Tensor::Scalar<int64_t>(reader->records_produced()));
  return absl::OkStatus();
}

absl::Status CountWork(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<Reader> reader, InputReader(c));
  c.SetOutput(0, Tensor::Scalar<int64_t>(reader->work_units_completed()));
  return absl::OkStatus();
}

absl::Status HandleIn(ShapeContext& c, int i) {
  if (c.input_type(i) == DType::kResource) return c.WithRank(c.input(i), 0).status();
  ASSIGN_OR_RETURN(const PartialShape handle, c.WithRank(c.input(i), 1));
  return ShapeContext::MergeDims(handle.dim(0), 2).status();
}

absl::Status ReadShape(ShapeContext& c) {
  RETURN_IF_ERROR(HandleIn(c, 0));
  RETURN_IF_ERROR(HandleIn(c, 1));
  return ScalarShape(c);
}

absl::Status ReadUpToShape(ShapeContext& c) {
  RETURN_IF_ERROR(HandleIn(c, 0));
  RETURN_IF_ERROR(HandleIn(c, 1));
  RETURN_IF_ERROR(c.WithRank(c.input(2), 0).status());
  c.SetOutput(0, PartialShape::Vector(-1));
  c.SetOutput(1, PartialShape::Vector(-1));
  return absl::OkStatus();
}

absl::Status SimpleShape(ShapeContext& c) {
  RETURN_IF_ERROR(HandleIn(c, 0));
  for (int i = 1; i < c.num_inputs(); ++i) RETURN_IF_ERROR(c.WithRank(c.input(i), 0).status());
  return ScalarShape(c);
}

// Both forms of an op differ in the handles alone; the one with resources is stateful.
OpBuilder& Handle(OpBuilder& op, bool resource) {
  if (resource) op.Stateful();
  return op.Input(resource ? "reader_handle: resource" : "reader_handle: Ref(string)");
}

void DefineRead(OpBuilder& op, bool resource) {
  Handle(op, resource)
      .Input(resource ? "queue_handle: resource" : "queue_handle: Ref(string)")
      .Output("key: string")
      .Output("value: string")
      .Doc("The next record of a reader, which takes work units from a queue.")
      .Shape(ReadShape)
      .NoGradient("records are not numbers")
      .Cpu(New<ReadKernel>());
}

void DefineReadUpTo(OpBuilder& op, bool resource) {
  Handle(op, resource)
      .Input(resource ? "queue_handle: resource" : "queue_handle: Ref(string)")
      .Input("num_records: int64")
      .Output("keys: string")
      .Output("values: string")
      .Doc("The next records of a reader, at most to the end of a work unit.")
      .Shape(ReadUpToShape)
      .NoGradient("records are not numbers")
      .Cpu(New<ReadKernel>());
}

void DefineCount(OpBuilder& op, bool resource, const char* output, KernelFunction run,
                 const char* doc) {
  Handle(op, resource)
      .Output(output)
      .Doc(doc)
      .Shape(SimpleShape)
      .NoGradient("records are not numbers")
      .Cpu(run);
}

void DefineReset(OpBuilder& op, bool resource) {
  Handle(op, resource)
      .Doc("Brings a reader back to its initial state.")
      .Shape(SimpleShape)
      .NoGradient("records are not numbers")
      .Cpu(New<CallKernel<Reset>>());
}

void DefineSave(OpBuilder& op, bool resource) {
  Handle(op, resource)
      .Output("state: string")
      .Doc("The state of a reader as a string.")
      .Shape(SimpleShape)
      .NoGradient("records are not numbers")
      .Cpu(New<CallKernel<Save>>());
}

void DefineRestore(OpBuilder& op, bool resource) {
  Handle(op, resource)
      .Input("state: string")
      .Doc("Brings a reader back to a saved state.")
      .Shape(SimpleShape)
      .NoGradient("records are not numbers")
      .Cpu(New<CallKernel<Restore>>());
}

}  // namespace

DEFINE_OP(ReaderRead) {
  DefineRead(op, false);
}
DEFINE_OP(ReaderReadV2) {
  DefineRead(op, true);
}
DEFINE_OP(ReaderReadUpTo) {
  DefineReadUpTo(op, false);
}
DEFINE_OP(ReaderReadUpToV2) {
  DefineReadUpTo(op, true);
}
DEFINE_OP(ReaderNumRecordsProduced) {
  DefineCount(op, false, "records_produced: int64", CountRecords, "Records given so far.");
}
DEFINE_OP(ReaderNumRecordsProducedV2) {
  DefineCount(op, true, "records_produced: int64", CountRecords, "Records given so far.");
}
DEFINE_OP(ReaderNumWorkUnitsCompleted) {
  DefineCount(op, false, "units_completed: int64", CountWork, "Work units finished so far.");
}
DEFINE_OP(ReaderNumWorkUnitsCompletedV2) {
  DefineCount(op, true, "units_completed: int64", CountWork, "Work units finished so far.");
}
DEFINE_OP(ReaderReset) {
  DefineReset(op, false);
}
DEFINE_OP(ReaderResetV2) {
  DefineReset(op, true);
}
DEFINE_OP(ReaderSerializeState) {
  DefineSave(op, false);
}
DEFINE_OP(ReaderSerializeStateV2) {
  DefineSave(op, true);
}
DEFINE_OP(ReaderRestoreState) {
  DefineRestore(op, false);
}
DEFINE_OP(ReaderRestoreStateV2) {
  DefineRestore(op, true);
}

}  // namespace muster
