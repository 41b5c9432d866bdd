// The part of Mesh that knows threads, waiting and time.
#include <algorithm>

#include "absl/container/inlined_vector.h"
#include <sys/epoll.h>
#include <unistd.h>

#include "muster/base/clock.h"
#include "muster/base/threads/waiting_thread.h"
#include "muster/collective/mesh/mesh.h"

namespace muster::collective {
namespace {

// The mesh's own thread takes over this long after the last thread that helped: calls that follow
// one another find it out of their way.
constexpr absl::Duration kHandOver = absl::Milliseconds(5);
// Some microseconds: a peer on another core answers within them, and a peer or another thread that
// needs this core does not wait for long.
constexpr int kLooksBeforeYield = 32;

int64_t Now() {
  return Clock::Real().NowNanos();
}

}  // namespace

void Mesh::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
}

void Mesh::Post(Event event) {
  MutexLock lock(inbox_mutex_);
  inbox_.push_back(std::move(event));
  inbox_size_.store(static_cast<int>(inbox_.size()));
}

void Mesh::NotifyThread() {
  if (!busy_.load() || has_driver_.load()) return;
  MutexLock lock(driver_mutex_);
  if (!driven_) driver_changed_.NotifyAll();
}

void Mesh::EndHelp() {
  if (helpers_.fetch_sub(1) == 1) NotifyThread();
}

void Mesh::Kick() {
  while (inbox_size_.load() > 0) {
    if (!mutex_.TryLock()) return;  // the holder looks again in Release
    DrainInbox();
    Release(/*is_driver=*/false);
  }
}

void Mesh::Release(bool is_driver) {
  // Reading from a channel has marked it as having no waiting thread.
  if (!is_driver && sleeping_.load() > 0 && !has_driver_.load() && ArmLinks()) Wake();
  Finished finished = std::exchange(finished_, {});
  mutex_.Unlock();
  for (auto& [done, status] : finished) std::move(done)(status);
  if (!finished.empty()) {
    if (!is_driver && has_driver_.load()) Wake();
    if (waiters_.load() > 0) {
      MutexLock lock(driver_mutex_);
      driver_changed_.NotifyAll();
    }
  }
  Kick();
}

void Mesh::DrainInbox() {
  while (inbox_size_.load() > 0) {
    std::vector<Event> events;
    {
      MutexLock lock(inbox_mutex_);
      events.swap(inbox_);
      inbox_size_.store(0);
    }
    for (Event& event : events) {
      if (event.operation != nullptr) {
        Begin(std::move(event.operation));
      } else if (event.peer < 0) {
        Fail(std::move(event.status));
      } else if (event.channel != nullptr) {
        AttachLink(event.peer, std::move(event.channel));
      } else if (event.status.ok()) {
        RequestLink(*links_[event.peer]);
      } else if (!links_[event.peer]->attached() && links_[event.peer]->gone.ok()) {
        Fail(absl::UnavailableError(
            absl::StrCat(Name(event.peer), " cannot be reached: ", event.status.message())));
      }
    }
  }
}

bool Mesh::Spin() {
  bool moved = false;
  if (!failed_.ok()) return false;
  // Peers whose bytes are next, then those that may have something to say about ours. A list,
  // because collectives end meanwhile.
  absl::InlinedVector<int, 8> awaited, others;
  const auto add = [](absl::InlinedVector<int, 8>& list, int peer) {
    if (std::find(list.begin(), list.end(), peer) == list.end()) list.push_back(peer);
  };
  for (const auto& [tag, operation] : operations_) {
    const int next = operation->awaited_peer();
    if (next >= 0) add(awaited, next);
    for (const Operation::Lane& lane : operation->lanes()) {
      if (lane.peer != next && operation->Needs(lane)) add(others, lane.peer);
    }
  }
  for (const int peer : awaited) moved |= ReadLink(*links_[peer]);
  if (!moved) {
    for (const int peer : others) moved |= ReadLink(*links_[peer]);
  }
  for (const auto& link : links_) {
    if (link == nullptr || !link->attached() || !link->blocked() || !failed_.ok()) continue;
    FlushLink(*link);
    moved |= !link->blocked();
  }
  // The last bytes of a collective may be some that go out.
  for (auto next = operations_.begin(); next != operations_.end();) {
    Operation* const operation = (next++)->second.get();
    FinishIfDone(operation);
  }
  return moved;
}

