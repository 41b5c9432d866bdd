#include "muster/train/loop/interruption.h"

#include <csignal>
#include <filesystem>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "muster/base/cancel_callback.h"
#include "muster/checkpoint/checkpoint_state.h"
#include "muster/train/events/event_writer.h"
#include "muster/train/loop/coordinator.h"
#include "muster/train/loop/training_session.h"
#include "muster/transport/api/master_api.h"

namespace muster {
namespace {

using Handler = void (*)(int);

Handler Action(int number) {
  struct sigaction action = {};
  EXPECT_EQ(sigaction(number, nullptr, &action), 0);
  return action.sa_handler;
}

// The actions of the signals are the default ones in a test, and what they were after it.
class InterruptionTest : public testing::Test {
 protected:
  InterruptionTest()
      : int_(std::signal(SIGINT, SIG_DFL)),
        term_(std::signal(SIGTERM, SIG_DFL)),
        folder_(std::filesystem::path(testing::TempDir()) / "interruption" /
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(folder_);
  }
  ~InterruptionTest() override {
    EventWriterCache::Clear();
    std::signal(SIGINT, int_);
    std::signal(SIGTERM, term_);
  }

  const Handler int_, term_;
  const std::string folder_;
};

TEST_F(InterruptionTest, TheFirstSignalIsAnErrorAndTheSecondEndsTheProcess) {
  {
    const Interrupted one = CatchInterruptions(), other = CatchInterruptions();
    EXPECT_TRUE(one().ok());
    EXPECT_NE(Action(SIGTERM), SIG_DFL);
    std::raise(SIGINT);
    EXPECT_EQ(one().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(one().message(), "Interrupted");
    EXPECT_TRUE(IsInterruption(other()));
    EXPECT_EQ(Action(SIGINT), SIG_DFL);
    EXPECT_EQ(Action(SIGTERM), SIG_DFL);
    EXPECT_TRUE(IsInterruption(CatchInterruptions()())) << "it is not over yet";
    EXPECT_EQ(Action(SIGINT), SIG_DFL);
  }
  const Interrupted again = CatchInterruptions();
  EXPECT_TRUE(again().ok());
  std::raise(SIGTERM);
  EXPECT_EQ(again().message(), "Terminated");
}

TEST_F(InterruptionTest, SignalsHaveTheirDefaultActionAfterwards) {
  CatchInterruptions();
  EXPECT_EQ(Action(SIGINT), SIG_DFL);
  EXPECT_EQ(Action(SIGTERM), SIG_DFL);
}

volatile std::sig_atomic_t handled = 0;
void Handle(int) {
  handled = handled + 1;
}

TEST_F(InterruptionTest, WhatTheProgramDecidesAboutASignalStays) {
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, Handle);
  handled = 0;
  {
    const Interrupted interrupted = CatchInterruptions();
    std::raise(SIGINT);
    std::raise(SIGTERM);
    EXPECT_TRUE(interrupted().ok());
    EXPECT_EQ(handled, 1);
  }
  EXPECT_EQ(Action(SIGINT), SIG_IGN);
  EXPECT_EQ(Action(SIGTERM), Handle);
  std::signal(SIGINT, SIG_DFL);
  const Interrupted interrupted = CatchInterruptions();
  std::raise(SIGINT);
  EXPECT_FALSE(interrupted().ok());
  EXPECT_EQ(Action(SIGTERM), Handle);
}

TEST_F(InterruptionTest, ExitStatusesAreThoseOfShells) {
  EXPECT_EQ(ExitStatus(absl::OkStatus()), 0);
  EXPECT_EQ(ExitStatus(absl::CancelledError("Interrupted")), 1);
  for (const int number : {SIGINT, SIGTERM}) {
    const Interrupted interrupted = CatchInterruptions();
    std::raise(number);
    EXPECT_EQ(ExitStatus(Prefixed(interrupted(), "in a step: ")), 128 + number);
  }
}

// Gets a signal instead of an answer.
class SilentMaster : public MasterApi {
 public:
  void CreateSession(CallOptions options, CreateSessionRequest,
                     CallDone<CreateSessionReply> done) override {
    unanswered_ = std::move(done);
    on_cancel_.Start(options.cancellation,
                     [this](const absl::Status& why) { std::move(unanswered_)(why); });
    std::raise(SIGINT);
  }
  void ExtendSession(CallOptions, ExtendSessionRequest, CallDone<int64_t>) override {}
  void RunStep(CallOptions, RunStepRequest, CallDone<RunStepReply>) override {}
  void PartialRunSetup(CallOptions, PartialRunSetupRequest, CallDone<std::string>) override {}
  void CloseSession(CallOptions, std::string, CallDone<Empty>) override {}
  void ListDevices(CallOptions, std::string, CallDone<ListDevicesReply>) override {}
  void Reset(CallOptions, std::vector<std::string>, std::vector<std::string>,
             CallDone<Empty>) override {}
  void MakeCallable(CallOptions, MakeCallableRequest, CallDone<int64_t>) override {}
  void RunCallable(CallOptions, RunCallableRequest, CallDone<RunCallableReply>) override {}
  void ReleaseCallable(CallOptions, std::string, int64_t, CallDone<Empty>) override {}

