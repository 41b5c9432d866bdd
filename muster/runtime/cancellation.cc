#include "muster/runtime/cancellation.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace muster {
namespace {

// The cancellation whose callbacks this thread is running, and those further up its stack.
struct Running {
  const Cancellation* cancellation;
  const Running* outer;
};
thread_local const Running* running_here = nullptr;

bool RunsHere(const Cancellation* cancellation) {
  for (const Running* r = running_here; r != nullptr; r = r->outer) {
    if (r->cancellation == cancellation) return true;
  }
  return false;
}

}  // namespace

absl::Status Cancellation::reason() const {
  MutexLock lock(mutex_);
  return reason_;
}

void Cancellation::Cancel(absl::Status reason) {
  absl::flat_hash_map<Token, Callback> callbacks;
  {
    MutexLock lock(mutex_);
    if (cancelled_.load(std::memory_order_relaxed)) return;
    reason_ = std::move(reason);
    cancelled_.store(true, std::memory_order_release);
    callbacks.swap(callbacks_);
    running_ = true;
  }
  const Running running{this, running_here};
  running_here = &running;
  // In the order in which they came, so that simulations can be repeated.
  std::vector<Token> tokens;
  for (const auto& [token, callback] : callbacks) tokens.push_back(token);
  std::sort(tokens.begin(), tokens.end());
  for (const Token token : tokens) std::move(callbacks[token])();
  running_here = running.outer;
  MutexLock lock(mutex_);
  running_ = false;
  finished_.NotifyAll();
}

bool Cancellation::Register(Token token, Callback callback) {
  MutexLock lock(mutex_);
  if (cancelled_.load(std::memory_order_relaxed)) return false;
  callbacks_.emplace(token, std::move(callback));
  return true;
}

bool Cancellation::Deregister(Token token) {
  Callback dropped;
  MutexLock lock(mutex_);
  const auto found = callbacks_.find(token);
  if (found == callbacks_.end()) {
    // A callback that leads back here would wait for itself.
    while (running_ && !RunsHere(this)) finished_.Wait(mutex_);
    return false;
  }
  dropped = std::move(found->second);
  callbacks_.erase(found);
  return true;
}

}  // namespace muster
