// TCP sockets to which others connect.
#pragma once

#include <string>
#include <vector>

#include "muster/base/net/descriptor.h"
#include "muster/base/status.h"

namespace muster {

// One port on all addresses of a host. Thread-compatible.
class ListeningSockets {
 public:
  // Binds the port without listening yet: until Listen no peer can connect, and another process may
  // take the port over. `host` empty: all interfaces, with IPv4 and IPv6. `port` 0: any free one.
  // Unknown "cannot listen on HOST, port N: ..." when one of the addresses is in use, or none can
  // be bound.
  static absl::StatusOr<ListeningSockets> Bind(const std::string& host, int port);
  ListeningSockets() = default;

  absl::Status Listen() const;
  bool empty() const { return sockets_.empty(); }
  int port() const { return port_; }
  const std::vector<Descriptor>& sockets() const { return sockets_; }

 private:
  ListeningSockets(std::string where, int port, std::vector<Descriptor> sockets)
      : where_(std::move(where)), port_(port), sockets_(std::move(sockets)) {}

  std::string where_;  // for messages
  int port_ = 0;
  std::vector<Descriptor> sockets_;  // do not block
};

}  // namespace muster
