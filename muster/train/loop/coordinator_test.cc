#include "muster/train/loop/coordinator.h"

#include <thread>

#include <gtest/gtest.h>

#include "muster/graph/gradients/gradients.h"
#include "muster/train/loop/looper.h"
#include "muster/train/loop/virtual_timer_test.h"

namespace muster {
namespace {

// A thread that ends when the test says so.
class FakeThread : public Joinable {
 public:
  explicit FakeThread(std::string name, bool tells = true)
      : name_(std::move(name)), tells_(tells) {}
  std::string name() const override { return name_; }
  bool alive() const override { return alive_; }
  bool WhenEnded(std::function<void()> done) override {
    done_ = std::move(done);
    return tells_;
  }
  void End() {
    alive_ = false;
    if (tells_ && done_) done_();
  }

 private:
  const std::string name_;
  const bool tells_;
  bool alive_ = true;
  std::function<void()> done_;
};

class CoordinatorTest : public testing::Test {
 protected:
  CoordinatorTest() {
    Coordinator::Options options;
    options.timer = &timer_;
    coordinator_ = std::make_shared<Coordinator>(options);
  }
  static Coordinator::JoinOptions Grace(absl::Duration grace, bool ignore = false) {
    Coordinator::JoinOptions options;
    options.grace = grace;
    options.ignore_live_threads = ignore;
    return options;
  }

  VirtualTimer timer_;
  std::shared_ptr<Coordinator> coordinator_;
};

TEST_F(CoordinatorTest, TheFirstErrorIsTheOneThatJoinReports) {
  EXPECT_FALSE(coordinator_->ShouldStop());
  EXPECT_TRUE(coordinator_->RequestStop(absl::AbortedError("first")).ok());
  EXPECT_TRUE(coordinator_->RequestStop(absl::InternalError("second")).ok());
  EXPECT_TRUE(coordinator_->ShouldStop());
  EXPECT_EQ(coordinator_->Join(), absl::AbortedError("first"));
  EXPECT_EQ(coordinator_->requested(), absl::AbortedError("first"));
  EXPECT_TRUE(coordinator_->joined());
}

TEST_F(CoordinatorTest, AfterAPlainStopErrorsAreNotRemembered) {
  EXPECT_TRUE(coordinator_->RequestStop().ok());
  EXPECT_TRUE(coordinator_->RequestStop(absl::InternalError("late")).ok());
  EXPECT_TRUE(coordinator_->Join().ok());
}

TEST_F(CoordinatorTest, CleanErrorsStopWithoutBeingErrors) {
  EXPECT_TRUE(coordinator_->RequestStop(absl::OutOfRangeError("end of input")).ok());
  EXPECT_TRUE(coordinator_->ShouldStop());
  EXPECT_TRUE(coordinator_->RequestStop(absl::InternalError("late")).ok());
  EXPECT_TRUE(coordinator_->Join().ok());

  Coordinator::Options none;
  none.is_clean = [](const absl::Status&) { return false; };
  Coordinator strict(none);
  EXPECT_TRUE(strict.RequestStop(absl::OutOfRangeError("end of input")).ok());
  EXPECT_EQ(strict.Join(), absl::OutOfRangeError("end of input"));
}

TEST_F(CoordinatorTest, AnErrorAfterJoinIsReturnedAtOnce) {
  EXPECT_TRUE(coordinator_->RequestStop().ok());
  EXPECT_TRUE(coordinator_->Join().ok());
  EXPECT_EQ(coordinator_->RequestStop(absl::AbortedError("late")), absl::AbortedError("late"));
  EXPECT_TRUE(coordinator_->RequestStop(absl::OutOfRangeError("clean")).ok());
  coordinator_->ClearStop();
  EXPECT_FALSE(coordinator_->joined());
  EXPECT_FALSE(coordinator_->ShouldStop());
  EXPECT_TRUE(coordinator_->RequestStop(absl::AbortedError("again")).ok());
  EXPECT_EQ(coordinator_->Join(), absl::AbortedError("again"));
}

TEST_F(CoordinatorTest, JoinReturnsWhenAllThreadsHaveEnded) {
  auto one = std::make_shared<FakeThread>("one");
  auto two = std::make_shared<FakeThread>("two");
  coordinator_->Register(one);
  timer_.At(absl::Seconds(1.3), [&] { one->End(); });
  timer_.At(absl::Seconds(2.7), [&] { two->End(); });
  EXPECT_TRUE(coordinator_->Join({two, one}).ok());
  EXPECT_EQ(timer_.Now(), absl::Seconds(2.7));
  EXPECT_FALSE(coordinator_->ShouldStop());
}

TEST_F(CoordinatorTest, ThreadsThatCannotTellAreAskedOften) {
  auto thread = std::make_shared<FakeThread>("silent", /*tells=*/false);
  timer_.At(absl::Seconds(1.3), [&] { thread->End(); });
  EXPECT_TRUE(coordinator_->Join({thread}).ok());
  EXPECT_LE(timer_.Now(), absl::Seconds(1.33));
}

TEST_F(CoordinatorTest, TheGraceBeginsWithTheStop) {
  auto thread = std::make_shared<FakeThread>("slow");
  timer_.At(absl::Seconds(5), [&] { coordinator_->RequestStop().IgnoreError(); });
  const absl::Status status = coordinator_->Join({thread}, Grace(absl::Seconds(10)));
  EXPECT_EQ(timer_.Now(), absl::Seconds(15));
  EXPECT_EQ(status.message(), "Coordinator stopped with threads still running: slow");
  EXPECT_EQ(ErrorKind(status), "RuntimeError");
}

TEST_F(CoordinatorTest, AnErrorIsWorthMoreThanThreadsThatLiveOn) {
  auto thread = std::make_shared<FakeThread>("slow");
  coordinator_->RequestStop(absl::AbortedError("gone")).IgnoreError();
  EXPECT_EQ(coordinator_->Join({thread}, Grace(absl::Seconds(1))), absl::AbortedError("gone"));
}

TEST_F(CoordinatorTest, LiveThreadsCanBeIgnoredAndAreForgotten) {
  auto thread = std::make_shared<FakeThread>("slow");
  coordinator_->Register(thread);
  coordinator_->RequestStop().IgnoreError();
  EXPECT_TRUE(coordinator_->Join({}, Grace(absl::Seconds(1), /*ignore=*/true)).ok());
  EXPECT_EQ(thread.use_count(), 1);
  EXPECT_TRUE(coordinator_->Join({}, Grace(absl::Seconds(1))).ok());
}

TEST_F(CoordinatorTest, AnInterruptionEndsJoin) {
  auto thread = std::make_shared<FakeThread>("slow");
  Coordinator::JoinOptions options;
  int asked = 0;
  options.interrupted = [&] {
    return ++asked < 3 ? absl::OkStatus() : absl::CancelledError("Ctrl-C");
  };
  EXPECT_EQ(coordinator_->Join({thread}, options), absl::CancelledError("Ctrl-C"));
  EXPECT_FALSE(coordinator_->joined());
  EXPECT_LE(timer_.Now(), absl::Milliseconds(300));
}

TEST_F(CoordinatorTest, WaitForStopSaysWhetherItCame) {
  EXPECT_FALSE(coordinator_->WaitForStop(absl::Seconds(2)));
  EXPECT_EQ(timer_.Now(), absl::Seconds(2));
  timer_.At(absl::Seconds(3), [&] { coordinator_->RequestStop().IgnoreError(); });
  EXPECT_TRUE(coordinator_->WaitForStop());
  EXPECT_EQ(timer_.Now(), absl::Seconds(3));
}

TEST_F(CoordinatorTest, RealThreadsAreNoticedAtOnce) {
  Coordinator real;
  auto thread = Thread::Create("sleeper", [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return absl::OkStatus();
  });
  EXPECT_FALSE(thread->alive());
  EXPECT_TRUE(real.Join({thread}).ok());  // not started: nothing to wait for
  thread->Start();
  EXPECT_TRUE(thread->alive());
  EXPECT_TRUE(real.Join({thread}).ok());
  EXPECT_FALSE(thread->alive());
}

// --- Loops

class LooperTest : public CoordinatorTest {
 protected:
  std::vector<double> Times() const {
    std::vector<double> times;
    for (absl::Duration time : calls_) times.push_back(absl::ToDoubleSeconds(time));
    return times;
  }
  LoopCalls Calls(std::function<absl::Status()> run = {}) {
    return {[this] {
              ++starts_;
              return absl::OkStatus();
            },
            [this, run] {
              calls_.push_back(timer_.Now());
              return run ? run() : absl::OkStatus();
            },
            [this] {
              ++stops_;
              return absl::OkStatus();
            }};
  }

