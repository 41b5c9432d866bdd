#include "muster/transport/api/local_address.h"

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include <netdb.h>
#include <sys/socket.h>

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
  return Resolve(address.c_str(), 0, AI_NUMERICHOST).ok() &&
         ListeningSockets::Bind(address, 0).ok();
}

bool IsLoopbackAddress(absl::string_view address) {
  return absl::StartsWith(address, "127.") || address == "::1" ||
         absl::StartsWith(address, "::ffff:127.");
}

absl::StatusOr<ReservedPort> ReservedPort::Take(const std::string& host, int port) {
  absl::StatusOr<ListeningSockets> sockets = ListeningSockets::Bind(host, port);
  if (!sockets.ok()) return Prefixed(sockets.status(), "Could not start gRPC server: ");
  return ReservedPort(*std::move(sockets));
}

}  // namespace muster
