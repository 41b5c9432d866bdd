#include "muster/train/loop/monitored_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/train/hooks/hooks.h"
#include "muster/train/loop/coordinator.h"
#include "muster/train/loop/fake_session_test.h"
#include "muster/train/loop/notice.h"

namespace muster {
namespace {

using testing::ElementsAre;

// A graph with a step counter and a value to feed, sessions that a test scripts, and the order in
// which things happened.
class MonitoredSessionTest : public testing::Test {
 protected:
  MonitoredSessionTest() : scope_(graph_) {
    step_ = scope_.Op("Placeholder", {}, {{"dtype", DType::kInt64}}, "step");
    x_ = scope_.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "x");
    y_ = scope_.Op("Identity", {x_}, {}, "y");
    train_ = scope_.Add("NoOp", {}, {}, "train");
  }

  // One step: fetches of "step" give the counter, others the number of the session. Running
  // "train" counts.
  absl::StatusOr<std::vector<Tensor>> Step(const StepSignature& signature, int session) {
    if (!failures_.empty()) {
      const absl::Status failure = failures_.front();
      failures_.erase(failures_.begin());
      if (!failure.ok()) return failure;
    }
    std::vector<Tensor> values;
    for (const Output& fetch : signature.fetches) {
      values.push_back(fetch == step_ ? Tensor::Scalar<int64_t>(counter_)
                                      : Tensor::Scalar<float>(static_cast<float>(session)));
    }
    for (const Output& feed : signature.feeds) log_.push_back("fed " + feed.name());
    for (Node* target : signature.targets)
      if (target == train_) ++counter_;
    return values;
  }

  class Creator : public SessionCreator {
   public:
    explicit Creator(MonitoredSessionTest& test) : test_(test) {}
    absl::StatusOr<std::shared_ptr<Session>> CreateSession() override {
      const int number = ++test_.created_;
      if (!test_.creation_failures_.empty()) {
        const absl::Status failure = test_.creation_failures_.front();
        test_.creation_failures_.erase(test_.creation_failures_.begin());
        if (!failure.ok()) return failure;
      }
      test_.last_session_ = std::make_shared<FakeSession>(
          test_.graph_, [this, number](const StepSignature& signature, const RunOptions&) {
            return test_.Step(signature, number);
          });
      return test_.last_session_;
    }

   private:
    MonitoredSessionTest& test_;
  };

  class LoggingHook : public SessionRunHook {
   public:
    LoggingHook(std::string name, MonitoredSessionTest& test)
        : name_(std::move(name)), test_(test) {}
    absl::Status Begin() override { return Log("begin"); }
    absl::Status AfterCreateSession(const std::shared_ptr<Session>&,
                                    const std::shared_ptr<Coordinator>&) override {
      return Log("created");
    }
    absl::StatusOr<std::optional<RunArgs>> BeforeRun(RunContext&) override {
      RETURN_IF_ERROR(Log("before"));
      return std::nullopt;
    }
    absl::Status AfterRun(RunContext&, const RunValues&) override { return Log("after"); }
    absl::Status End(Session& session) override {
      EXPECT_FALSE(session.closed());
      return Log("end");
    }

   private:
    absl::Status Log(const char* what) {
      test_.log_.push_back(absl::StrCat(name_, " ", what));
      return absl::OkStatus();
    }
    const std::string name_;
    MonitoredSessionTest& test_;
  };

  std::unique_ptr<MonitoredSession> Create(std::vector<std::shared_ptr<SessionRunHook>> hooks,
                                           bool recover = true) {
    MonitoredSessionOptions options;
    options.hooks = std::move(hooks);
    options.recover = recover;
    options.stop_grace_period = absl::Seconds(1);
    options.creation_pause = absl::ZeroDuration();
    auto session = MonitoredSession::Create(std::make_shared<Creator>(*this), std::move(options));
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }
  std::shared_ptr<SessionRunHook> Hook(std::string name) {
    return std::make_shared<LoggingHook>(std::move(name), *this);
  }
  GlobalStepSource StepSource() {
    return [this] { return GlobalStep{step_, "step"}; };
  }

