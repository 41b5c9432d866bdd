// Which addresses belong to this machine.
#pragma once

#include <string>
#include <vector>

#include "muster/base/net/listening_sockets.h"
#include "muster/base/status.h"

namespace muster {

struct HostPort {
  std::string host;  // without the brackets of IPv6
  int port = 0;
};
// "host:port" or "[::1]:port". InvalidArgument naming what is wrong.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view address);

// The numeric addresses of a host, as the resolver of the system gives them. Unavailable when it
// gives none.
absl::StatusOr<std::vector<std::string>> ResolveHost(const std::string& host);

// A socket of this machine can be bound to this numeric address.
bool IsLocalAddress(const std::string& address);
// No other machine can reach it.
bool IsLoopbackAddress(absl::string_view address);

// Reserves a port for the lifetime of the object; it does not listen, so that a process that
// listens on it afterwards may take it over without a gap.
class ReservedPort {
 public:
  // `host` empty: all interfaces. `port` 0: any free one. Unknown "Could not start gRPC server"
  // when another process listens there.
  static absl::StatusOr<ReservedPort> Take(const std::string& host, int port);
  ReservedPort() = default;
  int port() const { return sockets_.port(); }
  // For a server of this process that listens on them.
  ListeningSockets TakeSockets() && { return std::move(sockets_); }

 private:
  explicit ReservedPort(ListeningSockets sockets) : sockets_(std::move(sockets)) {}

  ListeningSockets sockets_;
};

}  // namespace muster
