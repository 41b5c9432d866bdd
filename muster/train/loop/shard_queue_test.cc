// Shard queues of C++ programs: on a cluster, in checkpoints, with the hook.
#include "muster/train/loop/shard_queue.h"

#include <filesystem>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "muster/base/json.h"
#include "muster/client/connect.h"
#include "muster/server/local_cluster.h"
#include "muster/train/events/event_writer.h"
#include "muster/train/loop/training_session.h"
#include "muster/train/model/device_setter.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

int64_t Number(const std::string& report, absl::string_view name) {
  return static_cast<int64_t>(*Json::Parse(report).value().Find(name)->number());
}

TEST(ShardQueueTest, OptionsAndPlaces) {
  Graph graph;
  const Scope scope(graph);
  EXPECT_TRUE(absl::IsInvalidArgument(ShardQueue::Make(scope, {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ShardQueue::Make(scope, {.count = -1}).status()));
  const auto device = [&](const Scope& at, const std::string& wanted = "") {
    ShardQueueOptions options;
    options.count = 2;
    options.device = wanted;
    const auto queue = ShardQueue::Make(at, std::move(options)).value();
    // The asking worker is not on the queue's task.
    EXPECT_EQ(graph.FindNode(queue->name() + "/worker")->device(), "");
    return queue->handle().node->device();
  };
  EXPECT_EQ(device(scope), "");
  ReplicaDeviceOptions replica;
  replica.worker_device = "/job:worker/task:1";
  EXPECT_EQ(device(scope.WithDeviceFunction(ReplicaDeviceSetter(2, replica))), "/job:ps/task:0");
  EXPECT_EQ(device(scope.WithDevice("/job:ps/task:1")), "/job:ps/task:1");
  // Without parameter servers: where all find it.
  EXPECT_EQ(device(scope.WithDevice("/job:worker/task:2")), "/job:worker/task:0");
  EXPECT_EQ(device(scope.WithDevice("/job:worker/task:2"), "/job:data/task:3"), "/job:data/task:3");
}

TEST(ShardQueueTest, WorkersOfAClusterShareIt) {
  constexpr int kWorkers = 3, kShards = 40, kEpochs = 2;
  const auto cluster = LocalCluster::Create({{"ps", 1}, {"worker", kWorkers}}).value();
  Mutex mutex;
  std::map<std::pair<int64_t, std::string>, int> done;
  std::vector<std::thread> threads;
  for (int i = 0; i < kWorkers; ++i) {
    threads.emplace_back([&, i] {
      Graph graph;
      ReplicaDeviceOptions replica;
      replica.worker_device = absl::StrCat("/job:worker/task:", i);
      const Scope scope = Scope(graph).WithDeviceFunction(ReplicaDeviceSetter(1, replica));
      ShardQueueOptions options;
      for (int shard = 0; shard < kShards; ++shard)
        options.shards.push_back(absl::StrCat("file", shard));
      options.epochs = kEpochs;
      options.shuffle = true;
      options.lease = absl::Minutes(10);
      const auto queue = ShardQueue::Make(scope, std::move(options)).value();
      const auto session =
          Session::Create(graph, OptionsForTarget(cluster->target("worker", i).value()).value())
              .value();
      while (true) {
        const absl::StatusOr<std::optional<DataShard>> shard = queue->Take(*session);
        ASSERT_TRUE(shard.ok()) << shard.status();
        if (!shard->has_value()) break;
        const absl::StatusOr<bool> counts = queue->Done(*session, **shard);
        ASSERT_TRUE(counts.ok()) << counts.status();
        EXPECT_TRUE(*counts);
        MutexLock lock(mutex);
        ++done[{(*shard)->epoch, (*shard)->value}];
      }
      const std::string report = queue->Report(*session).value();
      EXPECT_EQ(Number(report, "done"), kShards * kEpochs) << report;
      EXPECT_EQ(Number(report, "repeated") + Number(report, "returned"), 0) << report;
      EXPECT_THAT(report, HasSubstr(absl::StrCat("/job:worker/replica:0/task:", i)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(done, SizeIs(kShards * kEpochs));
  for (const auto& [shard, times] : done) EXPECT_EQ(times, 1) << shard.second;
}

TEST(ShardQueueTest, TensorsTakeWithinAStep) {
  Graph graph;
  const Scope scope(graph);
  const auto queue = ShardQueue::Make(scope, {.count = 2}).value();
  const ShardQueue::Taken taken = queue->AddTake(scope).value();
  const Output done = queue->AddDone(scope, taken.ticket).value();
  const Output ticket = scope.Op("Placeholder", {}, {{"dtype", DType::kInt64}});
  const Output held = queue->AddRenew(scope, ticket).value();
  const auto session = Session::Create(graph).value();
  const auto first = session->Run({}, {taken.value, done, taken.ticket});
  ASSERT_EQ(first.status(), absl::OkStatus());
  EXPECT_EQ((*first)[0].scalar<std::string>(), "0");
  EXPECT_TRUE((*first)[1].scalar<bool>());
  EXPECT_FALSE(session->Run({{ticket, (*first)[2]}}, {held}).value()[0].scalar<bool>());
  const auto second = session->Run({}, {taken.ticket});
  EXPECT_TRUE(session->Run({{ticket, (*second)[0]}}, {held}).value()[0].scalar<bool>());
  const std::string report = queue->Report(*session).value();
  EXPECT_EQ(Number(report, "done"), 1);
  EXPECT_EQ(Number(report, "handed"), 2);
}

TEST(ShardQueueTest, GivenBackAndAskedAgain) {
  Graph graph;
  const Scope scope(graph);
  const auto queue = ShardQueue::Make(scope, {.count = 1}).value();
  const auto session = Session::Create(graph).value();
  const DataShard first = queue->Take(*session).value().value();
  EXPECT_EQ(queue->Renew(*session), absl::OkStatus());
  ASSERT_EQ(queue->Return(*session, first), absl::OkStatus());
  const DataShard second = queue->Take(*session).value().value();
  EXPECT_NE(first.ticket, second.ticket);
  EXPECT_TRUE(queue->Done(*session, second).value());
  EXPECT_FALSE(queue->Done(*session, first).value());  // done by another
  EXPECT_FALSE(queue->Take(*session).value().has_value());
  EXPECT_EQ(Number(queue->Report(*session).value(), "repeated"), 1);
}

// A training program that is ended in the middle goes on with the shards that its checkpoint has
// not seen done.
class ShardQueueTrainingTest : public ::testing::Test {
 protected:
  ShardQueueTrainingTest()
      : folder_(absl::StrCat(::testing::TempDir(), "/shard_queue_", getpid())) {
    std::filesystem::remove_all(folder_);
  }
  ~ShardQueueTrainingTest() override {
    EventWriterCache::Clear();
    std::filesystem::remove_all(folder_);
  }
  // Trains on up to `limit` shards. A clean end saves.
  absl::StatusOr<std::vector<std::string>> Train(int limit, bool clean) {
    Graph graph;
    const Scope scope(graph);
    Model model;
    const TrainVariable step = model.AddGlobalStep(scope);
    Node* const train = Assign(scope, step, scope.ConstScalar<int64_t>(1), "AssignAdd").node;
    ASSIGN_OR_RETURN(const std::shared_ptr<ShardQueue> queue,
                     ShardQueue::Make(scope, {.shards = {"a", "b", "c", "d", "e"}}));
    model.shard_queues.push_back(queue);
    RETURN_IF_ERROR(scope.status());
    MonitoredTrainingSessionOptions options;
    options.graph = &graph;
    options.model = model;
    options.checkpoint_dir = folder_;
    options.save_checkpoint = Interval::Steps(1000);
    ASSIGN_OR_RETURN(const std::unique_ptr<MonitoredSession> session,
                     MonitoredTrainingSession(std::move(options)));
    std::vector<std::string> seen;
    while (static_cast<int>(seen.size()) < limit) {
      ASSIGN_OR_RETURN(const std::optional<DataShard> shard, queue->Take(*session));
      if (!shard.has_value()) break;
      RETURN_IF_ERROR(session->Run({}, {}, {train}).status());
      RETURN_IF_ERROR(queue->Done(*session, *shard).status());
      seen.push_back(shard->value);
    }
    ASSIGN_OR_RETURN(report_, queue->Report(*session));
    if (clean) {
      RETURN_IF_ERROR(session->Close());
    } else {
      session->CloseAfter(absl::InternalError("lost")).IgnoreError();
    }
    return seen;
  }

  const std::string folder_;
  std::string report_;
};

TEST_F(ShardQueueTrainingTest, ItsStateIsInTheCheckpoint) {
  EXPECT_THAT(Train(2, true).value(), ElementsAre("a", "b"));
  // Nothing of this is saved: it is done again.
  EXPECT_THAT(Train(2, false).value(), ElementsAre("c", "d"));
  EXPECT_THAT(Train(9, true).value(), ElementsAre("c", "d", "e"));
  EXPECT_EQ(Number(report_, "done"), 5);
  EXPECT_EQ(Number(report_, "repeated"), 0);
  EXPECT_EQ(Number(report_, "restored"), 2);  // what a lost process restored is lost as well
  EXPECT_THAT(Train(9, true).value(), SizeIs(0));
}

// A shard that takes longer than its lease stays its worker's, since the hook renews it.
TEST(ShardQueueHookTest, RenewsWhileAShardIsWorkedOn) {
  Graph graph;
  const Scope scope(graph);
  Model model;
  model.AddGlobalStep(scope);
  ShardQueueOptions options;
  options.count = 1;
  options.lease = absl::Seconds(3);
  const auto queue = ShardQueue::Make(scope, options).value();
  model.shard_queues.push_back(queue);
  MonitoredTrainingSessionOptions training;
  training.graph = &graph;
  training.model = model;
  const auto session = MonitoredTrainingSession(std::move(training)).value();
  const DataShard shard = queue->Take(*session).value().value();
  // Until the lease ends later than the first one would have.
  while (true) {
    const Json report = Json::Parse(queue->Report(*session).value()).value();
    const Json& held = report.Find("held")->list()->at(0);
    if (*held.Find("seconds")->number() + *held.Find("lease_left")->number() > 3.1) break;
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_TRUE(queue->Done(*session, shard).value());
  EXPECT_EQ(session->Close(), absl::OkStatus());
}

}  // namespace
}  // namespace muster
