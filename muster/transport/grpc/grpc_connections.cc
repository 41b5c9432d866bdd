#include "muster/transport/grpc/grpc_connections.h"

#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "muster/base/status.h"

namespace muster {
namespace {

constexpr absl::Duration kSweepInterval = absl::Seconds(1);

// "127.0.0.1:80" or "::1:80"; IPv4 seen through IPv6 as IPv4. Empty for other kinds.
std::string EndName(const sockaddr_storage& address) {
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

// The same of gRPC's "ipv4:127.0.0.1:80" and "ipv6:%5B::1%5D:80"; nothing for other kinds.
std::optional<std::string> EndName(absl::string_view peer) {
  if (!absl::ConsumePrefix(&peer, "ipv4:") && !absl::ConsumePrefix(&peer, "ipv6:"))
    return std::nullopt;
  std::string name = absl::StrReplaceAll(
      peer, {{"%5B", ""}, {"%5b", ""}, {"%5D", ""}, {"%5d", ""}, {"[", ""}, {"]", ""}});
  // The interface of a local address is no part of its name.
  const size_t zone = name.find('%');
  if (zone != std::string::npos) name.erase(zone, name.rfind(':') - zone);
  return name;
}

// The other ends of all established connections to a local port, from the sockets of this process;
// nothing where the system does not list them.
std::optional<absl::flat_hash_set<std::string>> OtherEnds(int port) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open_files(opendir("/proc/self/fd"), &closedir);
  if (open_files == nullptr) return std::nullopt;
  absl::flat_hash_set<std::string> ends;
  while (const dirent* entry = readdir(open_files.get())) {
    int fd = -1;
    if (!absl::SimpleAtoi(entry->d_name, &fd)) continue;
    sockaddr_storage address = {};
    socklen_t size = sizeof(address);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) continue;
    if (!absl::EndsWith(EndName(address), absl::StrCat(":", port))) continue;
    tcp_info info = {};
    size = sizeof(info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    if (info.tcpi_state != TCP_ESTABLISHED) continue;
    size = sizeof(address);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0)
      ends.insert(EndName(address));
  }
  return ends;
}

}  // namespace

std::shared_ptr<Cancellation> GrpcConnections::Track(const std::string& peer) {
  if (scheduler_ == nullptr) return nullptr;
  std::optional<std::string> name = EndName(absl::string_view(peer));
  if (!name) return nullptr;
  MutexLock lock(mutex_);
  std::shared_ptr<Cancellation>& connection = tracked_[*std::move(name)];
  if (connection == nullptr) connection = std::make_shared<Cancellation>();
  if (!sweeping_) {
    sweeping_ = true;
    SweepLaterLocked();
  }
  return connection;
}

bool GrpcConnections::IsOpen(const std::string& peer) const {
  const std::optional<std::string> name = EndName(absl::string_view(peer));
  if (!name) return true;
  int port;
  {
    MutexLock lock(mutex_);
    port = port_;
  }
  const auto ends = OtherEnds(port);
  return !ends || ends->contains(*name);
}

void GrpcConnections::SweepLaterLocked() {
  scheduler_->ScheduleAfter(kSweepInterval, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Sweep();
  });
}

void GrpcConnections::Sweep() {
  std::vector<std::shared_ptr<Cancellation>> ended;
  int port;
  absl::flat_hash_map<std::string, std::shared_ptr<Cancellation>> tracked;
  {
    MutexLock lock(mutex_);
    port = port_;
    tracked = tracked_;  // those that come while the table is read are too young to have ended
  }
  const auto ends = OtherEnds(port);
  {
    MutexLock lock(mutex_);
    if (ends) {
      for (const auto& [name, connection] : tracked) {
        if (ends->contains(name)) continue;
        ended.push_back(connection);
        tracked_.erase(name);
      }
    }
    sweeping_ = ends.has_value() && !tracked_.empty();
    if (sweeping_) SweepLaterLocked();
  }
  for (const auto& connection : ended)
    connection->Cancel(absl::UnavailableError("The connection of the client has ended"));
}

}  // namespace muster
