#include "muster/master/gather.h"

namespace muster {

void OnCancel(const std::shared_ptr<Cancellation>& cancellation, Scheduler& scheduler,
              absl::AnyInvocable<void(absl::Status) &&> then) {
  if (cancellation == nullptr) return;
  // The callback belongs to the cancellation, which therefore outlives it.
  auto shared = std::make_shared<absl::AnyInvocable<void(absl::Status) &&>>(std::move(then));
  const auto start = [shared, from = cancellation.get(), &scheduler] {
    scheduler.Schedule([shared, reason = from->reason()] { std::move (*shared)(reason); });
  };
  if (!cancellation->Register(cancellation->NewToken(), start)) start();
}

std::shared_ptr<Cancellation> Follow(const std::shared_ptr<Cancellation>& parent,
                                     Scheduler& scheduler) {
  auto own = std::make_shared<Cancellation>();
  OnCancel(parent, scheduler, [weak = std::weak_ptr<Cancellation>(own)](absl::Status reason) {
    if (const auto strong = weak.lock()) strong->Cancel(std::move(reason));
  });
  return own;
}

void CancelSoon(std::shared_ptr<Cancellation> cancellation, Scheduler& scheduler,
                absl::Status reason) {
  scheduler.Schedule(
      [cancellation = std::move(cancellation), reason = std::move(reason)]() mutable {
        cancellation->Cancel(std::move(reason));
      });
}

}  // namespace muster
