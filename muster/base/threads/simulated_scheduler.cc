#include <map>
#include <random>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/base/threads/waiting_thread.h"

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

  bool HelpUntil(absl::FunctionRef<bool()> done, absl::Duration limit) override {
    Tasks tasks(*this);
    return WaitingThread::Current().WaitUntil(done, tasks, limit);
  }
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
    return HelpUntil(until, absl::InfiniteDuration());
  }

 private:
  // The tasks and timers, as the thread of the simulation finds them while it waits.
  class Tasks : public WorkSource {
   public:
    explicit Tasks(Simulation& simulation) : simulation_(simulation) {}
    bool Look() override { return simulation_.has_ready(); }
    bool Serve() override {
      simulation_.RunOne();
      return true;
    }
    // A simulation is single-threaded: when work has run out nothing comes any more.
    bool Sleep(WaitingThread&, int64_t nanos) override { return simulation_.PassTime(nanos); }
    Clock& clock() override { return simulation_.clock_; }

   private:
    Simulation& simulation_;
  };

  bool has_ready() const {
    MutexLock lock(mutex_);
    return !ready_.empty();
  }

  // Time jumps to the next timer, at most by `nanos`. False: nothing happens any more.
  bool PassTime(int64_t nanos) {
    MutexLock lock(mutex_);
    const int64_t now = clock_.NowNanos();
    if (!timers_.empty() && timers_.begin()->first.first - now <= nanos) {
      const int64_t due = timers_.begin()->first.first;
      if (due > now) clock_.Advance(absl::Nanoseconds(due - now));
      ready_.push_back(std::move(timers_.begin()->second));
      timers_.erase(timers_.begin());
      return true;
    }
    if (nanos == INT64_MAX) return false;
    clock_.Advance(absl::Nanoseconds(nanos));
    return true;
  }

  mutable Mutex mutex_;
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
