// How a server accepts connections: within limits, and even when the process is out of descriptors.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

#include "muster/base/mutex.h"
#include "muster/base/net/descriptor.h"
#include "muster/base/status.h"

namespace muster {

struct ConnectionLimits {
  int in_all = 0;
  int per_peer = 0;
};
// The limits for a process with that many descriptors: a quarter of them, and at least 64, are
// reserved for files and everything else.
ConnectionLimits ConnectionLimitsFor(int descriptors);

struct ConnectionCounts {
  int64_t open = 0;
  int64_t accepted = 0;
  int64_t refused = 0;   // closed at once, because a limit was reached
  int64_t dropped = 0;   // closed later: for newer ones, or because of what they did
  int64_t failures = 0;  // accept calls that failed, most often for lack of descriptors
};

// Counts connections by peer: by address, IPv6 by network of 64 bits, and local ones by process.
// One thread at a time accepts; all else is thread-safe.
class Acceptor {
 public:
  // How many more connections can be taken, with `keeps_spares`, when the process is out of
  // descriptors.
  static constexpr size_t kSpares = 4;

  // `name` is how messages call what is connected to.
  Acceptor(std::string name, ConnectionLimits limits, bool keeps_spares = false);

  struct Connection {
    Descriptor socket;  // does not block
    std::string peer;
  };
  // Ends a connection of `peer`, or any where it is null, and calls Ended for it. False: all that
  // are open must stay.
  using MakeRoom = absl::FunctionRef<bool(const std::string* peer)>;
  // The next connection within the limits; those beyond them are closed. None: no connection is
  // waiting, accepting failed, or all that waited were beyond the limits.
  std::optional<Connection> Accept(int listener, MakeRoom make_room);
  // How long to wait before the next Accept; zero: until the listening socket is readable.
  absl::Duration pause() const;

  enum class End : uint8_t { kClosed, kDropped };
  void Ended(const std::string& peer, End end);
  // Closes a connection and calls Ended for it; only for the accepting thread. Where spare
  // descriptors are in use, this one becomes spare before another part of the process can take it.
  void Close(Connection connection, End end);

  // `refresh` is called before counts are reported, for users that notice late that connections
  // have ended.
  void set_refresh(std::function<void()> refresh);
  ConnectionCounts Counts() const;
  // Unavailable, with the reason, while no peer can connect.
  absl::Status Status() const;

 private:
  std::optional<Connection> Take(int listener);
  void KeepSpares();
  bool HasPlace(const std::string& peer) const;
  void Refuse(const std::string& peer);
  void Fail(int error);
  void Refresh() const;

  const std::string name_;
  const ConnectionLimits limits_;
  const Descriptor null_;           // what spare ones are copies of; negative: none are kept
  std::vector<Descriptor> spares_;  // of the accepting thread
  mutable Mutex mutex_;
  ConnectionCounts counts_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, int> by_peer_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> refresh_ ABSL_GUARDED_BY(mutex_);
  int error_ ABSL_GUARDED_BY(mutex_) = 0;  // of the last attempt
  absl::Time failing_since_ ABSL_GUARDED_BY(mutex_);
  // Rate-limits the log, however many are refused.
  absl::Time next_line_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int64_t not_told_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace muster