 private:
  CallDone<CreateSessionReply> unanswered_;
  CancelCallback on_cancel_;
};

TEST_F(InterruptionTest, AWaitForAMasterEnds) {
  Graph graph;
  const Output one = Scope(graph).ConstScalar<float>(1);
  SessionOptions options;
  options.master = std::make_shared<SilentMaster>();
  options.config.operation_timeout = absl::Seconds(30);
  options.interrupted = CatchInterruptions();
  const absl::StatusOr<std::unique_ptr<Session>> session = Session::Create(graph, options);
  ASSERT_TRUE(session.ok()) << session.status();
  const absl::Status run = (*session)->Run({}, {one}).status();
  EXPECT_TRUE(IsInterruption(run)) << run;
}

// Does what a test wants at the places where a session calls it.
class Calls : public SessionRunHook {
 public:
  std::function<absl::Status()> on_step, on_end, on_interruption;

  absl::Status AfterRun(RunContext&, const RunValues&) override { return Call(on_step); }
  absl::Status End(Session&) override { return Call(on_end); }
  absl::StatusOr<std::string> Interrupted(Session&) override {
    RETURN_IF_ERROR(Call(on_interruption));
    return std::string();
  }

 private:
  static absl::Status Call(const std::function<absl::Status()>& function) {
    return function ? function() : absl::OkStatus();
  }
};

// A program that counts, without end unless its hook ends it. It gets a signal at its fifth step.
class TrainerTest : public InterruptionTest {
 protected:
  TrainerTest() {
    model_.AddGlobalStep(scope_);
    train_ = Assign(scope_, *model_.global_step, scope_.ConstScalar<int64_t>(1), "AssignAdd").node;
    hook_->on_step = [this] { return ++steps_ == 5 ? Raise() : absl::OkStatus(); };
    options_.graph = &graph_;
    options_.session.interrupted = CatchInterruptions();
    options_.model = model_;
    options_.checkpoint_dir = folder_;
    options_.save_checkpoint = Interval::Steps(1000);
    options_.hooks = {hook_};
  }

  absl::Status Raise() const {
    std::raise(signal_);
    return absl::OkStatus();
  }
  // As main() of a program does it; `after` may replace what the loop ended with.
  absl::Status Train(std::function<absl::Status(MonitoredSession&, absl::Status)> after = {}) {
    ASSIGN_OR_RETURN(const std::unique_ptr<MonitoredSession> session,
                     MonitoredTrainingSession(std::move(options_)));
    absl::Status status;
    while (status.ok() && !session->ShouldStop() && steps_ < 50)
      status = session->Run({}, {}, {train_}).status();
    if (after) status = after(*session, std::move(status));
    return session->CloseAfter(status);
  }
  std::string Newest() const { return LatestCheckpoint(folder_); }

