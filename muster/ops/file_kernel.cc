#include "muster/ops/file_kernel.h"

#include <algorithm>
#include <thread>

#include "muster/base/blocking_threads.h"
#include "muster/ops/resource_kernel.h"
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
  Cancellation* const cancellation = c.step().cancellation;
  auto call = std::make_shared<FileCall>(c, std::move(done), inputs);
  call->token_ = CancellationToken(c);
  if (cancellation != nullptr &&
      !cancellation->Register(call->token_, [call] { call->Abandon(); })) {
    return call->Abandon();
  }
  const absl::Status started = BlockingThreads::Global().Run(
      [call, work = std::move(work)]() mutable { call->Run(std::move(work)); });
  if (!started.ok()) call->Finish(started);
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
  NoLongerWaits(*c, token_);
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
  {
    MutexLock lock(mutex_);
    if (context_ == nullptr) return;
    scheduler = std::exchange(context_, nullptr)->step().scheduler;
    if (!is_running_) dropped.swap(inputs_);
  }
  // Not inside the cancellation, which goes with the step.
  scheduler->Schedule([done = std::move(done_)]() mutable {
    std::move(done)(absl::CancelledError("Reading or writing a file was cancelled"));
  });
}

}  // namespace muster
