#include "muster/cli/launch_plan.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/transport/api/cluster_json.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// "ps 0, worker 1 | worker 2": the tasks of each process.
std::string TasksOf(const LaunchPlan& plan) {
  return absl::StrJoin(plan.processes, " | ", [](std::string* out, const PlannedProcess& process) {
    absl::StrAppend(
        out, absl::StrJoin(process.tasks, ", ", [](std::string* text, const LaunchedTask& task) {
          absl::StrAppend(text, task.job, " ", task.index);
        }));
  });
}

std::string ErrorOf(const absl::StatusOr<LaunchPlan>& plan) {
  return std::string(plan.status().message());
}

// Without the variables by which schedulers tell a process which task it is.
class LaunchPlanTest : public testing::Test {
 protected:
  LaunchPlanTest() {
    for (const char* const name :
         {"TF_CONFIG", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_ID",
          "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE",
          "SLURM_JOB_ID", "SLURM_PROCID", "SLURM_NODEID", "SLURM_DISTRIBUTION",
          "JOB_COMPLETION_INDEX"}) {
      const char* const value = std::getenv(name);
      before_[name] = value == nullptr ? std::nullopt : std::optional<std::string>(value);
      unsetenv(name);
    }
  }
  ~LaunchPlanTest() override {
    for (const auto& [name, value] : before_) {
      if (value.has_value()) {
        setenv(name.c_str(), value->c_str(), 1);
      } else {
        unsetenv(name.c_str());
      }
    }
  }

  static void Set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

  // The path of a file of hosts.
  static std::string HostsFile(const std::string& text) {
    const std::string path = testing::TempDir() + "launch_plan_hosts";
    std::ofstream(path) << text;
    return path;
  }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

TEST_F(LaunchPlanTest, EachTaskHasAProcessAndAFreePort) {
  const auto plan = PlanLocal({.ps = 1, .workers = 2});
  ASSERT_EQ(plan.status(), absl::OkStatus());
  EXPECT_EQ(TasksOf(*plan), "ps 0 | worker 0 | worker 1");
  EXPECT_FALSE(plan->shares_processes);
  EXPECT_EQ(plan->reserved.size(), 3u);
  std::set<std::string> addresses(plan->workers.begin(), plan->workers.end());
  addresses.insert(plan->ps.begin(), plan->ps.end());
  EXPECT_EQ(addresses.size(), 3u);
  for (const std::string& address : addresses)
    EXPECT_TRUE(absl::StartsWith(address, "localhost:")) << address;
}

TEST_F(LaunchPlanTest, NeighboursShareProcesses) {
  const auto plan = PlanLocal({.ps = 2, .workers = 3, .processes = 2});
  ASSERT_EQ(plan.status(), absl::OkStatus());
  EXPECT_EQ(TasksOf(*plan), "ps 0, ps 1 | worker 0, worker 1, worker 2");
  EXPECT_TRUE(plan->shares_processes);
  EXPECT_FALSE(plan->closed);
  EXPECT_THAT(ErrorOf(PlanLocal({.ps = 1, .workers = 1, .processes = 3})),
              HasSubstr("--processes 3 for 2 tasks"));
}

TEST_F(LaunchPlanTest, AStandaloneClusterNeedsNoPorts) {
  const auto plan = PlanLocal({.ps = 1, .workers = 2, .standalone = true});
  ASSERT_EQ(plan.status(), absl::OkStatus());
  EXPECT_EQ(TasksOf(*plan), "ps 0, worker 0, worker 1");
  EXPECT_TRUE(plan->closed);
  EXPECT_THAT(plan->reserved, IsEmpty());
  EXPECT_THAT(plan->ps, ElementsAre("standalone:1"));
  EXPECT_THAT(plan->workers, ElementsAre("standalone:2", "standalone:3"));
}

TEST_F(LaunchPlanTest, TheChiefOfTfConfigIsTheFirstWorker) {
  const auto plan_of = [](absl::string_view chief, absl::string_view type, int index) {
    return PlanTfConfig(absl::StrCat(R"({"cluster": {")", chief,
                                     R"(": ["c:1"], "worker": ["w0:1", "w1:1"], )",
                                     R"("ps": ["p:1"], "evaluator": ["e:1"]}, "task": {"type": ")",
                                     type, R"(", "index": )", index, "}}"));
  };
  for (const char* const chief : {"chief", "master"}) {
    const auto plan = plan_of(chief, "worker", 1);
    ASSERT_EQ(plan.status(), absl::OkStatus());
    EXPECT_THAT(plan->ps, ElementsAre("p:1"));
    EXPECT_THAT(plan->workers, ElementsAre("c:1", "w0:1", "w1:1"));
    EXPECT_EQ(TasksOf(*plan), "worker 2");
    EXPECT_TRUE(plan->keeps_tf_config);
    EXPECT_EQ(TasksOf(plan_of(chief, chief, 0).value()), "worker 0");
    EXPECT_EQ(TasksOf(plan_of(chief, "ps", 0).value()), "ps 0");
    EXPECT_EQ(TasksOf(plan_of(chief, "evaluator", 0).value()), "evaluator 0");
    EXPECT_THAT(ErrorOf(plan_of(chief, "worker", 5)), HasSubstr("5"));
  }
}

