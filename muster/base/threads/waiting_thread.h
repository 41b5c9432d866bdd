// The one way to wait: what a thread does while it waits, how it is woken, and what it does before.
// docs/threads.md explains it with the threads of a process.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

#include "muster/base/clock.h"
#include "muster/base/scheduler.h"
#include "muster/base/threads/pace.h"

struct pollfd;

namespace muster {

class Duty;
class WaitingThread;

// Where a thread that waits finds work: the queues of a pool, the socket of a link.
class WorkSource {
 public:
  virtual ~WorkSource() = default;

  // A source that only one thread may serve at a time is claimed by it. It gives the source back
  // when its wait ends, or earlier, when it is going to be busy (see Duty). False: another thread
  // serves it, and wakes the threads whose answers arrive.
  virtual bool is_exclusive() const { return false; }
  virtual bool Claim() { return true; }
  virtual void GiveBack() {}

  // Whether there is work. A thread that spins asks this again and again. Runs no callbacks, which
  // could wait and swallow a wake-up, unless Sleep needs none.
  virtual bool Look() = 0;
  // Does some of it. False: the source has ended, and nothing more comes from it.
  virtual bool Serve() = 0;
  // Sleeps until there may be work, the thread is woken, or `nanos` have passed; may return earlier.
  // Uses WaitingThread::Park or Poll, unless no other thread wakes this one. False: no work can
  // come any more, which only a simulation knows.
  virtual bool Sleep(WaitingThread& thread, int64_t nanos) = 0;

  // Spinning: this number of looks in any case, and further ones, each followed by a yield, while
  // the pace is quick. Null: no further ones.
  virtual int cheap_looks() const { return 0; }
  virtual Pace* pace() { return nullptr; }
  // Whether one more thread may spin now; if so EndSpin follows. Unless a source has a bound of its
  // own, as many threads of the process may spin as there are cores, and none where there is only
  // one: the thread that is waited for needs it.
  virtual bool TryBeginSpin();
  virtual void EndSpin();

  virtual Clock& clock() { return Clock::Real(); }
};

// A thread, as far as it waits; each has one. Only Wake and Share may be called by others.
class WaitingThread : public std::enable_shared_from_this<WaitingThread> {
 public:
  static WaitingThread& Current() { return current_ != nullptr ? *current_ : MakeCurrent(); }
  ~WaitingThread();
  WaitingThread(const WaitingThread&) = delete;
  WaitingThread& operator=(const WaitingThread&) = delete;

  // --- Waiting

  // Serves `source` until `done` holds: true. False: `limit` has passed by the clock of the source,
  // or nothing can come any more. A source that another thread serves is left to it. What makes
  // `done` true on another thread calls Wake afterwards. Requires: no lock is held that work could
  // want.
  bool WaitUntil(absl::FunctionRef<bool()> done, WorkSource& source,
                 absl::Duration limit = absl::InfiniteDuration());
  // Likewise, for the answer to a call that this thread has made: it serves the source through
  // which the last call went. Without one it only waits, at the pace of such answers.
  bool WaitForAnswer(absl::FunctionRef<bool()> done, Pace& pace,
                     absl::Duration limit = absl::InfiniteDuration());
  // The answer to this thread's last call will come from there; from nowhere that it could serve.
  void NoteCall(std::weak_ptr<WorkSource> source) { last_call_ = std::move(source); }
  void ForgetCall() { last_call_.reset(); }

  // What it waits for may have come. Never lost: if the thread does not sleep, it does not fall
  // asleep the next time. Thread-safe; so is a copy of the reference that Share returns.
  void Wake();
  std::shared_ptr<WaitingThread> Share() { return shared_from_this(); }

  // How sources sleep: until Wake, until `nanos` have passed, or by chance less long.
  void Park(int64_t nanos);
  // The same, or until one of the descriptors is ready: true.
  bool Poll(absl::Span<pollfd> descriptors, int64_t nanos);

  // What a thread sees that spins for something else than the end of a wait.
  enum class Seen { kNothing, kWork, kStop };
  // Spins as a source without a bound of its own would: true when it saw work.
  static bool Spin(Pace& pace, absl::FunctionRef<Seen()> look);

  // --- Turns: what is sent together

  // Runs `task` at the end of this thread's turn (see Turn), or now where it has none. Requires:
  // the caller holds no lock that the task could want.
  void AtEndOfTurn(Task task);
  bool has_deferred() const { return !deferred_.empty(); }
  // Runs what waits for the end of the turn now: the turn takes longer than others should wait.
  void RunDeferred();

