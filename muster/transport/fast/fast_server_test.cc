#include "muster/transport/fast/fast_server.h"

#include <vector>

#include "absl/time/clock.h"
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "muster/base/net/socket_fakes_test.h"

namespace muster::fast {
namespace {

class FastServerTest : public testing::Test {
 protected:
  void SetUp() override {
    // A quarter is for links, half of that for one process.
    const SoftLimit limit(400);
    auto server = FastServer::Start(
        [](FastCall call) { std::move(call.reply)(absl::UnimplementedError("")); },
        DefaultScheduler(), 1 << 20);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  static Descriptor NewSocket() {
    return Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  bool Connect(const Descriptor& socket) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    server_->name().copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
    const auto size =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + server_->name().size());
    return connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0;
  }
  template <typename Condition>
  bool Eventually(Condition condition) {
    const absl::Time end = absl::Now() + absl::Seconds(30);
    while (!condition(server_->Counts())) {
      if (absl::Now() > end) return false;
      absl::SleepFor(absl::Milliseconds(2));
    }
    return true;
  }

  std::shared_ptr<FastServer> server_;
};

TEST_F(FastServerTest, WithoutDescriptorsItTriesNowAndThen) {
  const Descriptor socket = NewSocket();
  {
    const NoDescriptors none;
    const absl::Time start = absl::Now();
    ASSERT_TRUE(Connect(socket));
    EXPECT_TRUE(Eventually([](const ConnectionCounts& counts) { return counts.failures >= 4; }));
    EXPECT_GE(absl::Now() - start, absl::Milliseconds(300));
  }
  EXPECT_TRUE(Eventually([](const ConnectionCounts& counts) { return counts.accepted == 1; }));
}

TEST_F(FastServerTest, AProcessMayHaveSoManyLinks) {
  constexpr int kMost = 50;
  std::vector<Descriptor> open;
  for (int i = 0; i < kMost + 10; ++i) {
    open.push_back(NewSocket());
    ASSERT_TRUE(Connect(open.back())) << i;
  }
  EXPECT_TRUE(Eventually([](const ConnectionCounts& counts) { return counts.refused == 10; }));
  EXPECT_EQ(server_->Counts().open, kMost);
  open.clear();
  // Links that have ended are noticed when places are wanted.
  EXPECT_TRUE(Eventually([this](const ConnectionCounts& counts) {
    const Descriptor another = NewSocket();
    return Connect(another) && counts.open < 10;
  }));
}

}  // namespace
}  // namespace muster::fast
