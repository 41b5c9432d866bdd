// The connections to a server. gRPC owns the sockets and does not report when a connection ends,
// nor whether a call ended because its caller cancelled it or because the caller is gone.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"

#include "muster/base/caller.h"
#include "muster/base/cancellation.h"
#include "muster/base/mutex.h"
#include "muster/base/net/acceptor.h"
#include "muster/base/scheduler.h"

namespace muster {

// Looks at the sockets, which gRPC closes when it likes: a descriptor is that of a connection as
// long as the number of its socket is the one with which it was accepted. Thread-safe.
class GrpcConnections : public std::enable_shared_from_this<GrpcConnections> {
 public:
  // Calls that have not sent their requests cost memory, whatever their peer. A connection is
  // closed when it has more than kManyWaiting such calls for kWaitingTime, or cancels more than
  // kMostEmpty of them within kEmptyTime; and the one that has most when there are more than
  // kMostWaiting of all connections. Thousands for a moment are not abuse: the calls of a step come
  // and go at once.
  static constexpr int kManyWaiting = 1024;
  static constexpr int kMostWaiting = 12288;
  static constexpr int kMostEmpty = 4096;
  static constexpr absl::Duration kWaitingTime = absl::Seconds(5);
  static constexpr absl::Duration kEmptyTime = absl::Seconds(10);

  // Places are given back to `acceptor`. `scheduler`, which looks for ended connections, outlives
  // it; null: they are noticed late.
  GrpcConnections(Scheduler* scheduler, std::shared_ptr<Acceptor> acceptor)
      : scheduler_(scheduler), acceptor_(std::move(acceptor)) {}

  // A connection that gRPC is given next.
  void Add(const Acceptor::Connection& connection);
  // Closes a connection of `peer`, or any where it is null, which has sent nothing since it was
  // accepted, or finds one that has ended.
  bool MakeRoom(const std::string* peer);
  // Gives back the places of connections that have ended.
  void Sweep();

  // The request of a call, of this many bytes, has arrived, and the call is accepted. `name` is
  // gRPC's name of the other end. The result is who makes the call: the same object for all calls
  // of a connection with the same introduction, which `describe` completes when it is made. With
  // `tracked`, its connection is cancelled with Unavailable soon after the connection has ended;
  // null for kinds that the system does not list.
  std::shared_ptr<const Caller> Serve(const std::string& name, size_t bytes,
                                      absl::string_view introduction, bool tracked,
                                      absl::FunctionRef<void(Caller&)> describe);
  // Whether the connection is there at this moment; true for kinds that the system does not list.
  bool IsOpen(const std::string& name) const;

  // The connection of this other end became a link: gRPC knows nothing of its calls.
  void NoteLink(const std::string& end);
  // A call without a request waits, or no longer. `in_all` is how many do, of all connections.
  void NoteWaiting(const std::string& name, int change, int in_all);
  // A call was cancelled before its request had arrived.
  void NoteEmpty(const std::string& name);
  struct Traffic {
    uint64_t received_bytes = 0;
    uint64_t served_bytes = 0;  // of requests
  };
  // Nothing for connections that are gone, and for kinds that the system does not list.
  std::optional<Traffic> TrafficOf(const std::string& name);
  // Closes connections that have sent much and have never asked for anything.
  void DropStrangers();

 private:
  struct Entry {
    std::string name;  // of the other end
    std::string peer;
    int fd = -1;
    uint64_t socket = 0;                    // its number
    std::shared_ptr<Cancellation> tracked;  // null: its end is not tracked
    std::shared_ptr<const Caller> caller;   // of the last call that was accepted
    std::string introduction;               // with which it was made
    bool served = false;                    // one of its calls was accepted
    uint64_t served_bytes = 0;
    int waiting = 0;        // calls without a request
    absl::Time many_since;  // that there are many of them
    int empty = 0;          // calls cancelled without one, since:
    absl::Time empty_since = absl::InfinitePast();
  };
  using Ended = std::vector<std::shared_ptr<Cancellation>>;

  Entry* FindLocked(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveLocked(uint64_t number, Acceptor::End end, Ended& ended)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: it cannot be closed now.
  bool DropLocked(uint64_t number, Ended& ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool DropSilentLocked(const std::string* peer, Ended& ended)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Cancellation> TrackLocked(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndTrackingLocked(Entry& entry, Ended& ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t RemoveEndedLocked(Ended& ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Entry* MostWaitingLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LookAgainLocked(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `end` is the name of an entry.
  void DropAbuser(const std::string& end, absl::string_view what);
  void ReturnMemoryLaterLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReturnMemoryAfterPauseLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SweepLaterLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SweepAndGoOn();

  Scheduler* const scheduler_;
  const std::shared_ptr<Acceptor> acceptor_;
  std::atomic<int64_t> next_drop_{0};  // of strangers, absl::Now() in ns
  mutable Mutex mutex_;
  bool sweeping_ ABSL_GUARDED_BY(mutex_) = false;
  int returns_left_ ABSL_GUARDED_BY(mutex_) = 0;  // of free memory to the system
  size_t num_tracked_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::btree_map<uint64_t, Entry> entries_ ABSL_GUARDED_BY(mutex_);  // in order of arrival
  absl::flat_hash_map<std::string, uint64_t> by_name_ ABSL_GUARDED_BY(mutex_);
  // Not known to have sent anything.
  absl::btree_set<uint64_t> silent_ ABSL_GUARDED_BY(mutex_);
  absl::Time next_search_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Time next_line_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();  // in the log
};

}  // namespace muster
