#include "muster/base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include <sched.h>

#include "muster/base/float_mode.h"
#include "muster/base/mutex.h"
#include "muster/base/pace.h"
#include "muster/base/turn.h"

namespace muster {
namespace {

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Work below this is not worth dividing with a thread that is awake, or waking one that sleeps: on
// a virtual machine it comes after some fifty microseconds.
constexpr double kMinParallelNanos = 25000;
constexpr double kMinNanosToWake = 75000;
constexpr double kMinBlockNanos = 10000;
// How often an idle thread looks for work without giving way to others, some 15 us; and how long it
// goes on looking where that is worth it.
constexpr int kLooksWithoutPause = 1000;
constexpr int64_t kLookOutNanos = 100'000;

// Runs timers on a thread of its own, started with the first timer.
class TimerThread {
 public:
  explicit TimerThread(Scheduler& scheduler) : scheduler_(scheduler) {}
  ~TimerThread() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    if (thread_.joinable()) thread_.join();
  }

  Scheduler::TimerId Add(absl::Duration delay, Task task) {
    const int64_t due = Clock::Real().NowNanos() + absl::ToInt64Nanoseconds(delay);
    MutexLock lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
    const Scheduler::TimerId id = ++last_id_;
    timers_.emplace(std::make_pair(due, id), std::move(task));
    due_by_id_[id] = due;
    // Most are cancelled long before they are due: who is woken for none of them sleeps on.
    if (due < wakes_at_) changed_.NotifyAll();
    return id;
  }

  bool Cancel(Scheduler::TimerId id) {
    Task dropped;  // destroyed outside the lock
    MutexLock lock(mutex_);
    const auto found = due_by_id_.find(id);
    if (found == due_by_id_.end()) return false;
    const auto timer = timers_.find({found->second, id});
    dropped = std::move(timer->second);
    timers_.erase(timer);
    due_by_id_.erase(found);
    return true;
  }

 private:
  void Run() {
    mutex_.Lock();
    while (!stopping_) {
      if (timers_.empty()) {
        wakes_at_ = INT64_MAX;
        changed_.Wait(mutex_);
        continue;
      }
      wakes_at_ = timers_.begin()->first.first;
      const int64_t wait = wakes_at_ - Clock::Real().NowNanos();
      if (wait > 0) {
        changed_.WaitFor(mutex_, absl::Nanoseconds(wait));
        continue;
      }
      Task task = std::move(timers_.begin()->second);
      due_by_id_.erase(timers_.begin()->first.second);
      timers_.erase(timers_.begin());
      mutex_.Unlock();
      scheduler_.Schedule(std::move(task));
      mutex_.Lock();
    }
    mutex_.Unlock();
  }