  int starts_ = 0, stops_ = 0;
  std::vector<absl::Duration> calls_;
};

TEST_F(LooperTest, RunsOnAFixedGridFromTheStart) {
  timer_.At(absl::Seconds(35), [&] { coordinator_->RequestStop().IgnoreError(); });
  EXPECT_TRUE(RunLoop(*coordinator_, absl::Seconds(10), Calls()).ok());
  EXPECT_EQ(Times(), (std::vector<double>{0, 10, 20, 30}));
  EXPECT_EQ(timer_.Now(), absl::Seconds(35));
  EXPECT_EQ(starts_, 1);
  EXPECT_EQ(stops_, 1);
}

TEST_F(LooperTest, ALateCallRunsAtOnceAndTheGridStays) {
  timer_.At(absl::Seconds(55), [&] { coordinator_->RequestStop().IgnoreError(); });
  EXPECT_TRUE(RunLoop(*coordinator_, absl::Seconds(10), Calls([this] {
                if (calls_.size() == 1) timer_.Advance(absl::Seconds(25));
                return absl::OkStatus();
              })).ok());
  EXPECT_EQ(Times(), (std::vector<double>{0, 25, 25, 30, 40, 50}));
}

TEST_F(LooperTest, WithoutAnIntervalOneCallFollowsTheOther) {
  EXPECT_TRUE(RunLoop(*coordinator_, std::nullopt, Calls([this] {
                if (calls_.size() == 5) coordinator_->RequestStop().IgnoreError();
                return absl::OkStatus();
              })).ok());
  EXPECT_EQ(Times(), (std::vector<double>{0, 0, 0, 0, 0}));
}

TEST_F(LooperTest, AnErrorStopsTheCoordinator) {
  EXPECT_TRUE(RunLoop(*coordinator_, absl::Seconds(1), Calls([] {
                return absl::InternalError("broken");
              })).ok());
  EXPECT_EQ(coordinator_->requested(), absl::InternalError("broken"));
  EXPECT_EQ(calls_.size(), 1u);
  EXPECT_EQ(stops_, 0);
}

TEST_F(LooperTest, AThreadOfItsOwnIsRegistered) {
  auto real = std::make_shared<Coordinator>();
  std::atomic<int> runs{0};
  LoopCalls calls;
  calls.run = [&] {
    if (++runs == 3) real->RequestStop().IgnoreError();
    return absl::OkStatus();
  };
  const auto thread = StartLooper(real, absl::Milliseconds(1), calls, "loop");
  EXPECT_TRUE(real->Join().ok());
  EXPECT_FALSE(thread->alive());
  EXPECT_EQ(runs, 3);
}

}  // namespace
}  // namespace muster
