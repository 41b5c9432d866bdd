#include "muster/master/farewells.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/transport/api/forwarding.h"

namespace muster {
namespace {

using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::SizeIs;

class Deaf : public ForwardingWorker<Deaf> {
 public:
  void DeleteWorkerSession(CallOptions, std::string session, CallDone<Empty> done) override {
    ++calls;
    if (!status.ok()) return std::move(done)(status);
    heard.push_back(std::move(session));
    std::move(done)(Empty());
  }
  template <typename Reply, typename Call>
  void Forward(CallOptions, CallDone<Reply> done, Call) {
    std::move(done)(absl::UnimplementedError("not in this test"));
  }
  absl::Status status = absl::DeadlineExceededError("");
  std::vector<std::string> heard;
  int calls = 0;
};

class FarewellsTest : public ::testing::Test {
 protected:
  void Say(const std::string& session) {
    farewells_->Say(worker_, session, [this](absl::StatusOr<Empty>) { ++answers_; });
  }
  void RunFor(absl::Duration duration) {
    const absl::Time end = scheduler_->clock().Now() + duration;
    scheduler_->ScheduleAfter(duration, [] {});
    scheduler_->RunUntil([&] { return scheduler_->clock().Now() >= end; });
  }
  std::unique_ptr<SimulatedScheduler> scheduler_ = SimulatedScheduler::Create(3);
  std::shared_ptr<Farewells> farewells_ = std::make_shared<Farewells>(*scheduler_);
  std::shared_ptr<Deaf> worker_ = std::make_shared<Deaf>();
  int answers_ = 0;
};

TEST_F(FarewellsTest, WhatArrivesIsSaidOnce) {
  worker_->status = absl::OkStatus();
  Say("a");
  RunFor(absl::Hours(1));
  EXPECT_EQ(worker_->calls, 1);
  // A farewell that the worker refuses is not repeated.
  worker_->status = absl::InvalidArgumentError("");
  Say("b");
  RunFor(absl::Hours(1));
  EXPECT_EQ(worker_->calls, 2);
  EXPECT_EQ(answers_, 2);
  EXPECT_EQ(farewells_->unsaid(), 0u);
}

TEST_F(FarewellsTest, WhatIsLostIsSaidAgain) {
  for (const char* session : {"a", "b", "c"}) Say(session);
  EXPECT_EQ(answers_, 3);
  EXPECT_EQ(farewells_->unsaid(), 3u);
  RunFor(absl::Hours(2));
  EXPECT_LT(worker_->calls, 30);  // not for each of them, and ever more rarely
  EXPECT_THAT(worker_->heard, IsEmpty());
  worker_->status = absl::OkStatus();
  RunFor(absl::Minutes(11));
  EXPECT_THAT(worker_->heard, IsSupersetOf({"a", "b", "c"}));
  EXPECT_EQ(farewells_->unsaid(), 0u);
  EXPECT_EQ(answers_, 3);
}

TEST_F(FarewellsTest, NotForEver) {
  Say("a");
  RunFor(absl::Hours(25));
  EXPECT_EQ(farewells_->unsaid(), 0u);
  const int calls = worker_->calls;
  RunFor(absl::Hours(25));
  EXPECT_EQ(worker_->calls, calls);
  // There is no other reference to the worker.
  EXPECT_EQ(worker_.use_count(), 1);
}

TEST_F(FarewellsTest, FewAreKept) {
  for (int i = 0; i < 10'100; ++i) Say(std::to_string(i));
  EXPECT_EQ(farewells_->unsaid(), 10'000u);
  worker_->status = absl::OkStatus();
  RunFor(absl::Minutes(1));
  EXPECT_THAT(worker_->heard, SizeIs(10'001));
}

TEST_F(FarewellsTest, TheyEndWithTheirMaster) {
  for (const bool is_stopped : {true, false}) {
    farewells_ = std::make_shared<Farewells>(*scheduler_);
    Say("a");
    if (is_stopped) {
      farewells_->Stop();
    } else {
      farewells_ = nullptr;
    }
    const int calls = worker_->calls;
    EXPECT_EQ(worker_.use_count(), 1);
    EXPECT_FALSE(scheduler_->RunUntil([] { return false; }));
    EXPECT_EQ(worker_->calls, calls);
  }
}

}  // namespace
}  // namespace muster