bool Mesh::ArmLinks() {
  bool moved = false;
  for (const auto& link : links_) {
    if (link == nullptr || !link->attached() || !failed_.ok()) continue;
    if (!link->channel()->Arm(link->blocked())) continue;
    moved = true;
    if (link->blocked()) FlushLink(*link);
    ReadLink(*link);
  }
  return moved;
}

void Mesh::HandlePolled(int peer, bool hung_up) {
  RankLink& link = *links_[peer];
  if (!failed_.ok()) {
    if (hung_up || !link.attached() || !link.Flush(Now()).ok()) {
      link.Detach();
    } else {
      Watch(link);
    }
    return;
  }
  if (!link.attached()) return;
  link.channel()->Polled();
  if (link.blocked()) FlushLink(link);
  ReadLink(link);
}

void Mesh::WaitAndWork(bool is_driver, absl::FunctionRef<bool()> done) {
  mutex_.Lock();
  sleeping_.fetch_add(1);
  DrainInbox();
  // A peer in this process that wrote before it could see that we sleep.
  bool moved = has_memory_links_ && Spin();
  for (const auto& link : links_) {
    if (link != nullptr) Watch(*link);
  }
  for (const auto& link : links_) {
    if (link == nullptr || !link->attached()) continue;
    if (link->channel()->fd() < 0 || link->channel()->HoldsBytes()) moved |= ReadLink(*link);
  }
  moved |= ArmLinks();
  const int timeout = moved ? 0 : PollTimeout();
  Release(is_driver);
  epoll_event events[64];
  int count = 0;
  if (!done()) count = epoll_wait(epoll_, events, std::size(events), timeout);
  sleeping_.fetch_sub(1);
  // A thread that helps has the say.
  if (!is_driver && has_driver_.load()) return;
  mutex_.Lock();
  for (int i = 0; i < std::max(count, 0); ++i) {
    if (events[i].data.u32 == UINT32_MAX) {
      uint64_t ignored;
      [[maybe_unused]] const ssize_t got = read(wake_, &ignored, sizeof(ignored));
      continue;
    }
    HandlePolled(static_cast<int>(events[i].data.u32),
                 (events[i].events & (EPOLLHUP | EPOLLERR)) != 0);
  }
  Spin();
  Tick(Now());
  Release(is_driver);
}

int Mesh::PollTimeout() const {
  if (!failed_.ok() && busy_.load()) return 5;
  // Also with nothing to do: a collective that another thread begins does not wake this one.
  const absl::Duration interval = std::min(options_.silence, options_.lateness) / 8;
  return static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(interval), 5, 500));
}

// The group's bytes as a source for the driving thread. It waits for a Done, which it runs itself
// or which wakes it through `wake_`: no other wake-up is needed.
class Mesh::Bytes : public WorkSource {
 public:
  Bytes(Mesh& mesh, absl::FunctionRef<bool()> done) : mesh_(mesh), done_(done) {}
  // Moves what it finds.
  bool Look() override {
    mesh_.mutex_.Lock();
    mesh_.DrainInbox();
    const bool moved = mesh_.Spin();
    mesh_.Release(/*is_driver=*/true);
    return moved;
  }
  bool Serve() override { return true; }
  bool Sleep(WaitingThread&, int64_t) override {
    mesh_.WaitAndWork(/*is_driver=*/true, done_);
    return true;
  }
  int cheap_looks() const override {
    return mesh_.pace_.longest_spin_nanos() > 0 ? kLooksBeforeYield : 0;
  }
  Pace* pace() override { return &mesh_.pace_; }
  // A mesh has one driver.
  bool TryBeginSpin() override { return true; }
  void EndSpin() override {}

 private:
  Mesh& mesh_;
  const absl::FunctionRef<bool()> done_;
};

void Mesh::Drive(absl::FunctionRef<bool()> done) {
  Bytes bytes(*this, done);
  WaitingThread::Current().WaitUntil(done, bytes);
}

void Mesh::HelpUntil(absl::FunctionRef<bool()> done) {
  driver_mutex_.Lock();
  waiters_.fetch_add(1);
  while (!done()) {
    if (driven_) {
      driver_changed_.Wait(driver_mutex_);
      continue;
    }
    driven_ = true;
    has_driver_.store(true);
    waiters_.fetch_sub(1);
    driver_mutex_.Unlock();
    Drive(done);
    driver_mutex_.Lock();
    waiters_.fetch_add(1);
    driven_ = false;
    has_driver_.store(false);
    driven_until_ = Now();
    if (sleeping_.load() > 0) {
      driver_mutex_.Unlock();
      mutex_.Lock();
      Release(/*is_driver=*/false);
      driver_mutex_.Lock();
    }
    // Others that wait, or the mesh's thread when there is work left.
    if (waiters_.load() > 1 || busy_.load()) driver_changed_.NotifyAll();
  }
  waiters_.fetch_sub(1);
  driver_mutex_.Unlock();
}

