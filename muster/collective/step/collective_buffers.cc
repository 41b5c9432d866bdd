#include "muster/collective/step/collective_buffers.h"

#include "muster/base/in_order.h"
#include "muster/base/status.h"
#include "muster/tensor/memory_guard.h"

namespace muster {

void CollectiveBuffers::Provide(const std::string& key, Buffer bytes, Done consumed) {
  absl::Status refused;
  Taken taken;
  {
    MutexLock lock(mutex_);
    const auto found = slots_.find(key);
    if (!aborted_.ok()) {
      refused = aborted_;
    } else if (found == slots_.end()) {
      Slot& slot = slots_[key];
      slot.bytes = std::move(bytes);
      slot.consumed = std::move(consumed);
      return;
    } else if (!found->second.taken) {
      refused = Internal("BufRendezvous::ProvideBuf already called for key ", key);
    } else {
      waiting_.erase(found->second.token);
      taken = std::move(found->second.taken);
      slots_.erase(found);
    }
  }
  if (!refused.ok()) return std::move(consumed)(std::move(refused));
  {
    // The taker's work, such as a reply, does not belong to the kernel that provides.
    const CatchesLackOfMemory not_here(false);
    // It comes first: the provider's callback may run for long.
    std::move(taken)(std::move(bytes));
  }
  std::move(consumed)(absl::OkStatus());
}

CollectiveBuffers::Token CollectiveBuffers::Consume(const std::string& key, Taken done) {
  absl::StatusOr<Buffer> result = absl::UnknownError("");
  Done consumed;
  Token token;
  {
    MutexLock lock(mutex_);
    token = ++last_token_;
    const auto found = slots_.find(key);
    if (!aborted_.ok()) {
      result = aborted_;
    } else if (found == slots_.end()) {
      Slot& slot = slots_[key];
      slot.token = token;
      slot.taken = std::move(done);
      waiting_.emplace(token, key);
      return token;
    } else if (found->second.taken) {
      result = Internal("BufRendezvous::ConsumeBuf already called for key ", key);
    } else {
      result = std::move(found->second.bytes);
      consumed = std::move(found->second.consumed);
      slots_.erase(found);
    }
  }
  std::move(done)(std::move(result));
  const CatchesLackOfMemory not_here(false);  // as above
  if (consumed) std::move(consumed)(absl::OkStatus());
  return token;
}

bool CollectiveBuffers::StopWaiting(Token token) {
  Slot dropped;
  MutexLock lock(mutex_);
  const auto waiting = waiting_.find(token);
  if (waiting == waiting_.end()) return false;
  const auto slot = slots_.find(waiting->second);
  dropped = std::move(slot->second);
  slots_.erase(slot);
  waiting_.erase(waiting);
  return true;
}

void CollectiveBuffers::Abort(const absl::Status& reason) {
  absl::flat_hash_map<std::string, Slot> slots;
  {
    MutexLock lock(mutex_);
    if (!aborted_.ok()) return;
    aborted_ = reason;
    slots.swap(slots_);
    waiting_.clear();
  }
  for (auto* entry : InOrder(slots)) {
    Slot& slot = entry->second;
    if (slot.taken) {
      std::move(slot.taken)(reason);
    } else {
      std::move(slot.consumed)(reason);
    }
  }
}

absl::Status CollectiveBuffers::aborted() const {
  MutexLock lock(mutex_);
  return aborted_;
}

}  // namespace muster
