// Threads that wait for sockets. Each takes one event, has the socket watched again and then does
// what the event asks for: a thread that is kept busy does not keep the next event waiting.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_map.h"

#include "muster/base/mutex.h"

namespace muster::fast {

// A socket that is watched. Thread-safe.
class Pollable {
 public:
  virtual ~Pollable() = default;
  // Something can be read or written, or the socket is broken. The socket is not watched until
  // Watch is called again.
  virtual void Ready() = 0;
  // Called now and then, while nothing else happens.
  virtual void Tick() {}
};

// One for the process, never destroyed. Thread-safe.
class Poller {
 public:
  static Poller& Global();
  // False where the system has no epoll for it.
  bool works() const { return epoll_ >= 0; }

  using Number = uint64_t;
  // Watches nothing yet.
  Number Add(std::weak_ptr<Pollable> pollable);
  // For one event. The first time for each number: `first`.
  void Watch(Number number, int socket, bool for_writing, bool first = false);
  // The same while nothing is to be read.
  void WatchForWriting(Number number, int socket);
  // Until Watch is called again.
  void Pause(Number number, int socket);
  // Requires: the socket is still open.
  void Remove(Number number, int socket);

 private:
  Poller();
  void AddThread();
  void Run();
  void Tick();
  // Whether a thread that had nothing to do for a while is one too many; it waits no longer then.
  bool TryLeave();

  const int epoll_;
  std::atomic<int> waiting_{0};
  std::atomic<int> threads_{0};
  Mutex mutex_;
  Number last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<Number, std::weak_ptr<Pollable>> pollables_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::fast
