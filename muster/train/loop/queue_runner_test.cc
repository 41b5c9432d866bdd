#include "muster/train/loop/queue_runner.h"

#include <thread>

#include <gtest/gtest.h>

#include "muster/base/cancel_callback.h"
#include "muster/base/clock.h"
#include "muster/graph/build/scope.h"
#include "muster/train/loop/fake_session_test.h"

namespace muster {
namespace {

class QueueRunnerTest : public testing::Test {
 protected:
  QueueRunnerTest() {
    for (const char* name : {"enqueue", "enqueue_1", "close", "cancel"})
      nodes_[name] = scope_.Add("NoOp", {}, {}, name);
  }
  std::shared_ptr<QueueRunner> NewRunner(std::vector<const char*> enqueue,
                                         QueueRunner::Options options = {}) {
    QueueRunnerDef def;
    def.queue_name = "q";
    for (const char* name : enqueue) def.enqueue_ops.push_back(nodes_[name]);
    def.close_op = nodes_["close"];
    def.cancel_op = nodes_["cancel"];
    return QueueRunner::Create(std::move(def), std::move(options));
  }
  // `step` decides what enqueue ops do; closing ops are counted.
  std::shared_ptr<Session> NewSession(
      std::function<absl::Status(const std::string&, const RunOptions&)> step) {
    return std::make_shared<FakeSession>(
        graph_,
        [this, step](const StepSignature& signature,
                     const RunOptions& options) -> absl::StatusOr<std::vector<Tensor>> {
          const std::string name = signature.targets[0]->name();
          {
            MutexLock lock(mutex_);
            ++runs_[name];
          }
          if (name == "close") return absl::CancelledError("Queue 'q' is already closed.");
          if (name == "cancel") return std::vector<Tensor>();
          RETURN_IF_ERROR(step(name, options));
          return std::vector<Tensor>();
        });
  }
  int Runs(const std::string& name) {
    MutexLock lock(mutex_);
    return runs_[name];
  }
  // A step that ends only when it is cancelled.
  static absl::Status Blocked(const RunOptions& options) {
    Mutex mutex;
    CondVar changed;
    bool cancelled = false;
    CancelCallback on_cancel;
    on_cancel.Start(options.cancellation, [&](const absl::Status&) {
      MutexLock lock(mutex);
      cancelled = true;
      changed.NotifyAll();
    });
    MutexLock lock(mutex);
    while (!cancelled) changed.Wait(mutex);
    return options.cancellation->reason();
  }

