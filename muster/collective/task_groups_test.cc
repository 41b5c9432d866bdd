#include "muster/collective/task_groups.h"

#include "absl/time/clock.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/mutex.h"

namespace muster::collective {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kKey = 5;

class Signal {
 public:
  void Give() {
    MutexLock lock(mutex_);
    is_given_ = true;
    changed_.NotifyAll();
  }
  bool is_given() const {
    MutexLock lock(mutex_);
    return is_given_;
  }
  // Whether it has been given.
  bool WaitFor(absl::Duration time) {
    const absl::Time end = absl::Now() + time;
    MutexLock lock(mutex_);
    while (!is_given_ && absl::Now() < end) changed_.WaitFor(mutex_, end - absl::Now());
    return is_given_;
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool is_given_ ABSL_GUARDED_BY(mutex_) = false;
};

constexpr absl::Duration kPatience = absl::Minutes(5);

// Keeps the first thread that schedules something until that has run and the test lets it go.
class KeepingScheduler : public Scheduler {
 public:
  void Schedule(Task task) override {
    Signal ran;
    pool_->Schedule([&ran, task = std::move(task)]() mutable {
      {
        Task last = std::move(task);
        std::move(last)();
      }
      ran.Give();
    });
    ran.WaitFor(kPatience);
    if (kept.is_given()) return;
    kept.Give();
    // Times out when the releasing thread waits for this thread to end, which is correct.
    let_go.WaitFor(absl::Milliseconds(300));
  }
  TimerId ScheduleAfter(absl::Duration delay, Task task) override {
    return pool_->ScheduleAfter(delay, std::move(task));
  }
  bool CancelTimer(TimerId timer) override { return pool_->CancelTimer(timer); }
  int parallelism() const override { return 1; }
  Clock& clock() override { return pool_->clock(); }
  bool HelpUntil(absl::FunctionRef<bool()> done, absl::Duration limit) override {
    return pool_->HelpUntil(done, limit);
  }
  void ParallelFor(int64_t count, double cost,
                   absl::FunctionRef<void(int64_t, int64_t)> body) override {
    pool_->ParallelFor(count, cost, body);
  }

  Signal kept;
  Signal let_go;

 private:
  const std::unique_ptr<Scheduler> pool_ = NewThreadPool(1);
};

std::shared_ptr<DirectGroups> GroupsOfATask(Scheduler& scheduler) {
  TaskGroupsOptions options;
  options.scheduler = &scheduler;
  return NewTaskGroups(std::move(options));
}

void Enter(DirectGroups& groups, int rank, const std::vector<std::string>& endpoints) {
  DirectGroup group;
  group.name = "g";
  group.key = kKey;
  group.rank = rank;
  group.tasks = {"task 0", "task 1"};
  group.endpoints = endpoints;
  const absl::Status entered = groups.Enter(std::move(group));
  ASSERT_TRUE(entered.ok()) << entered;
}

// The sum of a number over both tasks, on its way.
struct Sum {
  explicit Sum(DirectGroups& groups) {
    CollectiveCall call;
    call.params.type = CollectiveType::kReduce;
    call.params.group_key = kKey;
    call.params.group_size = 2;
    call.params.dtype = DType::kFloat;
    call.input = call.output = Tensor::Scalar<float>(1);
    Done done = [this](absl::Status status) {
      result = std::move(status);
      ended.Give();
    };
    EXPECT_TRUE(groups.TryRun(call, done));
  }
  absl::Status result;
  Signal ended;
};

// The thread that moves a group's bytes is the last to know of a collective that failed while the
// task leaves the group. It must not be the one that ends the group: it would wait for itself.
TEST(TaskGroups, AGroupIsLeftWhileItsThreadReportsAFailure) {
  KeepingScheduler scheduler;
  const std::unique_ptr<Scheduler> pool = NewThreadPool(1);
  const auto first = GroupsOfATask(scheduler);
  const auto second = GroupsOfATask(*pool);
  const std::vector<std::string> endpoints = {*first->Endpoint(), *second->Endpoint()};
  Enter(*first, 0, endpoints);
  Enter(*second, 1, endpoints);
  Sum sum(*first);
  second->Leave("g");
  ASSERT_TRUE(scheduler.kept.WaitFor(kPatience));
  first->Leave("g");
  scheduler.let_go.Give();
  ASSERT_TRUE(sum.ended.WaitFor(kPatience));
  EXPECT_TRUE(absl::IsAborted(sum.result)) << sum.result;
  EXPECT_THAT(std::string(sum.result.message()), HasSubstr("has left the group"));
}

// The same when the task enters its next group, and when all of its groups go.
TEST(TaskGroups, AnotherGroupOrTheEndAbortsWhatIsUnderWay) {
  const std::unique_ptr<Scheduler> pool = NewThreadPool(1);
  for (const bool enters_again : {true, false}) {
    auto first = GroupsOfATask(*pool);
    const auto second = GroupsOfATask(*pool);
    const std::vector<std::string> endpoints = {*first->Endpoint(), *second->Endpoint()};
    Enter(*first, 0, endpoints);
    Sum sum(*first);
    if (enters_again) {
      Enter(*first, 0, endpoints);
    } else {
      first = nullptr;
    }
    ASSERT_TRUE(sum.ended.WaitFor(kPatience));
    EXPECT_FALSE(sum.result.ok());
  }
}

}  // namespace
}  // namespace muster::collective
