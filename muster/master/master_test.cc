#include "muster/master/master.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/master/master_fixture_test.h"

namespace muster {
namespace {

using testing::SizeIs;

TEST_F(MasterTest, ClosingDoesNotWaitForTheDead) {
  const std::string session = Create().value();
  workers_[kPs]->is_up = false;
  const absl::Time before = scheduler_->clock().Now();
  EXPECT_TRUE(Close(session).ok());
  EXPECT_LE(scheduler_->clock().Now() - before, absl::Seconds(2));
}

TEST_F(MasterTest, SessionsOfVanishedClientsAreClosed) {
  const std::string quiet = Create().value();
  const std::string lost = Create().value();
  workers_[kPs]->run = [](const RunGraphRequest&) { return std::nullopt; };
  const auto vanish = [&](const std::string& session) {
    CallOptions call;
    call.cancellation = std::make_shared<Cancellation>();
    master_->RunStep(call, Step(session, {}, {}, {"go"}), [](absl::StatusOr<RunStepReply>) {});
    Advance(absl::Seconds(1));
    call.cancellation->Cancel(absl::UnavailableError("gone"));
  };
  vanish(lost);
  Advance(absl::Seconds(5));
  // It comes back in time.
  EXPECT_TRUE(Wait<ListDevicesReply>([&](auto done) {
                master_->ListDevices({}, lost, std::move(done));
              }).ok());
  Advance(absl::Seconds(60));
  EXPECT_EQ(master_->counts().sessions, 2);
  vanish(lost);
  Advance(absl::Seconds(11));
  EXPECT_EQ(master_->counts().sessions, 1);
  EXPECT_EQ(Text(Run(Step(lost, {}, {}, {"go"}))),
            absl::StrCat("ABORTED: Session ", lost, " is not found."));
  Advance(absl::Hours(24));
  EXPECT_EQ(master_->counts().sessions, 1);
}

TEST_F(MasterTest, ResetCleansFirstAndClosesAll) {
  const std::string session = Create().value();
  Log();
  EXPECT_TRUE(Wait<Empty>([&](auto done) { master_->Reset({}, {"c"}, {}, std::move(done)); }).ok());
  const std::vector<std::string> log = Log();
  ASSERT_THAT(log, SizeIs(4));
  EXPECT_TRUE(absl::StartsWith(log[0], "CleanupAll") && absl::StartsWith(log[1], "CleanupAll"));
  EXPECT_EQ(Text(Run(Step(session, {}, {}, {"go"}))),
            absl::StrCat("ABORTED: Session ", session, " is not found."));
}

TEST_F(MasterTest, StoppingEndsEverything) {
  const std::string session = Create().value();
  workers_[kPs]->run = [](const RunGraphRequest&) { return std::nullopt; };
  std::optional<absl::StatusOr<RunStepReply>> reply;
  master_->RunStep({}, Step(session, {}, {}, {"go"}),
                   [&](absl::StatusOr<RunStepReply> r) { reply = std::move(r); });
  Advance(absl::Seconds(1));
  bool over = false;
  master_->Stop(absl::UnavailableError("bye"), [&](absl::Status) { over = true; });
  EXPECT_TRUE(scheduler_->RunUntil([&] { return over; }));
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(Text(*reply), "UNAVAILABLE: bye");
  EXPECT_EQ(Text(Create()), "UNAVAILABLE: bye");
}

// Runs of a thread that fills a queue are not steps of the training loop.

}  // namespace
}  // namespace muster
