// The states that a task sees others in, on a virtual clock.
#include "muster/master/cluster_watch.h"

#include <optional>

#include <gmock/gmock.h>

#include "muster/graph/build/scope.h"
#include "muster/server/simulated_cluster_test.h"

namespace muster {
namespace {

using testing::HasSubstr;

class ClusterWatchTest : public testing::Test {
 protected:
  void SetUp() override { Look("ps0:1"); }

  void Look(const std::string& address) { cluster_.watch(address).Start(); }

  // Asks a task about all of them.
  ClusterStatus Ask(const std::string& address = "ps0:1") {
    std::optional<absl::StatusOr<ClusterStatus>> answer;
    StatusRequest request;
    request.whole_cluster = true;
    const absl::Duration start = cluster_.now();
    cluster_.watch(address).Status(
        {}, request, [&](absl::StatusOr<ClusterStatus> status) { answer = std::move(status); });
    cluster_.scheduler().RunUntil([&] { return answer.has_value(); });
    took_ = cluster_.now() - start;
    EXPECT_TRUE(answer && answer->ok());
    return **answer;
  }
  TaskView ViewOf(const std::string& address, const std::string& from = "ps0:1") {
    for (const TaskView& view : Ask(from).tasks) {
      if (SimulatedCluster::Address(view.status.task) == address) return view;
    }
    ADD_FAILURE() << "nothing about " << address;
    return {};
  }
  TaskHealth HealthOf(const std::string& address, const std::string& from = "ps0:1") {
    return ViewOf(address, from).health;
  }
  void Leave(const std::string& address) {
    bool said = false;
    cluster_.watch(address).Leave([&] { said = true; });
    cluster_.scheduler().RunUntil([&] { return said; });
    cluster_.Kill(address);
  }

