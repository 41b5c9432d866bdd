#include "muster/train/loop/thread.h"

#include <thread>
#include <utility>

#include "muster/base/check.h"
#include "muster/base/threads/thread_name.h"
#include "muster/train/loop/notice.h"
#include "muster/train/loop/timer.h"

namespace muster {

Thread::Thread(std::string name, std::function<absl::Status()> body)
    : name_(std::move(name)), body_(std::move(body)) {}

std::shared_ptr<Thread> Thread::Create(std::string name, std::function<absl::Status()> body) {
  return std::shared_ptr<Thread>(new Thread(std::move(name), std::move(body)));
}

void Thread::Start() {
  MarkStarted();
  std::thread([self = shared_from_this()] {
    NameThread(self->name_);
    const absl::Status status = self->Run();
    if (!status.ok())
      Notice(LogLevel::kError, absl::StrCat("Thread ", self->name_, ": ", status.ToString()));
  }).detach();
}

void Thread::MarkStarted() {
  MutexLock lock(mutex_);
  CHECK(state_ == State::kNew);
  state_ = State::kRunning;
}

absl::Status Thread::Run() {
  std::function<absl::Status()> body;
  {
    MutexLock lock(mutex_);
    state_ = State::kRunning;
    body.swap(body_);
  }
  absl::Status status;
  if (body) status = body();
  body = nullptr;  // its captures are destroyed before its end is announced
  std::vector<std::function<void()>> when_ended;
  {
    MutexLock lock(mutex_);
    state_ = State::kEnded;
    when_ended.swap(when_ended_);
    ended_.NotifyAll();
  }
  for (const auto& done : when_ended) done();
  return status;
}

absl::Status Thread::Run(std::function<absl::Status()> body) {
  {
    MutexLock lock(mutex_);
    body_ = std::move(body);
  }
  return Run();
}

bool Thread::alive() const {
  MutexLock lock(mutex_);
  return state_ == State::kRunning;
}

bool Thread::WhenEnded(std::function<void()> done) {
  {
    MutexLock lock(mutex_);
    if (state_ != State::kEnded) {
      when_ended_.push_back(std::move(done));
      return true;
    }
  }
  done();
  return true;
}

bool Thread::WaitFor(absl::Duration timeout) const {
  const absl::Duration until = absl::Nanoseconds(Clock::Real().NowNanos()) + timeout;
  MutexLock lock(mutex_);
  for (;;) {
    if (state_ == State::kEnded) return true;
    const absl::Duration left = until - absl::Nanoseconds(Clock::Real().NowNanos());
    if (left <= absl::ZeroDuration()) return false;
    Timer::Real().Wait(ended_, mutex_, left);
  }
}

}  // namespace muster
