#include "muster/transport/grpc/grpc_sockets.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

namespace muster {
namespace {

constexpr uint8_t kEstablished = 1;  // of TCP's states, in tcp_info

}  // namespace

std::string EndName(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return absl::StrCat(text, ":", ntohs(v4.sin_port));
  }
  if (address.ss_family != AF_INET6) return "";
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  }
  return absl::StrCat(text, ":", ntohs(v6.sin6_port));
}

std::optional<std::string> EndName(absl::string_view peer) {
  if (!absl::ConsumePrefix(&peer, "ipv4:") && !absl::ConsumePrefix(&peer, "ipv6:"))
    return std::nullopt;
  std::string name = absl::StrReplaceAll(
      peer, {{"%5B", ""}, {"%5b", ""}, {"%5D", ""}, {"%5d", ""}, {"[", ""}, {"]", ""}});
  // The interface of a local address is not part of its name.
  const size_t zone = name.find('%');
  if (zone != std::string::npos) name.erase(zone, name.rfind(':') - zone);
  return name;
}

uint64_t SocketNumber(int fd) {
  struct stat found = {};
  return fstat(fd, &found) == 0 && S_ISSOCK(found.st_mode) ? found.st_ino : 0;
}

std::optional<SocketState> StateOf(int fd, uint64_t socket) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  if (SocketNumber(fd) != socket) return std::nullopt;
  SocketState state;
  state.is_established = info.tcpi_state == kEstablished;
  constexpr size_t kCounted = offsetof(tcp_info, tcpi_bytes_received) + sizeof(uint64_t);
  if (size >= kCounted) state.received_bytes = info.tcpi_bytes_received;
  return state;
}

}  // namespace muster