  SimulatedCluster cluster_{11, {{"ps", 1}, {"worker", 3}}};
  absl::Duration took_;
};

TEST_F(ClusterWatchTest, TasksThatAnswerAreHealthy) {
  const ClusterStatus cluster = Ask();
  ASSERT_EQ(cluster.tasks.size(), 4u);
  EXPECT_EQ(cluster.asked.ToString(), "/job:ps/replica:0/task:0");
  EXPECT_EQ(cluster.tasks[0].status.task.job, "ps");
  EXPECT_EQ(cluster.tasks[3].status.task.task, 2);
  for (const TaskView& view : cluster.tasks) {
    EXPECT_EQ(view.health, TaskHealth::kHealthy) << view.status.task.ToString();
    EXPECT_TRUE(view.heard);
    EXPECT_NE(view.status.incarnation, 0u);
    EXPECT_EQ(view.status.devices, 1);
  }
  EXPECT_LT(took_, absl::Milliseconds(10));
}

TEST_F(ClusterWatchTest, ATaskThatWasNeverThereIsStarting) {
  cluster_.Kill("worker2:1");
  cluster_.Kill("ps0:1");
  cluster_.Start("ps0:1");
  Look("ps0:1");
  EXPECT_EQ(HealthOf("worker2:1"), TaskHealth::kStarting);
  cluster_.RunFor(absl::Seconds(60));
  const TaskView view = ViewOf("worker2:1");
  EXPECT_EQ(view.health, TaskHealth::kStarting);
  EXPECT_GE(view.since, absl::Seconds(60));
  cluster_.Start("worker2:1");
  EXPECT_EQ(HealthOf("worker2:1"), TaskHealth::kHealthy);
}

TEST_F(ClusterWatchTest, AKilledTaskIsLostAtOnce) {
  EXPECT_EQ(HealthOf("worker1:1"), TaskHealth::kHealthy);
  cluster_.Kill("worker1:1");
  const TaskView view = ViewOf("worker1:1");
  EXPECT_EQ(view.health, TaskHealth::kLost);
  EXPECT_THAT(view.explanation, HasSubstr("failed to connect"));
  EXPECT_LT(took_, absl::Seconds(1));
  EXPECT_EQ(HealthOf("worker0:1"), TaskHealth::kHealthy);
  cluster_.RunFor(absl::Seconds(20));
  EXPECT_GE(ViewOf("worker1:1").since, absl::Seconds(20));
  const uint64_t before = view.status.incarnation;
  cluster_.Start("worker1:1");
  EXPECT_EQ(HealthOf("worker1:1"), TaskHealth::kHealthy);
  EXPECT_NE(ViewOf("worker1:1").status.incarnation, before);
}

TEST_F(ClusterWatchTest, AStoppedTaskIsSlowAndThenLost) {
  EXPECT_EQ(HealthOf("worker1:1"), TaskHealth::kHealthy);
  cluster_.network().Pause("worker1:1");
  const TaskView view = ViewOf("worker1:1");
  EXPECT_EQ(view.health, TaskHealth::kSlow);
  EXPECT_FALSE(view.straggler);
  EXPECT_LT(took_, absl::Seconds(1.2));
  EXPECT_THAT(view.explanation, HasSubstr("no answer for 1.0 s"));
  cluster_.RunFor(absl::Seconds(20));
  EXPECT_EQ(HealthOf("worker1:1"), TaskHealth::kSlow);
  cluster_.RunFor(absl::Seconds(12));
  EXPECT_EQ(HealthOf("worker1:1"), TaskHealth::kLost);
  cluster_.network().Resume("worker1:1");
  cluster_.RunFor(absl::Seconds(3));
  EXPECT_EQ(HealthOf("worker1:1"), TaskHealth::kHealthy);
}

TEST_F(ClusterWatchTest, ATaskThatSaysGoodbyeHasLeft) {
  for (const char* task : {"worker0:1", "worker1:1", "worker2:1"}) Look(task);
  cluster_.RunFor(absl::Seconds(3));
  Ask("worker0:1");
  Leave("worker1:1");
  for (const char* from : {"ps0:1", "worker0:1"}) {
    EXPECT_EQ(HealthOf("worker1:1", from), TaskHealth::kLeft) << from;
  }
  cluster_.RunFor(absl::Minutes(2));
  EXPECT_EQ(HealthOf("worker1:1"), TaskHealth::kLeft);
  cluster_.Start("worker1:1");
  EXPECT_EQ(HealthOf("worker1:1"), TaskHealth::kHealthy);
}

// Only the first task, the watcher, polls the others; the rest do so when their status is
// requested.
TEST_F(ClusterWatchTest, TasksDoNotAskEachOtherAllToAll) {
  for (const char* task : {"worker0:1", "worker1:1", "worker2:1"}) {
    Look(task);
    cluster_.Pretend(task, 100);
  }
  cluster_.RunFor(absl::Minutes(5));
  const auto calls_in_a_minute = [&] {
    const int64_t before = cluster_.network().traffic().calls;
    cluster_.RunFor(absl::Minutes(1));
    return cluster_.network().traffic().calls - before;
  };
  EXPECT_LE(calls_in_a_minute(), 3 * 61);
  EXPECT_FALSE(cluster_.watch("worker1:1").Seen().watches);
  EXPECT_TRUE(cluster_.watch("ps0:1").Seen().watches);
  Ask("worker1:1");
  EXPECT_TRUE(cluster_.watch("worker1:1").Seen().watches);
  EXPECT_GE(calls_in_a_minute(), 5 * 60);
  cluster_.RunFor(absl::Minutes(1));
  EXPECT_LE(calls_in_a_minute(), 3 * 61);
}

TEST_F(ClusterWatchTest, TheFirstTaskNoticesByItself) {
  cluster_.RunFor(absl::Minutes(5));
  cluster_.Kill("worker1:1");
  cluster_.RunFor(absl::Seconds(7));
  bool lost = false;
  for (const TaskView& view : cluster_.watch("ps0:1").Seen().tasks)
    lost |= view.health == TaskHealth::kLost;
  EXPECT_TRUE(lost);
}

TEST_F(ClusterWatchTest, AStragglerIsNamedAndRecovers) {
  for (const char* task : {"worker0:1", "worker1:1", "worker2:1"}) {
    Look(task);
    cluster_.Pretend(task, 100);
  }
  cluster_.RunFor(absl::Seconds(20));
  for (const TaskView& view : Ask().tasks) EXPECT_FALSE(view.straggler);
  const std::vector<JobRates> jobs = RatesOfJobs(Ask());
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].running, 0);
  EXPECT_EQ(jobs[1].running, 3);
  EXPECT_NEAR(jobs[1].median, 100, 5);
  EXPECT_NEAR(jobs[1].sum, 300, 15);

