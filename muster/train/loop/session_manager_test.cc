#include "muster/train/loop/session_manager.h"

#include <gtest/gtest.h>

#include "muster/graph/build/scope.h"
#include "muster/graph/gradients/gradients.h"
#include "muster/train/loop/fake_session_test.h"
#include "muster/train/loop/virtual_timer_test.h"

namespace muster {
namespace {

Tensor Names(std::vector<std::string> names) {
  return Tensor::Vector<std::string>(names);
}

// Sessions on which ops are only counted; `missing_` is what the ready op gives.
class SessionManagerTest : public testing::Test {
 protected:
  SessionManagerTest() {
    for (const char* name : {"init", "local_init"}) ops_[name] = scope_.Add("NoOp", {}, {}, name);
    for (const char* name : {"ready", "ready_local"})
      ops_[name] = scope_.Op("Placeholder", {}, {{"dtype", DType::kString}}, name).node;
    options_.ready = InitStep::Of(Output(ops_["ready"], 0));
    options_.timer = &timer_;
    options_.recovery_wait = absl::Seconds(30);
  }
  SessionFactory Factory() {
    return [this]() -> absl::StatusOr<std::shared_ptr<Session>> {
      auto session = std::make_shared<FakeSession>(
          graph_,
          [this](const StepSignature& signature,
                 const RunOptions&) -> absl::StatusOr<std::vector<Tensor>> {
            const Node* node =
                signature.targets.empty() ? signature.fetches[0].node : signature.targets[0];
            log_.push_back(node->name());
            if (on_run_) RETURN_IF_ERROR(on_run_(node->name()));
            if (!signature.targets.empty()) return std::vector<Tensor>();
            return std::vector<Tensor>{Names(missing_)};
          });
      sessions_.push_back(session);
      return session;
    };
  }
  std::unique_ptr<SessionManager> Manager() { return SessionManager::Create(options_).value(); }
  InitStep Op(const char* name) { return InitStep::Of(ops_[name]); }
  SessionManager::InitOptions Init() {
    SessionManager::InitOptions init;
    init.init = Op("init");
    return init;
  }
  CheckpointSource Source(std::string newest) {
    CheckpointSource source;
    source.directory = "dir";
    source.restore = [this](Session&, const std::string& prefix) {
      log_.push_back("restore " + prefix);
      return absl::OkStatus();
    };
    source.recover_last_checkpoints = [this](std::vector<std::string> all) {
      log_.push_back("recover " + std::to_string(all.size()));
      return absl::OkStatus();
    };
    source.read_state = [newest](const std::string&) -> absl::StatusOr<CheckpointSource::State> {
      if (newest.empty()) return CheckpointSource::State();
      return CheckpointSource::State{newest, {"old", newest}};
    };
    return source;
  }
  using Log = std::vector<std::string>;

