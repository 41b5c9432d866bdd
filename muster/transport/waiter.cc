#include "muster/transport/waiter.h"

#include "absl/time/clock.h"
#include <sys/eventfd.h>
#include <unistd.h>

#include "muster/transport/fast/link.h"

namespace muster {

std::shared_ptr<Waiter> Waiter::OfThisThread() {
  thread_local const std::shared_ptr<Waiter> waiter(new Waiter);
  return waiter;
}

Waiter::Waiter() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Waiter::~Waiter() {
  if (event_ >= 0) close(event_);
}

void Waiter::NoteCall(std::weak_ptr<fast::Link> link) {
  OfThisThread()->link_ = std::move(link);
}

void Waiter::WaitUntil(absl::FunctionRef<bool()> done, absl::Duration most) {
  const std::shared_ptr<fast::Link> link = link_.lock();
  if (link == nullptr || event_ < 0) return;
  waits_.store(true);
  link->ReadUntil(done, event_, absl::Now() + most);
  waits_.store(false);
  uint64_t count;
  [[maybe_unused]] const ssize_t drained = read(event_, &count, sizeof(count));
}

void Waiter::Wake() {
  if (!waits_.load()) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_, &one, sizeof(one));
}

}  // namespace muster