TEST_F(LaunchPlanTest, WhatTfConfigCannotMeanIsAnError) {
  const auto error_of = [](absl::string_view cluster, absl::string_view task) {
    return ErrorOf(PlanTfConfig(absl::StrCat(R"({"cluster": )", cluster, task, "}")));
  };
  const char* const worker = R"(, "task": {"type": "worker", "index": 0})";
  EXPECT_THAT(ErrorOf(PlanTfConfig(R"({"task": {"type": "worker", "index": 0}})")),
              HasSubstr("TF_CONFIG has no cluster"));
  EXPECT_THAT(error_of(R"({"worker": ["a:1"]})", ""), HasSubstr("does not say which task"));
  EXPECT_THAT(error_of(R"({"worker": {"1": "a:1"}})", worker),
              HasSubstr("job 'worker' has no task 0"));
  EXPECT_THAT(error_of(R"({"chief": ["a:1", "b:1"], "worker": ["c:1"]})", worker),
              HasSubstr("more than one chief"));
  EXPECT_THAT(error_of(R"({"chief": ["a:1"], "master": ["b:1"], "worker": ["c:1"]})", worker),
              HasSubstr("more than one chief"));
  EXPECT_THAT(error_of(R"({"trainer": ["a:1"], "worker": ["c:1"]})", worker),
              HasSubstr("job 'trainer'"));
}

TEST_F(LaunchPlanTest, AddressesFollowPatterns) {
  LaunchFlags flags{.ps = 2,
                    .workers = 1,
                    .job_name = "ps",
                    .task_index = 1,
                    .ps_address = "ps-{}.ps:2222",
                    .worker_address = "w:2222"};
  const auto plan = PlanNamed(flags);
  ASSERT_EQ(plan.status(), absl::OkStatus());
  EXPECT_THAT(plan->ps, ElementsAre("ps-0.ps:2222", "ps-1.ps:2222"));
  EXPECT_THAT(plan->workers, ElementsAre("w:2222"));
  EXPECT_EQ(TasksOf(*plan), "ps 1");

  flags.task_index = -1;
  Set("JOB_COMPLETION_INDEX", "0");
  EXPECT_EQ(TasksOf(PlanNamed(flags).value()), "ps 0");
  Set("JOB_COMPLETION_INDEX", "first");
  EXPECT_THAT(ErrorOf(PlanNamed(flags)), HasSubstr("JOB_COMPLETION_INDEX is 'first'"));
}

TEST_F(LaunchPlanTest, PatternsThatDoNotFitAreErrors) {
  const LaunchFlags good{.ps = 2,
                         .workers = 1,
                         .job_name = "ps",
                         .task_index = 0,
                         .ps_address = "p{}:1",
                         .worker_address = "w:1"};
  ASSERT_TRUE(PlanNamed(good).ok());
  const auto error_of = [&](auto change) {
    LaunchFlags flags = good;
    change(flags);
    return ErrorOf(PlanNamed(flags));
  };
  EXPECT_THAT(error_of([](LaunchFlags& f) { f.job_name = "chief"; }),
              HasSubstr("ps or worker expected"));
  EXPECT_THAT(error_of([](LaunchFlags& f) { f.ps_address = "p:1"; }),
              AllOf(HasSubstr("--ps_address is 'p:1'"), HasSubstr("{}")));
  EXPECT_THAT(error_of([](LaunchFlags& f) { f.worker_address = "w"; }), HasSubstr("'w'"));
  EXPECT_THAT(error_of([](LaunchFlags& f) { f.worker_address = "p1:1"; }), HasSubstr("'p1:1'"));
  EXPECT_THAT(error_of([](LaunchFlags& f) { f.task_index = 2; }), HasSubstr("there is no ps 2"));
}

