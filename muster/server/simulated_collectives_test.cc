// Collectives among masters and workers of several tasks, and what becomes of them when a rank dies
// or stops at any moment. On a virtual clock.
#include <gmock/gmock.h>

#include "muster/graph/scope.h"
#include "muster/server/simulated_cluster_test.h"

namespace muster {
namespace {

using testing::HasSubstr;

constexpr int kRanks = 3;
constexpr char kLeader[] = "/job:worker/replica:0/task:0";

std::string AddressOf(int rank) {
  return absl::StrCat("worker", rank, ":1");
}
std::string TaskOf(int rank) {
  return absl::StrCat("/job:worker/replica:0/task:", rank);
}

// The part of one rank: between-graph replication, keys are fed.
struct Rank {
  explicit Rank(int rank) {
    const Scope at = scope.WithDevice(absl::StrCat("/job:worker/task:", rank));
    for (const char* name : {"group_size", "group_key", "instance_key"}) {
      keys.push_back(
          at.Op("Placeholder", {}, {{"dtype", DType::kInt32}, {"shape", Shape()}}, name));
    }
    Tensor values(DType::kFloat, Shape({100}));
    std::fill_n(values.data<float>(), 100, static_cast<float>(rank + 1));
    const Output value = at.Const(values);
    sum = at.Op("CollectiveReduceV2", {value, keys[0], keys[1], keys[2], std::vector<Output>()},
                {{"merge_op", std::string("Add")}, {"final_op", std::string("Id")}});
    gathered = at.Op("CollectiveGather", {value},
                     {{"T", DType::kFloat},
                      {"group_size", int64_t{kRanks}},
                      {"group_key", int64_t{8}},
                      {"instance_key", int64_t{3}},
                      {"shape", PartialShape({0})}});
    if (rank == 1) {
      given = at.Op("CollectiveBcastSendV2", {value, keys[0], keys[1], keys[2]});
    } else {
      given = at.Op("CollectiveBcastRecvV2",
                    {keys[0], keys[1], keys[2], at.Const(Tensor::Vector<int32_t>({100}))},
                    {{"T", DType::kFloat}});
    }
    EXPECT_TRUE(scope.status().ok()) << scope.status();
  }
  std::vector<std::pair<Output, Tensor>> Feeds(int size, int group, int instance) const {
    return {{keys[0], Tensor::Scalar<int32_t>(size)},
            {keys[1], Tensor::Scalar<int32_t>(group)},
            {keys[2], Tensor::Scalar<int32_t>(instance)}};
  }
  Graph graph;
  Scope scope{graph};
  std::vector<Output> keys;
  Output sum;
  Output gathered;
  Output given;
};

class Ranks {
 public:
  explicit Ranks(uint64_t seed) : cluster(seed, {{"worker", kRanks}}, kLeader) {
    for (int i = 0; i < kRanks; ++i) {
      parts.push_back(std::make_unique<Rank>(i));
      sessions.push_back(cluster.NewSession(parts[i]->graph, AddressOf(i)));
    }
  }
  ~Ranks() { sessions.clear(); }

  struct Outcome {
    absl::StatusOr<std::vector<Tensor>> result = absl::UnknownError("never ran");
    absl::Duration end;
  };
  // All at once; returns when all of them have ended.
  std::vector<Outcome> Run(const std::vector<int>& ranks, Output Rank::*fetch, int group,
                           int instance) {
    std::vector<Outcome> outcomes(kRanks);
    int left = static_cast<int>(ranks.size());
    for (const int i : ranks) {
      cluster.After(absl::ZeroDuration(), [&, i] {
        const Rank& part = *parts[i];
        const auto feeds = fetch == &Rank::gathered
                               ? std::vector<std::pair<Output, Tensor>>()
                               : part.Feeds(static_cast<int>(ranks.size()), group, instance);
        outcomes[i].result = sessions[i]->Run(feeds, {part.*fetch});
        outcomes[i].end = cluster.now();
        --left;
      });
    }
    cluster.scheduler().RunUntil([&] { return left == 0; });
    EXPECT_EQ(left, 0);
    return outcomes;
  }

