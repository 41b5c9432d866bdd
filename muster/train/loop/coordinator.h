// Ends a group of threads together: the first thread that fails or is done requests a stop, the
// others see it, and Join returns the first error.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/train/loop/thread.h"
#include "muster/train/loop/timer.h"

namespace muster {

// Thread-safe.
class Coordinator {
 public:
  struct Options {
    // Errors that end a run without being one. Empty: OutOfRange, the end of the input.
    std::function<bool(const absl::Status&)> is_clean;
    // How an error is worded in the notice that it was reported. Empty: code and message.
    std::function<std::string(const absl::Status&)> describe;
    Timer* timer = nullptr;  // null: real time
  };
  struct JoinOptions {
    // How long threads may take to end after the stop.
    absl::Duration grace = absl::Seconds(120);
    // Threads that live on are only mentioned.
    bool ignore_live_threads = false;
    Interrupted interrupted;
  };

  explicit Coordinator(Options options);
  Coordinator() : Coordinator(Options()) {}

  // The first call decides: `why` is remembered unless it is clean, and threads see the stop. An
  // unclean error that comes after Join is returned, since no Join is left to report it.
  absl::Status RequestStop(absl::Status why = absl::OkStatus());
  bool ShouldStop() const;
  // Whether a stop was asked for before `timeout` had passed.
  bool WaitForStop(absl::Duration timeout = absl::InfiniteDuration());
  // As if no stop had been asked for and nothing been joined.
  void ClearStop();

  // A thread that Join waits for too.
  void Register(std::shared_ptr<Joinable> thread);
  // Waits until all threads have ended, or a stop is asked for and the grace is over. Then the
  // remembered error; otherwise FailedPrecondition (a RuntimeError) naming threads that still run.
  absl::Status Join(std::vector<std::shared_ptr<Joinable>> threads, JoinOptions options);
  absl::Status Join(std::vector<std::shared_ptr<Joinable>> threads = {}) {
    return Join(std::move(threads), JoinOptions());
  }
  bool joined() const;
  // What RequestStop remembered; OK when nothing.
  absl::Status requested() const;

  Timer& timer() const { return timer_; }

 private:
  // Outlives the coordinator for threads that end later.
  struct Shared {
    Mutex mutex;
    CondVar changed;
    uint64_t changes ABSL_GUARDED_BY(mutex) = 0;
    bool stop ABSL_GUARDED_BY(mutex) = false;
    bool joined ABSL_GUARDED_BY(mutex) = false;
    absl::Status why ABSL_GUARDED_BY(mutex);
    std::vector<std::shared_ptr<Joinable>> registered ABSL_GUARDED_BY(mutex);
  };
  // Waits while a thread lives, `until` has not come and, if `or_stop`, no stop was asked for.
  absl::Status WaitForThreads(const std::vector<std::shared_ptr<Joinable>>& threads, bool all_tell,
                              bool or_stop, absl::Duration until, const Interrupted& interrupted);

  const Options options_;
  Timer& timer_;
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace muster
