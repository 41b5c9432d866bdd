#include "muster/runtime/rendezvous.h"

#include <variant>

#include "absl/container/flat_hash_map.h"
#include "muster/base/mutex.h"

namespace muster {
namespace {

class LocalRendezvous : public Rendezvous {
 public:
  absl::Status Send(absl::string_view key, Value value) override {
    RecvDone waiting;
    {
      MutexLock lock(mutex_);
      if (!aborted_.ok()) return aborted_;
      const auto found = slots_.find(key);
      if (found == slots_.end()) {
        slots_.emplace(std::string(key), std::move(value));
        return absl::OkStatus();
      }
      if (std::holds_alternative<Value>(found->second)) {
        return absl::AbortedError(absl::StrCat("Duplicated send: ", key));
      }
      waiting = std::move(std::get<RecvDone>(found->second));
      slots_.erase(found);
    }
    std::move(waiting)(std::move(value));
    return absl::OkStatus();
  }

  void RecvAsync(absl::string_view key, RecvDone done) override {
    absl::StatusOr<Value> result = absl::UnknownError("");
    {
      MutexLock lock(mutex_);
      const auto found = slots_.find(key);
      if (!aborted_.ok()) {
        result = aborted_;
      } else if (found == slots_.end()) {
        slots_.emplace(std::string(key), std::move(done));
        return;
      } else if (std::holds_alternative<RecvDone>(found->second)) {
        result = absl::AbortedError(absl::StrCat("Duplicated recv: ", key));
      } else {
        result = std::move(std::get<Value>(found->second));
        slots_.erase(found);
      }
    }
    std::move(done)(std::move(result));
  }

  void Abort(absl::Status reason) override {
    absl::flat_hash_map<std::string, std::variant<Value, RecvDone>> slots;
    {
      MutexLock lock(mutex_);
      if (!aborted_.ok()) return;
      aborted_ = reason;
      slots.swap(slots_);
    }
    for (auto& [key, slot] : slots) {
      if (auto* waiting = std::get_if<RecvDone>(&slot)) std::move (*waiting)(reason);
    }
  }

 private:
  Mutex mutex_;
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::variant<Value, RecvDone>> slots_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Rendezvous> NewLocalRendezvous() { return std::make_unique<LocalRendezvous>(); }

}  // namespace muster