  Scheduler& scheduler_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t wakes_at_ ABSL_GUARDED_BY(mutex_) = INT64_MAX;  // without being told
  Scheduler::TimerId last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::pair<int64_t, Scheduler::TimerId>, Task> timers_ ABSL_GUARDED_BY(mutex_);
  std::map<Scheduler::TimerId, int64_t> due_by_id_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

class ThreadPool : public Scheduler {
 public:
  ThreadPool(int threads, int parallelism)
      : queues_(std::max(threads, 1)), parallelism_(parallelism), timer_(*this) {
    for (int i = 0; i < static_cast<int>(queues_.size()); ++i)
      threads_.emplace_back([this, i] { Work(i); });
  }
  ~ThreadPool() override {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      work_.NotifyAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  void Schedule(Task task) override {
    // A worker keeps its own work; others spread theirs.
    const int own = current_pool == this ? current_worker : -1;
    const size_t at = own >= 0
                          ? static_cast<size_t>(own)
                          : next_queue_.fetch_add(1, std::memory_order_relaxed) % queues_.size();
    {
      MutexLock lock(queues_[at].mutex);
      queues_[at].tasks.push_back(std::move(task));
    }
    pending_.fetch_add(1, std::memory_order_seq_cst);
    if (sleeping_.load(std::memory_order_seq_cst) > 0) {
      MutexLock lock(mutex_);
      work_.NotifyOne();
    }
  }
  TimerId ScheduleAfter(absl::Duration delay, Task task) override {
    return timer_.Add(delay, std::move(task));
  }
  bool CancelTimer(TimerId timer) override { return timer_.Cancel(timer); }
  void HelpUntil(absl::FunctionRef<bool()> done) override {
    const TurnBreak turn_break;
    int idle_rounds = 0;
    while (!done()) {
      if (std::optional<Task> task = Take(0)) {
        (*std::move(task))();
        idle_rounds = 0;
      } else if (++idle_rounds < 1000) {
        Pause();
      } else {
        MutexLock lock(mutex_);
        sleeping_.fetch_add(1, std::memory_order_seq_cst);
        while (!done() && pending_.load(std::memory_order_seq_cst) == 0) work_.Wait(mutex_);
        sleeping_.fetch_sub(1, std::memory_order_seq_cst);
        idle_rounds = 0;
      }
    }
  }
  void Wake() override {
    MutexLock lock(mutex_);
    work_.NotifyAll();
  }
  int parallelism() const override { return parallelism_; }
  Clock& clock() override { return Clock::Real(); }

  void ParallelFor(int64_t count, double cost_per_item_ns,
                   absl::FunctionRef<void(int64_t, int64_t)> body) override {
    if (count <= 0) return;
    const double total = static_cast<double>(count) * cost_per_item_ns;
    const bool is_awake = is_looking_.load(std::memory_order_relaxed);
    if (count == 1 || parallelism_ == 1 ||
        total < (is_awake ? kMinParallelNanos : kMinNanosToWake)) {
      body(0, count);
      return;
    }
    const auto most_blocks =
        static_cast<int64_t>(std::min(total / kMinBlockNanos, 4.0 * parallelism()));
    const int64_t blocks = std::clamp<int64_t>(most_blocks, 1, count);
    if (blocks == 1) {
      body(0, count);
      return;
    }
    auto loop = std::make_shared<Loop>(count, blocks, body);
    const int64_t helpers = std::min<int64_t>(blocks, parallelism_) - 1;
    for (int64_t i = 0; i < helpers; ++i) {
      Schedule([loop] { loop->Run(); });
    }
    loop->Run();
    loop->Wait();
    if (loop->failure != nullptr) std::rethrow_exception(loop->failure);
  }

 private:
  struct Queue {
    Mutex mutex;
    std::deque<Task> tasks ABSL_GUARDED_BY(mutex);
    uint32_t takes ABSL_GUARDED_BY(mutex) = 0;
  };

  // Shared by the caller and its helpers; a helper that comes too late finds no block and never
  // touches `body`.
  struct Loop {
    Loop(int64_t n, int64_t b, absl::FunctionRef<void(int64_t, int64_t)> f)
        : count(n), blocks(b), body(f), left(b) {}
    void Run() {
      for (;;) {
        const int64_t block = next.fetch_add(1, std::memory_order_relaxed);
        if (block >= blocks) return;
        try {
          body(count * block / blocks, count * (block + 1) / blocks);
        } catch (...) {
          if (!has_failed.exchange(true)) failure = std::current_exception();
        }
        if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) left.notify_all();
      }
    }
    void Wait() {
      for (int spin = 0; spin < 2000; ++spin) {
        if (left.load(std::memory_order_acquire) == 0) return;
        Pause();
      }
      for (int64_t now = left.load(std::memory_order_acquire); now != 0;
           now = left.load(std::memory_order_acquire)) {
        left.wait(now, std::memory_order_acquire);
      }
    }
    const int64_t count;
    const int64_t blocks;
    absl::FunctionRef<void(int64_t, int64_t)> body;
    std::atomic<int64_t> next{0};
    std::atomic<int64_t> left;
    std::atomic<bool> has_failed{false};
    std::exception_ptr failure;  // of the first that failed; read when none is left
  };