  cluster_.Pretend("worker1:1", 30);
  cluster_.RunFor(absl::Seconds(20));
  const TaskView view = ViewOf("worker1:1");
  EXPECT_TRUE(view.straggler);
  EXPECT_EQ(view.health, TaskHealth::kSlow);
  EXPECT_THAT(view.explanation, HasSubstr("less than half of the median"));
  EXPECT_EQ(HealthOf("worker0:1"), TaskHealth::kHealthy);
  // Every task reports it: the straggler itself too, a little later.
  Ask("worker1:1");
  Ask("worker2:1");
  cluster_.RunFor(absl::Seconds(5));
  EXPECT_TRUE(ViewOf("worker1:1", "worker1:1").straggler);
  EXPECT_TRUE(ViewOf("worker1:1", "worker2:1").straggler);

  cluster_.Pretend("worker1:1", 90);
  cluster_.RunFor(absl::Seconds(20));
  EXPECT_FALSE(ViewOf("worker1:1").straggler);
  EXPECT_EQ(HealthOf("worker1:1"), TaskHealth::kHealthy);
}

TEST_F(ClusterWatchTest, ATaskWithoutSessionsIsNoStraggler) {
  cluster_.Pretend("worker0:1", 100);
  cluster_.Pretend("worker1:1", 100);
  for (const char* task : {"worker0:1", "worker1:1", "worker2:1"}) Look(task);
  cluster_.RunFor(absl::Seconds(20));
  EXPECT_EQ(HealthOf("worker2:1"), TaskHealth::kHealthy);
}

TEST_F(ClusterWatchTest, LargeClustersAskOnlyWhenSomebodyWantsToKnow) {
  SimulatedCluster large(3, {{"ps", 1}, {"worker", 70}});
  large.watch("ps0:1").Start();
  large.RunFor(absl::Minutes(5));
  EXPECT_EQ(large.network().traffic().calls, 0);
  bool answered = false;
  StatusRequest request;
  request.whole_cluster = true;
  large.watch("ps0:1").Status({}, request, [&](absl::StatusOr<ClusterStatus> status) {
    EXPECT_EQ(status.value().tasks.size(), 71u);
    answered = true;
  });
  large.RunFor(absl::Seconds(2));
  EXPECT_TRUE(answered);
  large.RunFor(absl::Minutes(2));
  const int64_t calls = large.network().traffic().calls;
  large.RunFor(absl::Minutes(2));
  EXPECT_EQ(large.network().traffic().calls, calls);
}

TEST_F(ClusterWatchTest, VariablesAndTensorsAreCounted) {
  Graph graph;
  const Scope scope(graph);
  const Scope ps = scope.WithDevice("/job:ps/task:0");
  const Scope worker = scope.WithDevice("/job:worker/task:0");
  const Output v =
      ps.Op("VariableV2", {}, {{"shape", Shape({100})}, {"dtype", DType::kFloat}}, "v");
  const Output step =
      ps.Op("VariableV2", {}, {{"shape", Shape({})}, {"dtype", DType::kInt64}}, "global_step");
  const Output init = ps.Op(
      "Assign",
      {v, ps.Op("Fill", {ps.Const(Tensor::Vector<int32_t>({100})), ps.ConstScalar<float>(1)})});
  const Output count = ps.Op("Assign", {step, ps.ConstScalar<int64_t>(7)});
  const Output twice = worker.Op("Add", {v, v});
  ASSERT_TRUE(scope.status().ok()) << scope.status();
  {
    const auto session = cluster_.NewSession(graph, "worker0:1");
    ASSERT_TRUE(session->Run({}, {init, count}).ok());
    ASSERT_TRUE(session->Run({}, {twice}).ok());
    const ClusterStatus cluster = Ask();
    const TaskStatus& server = cluster.tasks[0].status;
    EXPECT_EQ(server.variables, 2);
    EXPECT_EQ(server.variable_bytes, 408);
    EXPECT_EQ(server.global_step, 7);
    EXPECT_EQ(cluster.global_step(), 7);
    EXPECT_GE(server.bytes_sent, 400);
    EXPECT_GE(server.parts, 2);
    EXPECT_EQ(server.steps, 0);
    EXPECT_EQ(server.worker_sessions, 1);
    EXPECT_EQ(server.sessions, 0);
    const TaskStatus& trainer = cluster.tasks[1].status;
    EXPECT_EQ(trainer.sessions, 1);
    EXPECT_EQ(trainer.steps, 2);
    EXPECT_EQ(trainer.variables, 0);
    EXPECT_GE(trainer.bytes_received, 400);
    EXPECT_EQ(trainer.global_step, std::nullopt);
    EXPECT_EQ(cluster.tasks[2].status.bytes_received, 0);
  }
}

}  // namespace
}  // namespace muster
