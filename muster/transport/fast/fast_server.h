// Where other processes reach a task over links: those of this machine without the network, others
// over connections to its port.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"

#include "muster/base/net/acceptor.h"
#include "muster/transport/fast/fast_link.h"

namespace muster::fast {

// How a task at `port` tells others the name of its server.
std::string CapabilityOf(int port, absl::string_view name);
// The name in a capability of the task at `address`; empty where it is of another kind, and for a
// task that is reached at another port than its own: then a proxy stands between on purpose.
absl::string_view NameIn(absl::string_view capability, absl::string_view address);

// Thread-safe. Only processes of the same user in the same network namespace connect to its socket.
class FastServer : public Pollable, public std::enable_shared_from_this<FastServer> {
 public:
  // Calls come to `serve`. `scheduler` outlives the server.
  static absl::StatusOr<std::shared_ptr<FastServer>> Start(ServeCall serve, Scheduler& scheduler,
                                                           size_t max_message_bytes);
  ~FastServer() override;

  // What neighbours need to know to connect.
  const std::string& name() const { return name_; }
  ConnectionCounts Counts() const { return acceptor_.Counts(); }
  // A connection to the port of the task that has greeted. Its place among the connections there is
  // given back by those who notice that the socket is closed.
  void Add(Descriptor socket, std::shared_ptr<const Caller> caller);
  // No new connections, and no new calls: those are answered with Unavailable.
  void Refuse();
  // After Refuse: calls under way have `grace` before they are cancelled. Blocks until all have
  // ended, or nearly so.
  void Stop(absl::Duration grace);

  void Ready() override;

 private:
  FastServer(ServeCall serve, Scheduler& scheduler, size_t max_message_bytes);
  absl::Status Listen();
  // Once more after a while, when the system gives no connections.
  void WatchLaterLocked(absl::Duration pause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddLocal(Acceptor::Connection connection);
  ServeCall ServeUnlessRefused() const;
  // Whether one has ended of which it was not known.
  bool RemoveEndedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<std::shared_ptr<FastLink>> Links();
  size_t NumServed();

  const ServeCall serve_;
  Scheduler& scheduler_;
  const size_t max_message_bytes_;
  std::string name_;
  Poller::Number number_ = 0;
  const std::shared_ptr<std::atomic<bool>> refuses_ = std::make_shared<std::atomic<bool>>(false);
  Acceptor acceptor_;
  Mutex mutex_;
  int socket_ ABSL_GUARDED_BY(mutex_) = -1;
  struct OpenLink {
    std::shared_ptr<FastLink> link;
    std::string peer;  // to `acceptor_`; empty: it has not accepted it
  };
  std::vector<OpenLink> links_ ABSL_GUARDED_BY(mutex_);
};

// The link of this process to the server of that name, shared by all callers. Unavailable when
// there is none and it cannot be made.
absl::StatusOr<std::shared_ptr<FastLink>> LinkTo(const std::string& name, Scheduler& scheduler,
                                                 size_t max_message_bytes);

}  // namespace muster::fast
