// Collectives among masters and workers of several tasks, and how they end when a rank dies or
// stops at any moment. On a virtual clock.
#include <gmock/gmock.h>

#include "muster/graph/build/scope.h"
#include "muster/server/simulated_cluster_test.h"

namespace muster {
namespace {

constexpr int kRanks = 3;
constexpr char kLeader[] = "/job:worker/replica:0/task:0";

std::string AddressOf(int rank) {
  return absl::StrCat("worker", rank, ":1");
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
    value = at.Const(values);
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
  Output value;
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
      // Steps of several ranks are nested on the one thread: each must be a single call, which the
      // first of a session is not.
      EXPECT_TRUE(sessions[i]->Run({}, {parts[i]->value}).ok());
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

}  // namespace
}  // namespace muster
