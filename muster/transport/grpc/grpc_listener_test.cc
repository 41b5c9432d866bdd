#include "muster/transport/grpc/grpc_listener.h"

#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/net/socket_fakes_test.h"
#include "muster/transport/fast/greeting.h"
#include "muster/transport/fast/packet.h"
#include "muster/transport/grpc/grpc_fakes_test.h"

namespace muster {
namespace {

// How a client of HTTP/2 begins.
const std::string kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);

std::string Frame(char type, char flags, uint32_t stream, const std::string& body) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame.push_back(static_cast<char>(body.size() >> shift));
  frame.push_back(type);
  frame.push_back(flags);
  for (const int shift : {24, 16, 8, 0}) frame.push_back(static_cast<char>(stream >> shift));
  return frame + body;
}

// The beginning of a call, without its request.
std::string Headers(uint32_t stream) {
  const std::string path = "/tensorflow.WorkerService/GetStatus";
  const std::string body = absl::StrCat(
      "\x83\x86\x44", std::string(1, static_cast<char>(path.size())), path, "\x41\x01x",
      "\x5f\x10"
      "application/grpc",
      "\x40\x02te\x08trailers");
  return Frame(1, 4, stream, body);
}
// The request that is missing: a message of no bytes, and the end.
std::string Request(uint32_t stream) {
  return Frame(0, 1, stream, std::string(5, '\0'));
}
std::string Reset(uint32_t stream) {
  return Frame(3, 0, stream, std::string("\0\0\0\x08", 4));
}

bool IsGreeted(const TestClient& client) {
  char byte;
  return recv(client.fd(), &byte, 1, 0) == 1;
}

// Whether this comes.
bool Hears(const TestClient& client, const std::string& text) {
  std::string heard;
  char byte;
  while (!absl::EndsWith(heard, text) && recv(client.fd(), &byte, 1, 0) == 1) heard += byte;
  return absl::EndsWith(heard, text);
}

