#include "muster/runtime/executor.h"

#include <exception>
#include <new>
#include <stdexcept>

#include <gtest/gtest.h>

#include "muster/graph/build/scope.h"
#include "muster/runtime/lack_of_memory.h"
#include "muster/runtime/rendezvous.h"
#include "muster/tensor/memory_guard.h"

namespace muster {
namespace {

// As one whose container grows beyond the memory that there is.
class TooLarge : public Kernel {
 public:
  explicit TooLarge(std::exception_ptr failure) : failure_(std::move(failure)) {}
  absl::Status Compute(KernelContext&) override { std::rethrow_exception(failure_); }

 private:
  const std::exception_ptr failure_;
};

// `meanwhile` runs when the step has been started.
absl::Status StepWith(
    std::shared_ptr<Kernel> kernel, absl::FunctionRef<void()> meanwhile = [] {}) {
  Graph graph;
  Scope scope(graph);
  scope.Add("NoOp", {}, {}, "n");
  const auto device =
      NewCpuDevice("/job:localhost/replica:0/task:0/device:CPU:0", DefaultScheduler());
  ASSIGN_OR_RETURN(const auto executor,
                   Executor::Create(graph, *device, [&](const Node&) { return kernel; }));
  const auto rendezvous = NewLocalRendezvous();
  Cancellation cancellation;
  ResourceManager resources;
  ResourceManager step_resources("step");
  Step step;
  step.rendezvous = rendezvous.get();
  step.cancellation = &cancellation;
  step.resources = &resources;
  step.step_resources = &step_resources;
  step.scheduler = &DefaultScheduler();
  absl::Status status = absl::InternalError("the step has not ended");
  executor->Run(step, [&](absl::Status result) {
    const Tensor of_the_reply(DType::kUint8, Shape({2000}));  // must not throw into the kernel
    status = std::move(result);
  });
  meanwhile();
  return status;
}

TEST(ExecutorTest, AKernelThatFindsNoMemoryEndsItsStep) {
  for (const std::exception_ptr& failure : {std::make_exception_ptr(std::bad_alloc()),
                                            std::make_exception_ptr(std::length_error("vector"))}) {
    const absl::Status status = StepWith(std::make_shared<TooLarge>(failure));
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_NE(status.message().find("{{node n}}"), std::string::npos) << status;
  }
}

// Makes a tensor for itself, which has no way to fail but to throw.
class TooLargeLater : public Kernel {
 public:
  explicit TooLargeLater(bool finishes_before) : finishes_before_(finishes_before) {}
  bool is_async() const override { return true; }
  absl::Status Compute(KernelContext&) override { return absl::InternalError("not asked for"); }
  void ComputeAsync(KernelContext&, Done done) override {
    if (finishes_before_) std::move(done)(absl::OkStatus());
    const auto account = MakeRef<MemoryAccount>("this test", 1000);
    const MemoryAccount::Scope scope(account.get());
    const Tensor temporary(DType::kUint8, Shape({2000}));
    std::move(done)(absl::InternalError("there was memory"));
  }

 private:
  const bool finishes_before_;
};

TEST(ExecutorTest, AnAsyncKernelThatFindsNoMemoryEndsItsStepOnce) {
  const absl::Status status = StepWith(std::make_shared<TooLargeLater>(false));
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(status.message().find("tensors of this test may take 1000 bytes"), std::string::npos)
      << status;
  EXPECT_EQ(StepWith(std::make_shared<TooLargeLater>(true)), absl::OkStatus());
}

class FinishedByAnother : public Kernel {
 public:
  bool is_async() const override { return true; }
  absl::Status Compute(KernelContext&) override { return absl::InternalError("not asked for"); }
  void ComputeAsync(KernelContext&, Done done) override { done_ = std::move(done); }
  void Finish() { std::move(done_)(absl::OkStatus()); }

 private:
  Done done_;
};

// As a receiver whose step ends with what the kernel of another step sends.
TEST(ExecutorTest, AKernelDoesNotCatchWhatAnotherStepLacks) {
  const auto kernel = std::make_shared<FinishedByAnother>();
  const auto account = MakeRef<MemoryAccount>("this test", 1000);
  const auto send = [&] {
    const MemoryAccount::Scope scope(account.get());
    EXPECT_EQ(EndedByLackOfMemory([&] {
                kernel->Finish();
                return absl::OkStatus();
              }),
              absl::OkStatus());
  };
  EXPECT_EQ(StepWith(kernel, send), absl::OkStatus());
}

}  // namespace
}  // namespace muster