  std::optional<Task> Take(size_t self) {
    if (pending_.load(std::memory_order_acquire) == 0) return std::nullopt;
    for (size_t k = 0; k < queues_.size(); ++k) {
      Queue& queue = queues_[(self + k) % queues_.size()];
      MutexLock lock(queue.mutex);
      if (queue.tasks.empty()) continue;
      // Newest of its own (warm caches), oldest of others; now and then the oldest of its own too,
      // so that nothing waits for ever behind work that keeps making more.
      const bool newest = k == 0 && ++queue.takes % 4 != 0;
      Task task = newest ? std::move(queue.tasks.back()) : std::move(queue.tasks.front());
      newest ? queue.tasks.pop_back() : queue.tasks.pop_front();
      pending_.fetch_sub(1, std::memory_order_acq_rel);
      return task;
    }
    return std::nullopt;
  }

  void Work(int self) {
    current_pool = this;
    current_worker = self;
    const FlushDenormals flush;
    for (;;) {
      if (std::optional<Task> task = Take(static_cast<size_t>(self))) {
        (*std::move(task))();
        continue;
      }
      const int64_t idle_since = Clock::Real().NowNanos();
      const bool looks_long = pace_.is_quick();
      if (LookOut(idle_since, looks_long)) continue;
      MutexLock lock(mutex_);
      sleeping_.fetch_add(1, std::memory_order_seq_cst);
      while (!stopping_ && pending_.load(std::memory_order_seq_cst) == 0) work_.Wait(mutex_);
      sleeping_.fetch_sub(1, std::memory_order_seq_cst);
      if (stopping_ && pending_.load(std::memory_order_acquire) == 0) return;
      if (!looks_long) pace_.NoteSleep(Clock::Real().NowNanos() - idle_since);
    }
  }

  // One idle worker at a time looks out for a while before it sleeps: steps come in quick
  // succession, and so does the work in them.
  bool LookOut(int64_t begin, bool looks_long) {
    if (is_looking_.exchange(true, std::memory_order_acq_rel)) return false;
    bool found = false;
    for (int look = 0; !found; ++look) {
      found = pending_.load(std::memory_order_acquire) > 0;
      if (look < kLooksWithoutPause) {
        Pause();
      } else if (!looks_long || Clock::Real().NowNanos() - begin > kLookOutNanos) {
        break;
      } else {
        sched_yield();
      }
    }
    is_looking_.store(false, std::memory_order_release);
    if (found || looks_long) pace_.NoteAwake(found);
    return found;
  }

  static thread_local ThreadPool* current_pool;
  static thread_local int current_worker;

  std::vector<Queue> queues_;
  const int parallelism_;
  std::atomic<size_t> next_queue_{0};
  std::atomic<int64_t> pending_{0};
  std::atomic<int> sleeping_{0};
  std::atomic<bool> is_looking_{false};
  Pace pace_{kLookOutNanos};
  Mutex mutex_;
  CondVar work_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
  TimerThread timer_;
};

thread_local ThreadPool* ThreadPool::current_pool = nullptr;
thread_local int ThreadPool::current_worker = -1;

}  // namespace

std::unique_ptr<Scheduler> NewThreadPool(int threads) {
  return NewThreadPool(threads, std::max(threads, 1) + 1);
}

std::unique_ptr<Scheduler> NewThreadPool(int threads, int parallelism) {
  return std::make_unique<ThreadPool>(threads, std::max(parallelism, 1));
}

Scheduler& DefaultScheduler() {
  // Never destroyed: its threads may run until the process ends.
  static Scheduler* const pool =
      NewThreadPool(std::max(1, static_cast<int>(std::thread::hardware_concurrency()) - 1))
          .release();
  return *pool;
}

}  // namespace muster
