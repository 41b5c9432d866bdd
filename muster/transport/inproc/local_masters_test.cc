#include "muster/transport/inproc/local_masters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/transport/api/local_address.h"

namespace muster {
namespace {

// Only its address matters.
std::shared_ptr<MasterApi> SomeMaster() {
  static auto owner = std::make_shared<int>(0);
  return {owner, reinterpret_cast<MasterApi*>(owner.get())};
}

TEST(LocalMastersTest, FindsMastersByTargetAndByAddress) {
  const auto master = SomeMaster();
  const auto registration = std::make_unique<LocalMasterRegistration>(
      LocalMaster{"grpc://some-name:1234", 1234, {"127.0.0.1"}, master});
  EXPECT_EQ(FindLocalMaster("grpc://some-name:1234"), master);
  EXPECT_EQ(FindLocalMaster("grpc://127.0.0.1:1234"), master);
  EXPECT_EQ(FindLocalMaster("grpc://127.0.0.1:1235"), nullptr);
  // Another process may listen there.
  EXPECT_EQ(FindLocalMaster("grpc://127.0.0.2:1234"), nullptr);
  EXPECT_EQ(FindLocalMaster("http://127.0.0.1:1234"), nullptr);
  EXPECT_EQ(FindLocalMaster("grpc://127.0.0.1:1234:1"), nullptr);
}

TEST(LocalMastersTest, AMasterOnAllInterfacesIsAtEveryAddressOfTheMachine) {
  const auto master = SomeMaster();
  const LocalMasterRegistration registration({"grpc://localhost:1234", 1234, {}, master});
  EXPECT_EQ(FindLocalMaster("grpc://127.0.0.2:1234"), master);
  EXPECT_EQ(FindLocalMaster("grpc://192.0.2.1:1234"), nullptr);  // for documentation only
}

TEST(LocalMastersTest, ForgetsWhatHasStopped) {
  { const LocalMasterRegistration registration({"grpc://a:1", 1, {}, SomeMaster()}); }
  EXPECT_EQ(FindLocalMaster("grpc://a:1"), nullptr);
}

TEST(LocalAddressTest, KnowsItsOwn) {
  EXPECT_TRUE(IsLocalAddress("127.0.0.1"));
  EXPECT_FALSE(IsLocalAddress("192.0.2.1"));
  EXPECT_TRUE(IsLoopbackAddress("127.1.2.3"));
  EXPECT_TRUE(IsLoopbackAddress("::1"));
  EXPECT_FALSE(IsLoopbackAddress("10.0.0.1"));
  EXPECT_EQ(ParseHostPort("[::1]:5").value().host, "::1");
  EXPECT_EQ(ParseHostPort("a:5").value().port, 5);
  for (const char* text : {"a", "a:b", "a:1:2", "a:70000", ":x", "a:-1"})
    EXPECT_FALSE(ParseHostPort(text).ok()) << text;
}

TEST(ReservedPortTest, ATakenPortIsAnError) {
  auto any = ReservedPort::Take("127.0.0.1", 0);
  ASSERT_TRUE(any.ok()) << any.status();
  EXPECT_GT(any->port(), 0);
  const auto elsewhere = ReservedPort::Take("192.0.2.1", 0);
  EXPECT_EQ(elsewhere.status().code(), absl::StatusCode::kUnknown);
  EXPECT_THAT(elsewhere.status().message(), testing::HasSubstr("Could not start gRPC server"));
}

}  // namespace
}  // namespace muster
