#include "muster/cli/status_table.h"

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TaskView Healthy(const char* job, int number) {
  TaskView view;
  view.status.task = {job, number};
  view.status.sessions = 1;
  view.status.steps = 500;
  view.status.steps_per_second = 12.5 + number;
  view.status.bytes_sent = 1'500'000;
  view.status.collective_bytes_sent = 500'000;
  view.status.resident_bytes = 999;
  view.status.variables = 9;
  view.status.variable_bytes = 4000;
  view.heard = true;
  view.health = TaskHealth::kHealthy;
  view.since = absl::Seconds(93);
  return view;
}

TaskView Lost(const char* job, int number) {
  TaskView view = Healthy(job, number);
  view.health = TaskHealth::kLost;
  view.since = absl::Hours(3);
  view.explanation = "failed to connect";
  return view;
}

ClusterStatus Cluster(std::vector<TaskView> tasks) {
  ClusterStatus cluster;
  cluster.asked = {"ps", 0};
  cluster.tasks = std::move(tasks);
  return cluster;
}

std::vector<std::string> Lines(const ClusterStatus& cluster, const TableSpace& space = {}) {
  const std::string text = StatusTable(cluster, "host:2222", space);
  EXPECT_TRUE(absl::EndsWith(text, "\n"));
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  lines.pop_back();
  return lines;
}

std::vector<std::string> Words(const std::string& line) {
  return absl::StrSplit(line, ' ', absl::SkipEmpty());
}

TEST(StatusTableTest, ShowsTasksJobsAndExplanations) {
  ClusterStatus cluster =
      Cluster({Healthy("ps", 0), Healthy("worker", 0), Healthy("worker", 1), Lost("worker", 2)});
  cluster.tasks[0].status.global_step = 1042;
  const std::vector<std::string> lines = Lines(cluster);
  ASSERT_EQ(lines.size(), 9u);
  EXPECT_EQ(lines[0], "4 tasks, asked /job:ps/replica:0/task:0 at host:2222, global step 1042");
  EXPECT_THAT(Words(lines[1]),
              ElementsAre("TASK", "HEALTH", "SINCE", "SESSIONS", "STEPS", "STEPS/S", "SENT",
                          "RECEIVED", "MEMORY", "VARIABLES", "THEIR", "SIZE"));
  EXPECT_THAT(Words(lines[3]), ElementsAre("worker", "0", "healthy", "93s", "1", "500", "12.5",
                                           "2.0", "MB", "0", "B", "999", "B", "9", "4.0", "KB"));
  // A task that does not answer has no rate.
  EXPECT_THAT(Words(lines[5]), ElementsAre("worker", "2", "lost", "3h", "1", "500", "-", "2.0",
                                           "MB", "0", "B", "999", "B", "9", "4.0", "KB"));
  EXPECT_THAT(lines[6], HasSubstr("ps: 1 of 1 healthy"));
  EXPECT_EQ(lines[7], "worker: 2 of 3 healthy, 26.0 steps/s (each 12.5 to 13.5, median 13.0)");
  EXPECT_EQ(lines[8], "worker 2: failed to connect");
}

