#include "muster/ops/file_kernel.h"

#include <exception>
#include <future>
#include <new>
#include <stdexcept>

#include <gtest/gtest.h>

#include "muster/graph/build/scope.h"

namespace muster {
namespace {

TEST(FileCallTest, WorkThatFindsNoMemoryIsAnError) {
  Graph graph;
  const Node& node = *Scope(graph).Add("NoOp", {}, {}, "n");
  const auto device =
      NewCpuDevice("/job:localhost/replica:0/task:0/device:CPU:0", DefaultScheduler());
  Step step;
  step.scheduler = &DefaultScheduler();
  KernelContext context(step, *device, node, {}, {});
  for (const std::exception_ptr& failure : {std::make_exception_ptr(std::bad_alloc()),
                                            std::make_exception_ptr(std::length_error("string"))}) {
    const auto work = [failure](FileCall&) -> absl::Status { std::rethrow_exception(failure); };
    std::promise<absl::Status> ended;
    FileCall::Start(context, work, [&](absl::Status status) { ended.set_value(status); });
    const absl::Status elsewhere = ended.get_future().get();
    EXPECT_TRUE(absl::IsResourceExhausted(elsewhere)) << elsewhere;
    const absl::Status here = FileCall::RunHere(context, work);
    EXPECT_TRUE(absl::IsResourceExhausted(here)) << here;
  }
}

}  // namespace
}  // namespace muster
