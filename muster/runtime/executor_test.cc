#include "muster/runtime/executor.h"

#include <exception>
#include <new>
#include <stdexcept>

#include <gtest/gtest.h>

#include "muster/graph/scope.h"
#include "muster/runtime/rendezvous.h"

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

absl::Status StepWith(std::shared_ptr<Kernel> kernel) {
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
  executor->Run(step, [&](absl::Status result) { status = std::move(result); });
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

}  // namespace
}  // namespace muster