  Graph graph_;
  Scope scope_{graph_};
  absl::flat_hash_map<std::string, Node*> ops_;
  VirtualTimer timer_;
  SessionManager::Options options_;
  Log log_;
  std::vector<std::string> missing_;
  std::function<absl::Status(const std::string&)> on_run_;
  std::vector<std::shared_ptr<Session>> sessions_;
};

TEST_F(SessionManagerTest, AModelThatIsNewerThanItsCheckpointIsKeptIfItIsWhole) {
  bool keeps = false;
  options_.keeps_model = [&] { return keeps; };
  const std::unique_ptr<SessionManager> manager = Manager();
  ASSERT_TRUE(manager->PrepareSession(Factory(), Init(), Source("new")).ok());
  EXPECT_EQ(log_, (Log{"restore new", "recover 2", "ready"}));
  log_.clear();
  keeps = true;
  ASSERT_TRUE(manager->PrepareSession(Factory(), Init(), Source("new")).ok());
  EXPECT_EQ(log_, (Log{"ready", "ready"}));
  // Some of it was lost with its task: all is restored.
  log_.clear();
  missing_ = {"w"};
  on_run_ = [&](const std::string&) {
    if (log_.size() > 1) missing_.clear();
    return absl::OkStatus();
  };
  ASSERT_TRUE(manager->PrepareSession(Factory(), Init(), Source("new")).ok());
  EXPECT_EQ(log_, (Log{"ready", "restore new", "recover 2", "ready"}));
}

TEST_F(SessionManagerTest, TheChiefInitializesWhatNoCheckpointHolds) {
  auto init = Init();
  init.init_fn = [this](Session&) {
    log_.push_back("fn");
    return absl::OkStatus();
  };
  options_.local_init = Op("local_init");
  EXPECT_TRUE(Manager()->PrepareSession(Factory(), init, Source("")).ok());
  EXPECT_EQ(log_, (Log{"init", "fn", "local_init", "ready"}));
}

TEST_F(SessionManagerTest, ACheckpointReplacesTheInitialization) {
  EXPECT_TRUE(Manager()->PrepareSession(Factory(), Init(), Source("new")).ok());
  EXPECT_EQ(log_, (Log{"restore new", "recover 2", "ready"}));
}

TEST_F(SessionManagerTest, AnExactFileIsRestoredWithoutItsState) {
  CheckpointSource source = Source("new");
  source.file = "exact";
  const absl::Status both = Manager()->PrepareSession(Factory(), Init(), source).status();
  EXPECT_EQ(both.message(),
            "Can not provide both checkpoint_dir and checkpoint_filename_with_path.");
  EXPECT_EQ(ErrorKind(both), "ValueError");
  source.directory.clear();
  EXPECT_TRUE(Manager()->PrepareSession(Factory(), Init(), source).ok());
  EXPECT_EQ(log_, (Log{"restore exact", "ready"}));
}

TEST_F(SessionManagerTest, ErrorsOfThePreparationAreTensorFlows) {
  const auto text = [this](const SessionManager::InitOptions& init) {
    const absl::Status status = Manager()->PrepareSession(Factory(), init, {}).status();
    EXPECT_EQ(ErrorKind(status), "RuntimeError");
    return std::string(status.message());
  };
  EXPECT_EQ(text({}),
            "Model is not initialized and no init_op or init_fn or local_init_op was given");
  missing_ = {"v", "w"};
  EXPECT_EQ(text(Init()),
            "Init operations did not make model ready.  Init op: init, init fn: None, "
            "local_init_op: None, error: Variables not initialized: v, w");
  options_.local_init = Op("local_init");
  options_.ready_for_local_init = InitStep::Of(Output(ops_["ready_local"], 0));
  EXPECT_EQ(text(Init()),
            "Init operations did not make model ready for local_init.  Init op: init, init fn: "
            "None, error: Variables not initialized: v, w");
  options_.local_init.reset();
  const absl::Status alone = SessionManager::Create(options_).status();
  EXPECT_EQ(ErrorKind(alone), "ValueError");
}

TEST_F(SessionManagerTest, AnUninitializedVariableMeansNotReadyOtherPreconditionsFail) {
  on_run_ = [](const std::string& name) {
    return name == "ready" ? FailedPrecondition("Attempting to use uninitialized value v")
                           : absl::OkStatus();
  };
  EXPECT_EQ(ErrorKind(Manager()->PrepareSession(Factory(), Init(), {}).status()), "RuntimeError");
  on_run_ = [](const std::string& name) {
    return name == "ready" ? FailedPrecondition("table is gone") : absl::OkStatus();
  };
  EXPECT_EQ(Manager()->PrepareSession(Factory(), Init(), {}).status(),
            FailedPrecondition("table is gone"));
}

TEST_F(SessionManagerTest, RecoveringNeverInitializes) {
  auto recovered = Manager()->RecoverSession(Factory(), Source("")).value();
  EXPECT_FALSE(recovered.ready);
  EXPECT_EQ(log_, Log{});
  recovered = Manager()->RecoverSession(Factory(), Source("new")).value();
  EXPECT_TRUE(recovered.ready);
  missing_ = {"v"};
  recovered = Manager()->RecoverSession(Factory(), Source("new")).value();
  EXPECT_FALSE(recovered.ready);
  EXPECT_NE(recovered.session, nullptr);
}

TEST_F(SessionManagerTest, ACheckpointIsWaitedForAtMostSoLong) {
  CheckpointSource source = Source("");
  source.wait = true;
  source.max_wait = absl::Seconds(100);
  EXPECT_TRUE(Manager()->PrepareSession(Factory(), Init(), source).ok());
  EXPECT_EQ(timer_.Now(), absl::Seconds(100));
  EXPECT_EQ(log_, (Log{"init", "ready"}));
}

TEST_F(SessionManagerTest, AWorkerFindsTheModelSoonAfterItIsReady) {
  missing_ = {"global_step"};
  timer_.At(absl::Seconds(10), [this] { missing_.clear(); });
  EXPECT_TRUE(Manager()->WaitForSession(Factory()).ok());
  EXPECT_GE(timer_.Now(), absl::Seconds(10));
  EXPECT_LE(timer_.Now(), absl::Seconds(10.3));
  EXPECT_LE(timer_.longest_wait(), absl::Seconds(0.3));
  EXPECT_EQ(sessions_.size(), 1u);  // one that only looked looks again
}

TEST_F(SessionManagerTest, LooksBecomeRarerUpToTheRecoveryWait) {
  missing_ = {"global_step"};
  options_.recovery_wait = absl::Seconds(1);
  timer_.At(absl::Hours(1), [this] { missing_.clear(); });
  EXPECT_TRUE(Manager()->WaitForSession(Factory()).ok());
  EXPECT_EQ(timer_.longest_wait(), absl::Seconds(1));
}

TEST_F(SessionManagerTest, TheWholeOfTheTimeIsWaited) {
  missing_ = {"global_step"};
  const absl::Status status = Manager()->WaitForSession(Factory(), absl::Seconds(5)).status();
  EXPECT_EQ(status, absl::DeadlineExceededError("Session was not ready after waiting 5 secs."));
  EXPECT_EQ(timer_.Now(), absl::Seconds(5));
  EXPECT_TRUE(sessions_.back()->closed());
}

TEST_F(SessionManagerTest, ASessionThatRanLocalInitIsNotUsedForAnotherLook) {
  missing_ = {"v"};
  options_.local_init = Op("local_init");
  timer_.At(absl::Milliseconds(100), [this] { missing_.clear(); });
  EXPECT_TRUE(Manager()->WaitForSession(Factory()).ok());
  EXPECT_GE(sessions_.size(), 2u);
  EXPECT_TRUE(sessions_.front()->closed());
  EXPECT_FALSE(sessions_.back()->closed());
}

TEST_F(SessionManagerTest, ATaskThatRestartsWhileOneWaitsCostsASession) {
  missing_ = {"v"};
  bool restarted = false;
  timer_.At(absl::Seconds(1), [&] { restarted = true; });
  timer_.At(absl::Seconds(2), [this] { missing_.clear(); });
  on_run_ = [&](const std::string&) {
    return restarted && sessions_.size() == 1 ? absl::AbortedError("restarted") : absl::OkStatus();
  };
  EXPECT_TRUE(Manager()->WaitForSession(Factory()).ok());
  EXPECT_EQ(sessions_.size(), 2u);
  // In a new session the same error is one.
  sessions_.clear();
  EXPECT_EQ(Manager()->WaitForSession(Factory()).status(), absl::AbortedError("restarted"));
}

TEST_F(SessionManagerTest, AnInterruptionEndsTheWait) {
  missing_ = {"v"};
  options_.interrupted = [this] {
    return timer_.Now() < absl::Seconds(3) ? absl::OkStatus() : absl::CancelledError("Ctrl-C");
  };
  EXPECT_EQ(Manager()->WaitForSession(Factory()).status(), absl::CancelledError("Ctrl-C"));
  EXPECT_LE(timer_.Now(), absl::Seconds(3.2));
}

}  // namespace
}  // namespace muster
