#include "muster/worker/session_table.h"

#include <algorithm>

#include "muster/base/in_order.h"
#include "muster/base/log.h"

namespace muster {
namespace {

constexpr absl::Duration kLongestPeriod = absl::Minutes(1);
constexpr int kNeverReached = 10;

bool HasIncarnation(const std::vector<DeviceAttributes>& devices, uint64_t incarnation) {
  return std::any_of(devices.begin(), devices.end(), [incarnation](const DeviceAttributes& device) {
    return device.incarnation == incarnation;
  });
}

// One question serves all sessions of the same life of a master.
bool SameMaster(const WorkerSession& a, const WorkerSession& b) {
  return a.peers() == b.peers() && a.master_task() == b.master_task();
}

}  // namespace

absl::Duration SessionTable::period() const {
  return std::min(options_.master_timeout / 4, kLongestPeriod);
}

bool SessionTable::CanAsk(const WorkerSession& session) const {
  return !session.master_task().empty() && session.master_task() != options_.task &&
         !session.has_own_cluster();
}

std::shared_ptr<WorkerSession> SessionTable::Find(const std::string& handle) {
  MutexLock lock(mutex_);
  const auto found = sessions_.find(handle);
  if (found == sessions_.end()) return nullptr;
  found->second.heard = options_.scheduler->clock().Now();
  return found->second.session;
}

bool SessionTable::Contains(const std::string& handle) const {
  MutexLock lock(mutex_);
  return sessions_.contains(handle);
}

void SessionTable::Add(const std::string& handle, std::shared_ptr<WorkerSession> session) {
  const bool can_ask = CanAsk(*session);
  Entry entry{std::move(session), options_.scheduler->clock().Now(), can_ask, false};
  MutexLock lock(mutex_);
  sessions_.try_emplace(handle, std::move(entry));
  if (can_ask && !checking_ && !stopped_) CheckLaterLocked();
}

void SessionTable::Remove(const std::string& handle) {
  Entry dropped;  // without the lock
  MutexLock lock(mutex_);
  const auto found = sessions_.find(handle);
  if (found == sessions_.end()) return;
  dropped = std::move(found->second);
  sessions_.erase(found);
}

std::vector<std::shared_ptr<WorkerSession>> SessionTable::All() const {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<WorkerSession>> all;
  for (const auto& [handle, entry] : sessions_) all.push_back(entry.session);
  return all;
}

void SessionTable::Stop() {
  MutexLock lock(mutex_);
  stopped_ = true;
}

void SessionTable::DropLeftBehind(const std::string& master_task, uint64_t incarnation) {
  if (master_task.empty()) return;
  Dropped dropped;
  {
    MutexLock lock(mutex_);
    dropped = TakeLocked([&](const Entry& entry) {
      return entry.session->IsLeftBehindBy(master_task, incarnation);
    });
  }
  Drop(dropped, "has restarted");
}

template <typename Condition>
SessionTable::Dropped SessionTable::TakeLocked(Condition condition) {
  Dropped taken;
  for (auto* entry : InOrder(sessions_)) {
    if (condition(entry->second)) taken.emplace_back(entry->first, entry->second.session);
  }
  for (const auto& [handle, session] : taken) sessions_.erase(handle);
  return taken;
}

void SessionTable::Drop(const Dropped& dropped, absl::string_view why) {
  for (const auto& [handle, session] : dropped) {
    LOG(INFO) << "Session " << handle << " of " << session->owner().ToString()
              << " is closed: its master " << session->master_task() << " " << why;
    options_.dropped(session, Derived(absl::AbortedError(absl::StrCat(
                                  "The master ", session->master_task(), " of the step ", why))));
  }
}

void SessionTable::CheckLaterLocked() {
  checking_ = true;
  options_.scheduler->ScheduleAfter(period(), [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Check();
  });
}

void SessionTable::Check() {
  Dropped dropped;
  std::vector<std::shared_ptr<WorkerSession>> asked;
  {
    MutexLock lock(mutex_);
    checking_ = false;
    if (stopped_) return;
    const absl::Time now = options_.scheduler->clock().Now();
    dropped = TakeLocked([&](const Entry& entry) {
      const absl::Duration limit = options_.master_timeout * (entry.reached ? 1 : kNeverReached);
      return entry.can_ask && now - entry.heard >= limit;
    });
    bool any = false;
    for (const auto* entry : InOrder(sessions_)) {
      const std::shared_ptr<WorkerSession>& session = entry->second.session;
      if (!entry->second.can_ask) continue;
      any = true;
      const bool is_asked = std::any_of(asked.begin(), asked.end(), [&](const auto& other) {
        return SameMaster(*other, *session);
      });
      if (now - entry->second.heard >= period() && !is_asked) asked.push_back(session);
    }
    if (any) CheckLaterLocked();
  }
  Drop(dropped, "has not been heard of for too long");
  for (const auto& session : asked) Ask(session);
}

void SessionTable::Ask(const std::shared_ptr<WorkerSession>& session) {
  const std::shared_ptr<WorkerApi> master = session->peers()->Worker(session->master_task());
  if (master == nullptr) {
    MutexLock lock(mutex_);
    for (auto& [handle, entry] : sessions_) entry.can_ask &= !SameMaster(*entry.session, *session);
    return;
  }
  CallOptions call;
  call.timeout = period();
  master->GetStatus(std::move(call), [weak = weak_from_this(), session, master](
                                         absl::StatusOr<std::vector<DeviceAttributes>> devices) {
    const auto self = weak.lock();
    if (self != nullptr && devices.ok()) self->Answered(*session, *devices);
  });
}

void SessionTable::Answered(const WorkerSession& asked,
                            const std::vector<DeviceAttributes>& devices) {
  Dropped dropped;
  {
    MutexLock lock(mutex_);
    const absl::Time now = options_.scheduler->clock().Now();
    dropped = TakeLocked([&](Entry& entry) {
      if (!entry.can_ask || !SameMaster(*entry.session, asked)) return false;
      const uint64_t incarnation = entry.session->master_incarnation();
      if (incarnation != 0 && !HasIncarnation(devices, incarnation)) return true;
      entry.heard = now;
      entry.reached = true;
      return false;
    });
  }
  Drop(dropped, "has restarted");
}

}  // namespace muster