  Graph graph_;
  Scope scope_;
  Output step_, x_, y_;
  Node* train_ = nullptr;
  int64_t counter_ = 0;
  int created_ = 0;
  std::shared_ptr<FakeSession> last_session_;
  std::vector<absl::Status> failures_;  // of the next runs
  std::vector<absl::Status> creation_failures_;
  std::vector<std::string> log_;
};

TEST_F(MonitoredSessionTest, HooksAreCalledInOrder) {
  auto session = Create({Hook("a"), Hook("b")});
  ASSERT_TRUE(session->Run({}, {y_}).ok());
  ASSERT_TRUE(session->Close().ok());
  EXPECT_THAT(log_, ElementsAre("a begin", "b begin", "a created", "b created", "a before",
                                "b before", "a after", "b after", "a end", "b end"));
  EXPECT_TRUE(last_session_->closed());
}

TEST_F(MonitoredSessionTest, AfterALossOnlyTheCreationRepeats) {
  auto session = Create({Hook("a")});
  failures_ = {absl::AbortedError("lost"), absl::UnavailableError("gone")};
  auto values = session->Run({{x_, Tensor::Scalar<float>(1)}}, {y_});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ((*values)[0].scalar<float>(), 3);  // of the third session
  EXPECT_THAT(log_, ElementsAre("a begin", "a created", "a before", "a created", "a before",
                                "a created", "a before", "fed x:0", "a after"));
}

TEST_F(MonitoredSessionTest, CreationIsTriedAgain) {
  creation_failures_ = {absl::UnavailableError("1"), absl::AbortedError("2")};
  auto session = Create({Hook("a")});
  EXPECT_EQ(created_, 3);
  EXPECT_THAT(log_, ElementsAre("a begin", "a created"));
}

TEST_F(MonitoredSessionTest, OtherErrorsReachTheCaller) {
  auto session = Create({Hook("a")});
  failures_ = {absl::InternalError("broken")};
  EXPECT_EQ(session->Run({}, {y_}).status(), absl::InternalError("broken"));
  EXPECT_EQ(created_, 1);
  EXPECT_TRUE(session->Run({}, {y_}).ok());
}

TEST_F(MonitoredSessionTest, WithoutRecoveryLossesReachTheCaller) {
  auto session = Create({}, /*recover=*/false);
  failures_ = {absl::AbortedError("lost")};
  EXPECT_TRUE(absl::IsAborted(session->Run({}, {y_}).status()));
  EXPECT_EQ(created_, 1);
}

TEST_F(MonitoredSessionTest, AHookStopsTheLoop) {
  auto session = Create({StopAtStepHook::At(StepSource(), 3)});
  int runs = 0;
  while (!session->ShouldStop()) {
    ASSERT_TRUE(session->Run({}, {}, {train_}).ok());
    ++runs;
  }
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(session->Run({}, {y_}).status().message(),
            "Run called even after should_stop requested.");
}

TEST_F(MonitoredSessionTest, NumStepsCountFromTheFirstSession) {
  counter_ = 5;
  auto session = Create({StopAtStepHook::After(StepSource(), 2)});
  ASSERT_TRUE(session->Run({}, {}, {train_}).ok());
  EXPECT_FALSE(session->ShouldStop());
  failures_ = {absl::AbortedError("lost")};
  ASSERT_TRUE(session->Run({}, {}, {train_}).ok());
  EXPECT_TRUE(session->ShouldStop());
  EXPECT_EQ(counter_, 7);
}

TEST_F(MonitoredSessionTest, AnErrorOfTheLoopEndsNoHooks) {
  auto session = Create({Hook("a")});
  log_.clear();
  EXPECT_EQ(session->CloseAfter(absl::InternalError("mine")), absl::InternalError("mine"));
  EXPECT_THAT(log_, ElementsAre());
  EXPECT_TRUE(last_session_->closed());
}

TEST_F(MonitoredSessionTest, TheEndOfTheInputIsClean) {
  auto session = Create({Hook("a")});
  log_.clear();
  EXPECT_TRUE(session->CloseAfter(absl::OutOfRangeError("no more")).ok());
  EXPECT_THAT(log_, ElementsAre("a end"));
}

TEST_F(MonitoredSessionTest, AFailedThreadStopsTheLoopAndIsReported) {
  auto session = Create({});
  session->coordinator()->RequestStop(absl::DataLossError("thread")).IgnoreError();
  EXPECT_TRUE(session->ShouldStop());
  EXPECT_EQ(session->Close(), absl::DataLossError("thread"));
}

TEST_F(MonitoredSessionTest, ALostThreadMakesANewSession) {
  auto session = Create({Hook("a")});
  session->coordinator()->RequestStop(absl::AbortedError("thread")).IgnoreError();
  EXPECT_FALSE(session->ShouldStop());
  EXPECT_EQ(created_, 2);
}

TEST_F(MonitoredSessionTest, WhatALostThreadCausedIsRecoveredFrom) {
  auto session = Create({});
  session->coordinator()->RequestStop(absl::UnavailableError("thread")).IgnoreError();
  failures_ = {absl::CancelledError("queue is closed")};
  EXPECT_TRUE(session->Run({}, {y_}).ok());
  EXPECT_EQ(created_, 2);
}

TEST_F(MonitoredSessionTest, FeedsMustNotOverlap) {
  const auto feeds = [this]() -> absl::StatusOr<FeedFnHook::Feeds> {
    return FeedFnHook::Feeds{{x_, Tensor::Scalar<float>(1)}};
  };
  auto one = Create({std::make_shared<FeedFnHook>(feeds)});
  EXPECT_TRUE(one->Run({}, {y_}).ok());
  const absl::Status user = one->Run({{x_, Tensor::Scalar<float>(2)}}, {y_}).status();
  EXPECT_EQ(user.message(),
            "Same tensor is fed by a SessionRunHook and user. Conflict(s): ['x:0']");
  EXPECT_EQ(ErrorKind(user), kRuntimeError);
  auto two = Create({std::make_shared<FeedFnHook>(feeds), std::make_shared<FeedFnHook>(feeds)});
  EXPECT_EQ(two->Run({}, {y_}).status().message(),
            "Same tensor is fed by two hooks. Conflict(s): ['x:0']");
}

TEST_F(MonitoredSessionTest, AStepFunctionRunsAgainAndMayStop) {
  auto session = Create({Hook("a")});
  int calls = 0;
  failures_ = {absl::AbortedError("lost")};
  const auto done = session->RunStep([&](StepContext& context) {
    ++calls;
    RunArgs args;
    args.fetches = {y_};
    return context.RunWithHooks(args).status();
  });
  EXPECT_TRUE(done.ok()) << done;
  EXPECT_EQ(calls, 2);
  const absl::Status stop =
      session->RunStep([](StepContext& context) { return context.RequestStop(); });
  EXPECT_EQ(stop.message(), "step_fn has requested the iterations to stop.");
  EXPECT_FALSE(session->ShouldStop());
  EXPECT_TRUE(session->CloseAfter(stop).ok());
}

TEST_F(MonitoredSessionTest, ClosedIsClosed) {
  auto session = Create({});
  ASSERT_TRUE(session->Close().ok());
  EXPECT_TRUE(session->ShouldStop());
  EXPECT_FALSE(session->Run({}, {y_}).ok());
  EXPECT_EQ(session->Close().message(), "Session is already closed.");
}

TEST_F(MonitoredSessionTest, ANanStopsOrFails) {
  // The fake's values are the session's number; a NaN needs a session of its own.
  const auto not_a_number = [](const StepSignature& signature, const RunOptions&) {
    return std::vector<Tensor>(signature.fetches.size(), Tensor::Scalar<float>(std::nanf("")));
  };
  FakeSession session(graph_, not_a_number);
  const RunArgs args;
  const Tensor nan = Tensor::Scalar<float>(std::nanf(""));
  const RunMetadata metadata;
  const RunValues values{absl::MakeConstSpan(&nan, 1), args.options, metadata};
  {
    RunContext context(args, session);
    NanTensorHook stops(y_, nullptr);
    EXPECT_TRUE(stops.AfterRun(context, values).ok());
    EXPECT_TRUE(context.stop_requested());
  }
  RunContext context(args, session);
  NanTensorHook fails(y_, NanTensorHook::NanLoss);
  EXPECT_EQ(fails.AfterRun(context, values).message(), "NaN loss during training.");
  EXPECT_FALSE(context.stop_requested());
}

TEST_F(MonitoredSessionTest, TensorsAreLoggedAtIntervals) {
  std::vector<std::string> lines;
  SetNotices([&](LogLevel, const std::string& line) { lines.push_back(line); });
  VirtualClock clock;
  LoggingTensorOptions options;
  options.tensors = [this] { return std::vector<LoggedTensor>{{"y", y_}}; };
  options.every = Interval::Steps(2);
  options.clock = &clock;
  auto session = Create({std::make_shared<LoggingTensorHook>(std::move(options))});
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(session->Run({}, {}, {train_}).ok());
    clock.Advance(absl::Milliseconds(250));
  }
  SetNotices({});
  EXPECT_THAT(lines, ElementsAre("y = 1", "y = 1 (0.500 sec)"));
}

TEST(StepTimerTest, CountsStepsOrTime) {
  VirtualClock clock;
  StepTimer steps(Interval::Steps(3), &clock);
  EXPECT_TRUE(steps.Due(0));
  EXPECT_FALSE(steps.Happened(0).has_value());
  EXPECT_FALSE(steps.Due(0));
  EXPECT_FALSE(steps.Due(2));
  EXPECT_TRUE(steps.Due(3));
  StepTimer time(Interval::Every(absl::Seconds(2)), &clock);
  EXPECT_FALSE(time.Happened(1).has_value());
  clock.Advance(absl::Seconds(2));
  EXPECT_FALSE(time.Due(1));  // the same step
  EXPECT_TRUE(time.Due(2));
  const auto elapsed = time.Happened(5);
  ASSERT_TRUE(elapsed.has_value());
  EXPECT_EQ(elapsed->time, absl::Seconds(2));
  EXPECT_EQ(elapsed->steps, 4);
}

}  // namespace
}  // namespace muster
