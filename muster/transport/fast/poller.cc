#include "muster/transport/fast/poller.h"

#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include <sys/epoll.h>

#include "muster/base/threads/thread_name.h"
#include "muster/tensor/unused_memory.h"

namespace muster::fast {
namespace {

// One waits, one works; more only while those are kept busy, and for a tick after that: starting a
// thread takes longer than most of what they do.
constexpr int kIdleThreads = 2;
constexpr int kMostIdleThreads = 4;
constexpr int kMaxThreads = 64;
constexpr int kTickMillis = 500;

}  // namespace

Poller& Poller::Global() {
  static auto* poller = new Poller;
  return *poller;
}

Poller::Poller() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  for (int i = 0; works() && i < kIdleThreads; ++i) AddThread();
}

void Poller::AddThread() {
  threads_.fetch_add(1);
  waiting_.fetch_add(1);
  std::thread([this] {
    NameThread("muster-fast");
    Run();
  }).detach();
}

void Poller::Run() {
  for (;;) {
    epoll_event event;
    // The thread that began to wait last is the one that is woken.
    const int events = epoll_wait(epoll_, &event, 1, kTickMillis);
    if (events == 0) {
      Tick();
      if (TryLeave()) break;
    }
    if (events != 1) continue;
    if (waiting_.fetch_sub(1) == 1 && threads_.load() < kMaxThreads) AddThread();
    const Number number = event.data.u64;  // a copy: the event is packed
    std::shared_ptr<Pollable> pollable;
    {
      MutexLock lock(mutex_);
      const auto found = pollables_.find(number);
      if (found != pollables_.end()) pollable = found->second.lock();
    }
    if (pollable != nullptr) pollable->Ready();
    pollable = nullptr;
    waiting_.fetch_add(1);
  }
  threads_.fetch_sub(1);
}

bool Poller::TryLeave() {
  int waiting = waiting_.load();
  while (waiting > kMostIdleThreads)
    if (waiting_.compare_exchange_weak(waiting, waiting - 1)) return true;
  return false;
}

void Poller::Tick() {
  TrimUnusedMemory(absl::Now());
  std::vector<std::shared_ptr<Pollable>> alive;
  {
    MutexLock lock(mutex_);
    for (const auto& [number, pollable] : pollables_)
      if (std::shared_ptr<Pollable> each = pollable.lock()) alive.push_back(std::move(each));
  }
  for (const auto& each : alive) each->Tick();
}

Poller::Number Poller::Add(std::weak_ptr<Pollable> pollable) {
  MutexLock lock(mutex_);
  pollables_.emplace(++last_number_, std::move(pollable));
  return last_number_;
}

void Poller::Watch(Number number, int socket, bool for_writing, bool first) {
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT | (for_writing ? uint32_t{EPOLLOUT} : 0);
  event.data.u64 = number;
  epoll_ctl(epoll_, first ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, socket, &event);
}

void Poller::WatchForWriting(Number number, int socket) {
  epoll_event event = {};
  event.events = EPOLLOUT | EPOLLONESHOT;
  event.data.u64 = number;
  epoll_ctl(epoll_, EPOLL_CTL_MOD, socket, &event);
}

void Poller::Pause(Number number, int socket) {
  epoll_event event = {};
  event.events = EPOLLONESHOT;
  event.data.u64 = number;
  epoll_ctl(epoll_, EPOLL_CTL_MOD, socket, &event);
}

void Poller::Remove(Number number, int socket) {
  epoll_ctl(epoll_, EPOLL_CTL_DEL, socket, nullptr);
  MutexLock lock(mutex_);
  pollables_.erase(number);
}

}  // namespace muster::fast
