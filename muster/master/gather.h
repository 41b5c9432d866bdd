// Waiting for the replies of several calls without a thread that waits.
#pragma once

#include <memory>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/transport/api/call.h"

namespace muster {

template <typename Reply>
using Replies = std::vector<absl::StatusOr<Reply>>;

// What to give to each of `count` calls as its `done`; `finished` gets all replies, in the order of
// the result, when the last has come: at once where there is none.
template <typename Reply>
std::vector<CallDone<Reply>> Gather(size_t count,
                                    absl::AnyInvocable<void(Replies<Reply>) &&> finished) {
  struct State {
    Mutex mutex;
    size_t left ABSL_GUARDED_BY(mutex) = 0;
    Replies<Reply> replies ABSL_GUARDED_BY(mutex);
    absl::AnyInvocable<void(Replies<Reply>) &&> finished;
  };
  std::vector<CallDone<Reply>> dones;
  if (count == 0) {
    std::move(finished)({});
    return dones;
  }
  auto state = std::make_shared<State>();
  {
    MutexLock lock(state->mutex);
    state->left = count;
    for (size_t i = 0; i < count; ++i) state->replies.emplace_back(absl::UnknownError(""));
  }
  state->finished = std::move(finished);
  for (size_t i = 0; i < count; ++i) {
    dones.push_back([state, i](absl::StatusOr<Reply> reply) {
      Replies<Reply> all;
      {
        MutexLock lock(state->mutex);
        state->replies[i] = std::move(reply);
        if (--state->left > 0) return;
        all = std::move(state->replies);
      }
      std::move(state->finished)(std::move(all));
    });
  }
  return dones;
}

// The first error that is not a consequence of another one, or else the first.
template <typename Reply>
absl::Status FirstError(const Replies<Reply>& replies) {
  absl::Status first;
  for (const absl::StatusOr<Reply>& reply : replies) {
    if (reply.ok()) continue;
    if (!IsDerived(reply.status())) return reply.status();
    if (first.ok()) first = reply.status();
  }
  return first;
}

}  // namespace muster