  // --- Duties: what is handed over before long work

  // Whether the thread has a duty: then it is not a thread of a pool that others need, and may do
  // at once what it finds is to be done.
  bool has_duty() const { return duty_ != nullptr; }
  // The thread is going to be busy: its duties go to others.
  void HandOver();
  // Keeps `last` until the frames above the innermost duty are gone. False: there is no duty.
  bool Keep(std::shared_ptr<void> last);

  // --- Where it is

  // The pool of which it is a worker, and its number there.
  struct Home {
    const void* pool = nullptr;
    int worker = -1;
  };
  Home home() const { return home_; }
  void set_home(Home home) { home_ = home; }

  // The list in which a loop further down on the stack collects work for `owner`, or null: what
  // becomes ready inside a call that the loop has made needs neither another thread nor another
  // loop.
  void* CollectorOf(const void* owner) const {
    return collector_.owner == owner ? collector_.list : nullptr;
  }

 private:
  friend class Collecting;
  friend class Duty;
  friend class Turn;
  struct Collector {
    const void* owner = nullptr;
    void* list = nullptr;
  };
  enum State : uint32_t { kRunning, kWoken, kParked, kPolling };

  WaitingThread() = default;
  static WaitingThread& MakeCurrent();
  // Spins, then sleeps. False: nothing can come any more.
  bool Rest(WorkSource& source, absl::FunctionRef<bool()> done, int64_t nanos);
  bool Wait(absl::FunctionRef<bool()> done, WorkSource& source, WorkSource& otherwise,
            absl::Duration limit);

  // The only thread-local of all this.
  static inline constinit thread_local WaitingThread* current_ = nullptr;

  std::atomic<uint32_t> state_{kRunning};
  std::atomic<int> event_{-1};  // an eventfd, made when it first sleeps in Poll

  // Below: only the thread itself looks at it.
  std::weak_ptr<WorkSource> last_call_;
  int turn_depth_ = 0;
  std::vector<Task> deferred_;
  Duty* duty_ = nullptr;  // the innermost
  Home home_;
  Collector collector_;
};

// A turn: work that a thread does without a pause. What several parts of it have to send to the
// same task waits for its end and then goes as one message. Lives on the stack; a turn inside of
// another is part of it. A thread that waits has ended its turn for that time: what was deferred
// runs before, and what the thread serves meanwhile has turns of its own.
class Turn {
 public:
  explicit Turn(WaitingThread& thread = WaitingThread::Current()) : thread_(thread) {
    ++thread_.turn_depth_;
  }
  // Runs what was deferred, and what that defers.
  ~Turn() {
    // Still inside of it, so that tasks which defer more do not nest.
    if (thread_.turn_depth_ == 1 && thread_.has_deferred()) thread_.RunDeferred();
    --thread_.turn_depth_;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  WaitingThread& thread_;
};

// Something that only this thread looks after, for example a socket that no other thread reads.
// Before long work the thread hands it over. Lives on the stack.
class Duty {
 public:
  // `hand_over` outlives this.
  explicit Duty(absl::FunctionRef<void()> hand_over);
  ~Duty();
  Duty(const Duty&) = delete;
  Duty& operator=(const Duty&) = delete;

  bool is_handed_over() const { return is_handed_over_; }
  void TakeBack() { is_handed_over_ = false; }
  // Drops what WaitingThread::Keep has kept. Requires: the frames above are gone.
  void DropKept() { kept_.clear(); }

 private:
  friend class WaitingThread;
  WaitingThread& thread_;
  const absl::FunctionRef<void()> hand_over_;
  Duty* const outer_;
  bool is_handed_over_ = false;
  std::vector<std::shared_ptr<void>> kept_;
};

// While it lives, `list` collects work of `owner` (see CollectorOf).
class Collecting {
 public:
  Collecting(const void* owner, void* list)
      : thread_(WaitingThread::Current()),
        outer_(std::exchange(thread_.collector_, {owner, list})) {}
  ~Collecting() { thread_.collector_ = outer_; }
  Collecting(const Collecting&) = delete;
  Collecting& operator=(const Collecting&) = delete;

 private:
  WaitingThread& thread_;
  const WaitingThread::Collector outer_;
};

}  // namespace muster
