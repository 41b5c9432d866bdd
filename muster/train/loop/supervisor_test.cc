#include "muster/train/loop/supervisor.h"

#include <algorithm>
#include <csignal>

#include <gtest/gtest.h>

#include "muster/graph/build/scope.h"
#include "muster/graph/gradients/gradients.h"
#include "muster/train/loop/fake_session_test.h"
#include "muster/train/loop/virtual_timer_test.h"

namespace muster {
namespace {

using Log = std::vector<std::string>;

std::string At(std::optional<int64_t> step) {
  return step ? absl::StrCat("@", *step) : "";
}

// Records its calls, under a lock since services run on threads.
class LogEvents : public SupervisorEvents {
 public:
  absl::Status AddSummary(const Tensor& summary, Step step) override {
    return Add(absl::StrCat("summary ", summary.scalar<std::string>(), At(step)));
  }
  absl::Status AddScalar(const std::string& tag, double value, Step step) override {
    return Add(absl::StrCat(tag, " ", value, At(step)));
  }
  absl::Status AddSessionLog(SessionStatus status, const std::string& path, Step step) override {
    return Add(absl::StrCat("log ", static_cast<int>(status), path, At(step)));
  }
  absl::Status Reopen() override { return Add("reopen"); }
  absl::Status Close() override { return Add("close"); }
  absl::Status Add(std::string line) {
    MutexLock lock(mutex_);
    log_.push_back(std::move(line));
    return absl::OkStatus();
  }
  Log log() {
    MutexLock lock(mutex_);
    return log_;
  }

 private:
  Mutex mutex_;
  Log log_ ABSL_GUARDED_BY(mutex_);
};

class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() {
    const Output step = scope_.Op("Placeholder", {}, {{"dtype", DType::kInt64}}, "global_step");
    const Output summary = scope_.Op("Placeholder", {}, {{"dtype", DType::kString}}, "summary");
    session_ = std::make_shared<FakeSession>(
        graph_,
        [this, step](const StepSignature& signature,
                     const RunOptions&) -> absl::StatusOr<std::vector<Tensor>> {
          std::vector<Tensor> values;
          for (const Output& fetch : signature.fetches) {
            values.push_back(fetch == step ? Tensor::Scalar<int64_t>(step_)
                                           : Tensor::Scalar<std::string>("s"));
          }
          return values;
        });
    Coordinator::Options coordinator;
    coordinator.timer = &timer_;
    options_.coordinator = std::make_shared<Coordinator>(coordinator);
    options_.logdir = "dir";
    options_.global_step = step;
    options_.summary_op = summary;
    options_.events = events_;
    options_.open = [this]() -> absl::StatusOr<std::shared_ptr<Session>> {
      if (!open_error_.ok()) return open_error_;
      return session_;
    };
    options_.save = [this](Session&, const std::string& path, std::optional<int64_t> at) {
      return events_->Add(absl::StrCat("save ", path, At(at)));
    };
    options_.describe = [this](Session&, bool with_events) {
      return events_->Add(with_events ? "graph" : "text");
    };
    // Services are run by hand, on this thread and the virtual clock.
    options_.start_services = [this](const std::shared_ptr<Session>& session) -> absl::Status {
      ASSIGN_OR_RETURN(services_, supervisor_->Services(session));
      return absl::OkStatus();
    };
    options_.start_queue_runners = [this](const std::shared_ptr<Session>&) {
      return events_->Add("runners");
    };
  }
  Supervisor& Make() {
    supervisor_ = Supervisor::Create(options_);
    return *supervisor_;
  }

