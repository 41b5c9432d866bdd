// Mutexes of tf.CriticalSection: MutexLock waits for its turn and gives a lock that lasts as long
// as the value does; ConsumeMutexLock ends it.
#include <atomic>
#include <memory>

#include "muster/ops/input/wait_list.h"
#include "muster/ops/resource_kernel.h"

namespace muster {
namespace {

class MutexResource : public WaitList {
 public:
  static constexpr const char* kTypeName = "N10tensorflow12_GLOBAL__N_15MutexE";
  std::string Describe() const override { return "Mutex"; }

  // `done` gets an empty tuple once the mutex is the caller's.
  void Acquire(OnWait on_wait, TupleDone done) {
    Await(
        [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> std::optional<absl::StatusOr<Tuple>> {
          if (taken_) return std::nullopt;
          taken_ = true;
          return Tuple();
        },
        on_wait, std::move(done));
  }
  void Release() {
    {
      MutexLock lock(mutex_);
      taken_ = false;
    }
    Flush();
  }

 private:
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;
};

// A mutex that is held. Thread-safe.
class HeldMutex {
 public:
  explicit HeldMutex(RefPtr<MutexResource> mutex) : mutex_(std::move(mutex)) {}
  ~HeldMutex() { Release(); }
  void Release() const {
    if (!released_.exchange(true)) mutex_->Release();
  }

 private:
  const RefPtr<MutexResource> mutex_;
  mutable std::atomic<bool> released_ = false;
};

class MutexKernel : public ResourceKernel {
 protected:
  absl::StatusOr<RefPtr<Resource>> Make(const std::string&) override {
    return RefPtr<Resource>(MakeRef<MutexResource>());
  }
  std::string type_name() const override { return MutexResource::kTypeName; }
};

class LockKernel : public Kernel {
 public:
  bool is_async() const override { return true; }
  absl::Status Compute(KernelContext&) override { return Internal("asynchronous"); }
  void ComputeAsync(KernelContext& c, Done done) override {
    const absl::StatusOr<RefPtr<MutexResource>> mutex = InputResourceAs<MutexResource>(c, 0);
    if (!mutex.ok()) return std::move(done)(mutex.status());
    const StepWait wait(c, *mutex);
    (*mutex)->Acquire(wait.OnWait(), wait.Then([&c, mutex = *mutex, done = std::move(done)](
                                                   absl::StatusOr<WaitList::Tuple> taken) mutable {
      if (!taken.ok()) return std::move(done)(taken.status());
      c.SetOutput(0, Tensor::Scalar(Variant(std::make_shared<const HeldMutex>(std::move(mutex)))));
      std::move(done)(absl::OkStatus());
    }));
  }
};

absl::Status ConsumeLock(KernelContext& c) {
  const Tensor& lock = c.input(0);
  if (lock.rank() != 0) {
    return InvalidArgument("Expected input to be a scalar, saw shape: ", lock.shape().ToString());
  }
  const auto* const held = lock.scalar<Variant>().get<HeldMutex>();
  if (held == nullptr)
    return InvalidArgument("Expected input to contain a SharedLockReleaser object");
  held->Release();
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(MutexV2) {
  op.Attr("container: string = ''")
      .Attr("shared_name: string = ''")
      .Output("resource: resource")
      .Stateful()
      .Doc("A mutex that one step at a time can hold.")
      .Shape(ScalarShape)
      .NoGradient("handles are not numbers")
      .Cpu(New<MutexKernel>())
      .Gpu(New<MutexKernel>());
}

DEFINE_OP(MutexLock) {
  op.Input("mutex: resource")
      .Output("mutex_lock: variant")
      .Stateful()
      .Doc("Waits for a mutex and holds it as long as the output lives.")
      .Shape(ScalarShape)
      .NoGradient("locks are not numbers")
      .HostMemory({"mutex_lock"})
      .Cpu(New<LockKernel>())
      .Gpu(New<LockKernel>());
}

DEFINE_OP(ConsumeMutexLock) {
  op.Input("mutex_lock: variant")
      .Stateful()
      .Doc("Gives a mutex back.")
      .Shape(NoOutputs)
      .NoGradient("locks are not numbers")
      .HostMemory({"mutex_lock"})
      .Cpu(ConsumeLock)
      .Gpu(ConsumeLock);
}

}  // namespace muster