  Graph graph_;
  Scope scope_{graph_};
  absl::flat_hash_map<std::string, Node*> nodes_;
  Mutex mutex_;
  absl::flat_hash_map<std::string, int> runs_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(QueueRunnerTest, ThreadsHaveTensorFlowsNames) {
  auto session = NewSession([](auto&, auto&) { return OutOfRange("end"); });
  std::vector<std::string> names;
  auto coordinator = std::make_shared<Coordinator>();
  for (const auto& thread :
       NewRunner({"enqueue", "enqueue_1"})->CreateThreads(session, coordinator)) {
    names.push_back(thread->name());
    thread->Start();  // threads and coordinator keep each other until they end
  }
  ASSERT_TRUE(coordinator->RequestStop().ok());
  EXPECT_TRUE(coordinator->Join().ok());
  EXPECT_EQ(names, (std::vector<std::string>{"QueueRunnerThread-q-enqueue",
                                             "QueueRunnerThread-q-enqueue_1",
                                             "QueueRunnerThread-q-close_on_stop"}));
}

TEST_F(QueueRunnerTest, TheLastThreadToFindItsInputAtAnEndClosesTheQueue) {
  std::atomic<int> left{10};
  auto session = NewSession(
      [&](auto&, auto&) { return left.fetch_sub(1) > 0 ? absl::OkStatus() : OutOfRange("end"); });
  auto runner = NewRunner({"enqueue", "enqueue_1"});
  for (const auto& thread : runner->Start(session, nullptr))
    EXPECT_TRUE(thread->WaitFor(absl::Seconds(30)));
  EXPECT_EQ(Runs("close"), 1);
  EXPECT_EQ(Runs("cancel"), 0);
  EXPECT_TRUE(runner->errors().empty());
}

TEST_F(QueueRunnerTest, OtherErrorsStopTheCoordinatorAndCancelTheQueue) {
  auto session = NewSession([](auto&, auto&) { return absl::AbortedError("ps gone"); });
  auto coordinator = std::make_shared<Coordinator>();
  NewRunner({"enqueue", "enqueue_1"})->Start(session, coordinator);
  EXPECT_EQ(coordinator->Join(), absl::AbortedError("ps gone"));
  EXPECT_EQ(Runs("close"), 0);
  EXPECT_EQ(Runs("cancel"), 1);
}

TEST_F(QueueRunnerTest, WithoutACoordinatorErrorsAreKept) {
  auto session = NewSession([](auto&, auto&) { return absl::AbortedError("ps gone"); });
  QueueRunner::Options options;
  options.on_error = [](absl::Status status) { return Prefixed(status, "seen: "); };
  auto runner = NewRunner({"enqueue"}, options);
  const auto threads = runner->CreateThreads(session, nullptr);
  ASSERT_EQ(threads.size(), 1u);
  EXPECT_EQ(threads[0]->Run(), absl::AbortedError("seen: ps gone"));
  ASSERT_EQ(runner->errors().size(), 1u);
  EXPECT_EQ(runner->errors()[0], absl::AbortedError("seen: ps gone"));
}

// As the chief of synchronous training does, for a token that comes with an update.
TEST_F(QueueRunnerTest, StepsThatWaitForTheRunnerEndWithTheErrorThatStopsIt) {
  QueueRunnerDef def;
  def.queue_name = "q";
  def.enqueue_ops = {nodes_["enqueue"]};
  def.close_op = nodes_["close"];
  def.cancel_op = nodes_["cancel"];
  def.waits = nodes_["enqueue_1"];
  const auto waiting = [&](const std::shared_ptr<Session>& session) {
    return static_cast<FakeSession&>(*session).ends[def.waits];
  };
  const absl::Status gone = absl::UnavailableError("ps gone");

  auto fails = NewSession([&](auto&, auto&) { return gone; });
  auto coordinator = std::make_shared<Coordinator>();
  QueueRunner::Create(def)->Start(fails, coordinator);
  EXPECT_EQ(coordinator->Join(), gone);
  EXPECT_EQ(waiting(fails)->reason(), gone);

  // Another thread has met the error.
  auto blocks = NewSession([](auto&, const RunOptions& options) { return Blocked(options); });
  coordinator = std::make_shared<Coordinator>();
  QueueRunner::Options options;
  options.cancel_after = absl::Milliseconds(10);
  QueueRunner::Create(def, options)->Start(blocks, coordinator);
  EXPECT_TRUE(coordinator->RequestStop(gone).ok());
  EXPECT_EQ(coordinator->Join(), gone);
  EXPECT_EQ(waiting(blocks)->reason(), gone);

  // Without an error they may still get what they wait for.
  coordinator = std::make_shared<Coordinator>();
  QueueRunner::Create(def, options)->Start(blocks, coordinator);
  EXPECT_TRUE(coordinator->RequestStop().ok());
  EXPECT_TRUE(coordinator->Join().ok());
  EXPECT_FALSE(waiting(blocks)->cancelled());
}

TEST_F(QueueRunnerTest, RunsOnceForASessionAtATime) {
  auto coordinator = std::make_shared<Coordinator>();
  std::atomic<bool> closed{false};
  const auto step = [&](auto&, auto&) { return closed ? OutOfRange("end") : absl::OkStatus(); };
  auto session = NewSession(step), other = NewSession(step);
  auto runner = NewRunner({"enqueue"});
  const auto threads = runner->Start(session, nullptr);
  EXPECT_TRUE(runner->CreateThreads(session, nullptr).empty());
  const auto others = runner->Start(other, nullptr);
  ASSERT_EQ(others.size(), 1u);
  closed = true;
  EXPECT_TRUE(others[0]->WaitFor(absl::Seconds(30)));
  EXPECT_TRUE(threads[0]->WaitFor(absl::Seconds(30)));
  const auto again = runner->Start(session, nullptr);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_TRUE(again[0]->WaitFor(absl::Seconds(30)));
}

TEST_F(QueueRunnerTest, AStepThatWaitsForSomethingElseIsCancelledSoonAfterTheStop) {
  auto session = NewSession([](auto&, const RunOptions& options) { return Blocked(options); });
  auto coordinator = std::make_shared<Coordinator>();
  QueueRunner::Options options;
  options.cancel_after = absl::Milliseconds(50);
  const auto threads = NewRunner({"enqueue"}, options)->Start(session, coordinator);
  while (Runs("enqueue") == 0) std::this_thread::yield();
  const int64_t start = Clock::Real().NowNanos();
  EXPECT_TRUE(coordinator->RequestStop().ok());
  EXPECT_TRUE(coordinator->Join().ok());
  EXPECT_LT(absl::Nanoseconds(Clock::Real().NowNanos() - start), absl::Seconds(60));
  for (const auto& thread : threads) EXPECT_FALSE(thread->alive());
  EXPECT_EQ(Runs("cancel"), 1);
}

TEST_F(QueueRunnerTest, AStepThatEndsByItselfIsNotCancelled) {
  std::atomic<bool> was_cancelled{false};
  auto session = NewSession([&](auto&, const RunOptions& options) {
    was_cancelled = was_cancelled || options.cancellation->cancelled();
    return absl::OkStatus();
  });
  auto coordinator = std::make_shared<Coordinator>();
  NewRunner({"enqueue"})->Start(session, coordinator);
  EXPECT_TRUE(coordinator->RequestStop().ok());
  EXPECT_TRUE(coordinator->Join().ok());
  EXPECT_FALSE(was_cancelled);
}

}  // namespace
}  // namespace muster
