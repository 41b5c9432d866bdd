// Ranks that are lost before they have connected.
#include <latch>

#include "absl/time/clock.h"
#include "gmock/gmock.h"

#include "muster/collective/mesh/mesh_test.h"

namespace muster::collective {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kNever = absl::Minutes(5);

// Rank 0 of two, or rank 1; the other one's endpoint is what `other` says.
absl::Status ReduceWith(const Endpoint& other, int rank, absl::Duration silence) {
  TestTasks tasks(Wire::kTcp, 1);
  MeshOptions options{.group = 1, .rank = rank, .names = {"a", "b"}};
  options.silence = silence;
  options.lateness = kNever;
  auto mesh = Mesh::Create(
      options,
      tasks.port(0).NewConnector([other](int) -> absl::StatusOr<Endpoint> { return other; }));
  std::vector<float> data(10);
  return AllReduceNow(**mesh, 1, {}, data);
}

void ExpectNamed(const absl::Status& status, int rank, const std::string& why) {
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("rank ", 1 - rank)));
  EXPECT_THAT(std::string(status.message()), HasSubstr(why));
}

// Whichever of the two would have connected.
TEST(Knock, ARankWhoseProcessHasEndedIsNamedAtOnce) {
  for (const int rank : {0, 1}) {
    auto port = DataPort::Listen("127.0.0.1", {});
    ASSERT_TRUE(port.ok()) << port.status();
    const Endpoint gone = (*port)->endpoint();
    *port = nullptr;
    ExpectNamed(ReduceWith(gone, rank, kNever), rank, "cannot be reached");
  }
}

TEST(Knock, ARankThatDiesBeforeItEntersItsGroupIsNamedAtOnce) {
  for (const int rank : {0, 1}) {
    auto port = DataPort::Listen("127.0.0.1", {});
    ASSERT_TRUE(port.ok()) << port.status();
    const Endpoint endpoint = (*port)->endpoint();
    absl::Status result;
    std::thread reduces([&] { result = ReduceWith(endpoint, rank, kNever); });
    *port = nullptr;
    reduces.join();
    ExpectNamed(result, rank, "cannot be reached");
  }
}

// In its group when the other knocks, and lost before it connects.
TEST(Knock, ARankThatAnswersAndIsLostThenIsNamedSoon) {
  auto port = DataPort::Listen("127.0.0.1", {});
  ASSERT_TRUE(port.ok()) << port.status();
  auto lost = (*port)->NewConnector(
      [](int) -> absl::StatusOr<Endpoint> { return absl::UnavailableError("not asked for"); });
  std::latch knocked(1);
  lost->Open(1, 1, [&](int, const absl::StatusOr<std::unique_ptr<Channel>>&) {
    if (!knocked.try_wait()) knocked.count_down();
  });
  absl::Status result;
  std::thread reduces([&] { result = ReduceWith((*port)->endpoint(), 0, kNever); });
  knocked.wait();
  lost->End(absl::UnavailableError("cut"));
  reduces.join();
  ExpectNamed(result, 0, "cannot be reached: cut");
}

TEST(Knock, ARankThatNeverEntersItsGroupIsGivenUpLikeASilentOne) {
  for (const int rank : {0, 1}) {
    auto port = DataPort::Listen("127.0.0.1", {});
    ASSERT_TRUE(port.ok()) << port.status();
    ExpectNamed(ReduceWith((*port)->endpoint(), rank, absl::Milliseconds(300)), rank,
                "has not come to the group for 300ms");
  }
}

// A rank that is in its group but busy elsewhere is not silent: its channels come about without it.
void ExpectBusyRankIsWaitedFor(Wire wire, int busy) {
  TestGroup group(wire, 2, absl::Seconds(2), kNever);
  group.Run([&](Mesh& mesh, int rank) {
    if (rank == busy) absl::SleepFor(absl::Milliseconds(2500));
    std::vector<float> data(10, 1.0f);
    const absl::Status status = AllReduceNow(mesh, 1, {}, data);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(data[9], 2.0f);
  });
}

TEST(Knock, ARankThatIsBusyIsWaitedFor) {
  std::vector<std::thread> threads;
  for (const Wire wire : {Wire::kTcp, Wire::kTls, Wire::kShared, Wire::kMemory})
    for (const int busy : {0, 1}) threads.emplace_back(ExpectBusyRankIsWaitedFor, wire, busy);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace muster::collective
