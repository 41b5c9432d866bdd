// Over gRPC first, over links as soon as the tasks know each other.
#include "muster/transport/fast/neighbour_channel.h"

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "muster/transport/api/peer.h"
#include "muster/transport/fast/fast_server.h"
#include "muster/transport/fast/remote_link.h"
#include "muster/transport/grpc/grpc_fakes_test.h"

namespace muster {
namespace {

class NeighbourChannelTest : public testing::Test {
 protected:
  explicit NeighbourChannelTest(Links links = Links::kAll) : links_(links) {}
  absl::Status Start(SecurityOptions security = {}) {
    GrpcServerOptions options;
    options.scheduler = &DefaultScheduler();
    options.security = security;
    task_.links = links_;
    task_.worker->recv_reply.value.tensor = *Tensor::Make(DType::kFloat, Shape({1}));
    return task_.Start(std::move(options), std::move(security));
  }
  absl::StatusOr<RecvTensorReply> RecvTensor() {
    return Await<RecvTensorReply>([&](CallDone<RecvTensorReply> done) {
      task_.remote->RecvTensor({}, {3, "key", 4}, std::move(done));
    });
  }
  // Over the network the caller is an address; over gRPC it also says in which role it calls.
  bool CameByLink() const {
    const Caller& caller = *task_.worker->last.caller;
    return absl::StartsWith(caller.name, links_ == Links::kAll ? "process " : "127.0.0.1:") &&
           caller.role == Caller::Role::kUnknown;
  }
  bool FindsTheLink() {
    const absl::Time end = absl::Now() + absl::Seconds(60);
    while (absl::Now() < end) {
      if (RecvTensor().ok() && CameByLink()) return true;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return false;
  }

  FakeTask task_;
  const Links links_;
};

class NeighbourChannelOfBothKindsTest : public NeighbourChannelTest,
                                        public testing::WithParamInterface<Links> {
 protected:
  NeighbourChannelOfBothKindsTest() : NeighbourChannelTest(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Links, NeighbourChannelOfBothKindsTest,
                         testing::Values(Links::kAll, Links::kNetwork));

TEST_F(NeighbourChannelTest, LinksOverTheNetworkNeedATaskThatTakesThem) {
  task_.links = Links::kNone;
  ASSERT_TRUE(task_.Start().ok());
  const PeerInfo& self = LocalPeer();
  const std::string address = absl::StrCat("127.0.0.1:", task_.server->port());
  const auto link =
      fast::ConnectLink(address, self.incarnation, absl::Seconds(60), DefaultScheduler(), SIZE_MAX);
  EXPECT_EQ(link.status().code(), absl::StatusCode::kUnavailable) << link.status();
}

TEST_F(NeighbourChannelTest, LinksOverTheNetworkReachTheProcessThatAnswered) {
  ASSERT_TRUE(Start().ok());
  const PeerInfo& self = LocalPeer();
  const std::string port = absl::StrCat(":", task_.server->port());
  for (const auto& [host, incarnation, text] :
       {std::tuple("127.0.0.1", self.incarnation, ""),
        std::tuple("localhost", self.incarnation, ""),
        std::tuple("127.0.0.1", self.incarnation + 1, "another process answers"),
        std::tuple("no.such.host.invalid", self.incarnation, "cannot resolve")}) {
    const auto link = fast::ConnectLink(absl::StrCat(host, port), incarnation, absl::Seconds(60),
                                        DefaultScheduler(), SIZE_MAX);
    EXPECT_EQ(link.ok(), *text == '\0') << link.status();
    EXPECT_THAT(std::string(link.status().message()), testing::HasSubstr(text));
  }
}

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

TEST_P(NeighbourChannelOfBothKindsTest, TensorsOfAllSizes) {
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

TEST_P(NeighbourChannelOfBothKindsTest, AServerThatStopsIsLeft) {
  ASSERT_TRUE(Start().ok());
  ASSERT_TRUE(FindsTheLink());
  task_.server->Stop(absl::ZeroDuration());
  const absl::Status status = RecvTensor().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "/job:ps/replica:0/task:0")) << status;
}

TEST_P(NeighbourChannelOfBothKindsTest, AnotherServerAtTheAddressIsFound) {
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

TEST_P(NeighbourChannelOfBothKindsTest, AGuardedServerIsReachedOverGrpcOnly) {
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
