#include "muster/base/threads/blocking_threads.h"

#include <cstring>
#include <deque>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include <pthread.h>

#include "muster/base/mutex.h"
#include "muster/base/threads/thread_name.h"

namespace muster {
namespace {

// So many times the free threads the callers of a host may have.
constexpr int kHostPart = 3;

// An error number. Unlike std::thread it can fail.
int StartThread(void* (*work)(void*), void* argument) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, work, argument);
  pthread_attr_destroy(&attributes);
  return error;
}

}  // namespace

struct BlockingThreads::State : std::enable_shared_from_this<BlockingThreads::State> {
  // Of one caller.
  struct Share {
    std::string host;
    int granted = 0;                          // threads
    absl::btree_map<uint64_t, Task> waiting;  // for its turn, by number
  };
  struct Granted {
    Task task;
    std::string caller;
  };

  explicit State(Options given) : options(given) {}

  const Options options;
  Mutex mutex;
  CondVar work;
  absl::btree_map<std::string, Share> shares ABSL_GUARDED_BY(mutex);     // of those that have any
  absl::flat_hash_map<std::string, int> by_host ABSL_GUARDED_BY(mutex);  // threads granted
  int granted ABSL_GUARDED_BY(mutex) = 0;
  std::deque<Granted> ready ABSL_GUARDED_BY(mutex);  // granted, and not begun
  uint64_t last_number ABSL_GUARDED_BY(mutex) = 0;
  int threads ABSL_GUARDED_BY(mutex) = 0;
  // Some of these may have been woken, or started, for what is ready.
  int idle ABSL_GUARDED_BY(mutex) = 0;

  bool MayHaveAnother(const Share& share) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const int free = options.max_threads - granted;
    const auto host = by_host.find(share.host);
    return share.granted < free && (host == by_host.end() || host->second < kHostPart * free);
  }

  // Threads for tasks whose turn it is: that of the caller that has fewest, then the oldest.
  void Grant() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    for (;;) {
      std::pair<const std::string, Share>* next = nullptr;
      const auto rank = [](const Share& share) {
        return std::pair(share.granted, share.waiting.begin()->first);
      };
      for (auto& each : shares) {
        const Share& share = each.second;
        if (share.waiting.empty() || !MayHaveAnother(share)) continue;
        if (next == nullptr || rank(share) < rank(next->second)) next = &each;
      }
      if (next == nullptr) return;
      Share& share = next->second;
      ready.push_back({std::move(share.waiting.begin()->second), next->first});
      share.waiting.erase(share.waiting.begin());
      ++share.granted;
      ++by_host[share.host];
      ++granted;
    }
  }

  void GiveBack(const std::string& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto found = shares.find(caller);
    Share& share = found->second;
    --granted;
    --share.granted;
    if (--by_host[share.host] == 0) by_host.erase(share.host);
    ForgetIfUnused(found);
  }
  void ForgetIfUnused(absl::btree_map<std::string, Share>::iterator share)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (share->second.granted == 0 && share->second.waiting.empty()) shares.erase(share);
  }

  // Wakes or starts threads for all but `taken` of what is ready. An error number when there is no
  // thread at all.
  int FindThreads(size_t taken) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    for (size_t i = taken; i < ready.size(); ++i) {
      if (i < taken + static_cast<size_t>(idle)) {
        work.NotifyOne();
        continue;
      }
      if (threads >= options.max_threads) return 0;
      auto shared = std::make_unique<std::shared_ptr<State>>(shared_from_this());
      if (const int error = StartThread(&State::Work, shared.get()); error != 0)
        return threads == 0 ? error : 0;
      static_cast<void>(shared.release());
      ++threads;
      ++idle;
    }
    return 0;
  }

  // The next task; nothing when there was none for long enough.
  Granted Next() {
    MutexLock lock(mutex);
    while (ready.empty()) {
      ++idle;
      const bool was_woken = work.WaitFor(mutex, options.idle);
      --idle;
      if (was_woken || !ready.empty()) continue;
      --threads;
      return {};
    }
    Granted next = std::move(ready.front());
    ready.pop_front();
    return next;
  }

  void Ended(const std::string& caller) {
    MutexLock lock(mutex);
    GiveBack(caller);
    Grant();
    FindThreads(/*taken=*/1);  // by this thread
  }

  static void* Work(void* given) {
    NameThread("muster-blocking");
    const std::unique_ptr<std::shared_ptr<State>> state(
        static_cast<std::shared_ptr<State>*>(given));
    {
      MutexLock lock((*state)->mutex);
      --(*state)->idle;
    }
    for (;;) {
      Granted next = (*state)->Next();
      if (!next.task) return nullptr;
      std::move(next.task)();
      next.task = nullptr;
      (*state)->Ended(next.caller);
    }
  }
};

BlockingThreads::BlockingThreads(Options options) : state_(std::make_shared<State>(options)) {}

BlockingThreads& BlockingThreads::Global() {
  // Never destroyed: its threads may run until the process ends.
  static BlockingThreads& threads = *std::make_unique<BlockingThreads>(Options()).release();
  return threads;
}

absl::StatusOr<BlockingThreads::Ticket> BlockingThreads::Run(const Caller& caller, Task task) {
  State& state = *state_;
  Task dropped;  // without the lock
  MutexLock lock(state.mutex);
  const auto [found, is_new] = state.shares.try_emplace(caller.name);
  State::Share& share = found->second;
  if (is_new) share.host = caller.host;
  if (share.waiting.size() >= state.options.max_waiting) {
    dropped = std::move(task);
    return absl::ResourceExhaustedError(absl::StrCat(
        share.granted, " of the ", state.options.max_threads,
        " threads for blocking work are busy for ", caller.ToString(),
        ", which may not have more, and ", share.waiting.size(), " of its tasks wait for one"));
  }
  const Ticket ticket{caller.name, ++state.last_number};
  share.waiting.emplace(ticket.number, std::move(task));
  state.Grant();
  if (const int error = state.FindThreads(/*taken=*/0); error != 0) {
    // There is no thread: what is ready is this task alone.
    dropped = std::move(state.ready.back().task);
    state.ready.pop_back();
    state.GiveBack(caller.name);
    return absl::ResourceExhaustedError(
        absl::StrCat("Cannot start a thread for blocking work: ", std::strerror(error)));
  }
  return ticket;
}

Task BlockingThreads::Withdraw(const Ticket& ticket) {
  State& state = *state_;
  MutexLock lock(state.mutex);
  const auto share = state.shares.find(ticket.caller);
  if (share == state.shares.end()) return nullptr;
  const auto found = share->second.waiting.find(ticket.number);
  if (found == share->second.waiting.end()) return nullptr;
  Task task = std::move(found->second);
  share->second.waiting.erase(found);
  state.ForgetIfUnused(share);
  return task;
}

}  // namespace muster