void Mesh::RunThread() {
  const int64_t hand_over = absl::ToInt64Nanoseconds(kHandOver);
  while (true) {
    {
      MutexLock lock(driver_mutex_);
      while (!stopping_ && (driven_ || (!busy_.load() && Now() - driven_until_ < hand_over))) {
        driver_changed_.WaitFor(driver_mutex_, 2 * kHandOver);
      }
      if (stopping_) return;
    }
    WaitAndWork(/*is_driver=*/false, [this] {
      MutexLock lock(driver_mutex_);
      return stopping_ || driven_;
    });
  }
}

void Mesh::Tick(int64_t now) {
  if (!failed_.ok()) {
    if (CloseWrittenLinks(now)) busy_.store(false);
    return;
  }
  if (operations_.empty()) return;
  const int64_t silence = absl::ToInt64Nanoseconds(options_.silence);
  for (const auto& link : links_) {
    if (link == nullptr || !link->attached()) continue;
    if (now - std::max(link->heard_nanos, busy_since_) > silence) {
      return Fail(absl::UnavailableError(absl::StrCat(Name(link->peer()), " has been silent for ",
                                                      absl::FormatDuration(options_.silence))));
    }
    if (now - std::max(link->heard_nanos, link->sent_nanos) > silence / 4) {
      link->Queue({.kind = MeshPacketKind::kPing});
      FlushLink(*link);
      if (!failed_.ok()) return;
    }
  }
  CheckConnections(now);
  if (failed_.ok()) CheckLateness(now);
}

void Mesh::CheckConnections(int64_t now) {
  const int64_t silence = absl::ToInt64Nanoseconds(options_.silence);
  for (const auto& [tag, operation] : operations_) {
    for (const Operation::Lane& lane : operation->lanes()) {
      const RankLink& link = *links_[lane.peer];
      if (link.attached() || !link.requested || !operation->Needs(lane)) continue;
      if (now - link.requested_nanos <= silence) continue;
      return Fail(
          absl::UnavailableError(absl::StrCat(Name(lane.peer), " has not come to the group for ",
                                              absl::FormatDuration(options_.silence))));
    }
  }
}

void Mesh::CheckLateness(int64_t now) {
  const int64_t lateness = absl::ToInt64Nanoseconds(options_.lateness);
  for (const auto& [tag, operation] : operations_) {
    const int64_t waited = now - operation->progress_nanos;
    if (waited <= lateness) continue;
    const Operation::Lane* culprit = nullptr;
    for (const Operation::Lane& lane : operation->lanes()) {
      const bool absent = !lane.heard || !links_[lane.peer]->attached();
      if (operation->Needs(lane) && absent) {
        culprit = &lane;
        break;
      }
    }
    if (culprit != nullptr) {
      return Fail(absl::UnavailableError(absl::StrCat(Name(culprit->peer),
                                                      " has not come to collective ", tag, " for ",
                                                      absl::FormatDuration(options_.lateness))));
    }
    // The ranks that have come wait for another one, whose neighbours will name it.
    if (waited <= lateness + lateness / 2) continue;
    const int awaited = operation->awaited_peer();
    return Fail(absl::UnavailableError(
        absl::StrCat(Name(awaited >= 0 ? awaited : operation->lanes()[0].peer),
                     " has not gone on with collective ", tag, " for ",
                     absl::FormatDuration(options_.lateness * 1.5))));
  }
}

bool Mesh::CloseWrittenLinks(int64_t now) {
  const bool expired = now - failed_nanos_ > absl::ToInt64Nanoseconds(options_.linger);
  bool all_closed = true;
  for (const auto& link : links_) {
    if (link == nullptr || !link->attached()) continue;
    bool closes = expired || !link->Flush(now).ok();
    if (!closes && link->control_written()) {
      link->channel()->CloseWriting();
      closes = link->channel()->Flushed();
    }
    if (closes) {
      link->Detach();
    } else {
      all_closed = false;
    }
  }
  return all_closed;
}

}  // namespace muster::collective
