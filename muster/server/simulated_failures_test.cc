// What users see when tasks die, stop and come back, on a virtual clock.
#include <random>

#include <gmock/gmock.h>

#include "muster/graph/build/scope.h"
#include "muster/server/simulated_cluster_test.h"

namespace muster {
namespace {

using testing::HasSubstr;

// A counter on each ps, and a sum of them on a worker that does not have the master.
struct Counters {
  explicit Counters(int count) {
    const Scope worker = scope.WithDevice("/job:worker/task:1");
    std::vector<Output> reads;
    for (int i = 0; i < count; ++i) {
      const Scope ps = scope.WithDevice(absl::StrCat("/job:ps/task:", i));
      const Output v = ps.Op("VariableV2", {}, {{"shape", Shape({})}, {"dtype", DType::kInt64}},
                             absl::StrCat("v", i));
      init.push_back(ps.Op("Assign", {v, ps.ConstScalar<int64_t>(0)}));
      add.push_back(ps.Op("AssignAdd", {v, ps.ConstScalar<int64_t>(1)}));
      read.push_back(ps.Op("Identity", {v}));
      reads.push_back(worker.Op("Identity", {v}));
    }
    sum = reads[0];
    for (int i = 1; i < count; ++i) sum = worker.Op("Add", {sum, reads[i]});
    // A step that waits on a worker for a tensor that is never sent.
    const std::string here = "/job:worker/replica:0/task:1/device:CPU:0";
    const Output never = scope.WithDevice(here).Op("_Recv", {},
                                                   {{"tensor_type", DType::kFloat},
                                                    {"tensor_name", "never"},
                                                    {"send_device", here},
                                                    {"send_device_incarnation", int64_t{1}},
                                                    {"recv_device", here}});
    blocked = scope.WithDevice("/job:ps/task:0").Op("Neg", {never});
    EXPECT_TRUE(scope.status().ok()) << scope.status();
  }
  Graph graph;
  Scope scope{graph};
  std::vector<Output> init, add, read;
  Output sum;
  Output blocked;
};

int64_t Value(const absl::StatusOr<std::vector<Tensor>>& result) {
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? (*result)[0].scalar<int64_t>() : -1;
}

class FailureTest : public testing::Test {
 protected:
  static constexpr char kMaster[] = "worker0:1";
  static constexpr const char* kOthers[] = {"ps0:1", "ps1:1", "worker1:1"};

  // A step that nothing ends times out, so that the test fails and does not hang.
  absl::Status Blocked(const std::vector<Node*>& targets = {}) {
    RunOptions options;
    options.timeout = absl::Minutes(10);
    const absl::Duration start = cluster_.now();
    const absl::Status status = session_->Run({}, {counters_.blocked}, targets, options).status();
    took_ = cluster_.now() - start;
    return status;
  }
  void ExpectNextSessionWorks() {
    session_ = cluster_.NewSession(counters_.graph, kMaster);
    EXPECT_TRUE(session_->Run({}, counters_.init).ok());
    EXPECT_EQ(Value(session_->Run({}, {counters_.add[1]})), 1);
  }
  // As a process that is killed: it closes nothing.
  void KillMaster() {
    for (const char* task : kOthers) cluster_.network().Cut(kMaster, task);
    cluster_.Kill(kMaster);
    cluster_.RunFor(absl::Seconds(20));
    for (const char* task : kOthers) cluster_.network().Heal(kMaster, task);
  }
  int64_t SessionsOfOthers() {
    int64_t count = 0;
    for (const char* task : kOthers) count += cluster_.worker(task).counts().sessions;
    return count;
  }
  void SetUp() override { ExpectNextSessionWorks(); }
  void TearDown() override { session_.reset(); }