  Graph graph_;
  Scope scope_{graph_};
  VirtualTimer timer_;
  int64_t step_ = 0;
  absl::Status open_error_;
  std::shared_ptr<LogEvents> events_ = std::make_shared<LogEvents>();
  std::shared_ptr<FakeSession> session_;
  SupervisorOptions options_;
  std::shared_ptr<Supervisor> supervisor_;
  std::vector<Supervisor::Service> services_;
};

TEST_F(SupervisorTest, AChiefDescribesTheGraphAndStartsServicesThenRunners) {
  Supervisor& supervisor = Make();
  EXPECT_EQ(*supervisor.PrepareOrWaitForSession(), session_);
  EXPECT_EQ(events_->log(), (Log{"reopen", "graph", "log 1@0", "runners"}));
  EXPECT_EQ(services_.size(), 3u);
  EXPECT_TRUE(supervisor.Stop().ok());
  EXPECT_EQ(events_->log().back(), "close");
  EXPECT_EQ(events_->log()[4], "log 2");
  // A writer that was closed has not seen the graph.
  EXPECT_TRUE(supervisor.PrepareOrWaitForSession().ok());
  EXPECT_EQ(events_->log()[7], "graph");
  Supervisor::StopOptions keep;
  keep.close_events = false;
  EXPECT_TRUE(supervisor.Stop(keep).ok());
  EXPECT_TRUE(supervisor.PrepareOrWaitForSession(/*start_standard_services=*/false).ok());
  EXPECT_EQ(events_->log().back(), "text");
}

TEST_F(SupervisorTest, ServicesSummarizeCountAndSave) {
  Supervisor& supervisor = Make();
  ASSERT_TRUE(supervisor.PrepareOrWaitForSession().ok());
  ASSERT_EQ(services_.size(), 3u);
  EXPECT_EQ(services_[0].every, absl::Seconds(120));
  EXPECT_EQ(services_[2].every, absl::Seconds(600));
  EXPECT_TRUE(services_[1].calls.start().ok());
  step_ = 30;
  timer_.Advance(absl::Seconds(10));
  for (const auto& service : services_) EXPECT_TRUE(service.calls.run().ok());
  const Log log = events_->log();
  EXPECT_EQ(Log(log.begin() + 4, log.end()),
            (Log{"summary s@30", "global_step/sec 3@30", "save dir/model.ckpt@30",
                 "log 3dir/model.ckpt@30"}));
}

TEST_F(SupervisorTest, WhatHasNoIntervalFolderOrStepDoesNotRun) {
  options_.save_model_every = absl::ZeroDuration();
  options_.global_step = Output();
  EXPECT_TRUE(Make().PrepareOrWaitForSession().ok());
  ASSERT_EQ(services_.size(), 1u);
  EXPECT_TRUE(services_[0].calls.run().ok());
  EXPECT_EQ(events_->log().back(), "summary s");
  options_.save_summaries_every = absl::ZeroDuration();
  EXPECT_TRUE(Make().Services(session_)->empty());
  options_.logdir.clear();
  EXPECT_TRUE(Make().Services(session_)->empty());
  EXPECT_EQ(Make().save_path(), "");
  options_.is_chief = false;
  EXPECT_EQ(ErrorKind(Make().Services(session_).status()), "RuntimeError");
}

TEST_F(SupervisorTest, TheFirstErrorComesOutOfAManagedRunAndTheSessionIsClosed) {
  Supervisor& supervisor = Make();
  EXPECT_EQ(supervisor.RunManaged([](Session&) { return absl::AbortedError("gone"); }),
            absl::AbortedError("gone"));
  EXPECT_TRUE(session_->closed());
  EXPECT_EQ(events_->log().back(), "close");
  EXPECT_TRUE(supervisor.RunManaged([](Session&) { return OutOfRange("end"); }).ok());
  open_error_ = absl::UnavailableError("no master");
  EXPECT_EQ(supervisor.RunManaged([](Session&) { return absl::OkStatus(); }),
            absl::UnavailableError("no master"));
}

TEST_F(SupervisorTest, AnInterruptedRunSaves) {
  auto* const before = std::signal(SIGTERM, SIG_DFL);
  options_.interrupted = CatchInterruptions();
  Supervisor& supervisor = Make();
  const absl::Status done = supervisor.RunManaged([&](Session&) {
    EXPECT_FALSE(supervisor.ShouldStop());
    step_ = 30;
    std::raise(SIGTERM);
    EXPECT_TRUE(supervisor.ShouldStop());
    return absl::OkStatus();
  });
  EXPECT_TRUE(IsInterruption(done)) << done;
  EXPECT_EQ(done.message(), "Terminated; saved dir/model.ckpt-30");
  const Log log = events_->log();
  EXPECT_EQ(Log(log.begin() + 4, log.end()),
            (Log{"save dir/model.ckpt@30", "log 3dir/model.ckpt@30", "log 2", "close"}));
  EXPECT_TRUE(session_->closed());
  EXPECT_EQ(supervisor.RunManaged([](Session&) { return absl::AbortedError("gone"); }),
            absl::AbortedError("gone"));
  EXPECT_EQ(events_->log().back(), "close");
  EXPECT_EQ(std::count(log.begin(), log.end(), "save dir/model.ckpt@30"), 1);
  supervisor_ = nullptr;
  options_.interrupted = nullptr;
  std::signal(SIGTERM, before);
}

TEST_F(SupervisorTest, AnInterruptedWorkerSavesNothing) {
  auto* const before = std::signal(SIGINT, SIG_DFL);
  options_.interrupted = CatchInterruptions();
  options_.is_chief = false;
  Supervisor& supervisor = Make();
  const absl::Status done = supervisor.RunManaged([&](Session&) {
    std::raise(SIGINT);
    return options_.interrupted();
  });
  EXPECT_EQ(done.message(), "Interrupted");
  EXPECT_EQ(ExitStatus(done), 130);
  supervisor_ = nullptr;
  options_.interrupted = nullptr;
  std::signal(SIGINT, before);
}

TEST_F(SupervisorTest, ThreadsOfItsOwnAreJoined) {
  options_.coordinator = nullptr;  // real time
  options_.start_services = nullptr;
  options_.save_summaries_every = absl::Hours(1);
  Supervisor& supervisor = Make();
  std::atomic<int> calls{0};
  EXPECT_TRUE(supervisor
                  .RunManaged([&](Session&) {
                    supervisor.Loop(absl::Milliseconds(1), [&] {
                      if (++calls == 5) return supervisor.RequestStop();
                      return absl::OkStatus();
                    });
                    supervisor.coordinator()->WaitForStop();
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_EQ(calls, 5);
  const Log log = events_->log();
  EXPECT_EQ(log.back(), "close");
  // The first checkpoint was written at once.
  EXPECT_NE(std::find(log.begin(), log.end(), "save dir/model.ckpt@0"), log.end());
}

TEST_F(SupervisorTest, SummariesOfTheProgramGetTheCurrentStep) {
  step_ = 4;
  EXPECT_TRUE(Make().SummaryComputed(*session_, Tensor::Scalar<std::string>("own")).ok());
  EXPECT_TRUE(Make().SummaryComputed(*session_, Tensor::Scalar<std::string>("own"), 9).ok());
  EXPECT_EQ(events_->log(), (Log{"summary own@4", "summary own@9"}));
  options_.events = nullptr;
  EXPECT_EQ(ErrorKind(Make().SummaryComputed(*session_, Tensor::Scalar<std::string>("own"))),
            "RuntimeError");
}

}  // namespace
}  // namespace muster