  Graph graph_;
  const Scope scope_{graph_};
  Model model_;
  Node* train_ = nullptr;
  int signal_ = SIGINT;
  int steps_ = 0;
  const std::shared_ptr<Calls> hook_ = std::make_shared<Calls>();
  MonitoredTrainingSessionOptions options_;
};

TEST_F(TrainerTest, ALoopEndsAtItsNextStepAndSaves) {
  const absl::Status status = Train();
  EXPECT_TRUE(IsInterruption(status));
  EXPECT_EQ(status.message(), "Interrupted; saved " + folder_ + "/model.ckpt-5");
  EXPECT_EQ(Newest(), folder_ + "/model.ckpt-5");
  EXPECT_EQ(ExitStatus(status), 130);
  EXPECT_EQ(steps_, 5);
}

TEST_F(TrainerTest, WhatSavesNothingSaysSo) {
  signal_ = SIGTERM;
  options_.checkpoint_dir.clear();
  const absl::Status status = Train();
  EXPECT_EQ(status.message(), "Terminated");
  EXPECT_EQ(ExitStatus(status), 143);
}

TEST_F(TrainerTest, TheLineSaysWhyNothingWasSaved) {
  hook_->on_interruption = [] {
    return absl::UnavailableError(
        "\n=====================\nFrom /job:ps/replica:0/task:0:\nSocket closed\nand more");
  };
  const absl::Status status = Train();
  EXPECT_TRUE(IsInterruption(status));
  EXPECT_EQ(status.message(),
            "Interrupted; not saved: From /job:ps/replica:0/task:0: Socket closed");
}

TEST_F(TrainerTest, OnlyTheThreadThatClosesGoesOn) {
  const Interrupted interrupted = options_.session.interrupted;
  absl::Status own = absl::InternalError("not called"), others;
  hook_->on_interruption = [&] {
    own = interrupted();
    std::thread([&] { others = interrupted(); }).join();
    return absl::OkStatus();
  };
  EXPECT_TRUE(IsInterruption(Train()));
  EXPECT_TRUE(own.ok()) << own;
  EXPECT_TRUE(IsInterruption(others)) << others;
  EXPECT_TRUE(IsInterruption(interrupted()));
}

TEST_F(TrainerTest, ALoopThatHasJustEndedSaves) {
  options_.last_step = 5;
  EXPECT_EQ(Train().message(), "Interrupted; saved " + folder_ + "/model.ckpt-5");
}

TEST_F(TrainerTest, TheEndOfTheInputSaves) {
  hook_->on_step = [this]() -> absl::Status {
    if (++steps_ < 5) return absl::OkStatus();
    std::raise(SIGINT);
    return OutOfRange("end");
  };
  EXPECT_EQ(Train().message(), "Interrupted; saved " + folder_ + "/model.ckpt-5");
}

TEST_F(TrainerTest, TheLastSaveIsMadeAgainWhenItIsInterrupted) {
  hook_->on_step = {};
  hook_->on_end = [interrupted = options_.session.interrupted] {
    std::raise(SIGINT);
    return interrupted();
  };
  options_.last_step = 7;
  // Before the hook that saves.
  std::swap(options_.hooks, options_.chief_only_hooks);
  EXPECT_EQ(Train().message(), "Interrupted; saved " + folder_ + "/model.ckpt-7");
}

TEST_F(TrainerTest, AFailureIsReportedAndNothingIsSaved) {
  const absl::Status broken = absl::InternalError("broken");
  EXPECT_EQ(Train([&](MonitoredSession&, const absl::Status& status) {
              EXPECT_TRUE(IsInterruption(status)) << status;
              return broken;
            }),
            broken);
  EXPECT_EQ(Newest(), folder_ + "/model.ckpt-0");
}

TEST_F(TrainerTest, AFailureOfAThreadIsReported) {
  const absl::Status broken = absl::DataLossError("thread");
  EXPECT_EQ(Train([&](MonitoredSession& session, const absl::Status&) {
              session.coordinator()->RequestStop(broken).IgnoreError();
              return absl::OkStatus();
            }),
            broken);
}

TEST_F(TrainerTest, ASessionThatDoesNotAskIsNotInterrupted) {
  const Interrupted interrupted = std::move(options_.session.interrupted);
  options_.session.interrupted = nullptr;
  EXPECT_TRUE(Train().ok());
  EXPECT_FALSE(interrupted().ok());
  EXPECT_EQ(Newest(), folder_ + "/model.ckpt-50");
}

TEST_F(TrainerTest, AProgramThatIsInterruptedAlreadyMakesNoSession) {
  hook_->on_step = [this] {
    ++steps_;
    return absl::OkStatus();
  };
  std::raise(SIGTERM);
  const absl::Status status = Train();
  EXPECT_TRUE(IsInterruption(status)) << status;
  EXPECT_EQ(Newest(), "");
}

TEST_F(TrainerTest, AWorkerThatWaitsForTheChiefEnds) {
  int asked = 0;
  options_.session.interrupted = [&asked, interrupted = CatchInterruptions()] {
    if (++asked == 3) std::raise(SIGINT);
    return interrupted();
  };
  options_.is_chief = false;
  options_.max_wait = absl::Seconds(30);
  const absl::Status status = Train();
  EXPECT_TRUE(IsInterruption(status)) << status;
  EXPECT_EQ(status.message(), "Interrupted");
}

}  // namespace
}  // namespace muster
