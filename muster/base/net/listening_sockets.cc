#include "muster/base/net/listening_sockets.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace muster {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

constexpr int kBacklog = 4096;    // the system takes what it allows
constexpr int kPortAttempts = 8;  // a port that is free at one address may be taken at the next

absl::Status CannotListen(const std::string& where, const std::string& why) {
  return absl::UnknownError(absl::StrCat("cannot listen on ", where, ": ", why));
}

int PortOf(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

void SetPort(sockaddr_storage& address, int port) {
  const uint16_t network_order = htons(static_cast<uint16_t>(port));
  if (address.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&address)->sin6_port = network_order;
  } else {
    reinterpret_cast<sockaddr_in*>(&address)->sin_port = network_order;
  }
}

// -1 with errno on failure. IPv6's wildcard takes IPv4 too.
Descriptor BindSocket(const addrinfo& to, int port, bool wildcard) {
  Descriptor socket(::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.get() < 0) return socket;
  const int on = 1;
  const int only_ipv6 = wildcard ? 0 : 1;
  sockaddr_storage address{};
  std::memcpy(&address, to.ai_addr, to.ai_addrlen);
  SetPort(address, port);
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (to.ai_family == AF_INET6)
    setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only_ipv6, sizeof(only_ipv6));
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), to.ai_addrlen) == 0)
    return socket;
  const int error = errno;
  socket = Descriptor();
  errno = error;
  return Descriptor();
}

bool IsSame(const addrinfo& a, const addrinfo& b) {
  return a.ai_addrlen == b.ai_addrlen && std::memcmp(a.ai_addr, b.ai_addr, a.ai_addrlen) == 0;
}

// Each address once, in the order in which they are tried; for all interfaces IPv6 comes first.
std::vector<const addrinfo*> InOrder(const addrinfo* first, bool wildcard) {
  std::vector<const addrinfo*> all;
  for (const addrinfo* at = first; at != nullptr; at = at->ai_next) {
    const auto same = [at](const addrinfo* other) { return IsSame(*at, *other); };
    if (std::any_of(all.begin(), all.end(), same)) continue;
    if (wildcard && at->ai_family == AF_INET6) {
      all.insert(all.begin(), at);
    } else {
      all.push_back(at);
    }
  }
  return all;
}

}  // namespace

absl::StatusOr<ListeningSockets> ListeningSockets::Bind(const std::string& host, int port) {
  const bool wildcard = host.empty();
  const std::string where = absl::StrCat(wildcard ? "all interfaces" : host, ", port ", port);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failure =
      getaddrinfo(wildcard ? nullptr : host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (failure != 0) return CannotListen(where, gai_strerror(failure));
  const AddressList addresses(found, &freeaddrinfo);
  const std::vector<const addrinfo*> in_order = InOrder(addresses.get(), wildcard);
  int error = EADDRNOTAVAIL;
  for (int attempt = 0; attempt < kPortAttempts; ++attempt) {
    std::vector<Descriptor> sockets;
    int bound = port;
    bool is_taken = false;
    for (const addrinfo* const at : in_order) {
      Descriptor socket = BindSocket(*at, bound, wildcard);
      if (socket.get() < 0) {
        error = errno;
        is_taken = error == EADDRINUSE;
        // Other errors, such as IPv6 on a machine without it, skip this address.
        if (is_taken) break;
        continue;
      }
      bound = PortOf(socket.get());
      sockets.push_back(std::move(socket));
      if (wildcard) break;
    }
    if (!is_taken && !sockets.empty()) return ListeningSockets(where, bound, std::move(sockets));
    if (port != 0) break;
  }
  return CannotListen(where, std::strerror(error));
}

absl::Status ListeningSockets::Listen() const {
  for (const Descriptor& socket : sockets_)
    if (listen(socket.get(), kBacklog) != 0) return CannotListen(where_, std::strerror(errno));
  return absl::OkStatus();
}

}  // namespace muster