TEST_F(LaunchPlanTest, HostsTakeTasksInTurnUpToTheirSlots) {
  const auto plan = PlanHosts({.ps = 1,
                               .workers = 3,
                               .hosts_file = HostsFile("# two hosts\na slots=1\n\n me@b  # more\n"),
                               .port = 5000});
  ASSERT_EQ(plan.status(), absl::OkStatus());
  EXPECT_THAT(plan->ps, ElementsAre("a:5000"));
  EXPECT_THAT(plan->workers, ElementsAre("b:5000", "b:5001", "b:5002"));
  ASSERT_EQ(plan->processes.size(), 4u);
  EXPECT_EQ(plan->processes[0].ssh_host, "a");
  EXPECT_EQ(plan->processes[3].ssh_host, "me@b");
  EXPECT_EQ(plan->processes[3].port, 5002);
}

TEST_F(LaunchPlanTest, BadFilesOfHostsAreErrors) {
  const auto error_of = [](const std::string& text) {
    return ErrorOf(PlanHosts({.ps = 1, .workers = 1, .hosts_file = HostsFile(text)}));
  };
  EXPECT_THAT(error_of("a slots=1\n"), AllOf(HasSubstr("2 tasks do not fit"), HasSubstr("for 1")));
  EXPECT_THAT(error_of("a\nb slots=0\n"), AllOf(HasSubstr("line 2"), HasSubstr("'slots=0'")));
  EXPECT_THAT(error_of("a cores=3\n"), HasSubstr("'cores=3' is not understood"));
  EXPECT_THAT(error_of("-oProxyCommand=x\n"), HasSubstr("is not a host"));
  EXPECT_THAT(error_of("# none\n"), HasSubstr("names none"));
  const auto missing = PlanHosts({.hosts_file = "/nonexistent/hosts"});
  EXPECT_TRUE(absl::IsNotFound(missing.status())) << missing.status();
}

TEST_F(LaunchPlanTest, TheEnvironmentDecidesUnlessFlagsDo) {
  LaunchFlags flags{.ps = 1, .workers = 1};
  EXPECT_EQ(TasksOf(MakePlan(flags).value()), "ps 0 | worker 0");

  Set("TF_CONFIG", R"({"cluster": {"worker": ["a:1", "b:1"]}, )"
                   R"("task": {"type": "worker", "index": 1}})");
  EXPECT_EQ(TasksOf(MakePlan(flags).value()), "worker 1");
  flags.workers_given = true;
  EXPECT_EQ(TasksOf(MakePlan(flags).value()), "ps 0 | worker 0");
  flags.workers_given = false;
  flags.environment = "local";
  EXPECT_EQ(TasksOf(MakePlan(flags).value()), "ps 0 | worker 0");
  flags.environment = "auto";

  Set("SLURM_STEP_ID", "0");
  Set("SLURM_STEP_NUM_TASKS", "2");
  Set("SLURM_STEP_NODELIST", "n[1-2]");
  Set("SLURM_STEP_TASKS_PER_NODE", "1(x2)");
  Set("SLURM_JOB_ID", "7");
  Set("SLURM_PROCID", "1");
  const auto slurm = MakePlan(flags);
  ASSERT_EQ(slurm.status(), absl::OkStatus());
  EXPECT_EQ(TasksOf(*slurm), "worker 0");
  ASSERT_TRUE(slurm->peers.has_value());
  EXPECT_EQ(slurm->peers->host, "n1");
  EXPECT_EQ(slurm->peers->rank, 1);

  Set("OMPI_COMM_WORLD_SIZE", "2");
  Set("OMPI_COMM_WORLD_RANK", "first");
  EXPECT_THAT(ErrorOf(MakePlan(flags)), HasSubstr("OMPI_COMM_WORLD_RANK is 'first'"));
  flags.standalone = true;
  EXPECT_EQ(TasksOf(MakePlan(flags).value()), "ps 0, worker 0");
  flags.metrics_port = 9090;
  EXPECT_THAT(ErrorOf(MakePlan(flags)), HasSubstr("--metrics-port"));
}

TEST_F(LaunchPlanTest, ATaskIsToldTheSameTwice) {
  LaunchPlan plan;
  plan.ps = {"p:1"};
  plan.workers = {"a:1", "b:1"};
  EXPECT_THAT(ClusterFlags(plan, {"worker", 1}),
              ElementsAre("--ps_hosts=p:1", "--worker_hosts=a:1,b:1", "--job_name=worker",
                          "--task_index=1"));
  const auto config = ParseTfConfig(TfConfigText(plan, {"worker", 1}));
  ASSERT_EQ(config.status(), absl::OkStatus());
  EXPECT_EQ(config->cluster, ClusterSpec::Parse("ps=p:1;worker=a:1,b:1").value());
  EXPECT_EQ(config->job, "worker");
  EXPECT_EQ(config->task, 1);
  plan.ps.clear();
  EXPECT_EQ(ParseTfConfig(TfConfigText(plan, {"worker", 0}))->cluster,
            ClusterSpec::Parse("worker=a:1,b:1").value());
}

}  // namespace
}  // namespace muster