  SimulatedCluster cluster_{5, {{"ps", 2}, {"worker", 2}}};
  Counters counters_{2};
  std::unique_ptr<Session> session_;
  absl::Duration took_;
};

TEST_F(FailureTest, AKilledTaskFailsTheStepAtOnce) {
  cluster_.After(absl::Seconds(3), [this] { cluster_.Kill("ps0:1"); });
  const absl::Status status = Blocked();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("/job:ps/replica:0/task:0"));
  EXPECT_LT(took_, absl::Seconds(3.1));
  // No call is left waiting at the tasks that live.
  cluster_.RunFor(absl::Seconds(3));
  EXPECT_EQ(cluster_.worker("worker1:1").counts().steps, 0);
  EXPECT_EQ(cluster_.master(kMaster).counts().steps, 0);
  cluster_.Start("ps0:1");
  ExpectNextSessionWorks();
}

// ps 1 adds to its counter at once; worker 1 waits for a tensor that is never sent, and needs ps 0
// only.
TEST_F(FailureTest, AStepEndsWithATaskThatHasDoneItsPart) {
  const auto run = [this] { return Blocked({counters_.add[1].node}); };
  cluster_.After(absl::Seconds(10), [this] { cluster_.Kill("ps1:1"); });
  const absl::Status killed = run();
  EXPECT_EQ(killed.code(), absl::StatusCode::kUnavailable) << killed;
  EXPECT_THAT(std::string(killed.message()), HasSubstr("/job:ps/replica:0/task:1 is gone"));
  EXPECT_GE(took_, absl::Seconds(10));
  EXPECT_LE(took_, absl::Seconds(13));
  cluster_.RunFor(absl::Seconds(3));
  EXPECT_EQ(cluster_.worker("worker1:1").counts().steps, 0);
  EXPECT_EQ(cluster_.master(kMaster).counts().steps, 0);

  cluster_.Start("ps1:1");
  ExpectNextSessionWorks();
  cluster_.After(absl::Seconds(10), [this] {
    cluster_.Kill("ps1:1");
    cluster_.Start("ps1:1");
  });
  const absl::Status restarted = run();
  EXPECT_EQ(restarted.code(), absl::StatusCode::kAborted) << restarted;
  EXPECT_THAT(std::string(restarted.message()),
              HasSubstr("/job:ps/replica:0/task:1 has restarted during the step"));
  EXPECT_LE(took_, absl::Seconds(13));

  ExpectNextSessionWorks();
  cluster_.After(absl::Seconds(10), [this] { cluster_.network().Pause("ps1:1"); });
  const absl::Status silent = run();
  EXPECT_EQ(silent.code(), absl::StatusCode::kUnavailable) << silent;
  EXPECT_THAT(std::string(silent.message()), HasSubstr("task:1 has been silent for 3"));
  EXPECT_LE(took_, absl::Seconds(45));
  cluster_.network().Resume("ps1:1");
}

TEST_F(FailureTest, AStepWithoutAPartAtALostTaskGoesOn) {
  cluster_.After(absl::Seconds(3), [this] { cluster_.Kill("ps1:1"); });
  cluster_.After(absl::Seconds(20), [this] { cluster_.Kill("ps0:1"); });
  const absl::Status status = Blocked();
  EXPECT_THAT(std::string(status.message()), HasSubstr("/job:ps/replica:0/task:0"));
  EXPECT_GE(took_, absl::Seconds(20));
}

TEST_F(FailureTest, AShortSilenceOfATaskThatHasDoneItsPartIsNoLoss) {
  cluster_.After(absl::Seconds(3), [this] { cluster_.network().Pause("ps1:1"); });
  cluster_.After(absl::Seconds(20), [this] { cluster_.network().Resume("ps1:1"); });
  cluster_.After(absl::Seconds(60), [this] { cluster_.Kill("worker1:1"); });
  const absl::Status status = Blocked({counters_.add[1].node});
  EXPECT_THAT(std::string(status.message()), HasSubstr("/job:worker/replica:0/task:1"));
  EXPECT_GE(took_, absl::Seconds(60));
}

TEST_F(FailureTest, AStoppedTaskFailsTheStepAfterItsSilence) {
  cluster_.After(absl::Seconds(3), [this] { cluster_.network().Pause("ps0:1"); });
  const absl::Status status = Blocked();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("/job:ps/replica:0/task:0 has been silent for 30s"));
  EXPECT_GE(took_, absl::Seconds(33));
  EXPECT_LE(took_, absl::Seconds(37));
  // It is known to be silent: further steps do not wait again.
  for (int i = 0; i < 3; ++i) {
    const absl::Status again = Blocked();
    EXPECT_EQ(again.code(), absl::StatusCode::kUnavailable) << again;
    EXPECT_THAT(std::string(again.message()), HasSubstr("/job:ps/replica:0/task:0"));
    EXPECT_LT(took_, absl::Seconds(1));
    cluster_.RunFor(absl::Seconds(10));
  }
  cluster_.network().Resume("ps0:1");
  cluster_.RunFor(absl::Seconds(5));
  EXPECT_EQ(cluster_.worker("worker1:1").counts().steps, 0);
  EXPECT_EQ(cluster_.worker("ps0:1").counts().steps, 0);
  ExpectNextSessionWorks();
}

