// The TCP sockets that gRPC owns, as the system lists them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace muster {

// The other end of a socket: "127.0.0.1:80" or "::1:80"; IPv4 seen through IPv6 as IPv4. Empty for
// other kinds.
std::string EndName(int fd);
// The same of gRPC's "ipv4:127.0.0.1:80" and "ipv6:%5B::1%5D:80"; nothing for other kinds.
std::optional<std::string> EndName(absl::string_view peer);

// Tells a socket from all others, for ever. Zero where the descriptor is not a socket.
uint64_t SocketNumber(int fd);

struct SocketState {
  bool is_established = false;
  uint64_t received_bytes = 1;  // where the system does not say
};
// Nothing when the descriptor is no longer that of the socket: no socket comes back, so what was
// read before the comparison is of the right one.
std::optional<SocketState> StateOf(int fd, uint64_t socket);

}  // namespace muster
