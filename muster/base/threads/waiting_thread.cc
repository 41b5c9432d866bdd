#include "muster/base/threads/waiting_thread.h"

#include <optional>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/container/inlined_vector.h"
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "muster/base/check.h"

namespace muster {
namespace {

constexpr int64_t kForever = INT64_MAX;
// Where the system has no descriptor left for Wake.
constexpr int64_t kPollWithoutEventNanos = 1'000'000;

std::atomic<int> num_spinning{0};

int MostSpinning() {
  static const int num_cores = static_cast<int>(std::thread::hardware_concurrency());
  return num_cores > 1 ? num_cores : 0;
}

bool TryTakeSpinSlot() {
  if (num_spinning.fetch_add(1, std::memory_order_relaxed) < MostSpinning()) return true;
  num_spinning.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

void ReturnSpinSlot() {
  num_spinning.fetch_sub(1, std::memory_order_relaxed);
}

timespec Timespec(int64_t nanos) {
  return {nanos / 1'000'000'000, nanos % 1'000'000'000};
}

// Of a thread that serves nothing.
class NoWork : public WorkSource {
 public:
  explicit NoWork(Pace* pace) : pace_(pace) {}
  bool Look() override { return false; }
  bool Serve() override { return true; }
  bool Sleep(WaitingThread& thread, int64_t nanos) override {
    thread.Park(nanos);
    return true;
  }
  Pace* pace() override { return pace_; }

 private:
  Pace* const pace_;
};

using OwningReference = std::shared_ptr<WaitingThread>;

}  // namespace

bool WorkSource::TryBeginSpin() {
  return TryTakeSpinSlot();
}

void WorkSource::EndSpin() {
  ReturnSpinSlot();
}

// --- The thread and its object -----------------------------------------------------------------

// Kept by a pthread key: its destructor runs after those of C++'s thread-locals, which may still
// want the object, and again if they have made a new one.
WaitingThread& WaitingThread::MakeCurrent() {
  static const pthread_key_t key = [] {
    pthread_key_t made;
    CHECK(pthread_key_create(&made, [](void* reference) {
            current_ = nullptr;
            delete static_cast<OwningReference*>(reference);
          }) == 0);
    return made;
  }();
  auto reference = std::make_unique<OwningReference>(new WaitingThread);
  CHECK(pthread_setspecific(key, reference.get()) == 0);
  current_ = reference.release()->get();
  return *current_;
}

WaitingThread::~WaitingThread() {
  if (const int event = event_.load(std::memory_order_relaxed); event >= 0) close(event);
}

// --- Waiting -----------------------------------------------------------------------------------

bool WaitingThread::WaitUntil(absl::FunctionRef<bool()> done, WorkSource& source,
                              absl::Duration limit) {
  NoWork otherwise(nullptr);
  return Wait(done, source, otherwise, limit);
}

bool WaitingThread::WaitForAnswer(absl::FunctionRef<bool()> done, Pace& pace,
                                  absl::Duration limit) {
  NoWork otherwise(&pace);
  const std::shared_ptr<WorkSource> source = last_call_.lock();
  return Wait(done, source != nullptr ? *source : otherwise, otherwise, limit);
}

bool WaitingThread::Wait(absl::FunctionRef<bool()> done, WorkSource& wanted, WorkSource& otherwise,
                         absl::Duration limit) {
  RunDeferred();
  // A wake-up from before says nothing that `done` does not say now, and would pass for a short
  // sleep.
  if (state_.load(std::memory_order_relaxed) == kWoken)
    state_.exchange(kRunning, std::memory_order_acq_rel);
  if (done()) return true;
  // What it serves has turns of its own.
  const int outer_depth = std::exchange(turn_depth_, 0);
  const absl::Cleanup restore_depth = [this, outer_depth] { turn_depth_ = outer_depth; };
  const bool is_limited = limit < absl::InfiniteDuration();
  const int64_t limit_nanos = absl::ToInt64Nanoseconds(limit);
  const int64_t begin = is_limited ? wanted.clock().NowNanos() : 0;
  const auto give_back = [&wanted] { wanted.GiveBack(); };
  std::optional<Duty> duty;
  const auto leave = [&duty, &give_back] {
    if (duty && !duty->is_handed_over()) give_back();
    duty.reset();
  };
  const absl::Cleanup leave_at_end = leave;
  WorkSource* source = wanted.Claim() ? &wanted : &otherwise;
  if (source == &wanted && wanted.is_exclusive()) duty.emplace(give_back);
  while (!done()) {
    if (duty && duty->is_handed_over()) {
      if (wanted.Claim()) {
        duty->TakeBack();
      } else {
        leave();
        source = &otherwise;
      }
    }
    const int64_t left = is_limited ? limit_nanos - (wanted.clock().NowNanos() - begin) : kForever;
    if (left <= 0) return false;
    if (!source->Look()) {
      if (!Rest(*source, done, left)) return done();
      continue;
    }
    const bool goes_on = source->Serve();
    if (duty) duty->DropKept();
    if (goes_on) continue;
    leave();
    source = &otherwise;
  }
  return true;
}

bool WaitingThread::Rest(WorkSource& source, absl::FunctionRef<bool()> done, int64_t nanos) {
  Pace* const pace = source.pace();
  const bool is_quick = pace != nullptr && pace->is_quick();
  const int64_t begin = pace != nullptr ? source.clock().NowNanos() : 0;
  const int cheap_looks = source.cheap_looks();
  if ((is_quick || cheap_looks > 0) && source.TryBeginSpin()) {
    bool came = false;
    for (int look = 0; !came; ++look) {
      came = done() || source.Look();
      if (look < cheap_looks) {
        PauseCpu();
      } else if (!is_quick || source.clock().NowNanos() - begin > pace->longest_spin_nanos()) {
        break;
      } else if (!came) {
        sched_yield();
      }
    }
    source.EndSpin();
    if (pace != nullptr && (came || is_quick)) pace->NoteSpin(came);
    if (came) return true;
  }
  if (!source.Sleep(*this, nanos)) return false;
  if (pace != nullptr && !is_quick) pace->NoteSleep(source.clock().NowNanos() - begin);
  return true;
}

bool WaitingThread::Spin(Pace& pace, absl::FunctionRef<Seen()> look) {
  if (!pace.is_quick() || !TryTakeSpinSlot()) return false;
  const Clock& clock = Clock::Real();
  const int64_t begin = clock.NowNanos();
  Seen seen;
  while ((seen = look()) == Seen::kNothing && clock.NowNanos() - begin <= pace.longest_spin_nanos())
    sched_yield();
  ReturnSpinSlot();
  if (seen != Seen::kStop) pace.NoteSpin(seen == Seen::kWork);
  return seen == Seen::kWork;
}

// --- Sleeping and being woken ------------------------------------------------------------------

// One word says it all. Wake leaves kWoken there, which a thread that is about to sleep finds; both
// change the word in one step, so that one of them sees what the other did.
void WaitingThread::Wake() {
  if (this == current_) return;  // it does not sleep, and asks `done` before it does
  switch (state_.exchange(kWoken, std::memory_order_acq_rel)) {
    case kParked:
      syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
      break;
    case kPolling: {
      const uint64_t one = 1;
      [[maybe_unused]] const ssize_t written =
          write(event_.load(std::memory_order_relaxed), &one, sizeof(one));
      break;
    }
  }
}

void WaitingThread::Park(int64_t nanos) {
  uint32_t expected = kRunning;
  if (state_.compare_exchange_strong(expected, kParked, std::memory_order_acq_rel)) {
    const timespec timeout = Timespec(nanos);
    syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, kParked, nanos == kForever ? nullptr : &timeout,
            nullptr, 0);
  }
  state_.exchange(kRunning, std::memory_order_acq_rel);
}

bool WaitingThread::Poll(absl::Span<pollfd> descriptors, int64_t nanos) {
  int event = event_.load(std::memory_order_relaxed);
  if (event < 0) {
    event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    event_.store(event, std::memory_order_relaxed);
  }
  if (event < 0) nanos = std::min(nanos, kPollWithoutEventNanos);
  absl::InlinedVector<pollfd, 4> polled(descriptors.begin(), descriptors.end());
  polled.push_back({event, POLLIN, 0});  // a negative one is passed over
  int ready = 0;
  uint32_t expected = kRunning;
  if (state_.compare_exchange_strong(expected, kPolling, std::memory_order_acq_rel)) {
    const timespec timeout = Timespec(nanos);
    ready = ppoll(polled.data(), polled.size(), nanos == kForever ? nullptr : &timeout, nullptr);
  }
  state_.exchange(kRunning, std::memory_order_acq_rel);
  if (ready <= 0) return false;
  if (polled.back().revents != 0) {
    uint64_t count;
    [[maybe_unused]] const ssize_t drained = read(event, &count, sizeof(count));
    --ready;
  }
  for (size_t i = 0; i < descriptors.size(); ++i) descriptors[i].revents = polled[i].revents;
  return ready > 0;
}

// --- Turns and duties --------------------------------------------------------------------------

void WaitingThread::AtEndOfTurn(Task task) {
  if (turn_depth_ == 0) {
    std::move(task)();
  } else {
    deferred_.push_back(std::move(task));
  }
}

void WaitingThread::RunDeferred() {
  while (!deferred_.empty()) {
    std::vector<Task> tasks = std::exchange(deferred_, {});
    for (Task& task : tasks) std::move(task)();
  }
}

void WaitingThread::HandOver() {
  for (Duty* each = duty_; each != nullptr; each = each->outer_) {
    if (std::exchange(each->is_handed_over_, true)) continue;
    each->hand_over_();
  }
}

bool WaitingThread::Keep(std::shared_ptr<void> last) {
  if (duty_ == nullptr) return false;
  duty_->kept_.push_back(std::move(last));
  return true;
}

Duty::Duty(absl::FunctionRef<void()> hand_over)
    : thread_(WaitingThread::Current()), hand_over_(hand_over), outer_(thread_.duty_) {
  thread_.duty_ = this;
}

Duty::~Duty() {
  thread_.duty_ = outer_;
}

}  // namespace muster
