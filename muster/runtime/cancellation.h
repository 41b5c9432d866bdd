// Cancelling a step: whoever waits leaves a callback, whoever cancels runs them once.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"

#include "muster/base/mutex.h"
#include "muster/base/status.h"

namespace muster {

// Thread-safe.
class Cancellation {
 public:
  using Token = uint64_t;
  using Callback = absl::AnyInvocable<void() &&>;

  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  // Why; OK while not cancelled.
  absl::Status reason() const;
  // Runs every registered callback, once; later calls do nothing.
  void Cancel(absl::Status reason);
  // False (and `callback` is dropped) when already cancelled.
  bool Register(Token token, Callback callback);
  // True when the callback had not been started and now never will. Waits for one that is running
  // on another thread.
  bool Deregister(Token token);
  Token NewToken() { return next_token_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::atomic<bool> cancelled_{false};
  std::atomic<Token> next_token_{1};
  mutable Mutex mutex_;
  CondVar finished_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status reason_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Token, Callback> callbacks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