TEST_F(FailureTest, AShortSilenceHurtsNobody) {
  cluster_.After(absl::Seconds(1), [this] { cluster_.network().Pause("ps1:1"); });
  cluster_.After(absl::Seconds(20), [this] { cluster_.network().Resume("ps1:1"); });
  cluster_.RunFor(absl::Seconds(2));
  EXPECT_EQ(Value(session_->Run({}, {counters_.add[1]})), 2);
}

TEST_F(FailureTest, ACutLinkBetweenWorkersIsNoticedByWhoWaits) {
  // The master still reaches both; only the consumer of the tensor is cut off from its producer.
  cluster_.After(absl::Seconds(1), [this] { cluster_.network().Cut("ps0:1", "worker1:1"); });
  const absl::Status status = Blocked();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("/job:worker/replica:0/task:1 has been silent"));
  EXPECT_LE(took_, absl::Seconds(36));
  cluster_.network().Heal("ps0:1", "worker1:1");
  ExpectNextSessionWorks();
}

TEST_F(FailureTest, ARestartedTaskTellsTheClientToStartAnew) {
  cluster_.Kill("ps0:1");
  cluster_.Start("ps0:1");
  const absl::Status status = session_->Run({}, {counters_.add[0]}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("/job:ps/replica:0/task:0"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("Re-create your session"));
  ExpectNextSessionWorks();
}

TEST_F(FailureTest, ClosingDoesNotWaitForTheDead) {
  cluster_.network().Pause("ps0:1");
  const absl::Duration start = cluster_.now();
  EXPECT_TRUE(session_->Close().ok());
  EXPECT_LE(cluster_.now() - start, absl::Seconds(2.1));
  cluster_.network().Resume("ps0:1");
  cluster_.RunFor(absl::Seconds(20));
  EXPECT_EQ(cluster_.worker("ps0:1").counts().sessions, 0);
}

TEST_F(FailureTest, AStoppedMasterFailsTheStepAfterItsSilence) {
  cluster_.After(absl::Seconds(3), [this] { cluster_.network().Pause(kMaster); });
  const absl::Status status = Blocked();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the master grpc://worker0:1 has been silent for 30s"));
  EXPECT_GE(took_, absl::Seconds(33));
  EXPECT_LE(took_, absl::Seconds(37));
  EXPECT_EQ(Blocked().code(), absl::StatusCode::kUnavailable);
  EXPECT_LT(took_, absl::Seconds(1));
  cluster_.network().Resume(kMaster);
  cluster_.RunFor(absl::Seconds(30));
  EXPECT_EQ(cluster_.worker("worker1:1").counts().steps, 0);
  ExpectNextSessionWorks();
}

TEST_F(FailureTest, AKilledMasterFailsTheStepSoon) {
  cluster_.After(absl::Seconds(3), [this] { cluster_.Kill(kMaster); });
  const absl::Status status = Blocked();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the master grpc://worker0:1 is gone"));
  EXPECT_LE(took_, absl::Seconds(3 + 5));
  // A new session waits for it, as TensorFlow's do.
  session_ = cluster_.NewSession(counters_.graph, kMaster);
  const absl::Duration start = cluster_.now();
  cluster_.After(absl::Minutes(10), [this] { cluster_.Start(kMaster); });
  EXPECT_TRUE(session_->Run({}, counters_.init).ok());
  EXPECT_GE(cluster_.now() - start, absl::Minutes(10));
}

TEST_F(FailureTest, ATaskThatWasAwayHearsOfClosedSessions) {
  for (const bool is_cut : {false, true}) {
    // Longer than any wait for an answer.
    if (is_cut) {
      for (const char* task : kOthers) cluster_.network().Cut(kMaster, task);
    } else {
      cluster_.network().Pause("ps0:1");
    }
    EXPECT_TRUE(session_->Close().ok());
    cluster_.RunFor(absl::Minutes(5));
    if (is_cut) {
      for (const char* task : kOthers) cluster_.network().Heal(kMaster, task);
    } else {
      cluster_.network().Resume("ps0:1");
    }
    cluster_.RunFor(absl::Minutes(6));
    EXPECT_EQ(SessionsOfOthers(), 0);
    ExpectNextSessionWorks();
  }
}

TEST_F(FailureTest, SessionsOfAMasterThatDiesGoAtTheWorkers) {
  EXPECT_EQ(SessionsOfOthers(), 3);
  // A task that is only idle, or silent for a while, is not dead.
  cluster_.RunFor(absl::Hours(24));
  EXPECT_EQ(SessionsOfOthers(), 3);
  cluster_.network().Pause(kMaster);
  cluster_.RunFor(absl::Minutes(8));
  cluster_.network().Resume(kMaster);
  cluster_.RunFor(absl::Minutes(30));
  EXPECT_EQ(SessionsOfOthers(), 3);
  EXPECT_EQ(Value(session_->Run({}, {counters_.add[1]})), 2);
  cluster_.RunFor(absl::Minutes(5));
  KillMaster();
  cluster_.RunFor(absl::Minutes(8));
  EXPECT_EQ(SessionsOfOthers(), 3);
  cluster_.RunFor(absl::Minutes(4));
  EXPECT_EQ(SessionsOfOthers(), 0);
  cluster_.Start(kMaster);
  ExpectNextSessionWorks();
}

TEST_F(FailureTest, SessionsOfAMasterThatRestartsGoSoon) {
  KillMaster();
  EXPECT_EQ(SessionsOfOthers(), 3);
  cluster_.Start(kMaster);
  cluster_.RunFor(absl::Minutes(2.5));
  EXPECT_EQ(SessionsOfOthers(), 0);
  ExpectNextSessionWorks();
}

TEST_F(FailureTest, AMasterThatWasNeverReachedHasTenTimesAsLong) {
  for (const char* task : kOthers) cluster_.network().Cut(task, kMaster);
  cluster_.RunFor(absl::Minutes(95));
  EXPECT_EQ(SessionsOfOthers(), 3);
  cluster_.RunFor(absl::Minutes(10));
  EXPECT_EQ(SessionsOfOthers(), 0);
}

// One history from one seed: what happened, and when.
struct History {
  std::string log;
  int acknowledged = 0;
  int failed = 0;
};

History Live(uint64_t seed) {
  History history;
  std::mt19937_64 random(seed);
  const auto pick = [&random](int count) { return static_cast<int>(random() % count); };
  const auto seconds = [&random](double limit) {
    return absl::Seconds(std::uniform_real_distribution<>(0, limit)(random));
  };
  SimulatedCluster cluster(seed, {{"ps", 2}, {"worker", 2}});
  Counters counters(2);
  const std::vector<std::string> tasks = cluster.Addresses();
  int lives[2] = {0, 0};  // of each ps
  const auto harm = [&] {
    const std::string a = tasks[pick(4)];
    const std::string b = tasks[pick(4)];
    const absl::Duration at = seconds(2);
    const absl::Duration until = at + seconds(50);
    switch (pick(5)) {
      case 0:
        cluster.After(at, [&cluster, &lives, a] {
          if (a == "ps0:1" || a == "ps1:1") ++lives[a[2] - '0'];
          cluster.Kill(a);
        });
        cluster.After(until, [&cluster, a] { cluster.Start(a); });
        break;
      case 1:
        cluster.After(at, [&cluster, a] { cluster.network().Pause(a); });
        cluster.After(until, [&cluster, a] { cluster.network().Resume(a); });
        break;
      case 2:
        cluster.After(at, [&cluster, a, b] { cluster.network().Cut(a, b); });
        cluster.After(until, [&cluster, a, b] { cluster.network().Heal(a, b); });
        break;
      case 3:
        cluster.After(at, [&cluster, a, b] { cluster.network().SetLoss(a, b, 0.3); });
        cluster.After(until, [&cluster, a, b] { cluster.network().SetLoss(a, b, 0); });
        break;
      default:
        cluster.After(at, [&cluster] { cluster.network().SetLoss("client", "worker0:1", 0.2); });
        cluster.After(until, [&cluster] { cluster.network().SetLoss("client", "worker0:1", 0); });
    }
  };
  struct Known {
    int life = -1;  // in which the counter was set to zero
    int acknowledged = 0;
    int attempts = 0;
  } known[2];
  for (int round = 0; round < 4; ++round) {
    harm();
    auto session = cluster.NewSession(counters.graph, "worker0:1");
    const auto run = [&](const char* what, std::vector<Output> fetches) {
      const absl::Duration start = cluster.now();
      auto result = session->Run({}, fetches);
      const absl::Duration took = cluster.now() - start;
      absl::StrAppend(&history.log, absl::ToInt64Nanoseconds(cluster.now()), " ", what, " ",
                      absl::StatusCodeToString(result.status().code()), "\n");
      // Making a session may wait for a task that is down, and a master that is down is waited for
      // too: both for 50 s at most.
      EXPECT_LE(took, absl::Seconds(52 + 36)) << what << ", seed " << seed;
      const absl::StatusCode code = result.status().code();
      EXPECT_TRUE(result.ok() || code == absl::StatusCode::kUnavailable ||
                  code == absl::StatusCode::kAborted ||
                  code == absl::StatusCode::kFailedPrecondition)
          << what << ", seed " << seed << ": " << result.status();
      return result;
    };
    for (int step = 0; step < 6; ++step) {
      cluster.RunFor(seconds(1));
      const int i = pick(2);
      if (known[i].life != lives[i]) {
        const int life = lives[i];
        if (!run("init", {counters.init[i]}).ok()) break;
        if (life == lives[i]) known[i] = {life, 0, 0};
        continue;
      }
      const int life = lives[i];
      ++known[i].attempts;
      const auto result = run("add", {counters.add[i]});
      if (!result.ok()) {
        ++history.failed;
        break;
      }
      ++history.acknowledged;
      if (life == lives[i]) ++known[i].acknowledged;
      run("sum", {counters.sum}).IgnoreError();
    }
    session.reset();
    cluster.RunFor(seconds(5));
  }
  // All is well again: nothing that was acknowledged is lost.
  cluster.RunFor(absl::Minutes(2));
  const auto session = cluster.NewSession(counters.graph, "worker0:1");
  for (int i = 0; i < 2; ++i) {
    if (known[i].life != lives[i]) continue;
    const int64_t value = Value(session->Run({}, {counters.read[i]}));
    EXPECT_GE(value, known[i].acknowledged) << "seed " << seed;
    EXPECT_LE(value, known[i].attempts) << "seed " << seed;
    absl::StrAppend(&history.log, "v", i, " = ", value, "\n");
  }
  return history;
}

TEST(SimulatedFailuresTest, EveryStepEndsAndNothingAcknowledgedIsLost) {
  int acknowledged = 0;
  int failed = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    const History history = Live(seed);
    acknowledged += history.acknowledged;
    failed += history.failed;
    if (HasFailure()) {
      ADD_FAILURE() << "the history of seed " << seed << ":\n" << history.log;
      break;
    }
  }
  // The seeds are worth their time.
  EXPECT_GT(acknowledged, 100);
  EXPECT_GT(failed, 10);
}

TEST(SimulatedFailuresTest, ASeedReplaysExactly) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const std::string first = Live(seed).log;
    EXPECT_EQ(first, Live(seed).log) << "seed " << seed;
  }
}

}  // namespace
}  // namespace muster
