#include "muster/base/net/acceptor.h"

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include "muster/base/net/listening_sockets.h"
#include "muster/base/net/socket_fakes_test.h"

namespace muster {
namespace {

using testing::HasSubstr;

class AcceptorTest : public testing::Test {
 protected:
  void SetUp() override {
    auto sockets = ListeningSockets::Bind("127.0.0.1", 0);
    ASSERT_TRUE(sockets.ok()) << sockets.status();
    sockets_ = *std::move(sockets);
    ASSERT_TRUE(sockets_.Listen().ok());
  }
  int listener() const { return sockets_.sockets().front().get(); }
  int port() const { return sockets_.port(); }
  // None when no waiting connection is within the limits; all that wait are tried.
  std::optional<Acceptor::Connection> Accept(Acceptor& acceptor, bool drops_oldest = false) {
    return acceptor.Accept(listener(), [&](const std::string* peer) {
      if (!drops_oldest) return false;
      for (auto at = open_.begin(); at != open_.end(); ++at) {
        if (peer != nullptr && at->peer != *peer) continue;
        acceptor.Ended(at->peer, Acceptor::End::kDropped);
        open_.erase(at);
        return true;
      }
      return false;
    });
  }

  ListeningSockets sockets_;
  std::vector<Acceptor::Connection> open_;
};

TEST_F(AcceptorTest, LimitsPerPeerAndInAll) {
  Acceptor acceptor("port 1", {3, 2});
  TestClient first(port()), second(port()), third(port());
  for (int i = 0; i < 2; ++i) open_.push_back(Accept(acceptor).value());
  EXPECT_EQ(open_[0].peer, "127.0.0.1");
  EXPECT_FALSE(Accept(acceptor).has_value());
  EXPECT_EQ(third.ReadAll(), "");  // it is closed at once
  EXPECT_TRUE(acceptor.Status().ok()) << "others can still connect";
  TestClient elsewhere(port(), "127.0.0.2");
  open_.push_back(Accept(acceptor).value());
  EXPECT_THAT(std::string(acceptor.Status().message()), HasSubstr("all 3 places are taken"));
  TestClient too_many(port(), "127.0.0.3");
  EXPECT_FALSE(Accept(acceptor).has_value());
  EXPECT_EQ(too_many.ReadAll(), "");

  acceptor.Ended("127.0.0.1", Acceptor::End::kClosed);
  EXPECT_TRUE(acceptor.Status().ok());
  TestClient again(port());
  EXPECT_TRUE(Accept(acceptor).has_value());
  const ConnectionCounts counts = acceptor.Counts();
  EXPECT_EQ(counts.open, 3);
  EXPECT_EQ(counts.accepted, 4);
  EXPECT_EQ(counts.refused, 2);
}

TEST_F(AcceptorTest, RoomIsMadeAmongThePeersOwn) {
  Acceptor acceptor("port 1", {3, 2});
  TestClient other(port(), "127.0.0.2");
  TestClient first(port()), second(port());
  for (int i = 0; i < 3; ++i) open_.push_back(Accept(acceptor).value());
  TestClient third(port());
  ASSERT_TRUE(Accept(acceptor, /*drops_oldest=*/true).has_value());
  EXPECT_EQ(first.ReadAll(), "");
  EXPECT_TRUE(other.IsSilent());
  EXPECT_EQ(acceptor.Counts().dropped, 1);
}

TEST_F(AcceptorTest, WithoutDescriptorsItSaysSoAndGoesOnLater) {
  Acceptor acceptor("port 1", {3, 3});
  TestClient client;
  {
    const NoDescriptors none;
    client.Connect(port());
    EXPECT_FALSE(Accept(acceptor).has_value());
    EXPECT_GT(acceptor.pause(), absl::ZeroDuration());
    EXPECT_EQ(acceptor.Status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(acceptor.Status().message()), HasSubstr("Too many open files"));
  }
  EXPECT_TRUE(Accept(acceptor).has_value()) << "the connection has waited";
  EXPECT_EQ(acceptor.pause(), absl::ZeroDuration());
  EXPECT_TRUE(acceptor.Status().ok());
  EXPECT_EQ(acceptor.Counts().failures, 1);
}

TEST_F(AcceptorTest, SpareDescriptorsAreForConnectionsOnly) {
  Acceptor acceptor("port 1", {10, 10}, /*keeps_spares=*/true);
  std::vector<TestClient> clients(Acceptor::kSpares + 1);
  const NoDescriptors none;
  EXPECT_FALSE(Accept(acceptor).has_value());
  EXPECT_LT(Descriptor(dup(0)).get(), 0) << "no spare is used while no connection waits";
  for (TestClient& client : clients) client.Connect(port());
  for (size_t i = 0; i < Acceptor::kSpares; ++i) open_.push_back(Accept(acceptor).value());
  EXPECT_FALSE(Accept(acceptor).has_value());
  acceptor.Close(std::move(open_.front()), Acceptor::End::kClosed);
  EXPECT_EQ(clients.front().ReadAll(), "");
  EXPECT_LT(Descriptor(dup(0)).get(), 0) << "the descriptor of the first becomes spare";
  EXPECT_TRUE(Accept(acceptor).has_value());
}

TEST(ConnectionLimitsTest, SomeDescriptorsRemain) {
  for (const int descriptors : {128, 256, 1024, 20000, 1 << 20}) {
    const ConnectionLimits limits = ConnectionLimitsFor(descriptors);
    EXPECT_LE(limits.in_all, descriptors - 64);
    EXPECT_GE(limits.in_all, 16);
    EXPECT_LT(limits.per_peer, limits.in_all);
  }
  EXPECT_GT(ConnectionLimitsFor(10).per_peer, 0);
}

TEST(ListeningSocketsTest, OnePortOnAllAddresses) {
  for (const char* host : {"127.0.0.1", "localhost", ""}) {
    const auto sockets = ListeningSockets::Bind(host, 0);
    ASSERT_TRUE(sockets.ok()) << sockets.status();
    EXPECT_GT(sockets->port(), 0);
    ASSERT_TRUE(sockets->Listen().ok());
    const TestClient client(sockets->port());
    const absl::Status taken = ListeningSockets::Bind(host, sockets->port()).status();
    EXPECT_EQ(taken.code(), absl::StatusCode::kUnknown);
    EXPECT_THAT(std::string(taken.message()),
                HasSubstr(absl::StrCat("port ", sockets->port(), ": Address already in use")));
  }
  EXPECT_FALSE(ListeningSockets::Bind("192.0.2.1", 0).ok());
}

TEST(ListeningSocketsTest, OnlyOneListensOnAPortThatSeveralHaveTaken) {
  const auto first = ListeningSockets::Bind("127.0.0.1", 0);
  ASSERT_TRUE(first.ok());
  const auto second = ListeningSockets::Bind("127.0.0.1", first->port());
  ASSERT_TRUE(second.ok());
  ASSERT_TRUE(second->Listen().ok());
  EXPECT_EQ(first->Listen().code(), absl::StatusCode::kUnknown);
}

}  // namespace
}  // namespace muster
