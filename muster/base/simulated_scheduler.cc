#include <map>
#include <random>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/base/turn.h"

namespace muster {
namespace {

class Simulation : public SimulatedScheduler {
 public:
  explicit Simulation(uint64_t seed) : random_(seed) {}

  void Schedule(Task task) override {
    MutexLock lock(mutex_);
    ready_.push_back(std::move(task));
  }

  TimerId ScheduleAfter(absl::Duration delay, Task task) override {
    MutexLock lock(mutex_);
    const TimerId id = ++last_id_;
    timers_.emplace(std::make_pair(clock_.NowNanos() + absl::ToInt64Nanoseconds(delay), id),
                    std::move(task));
    return id;
  }

  bool CancelTimer(TimerId timer) override {
    Task dropped;
    MutexLock lock(mutex_);
    for (auto at = timers_.begin(); at != timers_.end(); ++at) {
      if (at->first.second != timer) continue;
      dropped = std::move(at->second);
      timers_.erase(at);
      return true;
    }
    return false;
  }

  void HelpUntil(absl::FunctionRef<bool()> done) override {
    const TurnBreak turn_break;
    // A simulation is single-threaded: when work runs out nothing can make it true any more.
    RunUntil(done);
  }
  void Wake() override {}
  int parallelism() const override { return 1; }
  Clock& clock() override { return clock_; }
  void ParallelFor(int64_t count, double, absl::FunctionRef<void(int64_t, int64_t)> body) override {
    if (count > 0) body(0, count);
  }

  bool RunOne() override {
    Task task;
    {
      MutexLock lock(mutex_);
      if (ready_.empty()) return false;
      std::swap(ready_[random_() % ready_.size()], ready_.back());
      task = std::move(ready_.back());
      ready_.pop_back();
    }
    std::move(task)();
    return true;
  }

  bool RunUntil(absl::FunctionRef<bool()> until) override {
    while (!until()) {
      if (RunOne()) continue;
      if (!StartNextTimer()) return false;
    }
    return true;
  }

 private:
  // Time jumps to the next timer.
  bool StartNextTimer() {
    MutexLock lock(mutex_);
    if (timers_.empty()) return false;
    const int64_t due = timers_.begin()->first.first;
    if (due > clock_.NowNanos()) clock_.Advance(absl::Nanoseconds(due - clock_.NowNanos()));
    ready_.push_back(std::move(timers_.begin()->second));
    timers_.erase(timers_.begin());
    return true;
  }

  Mutex mutex_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  std::vector<Task> ready_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<int64_t, TimerId>, Task> timers_ ABSL_GUARDED_BY(mutex_);
  TimerId last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  VirtualClock clock_;
};

}  // namespace

std::unique_ptr<SimulatedScheduler> SimulatedScheduler::Create(uint64_t seed) {
  return std::make_unique<Simulation>(seed);
}

}  // namespace muster
