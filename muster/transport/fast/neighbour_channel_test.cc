// Tasks on one machine: over gRPC first, without the network as soon as they know each other.
#include "muster/transport/fast/neighbour_channel.h"

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "muster/transport/fast/fast_server.h"
#include "muster/transport/grpc/grpc_fakes_test.h"

namespace muster {
namespace {

class NeighbourChannelTest : public testing::Test {
 protected:
  absl::Status Start(SecurityOptions security = {}) {
    GrpcServerOptions options;
    options.scheduler = &DefaultScheduler();
    options.security = security;
    task_.fast = true;
    task_.worker->recv_reply.value.tensor = *Tensor::Make(DType::kFloat, Shape({1}));
    return task_.Start(std::move(options), std::move(security));
  }
  absl::StatusOr<RecvTensorReply> RecvTensor() {
    return Await<RecvTensorReply>([&](CallDone<RecvTensorReply> done) {
      task_.remote->RecvTensor({}, {3, "key", 4}, std::move(done));
    });
  }
  // Over the network the caller is an address.
  bool CameByLink() const { return absl::StartsWith(task_.worker->last.caller->name, "process "); }
  bool FindsTheLink() {
    const absl::Time end = absl::Now() + absl::Seconds(60);
    while (absl::Now() < end) {
      if (RecvTensor().ok() && CameByLink()) return true;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return false;
  }

  FakeTask task_;
};

TEST_F(NeighbourChannelTest, CallsMoveToTheLink) {
  ASSERT_TRUE(Start().ok());
  EXPECT_TRUE(FindsTheLink());
  EXPECT_EQ(task_.worker->last.peer, CallOptions::Peer::kMuster);
  const std::string process = absl::StrCat("process ", getpid());
  EXPECT_EQ(task_.worker->last.caller->host, process);
  EXPECT_EQ(task_.worker->last.caller->name, absl::StrCat(process, " of user ", geteuid()));
  // The master has a channel of its own, which finds the same link.
  const absl::Time end = absl::Now() + absl::Seconds(60);
  do {
    const auto reply = Await<RunStepReply>([&](CallDone<RunStepReply> done) {
      task_.remote_master->RunStep({}, {}, std::move(done));
    });
    ASSERT_TRUE(reply.ok()) << reply.status();
  } while (task_.master->last.caller != task_.worker->last.caller && absl::Now() < end);
  EXPECT_EQ(task_.master->last.caller, task_.worker->last.caller);
  // The link is that of the process, and stays when a session of it is forgotten.
  EXPECT_EQ(task_.master->last.caller->connection, nullptr);
}

TEST_F(NeighbourChannelTest, TensorsOfAllSizes) {
  ASSERT_TRUE(Start().ok());
  ASSERT_TRUE(FindsTheLink());
  for (const int64_t count : {0, 1, 5'000, 300'000, 20'000'000}) {
    Tensor sent = *Tensor::Make(DType::kFloat, Shape({count}));
    for (int64_t i = 0; i < count; ++i) sent.data<float>()[i] = static_cast<float>(i % 1000);
    task_.worker->recv_reply.value.tensor = sent;
    const auto reply = RecvTensor();
    ASSERT_TRUE(reply.ok()) << reply.status();
    const Tensor& got = reply->value.tensor;
    ASSERT_EQ(got.shape(), sent.shape());
    EXPECT_TRUE(std::equal(got.data<float>(), got.data<float>() + count, sent.data<float>()));
  }
}

TEST_F(NeighbourChannelTest, AServerThatStopsIsLeft) {
  ASSERT_TRUE(Start().ok());
  ASSERT_TRUE(FindsTheLink());
  task_.server->Stop(absl::ZeroDuration());
  const absl::Status status = RecvTensor().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "/job:ps/replica:0/task:0")) << status;
}

TEST_F(NeighbourChannelTest, AnotherServerAtTheAddressIsFound) {
  ASSERT_TRUE(Start().ok());
  ASSERT_TRUE(FindsTheLink());
  const int port = task_.server->port();
  task_.server = nullptr;
  GrpcServerOptions options;
  options.host = "127.0.0.1";
  options.port = port;
  options.scheduler = &DefaultScheduler();
  auto again = GrpcServer::Start(std::move(options), task_.master, task_.worker);
  ASSERT_TRUE(again.ok()) << again.status();
  task_.server = *std::move(again);
  EXPECT_TRUE(FindsTheLink());
}

TEST(CapabilityTest, ATaskBehindAnotherPortIsNoNeighbour) {
  const std::string capability = fast::CapabilityOf(2222, "muster-1-2");
  EXPECT_EQ(fast::NameIn(capability, "localhost:2222"), "muster-1-2");
  EXPECT_EQ(fast::NameIn(capability, "[::1]:2222"), "muster-1-2");
  EXPECT_EQ(fast::NameIn(capability, "localhost:222"), "");
  EXPECT_EQ(fast::NameIn(capability, "localhost:22222"), "");
  EXPECT_EQ(fast::NameIn("batches", "localhost:2222"), "");
}

TEST_F(NeighbourChannelTest, AGuardedServerIsReachedOverTheNetworkOnly) {
  SecurityOptions security;
  security.token = "secret";
  ASSERT_TRUE(Start(security).ok());
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(RecvTensor().ok());
    EXPECT_FALSE(CameByLink());
  }
}

}  // namespace
}  // namespace muster
