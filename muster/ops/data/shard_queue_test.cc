// The ops of shard queues, in a session: what they refuse, and that waiting ends with the step.
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/cancellation.h"
#include "muster/client/session.h"
#include "muster/graph/build/scope.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

class ShardQueueOpsTest : public ::testing::Test {
 protected:
  Output Queue(AttrMap attrs, absl::string_view name = "q") {
    return scope_.Op("MusterShardQueue", {}, std::move(attrs), name);
  }
  Output Input(DType dtype) {
    return scope_.Op("Placeholder", {}, {{"dtype", dtype}, {"shape", PartialShape()}});
  }
  void Start() {
    ASSERT_EQ(scope_.status(), absl::OkStatus());
    session_ = Session::Create(graph_).value();
  }
  absl::Status Run(const std::vector<std::pair<Output, Tensor>>& feeds, Node* node) {
    return session_->Run(feeds, {}, {node}).status();
  }

  Graph graph_;
  Scope scope_{graph_};
  std::unique_ptr<Session> session_;
};

TEST_F(ShardQueueOpsTest, BadAttributesAreRefused) {
  const auto message = [&](AttrMap attrs) {
    const Output queue = Queue(std::move(attrs), "bad");
    Node* const report = scope_.Add("MusterShardReport", {queue});
    EXPECT_EQ(scope_.status(), absl::OkStatus());
    const absl::Status status = Session::Create(graph_).value()->Run({}, {}, {report}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(message({}), HasSubstr("must have between 1 and"));
  EXPECT_THAT(message({{"count", -1}}), HasSubstr("must have between 1 and"));
  EXPECT_THAT(message({{"count", int64_t{1} << 62}}), HasSubstr("must have between 1 and"));
  EXPECT_THAT(message({{"count", 1}, {"epochs", -1}}), HasSubstr("epochs"));
  EXPECT_THAT(message({{"count", 1}, {"lease_millis", 0}}), HasSubstr("lease"));
  EXPECT_THAT(message({{"count", 1}, {"lease_millis", std::numeric_limits<int64_t>::max()}}),
              HasSubstr("lease"));
}

TEST_F(ShardQueueOpsTest, ASharedQueueMustBeTheSame) {
  const auto report = [&](AttrMap attrs) {
    attrs.emplace("shared_name", std::string("shared"));
    return scope_.Add("MusterShardReport", {Queue(std::move(attrs))});
  };
  Node* const first = report({{"count", 3}});
  Node* const same = report({{"count", 3}});
  Node* const more = report({{"count", 4}});
  Node* const longer = report({{"count", 3}, {"epochs", 2}});
  Node* const other = report({{"shards", std::vector<std::string>{"a", "b", "c"}}});
  Start();
  EXPECT_EQ(Run({}, first), absl::OkStatus());
  EXPECT_EQ(Run({}, same), absl::OkStatus());
  EXPECT_THAT(Run({}, more).message(), HasSubstr("'shared' has a number of shards of 3"));
  EXPECT_THAT(Run({}, longer).message(), HasSubstr("epochs 1 but requested was 2"));
  EXPECT_THAT(Run({}, other).message(), HasSubstr("has other shards than requested"));
}

TEST_F(ShardQueueOpsTest, BadInputIsRefused) {
  const Output queue = Queue({{"count", 2}});
  const Output text = Input(DType::kString), number = Input(DType::kInt64);
  Node* const take = scope_.Add("MusterShardTake", {queue, text, number, number});
  Node* const done = scope_.Add("MusterShardDone", {queue, number});
  Node* const give_back = scope_.Add("MusterShardReturn", {queue, number});
  Node* const renew = scope_.Add("MusterShardRenew", {queue, number});
  Node* const restore = scope_.Add("MusterRestoreShardState", {queue, text});
  const Output table = scope_.Op("MutableHashTableV2", {},
                                 {{"key_dtype", DType::kInt64}, {"value_dtype", DType::kInt64}});
  Node* const mistaken = scope_.Add("MusterShardReport", {table});
  Start();
  const Tensor a = Tensor::Scalar<std::string>("a"), two = Tensor::Vector<std::string>({"a", "b"});
  const Tensor one = Tensor::Scalar<int64_t>(1), list = Tensor::Vector<int64_t>({1, 2});
  const auto refused = [](const absl::Status& status) { return absl::IsInvalidArgument(status); };
  EXPECT_TRUE(refused(Run({{text, two}, {number, one}}, take)));
  EXPECT_TRUE(refused(Run({{text, a}, {number, list}}, take)));
  EXPECT_TRUE(refused(Run({{number, one}}, done)));
  EXPECT_TRUE(refused(Run({{number, list}}, done)));
  EXPECT_TRUE(refused(Run({{number, one}}, give_back)));
  EXPECT_TRUE(refused(Run({{number, list}}, give_back)));
  EXPECT_TRUE(refused(Run({{text, a}}, restore)));
  EXPECT_TRUE(refused(Run({{text, two}}, restore)));
  EXPECT_TRUE(refused(Run({}, mistaken)));
  // Any number of leases, held or not.
  for (const Shape& shape : {Shape(), Shape({0}), Shape({2, 3})}) {
    Tensor tickets(DType::kInt64, shape);
    std::fill_n(tickets.data<int64_t>(), tickets.num_elements(), -5);
    const auto held = session_->Run({{number, tickets}}, {renew->output(0)});
    ASSERT_EQ(held.status(), absl::OkStatus());
    EXPECT_EQ((*held)[0].shape(), shape);
    for (const bool is_held : (*held)[0].values<bool>()) EXPECT_FALSE(is_held);
  }
}

TEST_F(ShardQueueOpsTest, AWaitingTakeEndsWithItsStep) {
  const Output queue = Queue({{"count", 1}});
  Node* const worker = scope_.Add("MusterWorkerIdentity", {});
  Node* const take = scope_.Add("MusterShardTake", {queue, worker->output(0), worker->output(1),
                                                    scope_.ConstScalar<int64_t>(-1)});
  Node* const report = scope_.Add("MusterShardReport", {queue});
  Start();
  const auto first = session_->Run({}, {worker->output(0), take->output(2), take->output(3)});
  ASSERT_EQ(first.status(), absl::OkStatus());
  EXPECT_EQ((*first)[0].scalar<std::string>(), "/job:localhost/replica:0/task:0");
  EXPECT_EQ((*first)[1].scalar<std::string>(), "0");
  RunOptions options;
  options.cancellation = std::make_shared<Cancellation>();
  absl::Status ended;
  std::thread waits([&] { ended = session_->Run({}, {}, {take}, options).status(); });
  // Once it waits: the account says so.
  while (true) {
    const auto account = session_->Run({}, {report->output(0)});
    ASSERT_EQ(account.status(), absl::OkStatus());
    if ((*account)[0].scalar<std::string>().find("\"waiting\": 1") != std::string::npos) break;
    std::this_thread::yield();
  }
  options.cancellation->Cancel(absl::CancelledError("enough"));
  waits.join();
  EXPECT_TRUE(absl::IsCancelled(ended)) << ended;
}

}  // namespace
}  // namespace muster
