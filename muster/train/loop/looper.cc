#include "muster/train/loop/looper.h"

#include <algorithm>
#include <utility>

namespace muster {
namespace {

absl::Status Loop(Coordinator& coordinator, std::optional<absl::Duration> interval,
                  const LoopCalls& calls) {
  if (calls.start) RETURN_IF_ERROR(calls.start());
  Timer& timer = coordinator.timer();
  absl::Duration next = timer.Now();
  for (;;) {
    const absl::Duration wait =
        interval ? std::max(next - timer.Now(), absl::ZeroDuration()) : absl::ZeroDuration();
    if (coordinator.WaitForStop(wait)) break;
    if (interval) next += *interval;
    if (calls.run) RETURN_IF_ERROR(calls.run());
  }
  return calls.stop ? calls.stop() : absl::OkStatus();
}

}  // namespace

absl::Status RunLoop(Coordinator& coordinator, std::optional<absl::Duration> interval,
                     const LoopCalls& calls) {
  absl::Status status = Loop(coordinator, interval, calls);
  return status.ok() ? status : coordinator.RequestStop(std::move(status));
}

std::shared_ptr<Thread> StartLooper(std::shared_ptr<Coordinator> coordinator,
                                    std::optional<absl::Duration> interval, LoopCalls calls,
                                    std::string name) {
  std::shared_ptr<Thread> thread =
      Thread::Create(std::move(name), [coordinator, interval, calls = std::move(calls)] {
        return RunLoop(*coordinator, interval, calls);
      });
  coordinator->Register(thread);
  thread->Start();
  return thread;
}

}  // namespace muster