template <typename Condition>
bool Eventually(Condition condition) {
  const absl::Time end = absl::Now() + absl::Seconds(30);
  while (!condition()) {
    if (absl::Now() > end) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

class GrpcListenerTest : public testing::Test {
 protected:
  void Start(ConnectionLimits limits) {
    acceptor_ = std::make_shared<Acceptor>("the port", limits);
    GrpcServerOptions options;
    options.acceptor = acceptor_;
    options.scheduler = &DefaultScheduler();
    const absl::Status started = task_.Start(std::move(options));
    ASSERT_TRUE(started.ok()) << started;
  }
  int port() const { return task_.server->port(); }
  absl::Status Call(bool wait = false) {
    CallOptions options;
    options.wait_for_ready = wait;
    options.timeout = absl::Seconds(30);
    return Await<std::vector<DeviceAttributes>>(
               [&](auto done) { task_.remote->GetStatus(std::move(options), std::move(done)); })
        .status();
  }
  // Connected, and it has said so.
  std::unique_ptr<TestClient> Speaker(const char* from = "127.0.0.1") {
    auto client = std::make_unique<TestClient>(port(), from);
    client->Send(kPreface);
    return client;
  }

  FakeTask task_;
  std::shared_ptr<Acceptor> acceptor_;
};

TEST_F(GrpcListenerTest, ConnectionsOverTheLimitAreClosedAndPlacesComeBack) {
  Start({4, 3});
  std::vector<std::unique_ptr<TestClient>> open;
  for (int i = 0; i < 3; ++i) {
    open.push_back(Speaker());
    ASSERT_TRUE(IsGreeted(*open.back()));
  }
  TestClient refused(port());
  EXPECT_EQ(refused.ReadAll(), "");
  EXPECT_EQ(acceptor_->Counts().refused, 1);
  open.push_back(Speaker("127.0.0.2"));
  ASSERT_TRUE(Eventually([&] { return acceptor_->Counts().open == 4; }));
  EXPECT_FALSE(acceptor_->Status().ok());
  open.clear();
  EXPECT_TRUE(Eventually([&] { return acceptor_->Counts().open == 0; }));
  EXPECT_TRUE(acceptor_->Status().ok());
  const absl::Status answered = Call(/*wait=*/true);
  EXPECT_TRUE(answered.ok()) << answered;
}

TEST_F(GrpcListenerTest, ConnectionsThatDoNotGreetEnd) {
  GrpcServerOptions options;
  options.handshake_timeout = absl::Milliseconds(200);
  ASSERT_TRUE(task_.Start(std::move(options)).ok());
  // Nothing, a part of the preface, the preface without its settings, a part of those.
  for (const size_t bytes : {0, 10, 24, 30}) {
    TestClient client(port());
    ASSERT_TRUE(client.Send(kPreface.substr(0, bytes)));
    client.ReadAll();  // until it ends
  }
  const std::unique_ptr<TestClient> greeting = Speaker();
  EXPECT_TRUE(IsGreeted(*greeting));
}

TEST_F(GrpcListenerTest, SilentConnectionsGoForNewOnes) {
  Start({4, 3});
  std::vector<std::unique_ptr<TestClient>> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(std::make_unique<TestClient>(port()));
  const absl::Status answered = Call();
  EXPECT_TRUE(answered.ok()) << answered;
  EXPECT_EQ(acceptor_->Counts().refused, 0);
  EXPECT_GE(acceptor_->Counts().dropped, 8);
  silent.front()->ReadAll();  // ends, after the server's greeting
}

TEST_F(GrpcListenerTest, AcceptsAgainAfterTheDescriptorsWereUsedUp) {
  Start({100, 100});
  TestClient client;
  {
    const NoDescriptors none;
    client.Connect(port());
    EXPECT_TRUE(Eventually([&] { return acceptor_->Counts().failures >= 3; }));
    EXPECT_FALSE(acceptor_->Status().ok());
  }
  EXPECT_TRUE(Eventually([&] { return acceptor_->Status().ok(); }));
  const absl::Status answered = Call();
  EXPECT_TRUE(answered.ok()) << answered;
  EXPECT_TRUE(IsGreeted(client)) << "a client that has waited is served too";
}

TEST_F(GrpcListenerTest, WithoutDescriptorsItTriesNowAndThen) {
  Start({100, 100});
  TestClient client;
  const NoDescriptors none;
  const absl::Time start = absl::Now();
  client.Connect(port());
  EXPECT_TRUE(Eventually([&] { return acceptor_->Counts().failures >= 4; }));
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(300));
}

// For new peers the bytes sent are checked first; peers that were served once are judged by their
// calls alone.
enum class Caller : uint8_t { kStranger, kServed };

class GrpcFloodTest : public GrpcListenerTest, public testing::WithParamInterface<Caller> {
 protected:
  void SetUp() override {
    Start({100, 100});
    ASSERT_TRUE(Call().ok());
    client_ = Speaker();
    if (GetParam() == Caller::kStranger) return;
    client_->Send(Headers(1) + Request(1));
    ASSERT_TRUE(Hears(*client_, "/job:ps/replica:0/task:0/device:CPU:0"));
  }
  // Sends such calls until the connection is closed.
  template <typename Text>
  void Flood(Text call) {
    uint32_t stream = 3;
    EXPECT_TRUE(Eventually([&] {
      std::string calls;
      for (int i = 0; i < 100; ++i, stream += 2) calls += call(stream);
      return !client_->Send(calls);
    }));
    EXPECT_EQ(acceptor_->Counts().dropped, 1);
    EXPECT_TRUE(Call().ok()) << "others stay connected";
    EXPECT_EQ(acceptor_->Counts().accepted, 2);
  }
  std::unique_ptr<TestClient> client_;
};
INSTANTIATE_TEST_SUITE_P(Callers, GrpcFloodTest,
                         testing::Values(Caller::kStranger, Caller::kServed));

TEST_P(GrpcFloodTest, CallsThatAreGivenUpEndTheirConnection) {
  Flood([](uint32_t stream) { return Headers(stream) + Reset(stream); });
}

TEST_P(GrpcFloodTest, CallsThatNeverSendTheirRequestEndTheirConnection) {
  Flood(Headers);
}

class LinkListenerTest : public GrpcListenerTest {
 protected:
  void Start(ConnectionLimits limits) {
    task_.links = Links::kNetwork;
    GrpcListenerTest::Start(limits);
  }
  // The answer to a greeting.
  static std::string Answer(const TestClient& client) {
    std::string answer(sizeof(fast::Greeting), ' ');
    const ssize_t count = recv(client.fd(), answer.data(), answer.size(), MSG_WAITALL);
    answer.resize(count < 0 ? 0 : static_cast<size_t>(count));
    return answer;
  }
  const fast::Greeting greeting_{};
  const std::string own_{greeting_.bytes()};
};

TEST_F(LinkListenerTest, TheFirstBytesTellLinksFromGrpc) {
  Start({100, 100});
  TestClient link(port());
  for (const char byte : own_) ASSERT_TRUE(link.Send(std::string(1, byte)));
  EXPECT_EQ(Answer(link), own_);
  EXPECT_TRUE(IsGreeted(*Speaker()));
  EXPECT_TRUE(Call().ok());
}

TEST_F(LinkListenerTest, OtherGreetingsEndTheConnection) {
  Start({100, 100});
  for (const std::string& text : {std::string("MUSTER LINK 2\r\n\0", 16), std::string("MUSTERS"),
                                  std::string("GET / HTTP/1.1\r\n\r\n")}) {
    TestClient other(port());
    ASSERT_TRUE(other.Send(text));
    EXPECT_FALSE(absl::StrContains(other.ReadAll(), "MUSTER LINK"));
  }
  TestClient half(port());
  ASSERT_TRUE(half.Send(own_.substr(0, 10)));
  shutdown(half.fd(), SHUT_WR);
  EXPECT_EQ(half.ReadAll(), "");
  EXPECT_TRUE(Eventually([&] { return acceptor_->Counts().open == 0; }));
}

TEST_F(LinkListenerTest, ConnectionsThatSayNothingAreLeftToGrpc) {
  Start({1000, 1000});
  std::vector<std::unique_ptr<TestClient>> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(std::make_unique<TestClient>(port()));
  TestClient link(port());
  ASSERT_TRUE(link.Send(own_));
  for (const auto& each : silent) EXPECT_TRUE(IsGreeted(*each));
  TestClient later(port());
  ASSERT_TRUE(later.Send(own_));
  EXPECT_EQ(Answer(later), own_);
}

// gRPC counts no call of it, and takes it for an idle stranger.
TEST_F(LinkListenerTest, ALinkIsNotDroppedForNewConnections) {
  Start({4, 3});
  TestClient link(port());
  ASSERT_TRUE(link.Send(own_));
  EXPECT_EQ(Answer(link), own_);
  std::vector<std::unique_ptr<TestClient>> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(std::make_unique<TestClient>(port()));
  ASSERT_TRUE(Eventually([&] { return acceptor_->Counts().dropped >= 10; }));
  const fast::PacketHeader ping = {.kind = fast::PacketKind::kPing};
  ASSERT_TRUE(link.Send(std::string(reinterpret_cast<const char*>(&ping), sizeof(ping))));
  EXPECT_TRUE(IsGreeted(link)) << "it answers";
}

TEST_F(GrpcListenerTest, SessionsAtATargetShareAConnection) {
  Start({100, 100});
  const std::string target = absl::StrCat("grpc://127.0.0.1:", port());
  std::vector<std::shared_ptr<MasterApi>> masters;
  for (int i = 0; i < 50; ++i) {
    auto master = task_.transport->ConnectMaster(target);
    ASSERT_TRUE(master.ok());
    const auto reply = Await<ListDevicesReply>(
        [&](auto done) { (*master)->ListDevices({}, "session", std::move(done)); });
    EXPECT_TRUE(reply.ok()) << reply.status();
    masters.push_back(*std::move(master));
  }
  EXPECT_EQ(acceptor_->Counts().accepted, 1);
  task_.remote_master = nullptr;
  masters.clear();
  EXPECT_TRUE(Eventually([&] { return acceptor_->Counts().open == 0; }))
      << "the last session ends the connection";
}

}  // namespace
}  // namespace muster
