// Values that a peer may fetch later, or never.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"

#include "muster/base/mutex.h"
#include "muster/base/random.h"
#include "muster/base/scheduler.h"

namespace muster {

// Keeps things under random numbers, which cannot be guessed. An entry that has not been visited
// for `keep` is dropped by a timer. Thread-safe; a timer that is still set when the store dies does
// nothing.
template <typename Thing>
class TransientStore {
 public:
  // `scheduler` outlives the store.
  TransientStore(Scheduler& scheduler, absl::Duration keep, size_t max_things = SIZE_MAX)
      : state_(std::make_shared<State>(scheduler, keep, max_things)) {}

  // Its number; none when there are too many already.
  std::optional<uint64_t> Add(Thing thing) {
    State& state = *state_;
    const absl::Time now = state.scheduler.clock().Now();
    MutexLock lock(state.mutex);
    if (state.entries.size() >= state.max_things) return std::nullopt;
    uint64_t number = EntropySeed();
    while (number == 0 || state.entries.contains(number)) number = EntropySeed();
    state.entries.emplace(number, Entry{std::move(thing), now});
    if (!std::exchange(state.has_timer, true)) SetTimer(state_, state.keep);
    return number;
  }

  enum class After : uint8_t { kKeep, kDrop };
  // Calls `visit` with the thing, under the store's lock. False: there is none of that number.
  bool Visit(uint64_t number, absl::FunctionRef<After(Thing&)> visit) {
    std::optional<Thing> dropped;  // after the lock: it may be large
    State& state = *state_;
    const absl::Time now = state.scheduler.clock().Now();
    MutexLock lock(state.mutex);
    const auto found = state.entries.find(number);
    if (found == state.entries.end()) return false;
    found->second.visited = now;
    if (visit(found->second.thing) == After::kDrop) {
      dropped = std::move(found->second.thing);
      state.entries.erase(found);
    }
    return true;
  }

  size_t size() const {
    MutexLock lock(state_->mutex);
    return state_->entries.size();
  }

 private:
  struct Entry {
    Thing thing;
    absl::Time visited;
  };
  struct State {
    State(Scheduler& its_scheduler, absl::Duration its_keep, size_t its_max_things)
        : scheduler(its_scheduler), keep(its_keep), max_things(its_max_things) {}

    Scheduler& scheduler;
    const absl::Duration keep;
    const size_t max_things;
    Mutex mutex;
    bool has_timer ABSL_GUARDED_BY(mutex) = false;  // whenever there are entries
    absl::flat_hash_map<uint64_t, Entry> entries ABSL_GUARDED_BY(mutex);
  };

  static void SetTimer(const std::shared_ptr<State>& state, absl::Duration delay) {
    state->scheduler.ScheduleAfter(delay, [weak = std::weak_ptr<State>(state)] {
      if (const std::shared_ptr<State> locked = weak.lock()) DropForgotten(locked);
    });
  }

  static void DropForgotten(const std::shared_ptr<State>& state) {
    const absl::Time now = state->scheduler.clock().Now();
    std::vector<Thing> dropped;
    MutexLock lock(state->mutex);
    absl::Duration next = absl::InfiniteDuration();
    for (auto at = state->entries.begin(); at != state->entries.end();) {
      const auto entry = at++;
      const absl::Duration left = entry->second.visited + state->keep - now;
      if (left > absl::ZeroDuration()) {
        next = std::min(next, left);
      } else {
        dropped.push_back(std::move(entry->second.thing));
        state->entries.erase(entry);
      }
    }
    state->has_timer = !state->entries.empty();
    if (state->has_timer) SetTimer(state, next);
  }

  std::shared_ptr<State> state_;
};

}  // namespace muster
