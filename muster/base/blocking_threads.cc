#include "muster/base/blocking_threads.h"

#include <cstring>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include <pthread.h>

#include "muster/base/mutex.h"

namespace muster {

struct BlockingThreads::State {
  explicit State(Options given) : options(given) {}

  const Options options;
  Mutex mutex;
  CondVar work;
  std::deque<Task> waiting ABSL_GUARDED_BY(mutex);
  int threads ABSL_GUARDED_BY(mutex) = 0;
  int idle ABSL_GUARDED_BY(mutex) = 0;  // some of them may have been woken for what waits

  // The next task; nothing when there was none for long enough.
  Task Next() {
    MutexLock lock(mutex);
    while (waiting.empty()) {
      ++idle;
      const bool was_woken = work.WaitFor(mutex, options.idle);
      --idle;
      if (was_woken || !waiting.empty()) continue;
      --threads;
      return nullptr;
    }
    Task task = std::move(waiting.front());
    waiting.pop_front();
    return task;
  }

  static void* Work(void* given) {
    const std::unique_ptr<std::shared_ptr<State>> state(
        static_cast<std::shared_ptr<State>*>(given));
    while (Task task = (*state)->Next()) std::move(task)();
    return nullptr;
  }
};

namespace {

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

BlockingThreads::BlockingThreads(Options options) : state_(std::make_shared<State>(options)) {}

BlockingThreads& BlockingThreads::Global() {
  // Never destroyed: its threads may run until the process ends.
  static BlockingThreads& threads = *std::make_unique<BlockingThreads>(Options()).release();
  return threads;
}

absl::Status BlockingThreads::Run(Task task) {
  State& state = *state_;
  MutexLock lock(state.mutex);
  if (state.waiting.size() >= state.options.max_waiting) {
    return absl::ResourceExhaustedError(absl::StrCat("All ", state.threads,
                                                     " threads for blocking work are busy, and ",
                                                     state.waiting.size(), " tasks wait for one"));
  }
  state.waiting.push_back(std::move(task));
  if (state.waiting.size() <= static_cast<size_t>(state.idle)) {
    state.work.NotifyOne();
    return absl::OkStatus();
  }
  if (state.threads >= state.options.max_threads) return absl::OkStatus();
  auto shared = std::make_unique<std::shared_ptr<State>>(state_);
  if (const int error = StartThread(&State::Work, shared.get()); error == 0) {
    ++state.threads;
    static_cast<void>(shared.release());
  } else if (state.threads == 0) {
    state.waiting.pop_back();
    return absl::ResourceExhaustedError(
        absl::StrCat("Cannot start a thread for blocking work: ", std::strerror(error)));
  }
  return absl::OkStatus();
}

}  // namespace muster
