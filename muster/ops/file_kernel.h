// Kernels that read or write files. That may take any time and cannot be interrupted: it happens on
// threads for blocking work, of which each client has its share, and a step that is cancelled does
// not wait for it.
#pragma once

#include <optional>
#include <vector>

#include "muster/base/cancel_callback.h"
#include "muster/base/mutex.h"
#include "muster/base/threads/blocking_threads.h"
#include "muster/ops/op.h"

namespace muster {

// One execution of such a kernel. What reads and writes may outlive the step, its graph and its
// session: it uses nothing but this and what it holds itself. Confined to the thread that works.
class FileCall {
 public:
  using Work = absl::AnyInvocable<absl::Status(FileCall&) &&>;
  // Runs `work` and then `done`, unless the step is cancelled before: then `done` is called without
  // waiting for it.
  enum class Inputs : uint8_t { kTaken, kLeft };  // out of the context, for `work` to use
  static void Start(KernelContext& c, Work work, Done done, Inputs inputs = Inputs::kTaken);
  // Runs `work` on this thread.
  static absl::Status RunHere(KernelContext& c, Work work);

  FileCall(KernelContext& c, Done done, Inputs inputs = Inputs::kTaken);

  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(output_types_.size()); }
  const Tensor& input(int i) const { return inputs_[i]; }
  DType output_type(int i) const { return output_types_[i]; }
  void SetOutput(int i, Tensor tensor) { outputs_[i] = std::move(tensor); }
  // Memory of the step's device. Cancelled when the step no longer waits for the call.
  absl::StatusOr<Tensor*> AllocateOutput(int i, const Shape& shape);
  // Cancelled when the step no longer waits for the call.
  absl::Status CheckWanted() const;

  // Divides long work among threads that are there for files.
  static Scheduler& Threads();

 private:
  void Run(Work work);
  // Where the work waits for a thread.
  void Keep(BlockingThreads::Ticket ticket);
  // Hands the outcome to the step, if that still waits.
  void Finish(absl::Status status);
  // The step waits no longer.
  void Abandon();
  KernelContext* TakeContext();

  std::vector<DType> output_types_;
  std::vector<Tensor> inputs_;
  std::vector<Tensor> outputs_;
  mutable Mutex mutex_;
  KernelContext* context_ ABSL_GUARDED_BY(mutex_);  // null once the step has the outcome
  bool is_running_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<BlockingThreads::Ticket> ticket_ ABSL_GUARDED_BY(mutex_);
  Done done_;  // of the kernel that took the context
  CancelCallback on_cancel_;
};

// A kernel whose attributes are in `Settings`, with `Init(KernelSetup&)` as kernels have it and
// `Run(FileCall&) const`. Every execution has its own copy.
template <typename Settings>
class FileKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) final { return settings_.Init(setup); }
  absl::Status Compute(KernelContext& c) final { return FileCall::RunHere(c, Work()); }
  bool is_async() const final { return true; }
  void ComputeAsync(KernelContext& c, Done done) final {
    FileCall::Start(c, Work(), std::move(done));
  }

 private:
  FileCall::Work Work() const {
    return [settings = settings_](FileCall& call) { return settings.Run(call); };
  }

  Settings settings_;
};

// The settings of a kernel that has none.
template <absl::Status (*function)(FileCall&)>
struct FileFunction {
  static absl::Status Init(KernelSetup&) { return absl::OkStatus(); }
  static absl::Status Run(FileCall& c) { return function(c); }
};

}  // namespace muster
