#include "muster/master/farewells.h"

#include <algorithm>
#include <utility>

namespace muster {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(10);
constexpr absl::Duration kFirstWait = absl::Seconds(10);
constexpr absl::Duration kLongestWait = absl::Minutes(10);
// A task that stays away for longer is not expected to come back with its state.
constexpr absl::Duration kGivenUpAfter = absl::Hours(24);
constexpr size_t kMostForAWorker = 10'000;

bool WasLost(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

CallOptions Options() {
  CallOptions call;
  call.timeout = kTimeout;
  return call;
}

}  // namespace

void Farewells::Say(const std::shared_ptr<WorkerApi>& worker, const std::string& session,
                    CallDone<Empty> done) {
  worker->DeleteWorkerSession(Options(), session,
                              [weak = weak_from_this(), worker, session,
                               done = std::move(done)](absl::StatusOr<Empty> reply) mutable {
                                const auto self = weak.lock();
                                if (self != nullptr && WasLost(reply.status()))
                                  self->Keep(worker, session);
                                std::move(done)(std::move(reply));
                              });
}

void Farewells::Stop() {
  std::vector<Unsaid> dropped;
  MutexLock lock(mutex_);
  stopped_ = true;
  dropped.swap(unsaid_);
}

size_t Farewells::unsaid() const {
  MutexLock lock(mutex_);
  size_t count = 0;
  for (const Unsaid& unsaid : unsaid_) count += unsaid.sessions.size();
  return count;
}

std::vector<Farewells::Unsaid>::iterator Farewells::FindLocked(const WorkerApi* worker) {
  return std::find_if(unsaid_.begin(), unsaid_.end(),
                      [worker](const Unsaid& unsaid) { return unsaid.worker.get() == worker; });
}

void Farewells::Keep(const std::shared_ptr<WorkerApi>& worker, const std::string& session) {
  MutexLock lock(mutex_);
  if (stopped_) return;
  auto found = FindLocked(worker.get());
  if (found == unsaid_.end()) {
    found = unsaid_.insert(found, {worker, {}, scheduler_.clock().Now(), kFirstWait});
    AgainLaterLocked(*found);
  }
  found->sessions.push_back(session);
  if (found->sessions.size() > kMostForAWorker) found->sessions.pop_front();
}

void Farewells::AgainLaterLocked(const Unsaid& unsaid) {
  scheduler_.ScheduleAfter(unsaid.wait, [weak = weak_from_this(), worker = unsaid.worker.get()] {
    if (const auto self = weak.lock()) self->Again(worker);
  });
}

// One call shows whether the worker is back; the others wait for its answer.
void Farewells::Again(const WorkerApi* worker) {
  std::shared_ptr<WorkerApi> to;
  std::string session;
  {
    MutexLock lock(mutex_);
    const auto found = FindLocked(worker);
    if (found == unsaid_.end()) return;
    to = found->worker;
    session = found->sessions.front();
  }
  WorkerApi& called = *to;
  called.DeleteWorkerSession(
      Options(), session,
      [weak = weak_from_this(), to = std::move(to)](const absl::StatusOr<Empty>& reply) {
        if (const auto self = weak.lock()) self->Answered(to.get(), WasLost(reply.status()));
      });
}

void Farewells::Answered(const WorkerApi* worker, bool was_lost) {
  Unsaid now;
  {
    MutexLock lock(mutex_);
    const auto found = FindLocked(worker);
    if (found == unsaid_.end()) return;
    if (was_lost && scheduler_.clock().Now() - found->since < kGivenUpAfter) {
      found->wait = std::min(2 * found->wait, kLongestWait);
      return AgainLaterLocked(*found);
    }
    now = std::move(*found);
    unsaid_.erase(found);
  }
  if (was_lost) return;
  for (const std::string& session : now.sessions)
    Say(now.worker, session, [](absl::StatusOr<Empty>) {});
}

}  // namespace muster