  SimulatedCluster cluster;
  std::vector<std::unique_ptr<Rank>> parts;
  std::vector<std::unique_ptr<Session>> sessions;
};

TEST(SimulatedCollectivesTest, MastersAgreeOnStepsAndRanksOnResults) {
  Ranks ranks(3);
  for (int step = 0; step < 3; ++step) {
    for (const auto& outcome : ranks.Run({0, 1, 2}, &Rank::sum, 1, 1)) {
      ASSERT_TRUE(outcome.result.ok()) << outcome.result.status();
      EXPECT_EQ((*outcome.result)[0].data<float>()[99], 6);
    }
    for (const auto& outcome : ranks.Run({0, 1, 2}, &Rank::given, 1, 2)) {
      ASSERT_TRUE(outcome.result.ok()) << outcome.result.status();
      EXPECT_EQ((*outcome.result)[0].data<float>()[99], 2);
    }
    for (const auto& outcome : ranks.Run({0, 1, 2}, &Rank::gathered, 0, 0)) {
      ASSERT_TRUE(outcome.result.ok()) << outcome.result.status();
      EXPECT_EQ((*outcome.result)[0].num_elements(), 300);
      EXPECT_EQ((*outcome.result)[0].data<float>()[299], 3);
    }
  }
  for (int i = 0; i < kRanks; ++i) EXPECT_EQ(ranks.cluster.worker(AddressOf(i)).counts().steps, 0);
}

// The survivors' errors name the victim, come within the bound, and a new group works at once.
void FailAt(int victim, absl::Duration delay, bool kill, Output Rank::*fetch, bool is_formed) {
  SCOPED_TRACE(absl::StrCat("rank ", victim, (kill ? " killed after " : " stopped after "),
                            absl::FormatDuration(delay)));
  Ranks ranks(7);
  SimulatedCluster& cluster = ranks.cluster;
  if (is_formed) {
    for (const auto& outcome : ranks.Run({0, 1, 2}, fetch, 1, 1))
      ASSERT_TRUE(outcome.result.ok()) << outcome.result.status();
  }
  absl::Duration failed = absl::InfiniteDuration();
  cluster.After(delay, [&] {
    failed = cluster.now();
    if (kill) {
      cluster.Kill(AddressOf(victim));
    } else {
      cluster.network().Pause(AddressOf(victim));
      cluster.After(absl::Seconds(60), [&] { cluster.network().Resume(AddressOf(victim)); });
    }
  });
  const auto outcomes = ranks.Run({0, 1, 2}, fetch, 1, 1);
  std::vector<int> survivors;
  for (int i = 0; i < kRanks; ++i) {
    if (i == victim) continue;
    survivors.push_back(i);
    const absl::Status status = outcomes[i].result.status();
    if (status.ok()) continue;
    EXPECT_THAT(std::string(status.message()), HasSubstr(TaskOf(victim))) << "at rank " << i;
    EXPECT_LE(outcomes[i].end - failed, kill ? absl::Seconds(5) : absl::Seconds(36)) << status;
  }
  if (victim == 0) return;  // the leader: whoever comes next needs another
  for (const auto& outcome : ranks.Run(survivors, &Rank::sum, 2, 5)) {
    if (&outcome - outcomes.data() == victim) continue;
    if (outcome.result.status().message() == "never ran") continue;
    EXPECT_TRUE(outcome.result.ok()) << outcome.result.status();
  }
}

TEST(SimulatedCollectivesTest, AKilledRankFailsTheOthersByName) {
  for (int victim = 0; victim < kRanks; ++victim) {
    for (int ms = 0; ms < 24; ms += 2) {
      FailAt(victim, absl::Milliseconds(ms), true, &Rank::sum, true);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(SimulatedCollectivesTest, AStoppedRankFailsTheOthersByName) {
  for (int victim = 0; victim < kRanks; ++victim) {
    for (int ms = 1; ms < 24; ms += 4) {
      FailAt(victim, absl::Milliseconds(ms), false, &Rank::sum, true);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(SimulatedCollectivesTest, ABroadcastWithoutOneOfItsRanksFails) {
  for (int victim = 0; victim < kRanks; ++victim) {
    for (int ms = 0; ms < 12; ms += 3) {
      FailAt(victim, absl::Milliseconds(ms), true, &Rank::given, true);
      if (testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace muster
