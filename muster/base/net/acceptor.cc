#include "muster/base/net/acceptor.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "muster/base/log.h"

namespace muster {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(100);
constexpr absl::Duration kBetweenLines = absl::Seconds(10);
// The accepting thread has other work as well.
constexpr int kMostAtOnce = 64;
// Each one takes memory, whatever its peer.
constexpr int kMostConnections = 16384;

std::string Text(int family, const void* address) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(family, address, text, sizeof(text));
  return text;
}

std::string PeerOf(int socket, const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return Text(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr);
  if (address.ss_family == AF_INET6) {
    in6_addr ipv6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&ipv6)) return Text(AF_INET, &ipv6.s6_addr[12]);
    if (IN6_IS_ADDR_LOOPBACK(&ipv6)) return "::1";
    // A peer that has one address of a /64 network has all of them.
    std::memset(&ipv6.s6_addr[8], 0, 8);
    return absl::StrCat(Text(AF_INET6, &ipv6), "/64");
  }
  ucred process{};
  socklen_t size = sizeof(process);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &process, &size) != 0) return "unknown";
  return absl::StrCat("process ", process.pid);
}

// Whether the error concerns only this connection, so that accepting the next may succeed.
bool IsOfOneConnection(int error) {
  switch (error) {
    case EINTR:
    case ECONNABORTED:
    case EPERM:
    case EPROTO:
    case ENETDOWN:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH:
      return true;
    default:
      return false;
  }
}

bool HasConnection(int listener) {
  pollfd waiting = {listener, POLLIN, 0};
  return poll(&waiting, 1, 0) > 0;
}

}  // namespace

ConnectionLimits ConnectionLimitsFor(int descriptors) {
  ConnectionLimits limits;
  limits.in_all = std::clamp(descriptors - std::max(64, descriptors / 4), 16, kMostConnections);
  limits.per_peer = limits.in_all - limits.in_all / 4;
  return limits;
}

Acceptor::Acceptor(std::string name, ConnectionLimits limits, bool keeps_spares)
    : name_(std::move(name)),
      limits_(limits),
      null_(keeps_spares ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1) {
  KeepSpares();
}

void Acceptor::KeepSpares() {
  while (null_.get() >= 0 && spares_.size() < kSpares) {
    Descriptor spare(fcntl(null_.get(), F_DUPFD_CLOEXEC, 0));
    if (spare.get() < 0) return;
    spares_.push_back(std::move(spare));
  }
}

std::optional<Acceptor::Connection> Acceptor::Take(int listener) {
  KeepSpares();
  for (int skipped = 0;; ++skipped) {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    Descriptor socket(accept4(listener, reinterpret_cast<sockaddr*>(&address), &size,
                              SOCK_CLOEXEC | SOCK_NONBLOCK));
    int error = socket.get() >= 0 || errno == EWOULDBLOCK ? 0 : errno;
    if (error != 0 && IsOfOneConnection(error) && skipped < kMostAtOnce) continue;
    if (error == EMFILE && !spares_.empty()) {
      if (HasConnection(listener)) {
        spares_.pop_back();
        continue;
      }
      error = 0;  // the system checks for a descriptor before it checks for a waiting connection
    }
    if (error != 0) {
      Fail(error);
      return std::nullopt;
    }
    {
      MutexLock lock(mutex_);
      error_ = 0;
    }
    if (socket.get() < 0) return std::nullopt;
    std::string peer = PeerOf(socket.get(), address);
    return Connection{std::move(socket), std::move(peer)};
  }
}

void Acceptor::Fail(int error) {
  MutexLock lock(mutex_);
  ++counts_.failures;
  const absl::Time now = absl::Now();
  if (error_ == 0) failing_since_ = now;
  error_ = error;
  if (now < next_line_) return;
  next_line_ = now + kBetweenLines;
  LOG(WARNING) << name_ << " takes no connections for now: " << std::strerror(error) << " ("
               << counts_.open << " are open)";
}

bool Acceptor::HasPlace(const std::string& peer) const {
  MutexLock lock(mutex_);
  const auto found = by_peer_.find(peer);
  return counts_.open < limits_.in_all &&
         (found == by_peer_.end() || found->second < limits_.per_peer);
}

void Acceptor::Refuse(const std::string& peer) {
  MutexLock lock(mutex_);
  ++counts_.refused;
  ++not_told_;
  const absl::Time now = absl::Now();
  if (now < next_line_) return;
  next_line_ = now + kBetweenLines;
  const auto found = by_peer_.find(peer);
  LOG(WARNING) << name_ << " has closed " << std::exchange(not_told_, 0)
               << " new connections, the last from " << peer << ": " << counts_.open
               << " of at most " << limits_.in_all << " are open, "
               << (found == by_peer_.end() ? 0 : found->second) << " of at most "
               << limits_.per_peer << " from there";
}

std::optional<Acceptor::Connection> Acceptor::Accept(int listener, MakeRoom make_room) {
  for (int refused = 0; refused < kMostAtOnce; ++refused) {
    std::optional<Connection> taken = Take(listener);
    if (!taken) return std::nullopt;
    const std::string& peer = taken->peer;
    bool has_place = HasPlace(peer);
    if (!has_place) {
      bool of_peer;
      {
        MutexLock lock(mutex_);
        const auto found = by_peer_.find(peer);
        of_peer = found != by_peer_.end() && found->second >= limits_.per_peer;
      }
      has_place = make_room(of_peer ? &peer : nullptr) && HasPlace(peer);
    }
    if (!has_place) {
      Refuse(peer);
      continue;
    }
    MutexLock lock(mutex_);
    ++counts_.open;
    ++counts_.accepted;
    ++by_peer_[peer];
    return taken;
  }
  return std::nullopt;
}

absl::Duration Acceptor::pause() const {
  MutexLock lock(mutex_);
  return error_ == 0 ? absl::ZeroDuration() : kPause;
}

void Acceptor::Ended(const std::string& peer, End end) {
  MutexLock lock(mutex_);
  const auto found = by_peer_.find(peer);
  if (found == by_peer_.end()) return;
  if (--found->second == 0) by_peer_.erase(found);
  --counts_.open;
  if (end == End::kDropped) ++counts_.dropped;
}

void Acceptor::Close(Connection connection, End end) {
  if (null_.get() >= 0 && spares_.size() < kSpares &&
      dup3(null_.get(), connection.socket.get(), O_CLOEXEC) >= 0)
    spares_.push_back(std::move(connection.socket));
  Ended(connection.peer, end);
}

void Acceptor::set_refresh(std::function<void()> refresh) {
  MutexLock lock(mutex_);
  refresh_ = std::move(refresh);
}

void Acceptor::Refresh() const {
  std::function<void()> refresh;
  {
    MutexLock lock(mutex_);
    refresh = refresh_;
  }
  if (refresh) refresh();
}

ConnectionCounts Acceptor::Counts() const {
  Refresh();
  MutexLock lock(mutex_);
  return counts_;
}

absl::Status Acceptor::Status() const {
  Refresh();
  MutexLock lock(mutex_);
  if (error_ != 0) {
    const absl::Duration since = absl::Now() - failing_since_;
    return absl::UnavailableError(absl::StrCat(
        name_, " has taken no connections for ",
        absl::FormatDuration(absl::Trunc(since, absl::Seconds(1))), ": ", std::strerror(error_)));
  }
  if (counts_.open >= limits_.in_all) {
    return absl::UnavailableError(absl::StrCat(name_, " takes no more connections: all ",
                                               limits_.in_all, " places are taken"));
  }
  return absl::OkStatus();
}

}  // namespace muster
