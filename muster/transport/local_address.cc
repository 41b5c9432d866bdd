#include "muster/transport/local_address.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace muster {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Addresses to which a stream socket can be bound or connected.
absl::StatusOr<AddressList> Resolve(const char* host, int port, int flags) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host, absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("the address of host '", host == nullptr ? "" : host,
                                               "' is not known: ", gai_strerror(error)));
  }
  return AddressList(found, &freeaddrinfo);
}

std::string Numeric(const addrinfo& address) {
  char text[NI_MAXHOST];
  const int error = getnameinfo(address.ai_addr, address.ai_addrlen, text, sizeof(text), nullptr, 0,
                                NI_NUMERICHOST);
  return error == 0 ? text : "";
}

int BoundPort(int socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

// The socket, or -1 with errno.
int BindSocket(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd, address.ai_addr, address.ai_addrlen) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(absl::string_view address) {
  const size_t colon = address.rfind(':');
  HostPort result;
  if (colon == absl::string_view::npos ||
      !absl::SimpleAtoi(address.substr(colon + 1), &result.port) || result.port < 0 ||
      result.port > 65535) {
    return InvalidArgument("'", address, "' is not an address: HOST:PORT expected");
  }
  absl::string_view host = address.substr(0, colon);
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  } else if (absl::StrContains(host, ':')) {
    return InvalidArgument("'", address, "' is not an address: HOST:PORT expected");
  }
  result.host = std::string(host);
  return result;
}

absl::StatusOr<std::vector<std::string>> ResolveHost(const std::string& host) {
  ASSIGN_OR_RETURN(const AddressList found, Resolve(host.c_str(), 0, 0));
  std::vector<std::string> addresses;
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    if (std::string text = Numeric(*at); !text.empty()) addresses.push_back(std::move(text));
  }
  return addresses;
}

bool IsLocalAddress(const std::string& address) {
  const absl::StatusOr<AddressList> found =
      Resolve(address.c_str(), 0, AI_NUMERICHOST | AI_PASSIVE);
  if (!found.ok()) return false;
  const int fd = BindSocket(**found);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

bool IsLoopbackAddress(absl::string_view address) {
  return absl::StartsWith(address, "127.") || address == "::1" ||
         absl::StartsWith(address, "::ffff:127.");
}

absl::StatusOr<ReservedPort> ReservedPort::Take(const std::string& host, int port) {
  const auto refuse = [&](absl::string_view why) {
    return absl::UnknownError(absl::StrCat("Could not start gRPC server: cannot listen on ",
                                           host.empty() ? "all interfaces" : host, ", port ", port,
                                           ": ", why));
  };
  const absl::StatusOr<AddressList> found =
      Resolve(host.empty() ? nullptr : host.c_str(), port, AI_PASSIVE);
  if (!found.ok()) return refuse(found.status().message());
  int error = 0;
  for (const addrinfo* at = found->get(); at != nullptr; at = at->ai_next) {
    ReservedPort reserved;
    reserved.socket_ = BindSocket(*at);
    if (reserved.socket_ >= 0) {
      reserved.port_ = BoundPort(reserved.socket_);
      return reserved;
    }
    error = errno;
    if (error == EADDRINUSE) break;
  }
  return refuse(std::strerror(error));
}

ReservedPort::ReservedPort(ReservedPort&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), port_(other.port_) {}

ReservedPort& ReservedPort::operator=(ReservedPort&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(port_, other.port_);
  return *this;
}

ReservedPort::~ReservedPort() {
  if (socket_ >= 0) close(socket_);
}

}  // namespace muster