TEST(StatusTableTest, GpusAreShownBelowTheJobs) {
  TaskView worker = Healthy("worker", 0);
  worker.status.gpus = {{0, "NVIDIA H200", 150'000'000'000, 1'500'000'000, 2000, 1940},
                        {1, "NVIDIA H200", 150'000'000'000, 0, 0, 0}};
  const std::vector<std::string> lines = Lines(Cluster({Healthy("ps", 0), worker}));
  ASSERT_EQ(lines.size(), 8u);
  EXPECT_EQ(lines[6], "worker 0, GPU 0: NVIDIA H200, 1.5 GB of 150.0 GB, 97 % of calls replayed");
  EXPECT_EQ(lines[7], "worker 0, GPU 1: NVIDIA H200, 0 B of 150.0 GB");
}

TEST(StatusTableTest, TasksThatWereNeverReachedOrAreStock) {
  TaskView starting;
  starting.status.task = {"worker", 0};
  TaskView stock = Healthy("worker", 1);
  stock.status.is_muster = false;
  stock.status.devices = 2;
  const std::vector<std::string> lines = Lines(Cluster({starting, stock}));
  EXPECT_THAT(Words(lines[2]),
              ElementsAre("worker", "0", "starting", "0s", "-", "-", "-", "-", "-", "-", "-", "-"));
  EXPECT_THAT(lines[3], HasSubstr("TensorFlow, 2 devices"));
  TaskView left = Healthy("worker", 0);
  left.health = TaskHealth::kLeft;
  left.explanation = "stopped";
  EXPECT_THAT(StatusTable(Cluster({left}), "h:1", {}), Not(HasSubstr("stopped")));
}

TEST(StatusTableTest, ColumnsThatDoNotFitAreLeftOut) {
  const ClusterStatus cluster = Cluster({Healthy("ps", 0), Lost("worker", 10)});
  const size_t whole = Lines(cluster)[1].size();
  for (size_t columns = 1; columns <= whole; ++columns) {
    for (const std::string& line : Lines(cluster, {.columns = columns}))
      EXPECT_LE(line.size(), columns) << line;
  }
  const std::string narrower = Lines(cluster, {.columns = whole - 1})[1];
  EXPECT_THAT(narrower, Not(HasSubstr("VARIABLES")));
  EXPECT_THAT(narrower, HasSubstr("SESSIONS"));
  EXPECT_THAT(Words(Lines(cluster, {.columns = 20})[1]), ElementsAre("TASK", "HEALTH"));
}

TEST(StatusTableTest, UnhealthyTasksAreShownWhenRowsAreFew) {
  std::vector<TaskView> tasks;
  for (int i = 0; i < 50; ++i) tasks.push_back(i == 40 ? Lost("worker", i) : Healthy("worker", i));
  const std::vector<std::string> lines = Lines(Cluster(tasks), {.rows = 12});
  EXPECT_LT(lines.size(), 12u);
  EXPECT_THAT(Words(lines[2])[1], "40");
  EXPECT_THAT(lines, testing::Contains(HasSubstr(" more")));
  EXPECT_EQ(lines.back(), "worker 40: failed to connect");
  EXPECT_EQ(Lines(Cluster(tasks), {.rows = 100}).size(), 2u + 50 + 1 + 1);
}

TEST(StatusTableTest, HealthHasAColourUnlessTheUserObjects) {
  unsetenv("NO_COLOR");
  const ClusterStatus cluster = Cluster({Lost("worker", 0)});
  EXPECT_THAT(StatusTable(cluster, "h:1", {.colours = true}), HasSubstr("\033[31mlost\033[0m"));
  EXPECT_THAT(StatusTable(cluster, "h:1", {}), Not(HasSubstr("\033")));
  setenv("NO_COLOR", "1", 1);
  EXPECT_THAT(StatusTable(cluster, "h:1", {.colours = true}), Not(HasSubstr("\033")));
  unsetenv("NO_COLOR");
}

TEST(FittedLineTest, CutsByLettersAndDropsControls) {
  EXPECT_EQ(FittedLine("abcdef", 0), "abcdef");
  EXPECT_EQ(FittedLine("abcdef", 6), "abcdef");
  EXPECT_EQ(FittedLine("abcdef", 5), "ab...");
  EXPECT_EQ(FittedLine("abcdef", 2), "..");
  EXPECT_EQ(FittedLine("äöü", 3), "äöü");
  EXPECT_EQ(FittedLine("äöüßé", 4), "ä...");
  EXPECT_EQ(FittedLine("a\tb\033[31m\n", 0), "a b [31m ");
}

}  // namespace
}  // namespace muster
