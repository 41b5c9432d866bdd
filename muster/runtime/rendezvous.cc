#include "muster/runtime/rendezvous.h"

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"

#include "muster/base/in_order.h"
#include "muster/base/mutex.h"
#include "muster/tensor/memory_guard.h"

namespace muster {
namespace {

class LocalRendezvous : public Rendezvous {
 public:
  absl::Status Send(absl::string_view key, Value value) override {
    RecvDone waiting;
    {
      MutexLock lock(mutex_);
      if (!aborted_.ok()) return aborted_;
      Slot& slot = slots_[key];
      if (slot.waiting.empty()) {
        slot.values.push_back(std::move(value));
        return absl::OkStatus();
      }
      waiting = std::move(slot.waiting.front());
      slot.waiting.erase(slot.waiting.begin());
      if (slot.waiting.empty()) slots_.erase(key);
    }
    // The receiver's work, such as a reply, does not belong to the kernel that sends.
    const CatchesLackOfMemory not_here(false);
    std::move(waiting)(std::move(value));
    return absl::OkStatus();
  }

  void RecvAsync(absl::string_view key, RecvDone done) override {
    absl::StatusOr<Value> result = absl::UnknownError("");
    {
      MutexLock lock(mutex_);
      if (!aborted_.ok()) {
        result = aborted_;
      } else {
        Slot& slot = slots_[key];
        if (slot.values.empty()) {
          slot.waiting.push_back(std::move(done));
          return;
        }
        result = std::move(slot.values.front());
        slot.values.erase(slot.values.begin());
        if (slot.values.empty()) slots_.erase(key);
      }
    }
    std::move(done)(std::move(result));
  }

  void Abort(absl::Status reason) override {
    absl::flat_hash_map<std::string, Slot> slots;
    {
      MutexLock lock(mutex_);
      if (!aborted_.ok()) return;
      aborted_ = reason;
      slots.swap(slots_);
    }
    for (auto* entry : InOrder(slots)) {
      for (RecvDone& waiting : entry->second.waiting) std::move(waiting)(reason);
    }
  }

 private:
  // One of the two is empty. Nearly always the other one has a single entry.
  struct Slot {
    absl::InlinedVector<Value, 1> values;
    absl::InlinedVector<RecvDone, 1> waiting;
  };
  Mutex mutex_;
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Slot> slots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Rendezvous> NewLocalRendezvous() {
  return std::make_unique<LocalRendezvous>();
}

}  // namespace muster
