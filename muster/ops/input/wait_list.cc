#include "muster/ops/input/wait_list.h"

#include <algorithm>

namespace muster {

void WaitList::Await(Try attempt, OnWait on_wait, TupleDone done) {
  std::vector<Finished> finished;
  {
    MutexLock lock(mutex_);
    const Ticket ticket = ++last_ticket_;
    waiting_.push_back({ticket, std::move(attempt), std::move(done)});
    AdvanceLocked(finished);
    // Tickets ascend: the newest one is the last, or is over.
    if (!waiting_.empty() && waiting_.back().ticket == ticket && !on_wait(ticket)) {
      finished.push_back(
          {std::move(waiting_.back().done), absl::CancelledError("The operation was cancelled")});
      waiting_.pop_back();
    }
  }
  for (Finished& f : finished) std::move(f.done)(std::move(f.result));
}

bool WaitList::Cancel(Ticket ticket) {
  std::list<Waiting> withdrawn;
  {
    MutexLock lock(mutex_);
    const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                    [ticket](const Waiting& w) { return w.ticket == ticket; });
    if (found == waiting_.end()) return false;
    withdrawn.splice(withdrawn.end(), waiting_, found);
  }
  std::move(withdrawn.front().done)(absl::CancelledError("The operation was cancelled"));
  return true;
}

void WaitList::Flush() {
  std::vector<Finished> finished;
  {
    MutexLock lock(mutex_);
    AdvanceLocked(finished);
  }
  for (Finished& f : finished) std::move(f.done)(std::move(f.result));
}

void WaitList::AdvanceLocked(std::vector<Finished>& finished) {
  bool changed = true;
  while (changed) {
    changed = false;
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      std::optional<absl::StatusOr<Tuple>> result = at->attempt();
      if (!result.has_value()) {
        ++at;
        continue;
      }
      finished.push_back({std::move(at->done), *std::move(result)});
      at = waiting_.erase(at);
      changed = true;
    }
  }
}

}  // namespace muster
