#include "muster/transport/fast/remote_link.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include "muster/base/net/descriptor.h"
#include "muster/transport/api/local_address.h"
#include "muster/transport/fast/greeting.h"

namespace muster::fast {
namespace {

absl::Status SystemError(absl::string_view what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(error)));
}

absl::Status AwaitUntil(int socket, short events, absl::Time end) {
  for (;;) {
    const absl::Duration left = end - absl::Now();
    if (left <= absl::ZeroDuration()) return absl::UnavailableError("no answer");
    pollfd waiting = {socket, events, 0};
    const int ready = poll(
        &waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(left + absl::Milliseconds(1))));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return SystemError("poll", errno);
  }
}

absl::StatusOr<Descriptor> ConnectTo(const addrinfo& address, absl::Time end) {
  Descriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.get() < 0) return SystemError("cannot make a socket", errno);
  if (connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return SystemError("cannot connect", errno);
    RETURN_IF_ERROR(AwaitUntil(socket.get(), POLLOUT, end));
    int error = 0;
    socklen_t size = sizeof(error);
    if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error != 0) return SystemError("cannot connect", error);
  }
  return socket;
}

// A server that knows nothing of links closes the connection instead of answering.
absl::Status Greet(int socket, uint64_t incarnation, absl::Time end) {
  const Greeting greeting;
  const absl::string_view own = greeting.bytes();
  if (send(socket, own.data(), own.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(own.size()))
    return SystemError("cannot greet", errno);
  char answer[sizeof(Greeting)];
  size_t received = 0;
  while (received < sizeof(answer)) {
    RETURN_IF_ERROR(AwaitUntil(socket, POLLIN, end));
    const ssize_t count = recv(socket, answer + received, sizeof(answer) - received, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count <= 0) return absl::UnavailableError("the server does not take links");
    received += static_cast<size_t>(count);
    if (!MayBeGreeting({answer, received}))
      return absl::UnavailableError("the server answers something else than a greeting");
  }
  Greeting other;
  std::memcpy(&other, answer, sizeof(other));
  if (other.incarnation != incarnation)
    return absl::UnavailableError("another process answers at this address");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<FastLink>> ConnectLink(const std::string& address,
                                                      uint64_t incarnation, absl::Duration timeout,
                                                      Scheduler& scheduler,
                                                      size_t max_message_bytes) {
  if (!Poller::Global().works()) return absl::UnavailableError("cannot wait for answers");
  ASSIGN_OR_RETURN(const HostPort place, ParseHostPort(address));
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(place.host.c_str(), std::to_string(place.port).c_str(), &hints, &found);
  if (error != 0)
    return absl::UnavailableError(absl::StrCat("cannot resolve: ", gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  const absl::Time end = absl::Now() + timeout;
  absl::Status last = absl::UnavailableError("the host has no address");
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    // An address that does not answer leaves half of the time to the others.
    const absl::Duration left = end - absl::Now();
    absl::StatusOr<Descriptor> socket =
        ConnectTo(*each, each->ai_next == nullptr ? end : absl::Now() + left / 2);
    last = socket.status();
    if (last.ok()) last = Greet(socket->get(), incarnation, end);
    if (last.ok()) {
      return FastLink::Create((*std::move(socket)).Release(), nullptr, &scheduler,
                              max_message_bytes, Reach::kNetwork);
    }
  }
  return last;
}

}  // namespace muster::fast
