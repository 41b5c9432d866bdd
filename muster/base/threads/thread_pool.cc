#include "muster/base/threads/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "muster/base/float_mode.h"
#include "muster/base/mutex.h"
#include "muster/base/threads/thread_name.h"
#include "muster/base/threads/waiting_thread.h"

namespace muster {
namespace {

// Work below this is not worth dividing with a thread that is awake, or waking one that sleeps: on
// a virtual machine it comes after some fifty microseconds.
constexpr double kMinParallelNanos = 25000;
constexpr double kMinNanosToWake = 75000;
constexpr double kMinBlockNanos = 10000;
// How often an idle thread looks for work without giving way to others, some 15 us; and how long a
// worker goes on where that is worth it.
constexpr int kCheapLooks = 1000;
constexpr int64_t kLongestSpinNanos = 100'000;

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
    // Most timers are cancelled long before they are due: the thread is woken for earlier ones
    // only.
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
    NameThread("muster-timer");
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
      stopping_.store(true, std::memory_order_seq_cst);
      for (WaitingThread* thread : sleepers_) thread->Wake();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  void Schedule(Task task) override {
    // A worker keeps its own work; others spread theirs.
    const WaitingThread::Home home = WaitingThread::Current().home();
    const size_t at = home.pool == this
                          ? static_cast<size_t>(home.worker)
                          : next_queue_.fetch_add(1, std::memory_order_relaxed) % queues_.size();
    {
      MutexLock lock(queues_[at].mutex);
      queues_[at].tasks.push_back(std::move(task));
    }
    pending_.fetch_add(1, std::memory_order_seq_cst);
    if (num_sleeping_.load(std::memory_order_seq_cst) > 0) WakeOne();
  }
  TimerId ScheduleAfter(absl::Duration delay, Task task) override {
    return timer_.Add(delay, std::move(task));
  }
  bool CancelTimer(TimerId timer) override { return timer_.Cancel(timer); }
  bool HelpUntil(absl::FunctionRef<bool()> done, absl::Duration limit) override {
    WaitingThread& thread = WaitingThread::Current();
    Tasks tasks(*this, thread.home().pool == this ? thread.home().worker : 0);
    return thread.WaitUntil(done, tasks, limit);
  }
  int parallelism() const override { return parallelism_; }
  Clock& clock() override { return Clock::Real(); }

  void ParallelFor(int64_t count, double cost_per_item_ns,
                   absl::FunctionRef<void(int64_t, int64_t)> body) override {
    if (count <= 0) return;
    const double total = static_cast<double>(count) * cost_per_item_ns;
    const bool is_awake = is_spinning_.load(std::memory_order_relaxed);
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
        PauseCpu();
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

  // The tasks, as a thread finds them that waits for something else.
  class Tasks : public WorkSource {
   public:
    Tasks(ThreadPool& pool, int self) : pool_(pool), self_(static_cast<size_t>(self)) {}
    ~Tasks() override {
      // It was woken for a task and leaves without one.
      if (was_chosen_ && pool_.has_work()) pool_.WakeOne();
    }
    bool Look() override { return pool_.has_work(); }
    bool Serve() override {
      if (std::optional<Task> task = pool_.Take(self_)) {
        was_chosen_ = false;
        (*std::move(task))();
      }
      return true;
    }
    bool Sleep(WaitingThread& thread, int64_t nanos) override {
      was_chosen_ |= pool_.SleepUntilWork(thread, nanos);
      return true;
    }
    int cheap_looks() const override { return kCheapLooks; }
    bool TryBeginSpin() override { return true; }
    void EndSpin() override {}

   protected:
    ThreadPool& pool_;

   private:
    const size_t self_;
    bool was_chosen_ = false;
  };

  // The same as a worker finds them. One idle worker at a time spins before it sleeps: steps come
  // in quick succession, and so does the work in them.
  class WorkersTasks : public Tasks {
   public:
    using Tasks::Tasks;
    Pace* pace() override { return &pool_.pace_; }
    bool TryBeginSpin() override {
      return !pool_.is_spinning_.exchange(true, std::memory_order_acq_rel);
    }
    void EndSpin() override { pool_.is_spinning_.store(false, std::memory_order_release); }
  };

  bool has_work() const { return pending_.load(std::memory_order_acquire) > 0; }

  void Work(int self) {
    NameThread("muster-pool");
    const FlushDenormals flush;
    WaitingThread& thread = WaitingThread::Current();
    thread.set_home({this, self});
    WorkersTasks tasks(*this, self);
    thread.WaitUntil([this] { return stopping_.load(std::memory_order_acquire) && !has_work(); },
                     tasks);
  }

  // True: a task was there, and the thread was chosen to be woken for it.
  bool SleepUntilWork(WaitingThread& thread, int64_t nanos) {
    {
      MutexLock lock(mutex_);
      sleepers_.push_back(&thread);
      num_sleeping_.fetch_add(1, std::memory_order_seq_cst);
    }
    if (pending_.load(std::memory_order_seq_cst) == 0 && !stopping_.load(std::memory_order_seq_cst))
      thread.Park(nanos);
    MutexLock lock(mutex_);
    const auto at = std::find(sleepers_.begin(), sleepers_.end(), &thread);
    if (at == sleepers_.end()) return true;
    sleepers_.erase(at);
    num_sleeping_.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }

  // The one that fell asleep last: its caches are the warmest.
  void WakeOne() {
    MutexLock lock(mutex_);
    if (sleepers_.empty()) return;
    sleepers_.back()->Wake();
    sleepers_.pop_back();
    num_sleeping_.fetch_sub(1, std::memory_order_relaxed);
  }

  std::vector<Queue> queues_;
  const int parallelism_;
  std::atomic<size_t> next_queue_{0};
  std::atomic<int64_t> pending_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> is_spinning_{false};  // a worker
  Pace pace_{kLongestSpinNanos};
  Mutex mutex_;
  std::vector<WaitingThread*> sleepers_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> num_sleeping_{0};  // as many as there are sleepers_
  std::vector<std::thread> threads_;
  TimerThread timer_;
};

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
