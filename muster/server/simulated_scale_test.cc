// Large clusters, measured by what is done for them and not by the time it takes.
#include <gmock/gmock.h>
#include <malloc.h>

#include "muster/graph/build/scope.h"
#include "muster/server/simulated_cluster_test.h"

namespace muster {
namespace {

struct Work {
  int64_t calls_to_create = 0;
  int64_t calls_per_step = 0;
  int64_t connections = 0;
  int64_t bytes = 0;  // that the cluster and its session hold
  absl::Duration step_time;
};

// A value from each task, added up on the first.
Work Measure(int tasks) {
  Work work;
  const int64_t before = static_cast<int64_t>(mallinfo2().uordblks);
  SimulatedCluster cluster(1, {{"w", tasks}});
  Graph graph;
  Scope scope(graph);
  std::vector<Output> values;
  for (int i = 0; i < tasks; ++i) {
    const Scope task = scope.WithDevice(absl::StrCat("/job:w/task:", i));
    const Output x = task.Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", Shape({})}});
    values.push_back(x);
  }
  const Scope first = scope.WithDevice("/job:w/task:0");
  std::vector<Output> sums;
  std::vector<std::pair<Output, Tensor>> feeds;
  for (int i = 0; i < tasks; ++i) {
    feeds.emplace_back(values[i], Tensor::Scalar<float>(1));
    sums.push_back(scope.WithDevice(absl::StrCat("/job:w/task:", i)).Op("Neg", {values[i]}));
  }
  const Output sum = first.Op("AddN", {sums});
  EXPECT_TRUE(scope.status().ok()) << scope.status();
  EXPECT_EQ(cluster.network().traffic().connections, 0);
  auto session = cluster.NewSession(graph, "w0:1");
  const auto run = [&] {
    const auto result = session->Run(feeds, {sum});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ((*result)[0].scalar<float>(), -static_cast<float>(tasks));
  };
  run();  // makes the session and the plan
  cluster.RunFor(absl::Seconds(1));
  work.calls_to_create = cluster.network().traffic().calls;
  const absl::Duration start = cluster.now();
  run();
  work.step_time = cluster.now() - start;
  cluster.RunFor(absl::Seconds(1));
  work.calls_per_step = cluster.network().traffic().calls - work.calls_to_create;
  work.connections = cluster.network().traffic().connections;
  work.bytes = static_cast<int64_t>(mallinfo2().uordblks) - before;
  return work;
}

TEST(SimulatedScaleTest, WorkAndMemoryGrowWithTheNumberOfTasksOnly) {
  const Work small = Measure(250);
  const Work middle = Measure(500);
  const Work large = Measure(1000);
  for (const auto& [work, tasks] :
       {std::pair{&small, 250}, std::pair{&middle, 500}, std::pair{&large, 1000}}) {
    RecordProperty(absl::StrCat("bytes_", tasks), static_cast<int>(work->bytes >> 10));
    std::printf(
        "%d tasks: %ld calls to create and run, %ld per step, %ld connections, %ld KB, %s\n", tasks,
        work->calls_to_create, work->calls_per_step, work->connections, work->bytes >> 10,
        absl::FormatDuration(work->step_time).c_str());
    // GetStatus, CreateWorkerSession, RegisterGraph and a step to all others, feeds to all others,
    // and a tensor from each of them.
    EXPECT_LE(work->calls_to_create, 8 * tasks);
    // RunGraph, CleanupGraph, RecvTensor of the feed and of the result.
    EXPECT_LE(work->calls_per_step, 4 * tasks);
    // The client's, the master's to all, and from each to the first: never all to all.
    EXPECT_LE(work->connections, 2 * tasks);
    // A fan-out is not a chain: many messages take hardly longer than one.
    EXPECT_LE(work->step_time, absl::Milliseconds(20));
  }
  EXPECT_LE(large.bytes, middle.bytes * 2.4);
  EXPECT_LE(middle.bytes, small.bytes * 2.4);
}

}  // namespace
}  // namespace muster
