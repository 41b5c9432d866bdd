#include "muster/ops/file_kernel.h"

#include <algorithm>
#include <thread>

#include "muster/runtime/lack_of_memory.h"

namespace muster {

Scheduler& FileCall::Threads() {
  // Never destroyed: a file may still be written while the process ends.
  static Scheduler& threads =
      *NewThreadPool(std::max(1, static_cast<int>(std::thread::hardware_concurrency()))).release();
  return threads;
}

FileCall::FileCall(KernelContext& c, Done done, Inputs inputs)
    : context_(&c), done_(std::move(done)) {
  for (int i = 0; i < c.num_outputs(); ++i) output_types_.push_back(c.output_type(i));
  outputs_.resize(output_types_.size());
  if (inputs == Inputs::kLeft) return;
  for (int i = 0; i < c.num_inputs(); ++i) inputs_.push_back(c.TakeInput(i));
}

void FileCall::Start(KernelContext& c, Work work, Done done, Inputs inputs) {
  auto call = std::make_shared<FileCall>(c, std::move(done), inputs);
  const auto abandon = [raw = call.get()](const absl::Status&) { raw->Abandon(); };
  const auto caller =
      OrThisProcess(c.step().caller);  // the step may end at any moment from here on
  if (!call->on_cancel_.Start(c.step().cancellation, abandon)) return;
  absl::StatusOr<BlockingThreads::Ticket> ticket = BlockingThreads::Global().Run(
      *caller, [call, work = std::move(work)]() mutable { call->Run(std::move(work)); });
  if (!ticket.ok()) return call->Finish(ticket.status());
  call->Keep(*std::move(ticket));
}

void FileCall::Keep(BlockingThreads::Ticket ticket) {
  {
    MutexLock lock(mutex_);
    // Where it is over already there is nothing to take back, unless the step was cancelled.
    if (context_ != nullptr) ticket_ = std::move(ticket);
    if (context_ != nullptr || is_running_) return;
  }
  BlockingThreads::Global().Withdraw(ticket);
}

absl::Status FileCall::RunHere(KernelContext& c, Work work) {
  absl::Status result;
  FileCall call(c, [&result](absl::Status status) { result = std::move(status); });
  call.Run(std::move(work));
  return result;
}

void FileCall::Run(Work work) {
  {
    MutexLock lock(mutex_);
    if (context_ == nullptr) return;
    is_running_ = true;
  }
  Finish(EndedByLackOfMemory([&] { return std::move(work)(*this); }));
}

absl::StatusOr<Tensor*> FileCall::AllocateOutput(int i, const Shape& shape) {
  MutexLock lock(mutex_);
  if (context_ == nullptr) return absl::CancelledError("The step has ended");
  ASSIGN_OR_RETURN(outputs_[i], context_->AllocateTemporary(output_types_[i], shape));
  return &outputs_[i];
}

absl::Status FileCall::CheckWanted() const {
  MutexLock lock(mutex_);
  return context_ == nullptr ? absl::CancelledError("The step has ended") : absl::OkStatus();
}

KernelContext* FileCall::TakeContext() {
  MutexLock lock(mutex_);
  return std::exchange(context_, nullptr);
}

void FileCall::Finish(absl::Status status) {
  KernelContext* const c = TakeContext();
  if (c == nullptr) return;
  on_cancel_.Release();
  // Variables whose values were written may be updated in place from now on.
  inputs_.clear();
  for (int i = 0; status.ok() && i < num_outputs(); ++i) {
    if (outputs_[i].valid()) c->SetOutput(i, std::move(outputs_[i]));
  }
  std::move(done_)(std::move(status));
}

void FileCall::Abandon() {
  Scheduler* scheduler = nullptr;
  std::vector<Tensor> dropped;
  Task withdrawn;  // holds the call
  {
    MutexLock lock(mutex_);
    if (context_ == nullptr) return;
    scheduler = std::exchange(context_, nullptr)->step().scheduler;
    if (!is_running_) dropped.swap(inputs_);
    if (!is_running_ && ticket_) withdrawn = BlockingThreads::Global().Withdraw(*ticket_);
  }
  // Not inside the cancellation, which goes with the step.
  scheduler->Schedule([done = std::move(done_), kept = std::move(withdrawn)]() mutable {
    std::move(done)(absl::CancelledError("Reading or writing a file was cancelled"));
  });
}

}  // namespace muster
