// Threads as a coordinator sees them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/base/status.h"

namespace muster {

// Something with a name that runs for a while. Thread-safe.
class Joinable {
 public:
  virtual ~Joinable() = default;
  virtual std::string name() const = 0;
  // Started and not ended.
  virtual bool alive() const = 0;
  // Calls `done` once when it has ended, on any thread, perhaps inside this call. False when it
  // cannot tell: then the waiting thread has to poll alive().
  virtual bool WhenEnded(std::function<void()> done) = 0;
};

// A piece of work that runs once: on a thread of its own, or on one that the caller brings.
// Thread-safe.
class Thread : public Joinable, public std::enable_shared_from_this<Thread> {
 public:
  // The body keeps what it uses alive: nothing ends a thread that does not end by itself. An error
  // that it returns is logged, or is what Run returns.
  static std::shared_ptr<Thread> Create(std::string name, std::function<absl::Status()> body);

  // On a thread of its own, which keeps this object. Requires: not started.
  void Start();
  // From here on alive; for a caller whose thread calls Run a little later.
  void MarkStarted();
  absl::Status Run();
  // With another body than it was made with.
  absl::Status Run(std::function<absl::Status()> body);

  std::string name() const override { return name_; }
  bool alive() const override;
  bool WhenEnded(std::function<void()> done) override;
  // Whether it has ended within `timeout`.
  bool WaitFor(absl::Duration timeout) const;

 private:
  Thread(std::string name, std::function<absl::Status()> body);

  enum class State { kNew, kRunning, kEnded };
  const std::string name_;
  mutable Mutex mutex_;
  mutable CondVar ended_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kNew;
  std::function<absl::Status()> body_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> when_ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
