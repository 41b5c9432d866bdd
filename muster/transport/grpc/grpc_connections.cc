#include "muster/transport/grpc/grpc_connections.h"

#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "muster/base/log.h"
#include "muster/base/status.h"
#include "muster/transport/grpc/grpc_library.h"

namespace muster {
namespace {

constexpr absl::Duration kSweepInterval = absl::Seconds(1);
// Between two searches for ended connections when there is no place for new ones.
constexpr absl::Duration kSearchInterval = absl::Milliseconds(20);
constexpr absl::Duration kBetweenLines = absl::Seconds(10);
// What those who only begin calls send in no time, and others not before their first request.
constexpr uint64_t kStrangerBytes = 64 << 10;
constexpr absl::Duration kDropInterval = absl::Milliseconds(20);
// gRPC takes a moment to end the calls of a closed connection, on a busy machine several.
constexpr absl::Duration kReturnInterval = absl::Seconds(2);
constexpr int kReturns = 5;
constexpr uint8_t kEstablished = 1;  // of TCP's states, in tcp_info

// "127.0.0.1:80" or "::1:80"; IPv4 seen through IPv6 as IPv4. Empty for other kinds.
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

// Zero where there is none.
uint64_t SocketNumber(int fd) {
  struct stat found = {};
  return fstat(fd, &found) == 0 && S_ISSOCK(found.st_mode) ? found.st_ino : 0;
}

struct SocketState {
  bool is_established = false;
  uint64_t received_bytes = 1;  // where the system does not say
};

// Nothing when the descriptor is no longer that of the socket: no socket comes back, so what was
// read before the comparison is of the right one.
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

// Ends the connection of a socket that gRPC owns; what has arrived and was not read is thrown away.
bool Reset(int fd, uint64_t socket) {
  const Descriptor own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (own.get() < 0 || SocketNumber(own.get()) != socket) return false;
  const sockaddr nobody = {.sa_family = AF_UNSPEC, .sa_data = {}};
  return connect(own.get(), &nobody, sizeof(nobody)) == 0 || shutdown(own.get(), SHUT_RDWR) == 0;
}

void CancelAll(const std::vector<std::shared_ptr<Cancellation>>& ended) {
  for (const auto& connection : ended)
    connection->Cancel(absl::UnavailableError("The connection of the client has ended"));
}

}  // namespace

void GrpcConnections::Add(const Acceptor::Connection& connection) {
  Entry entry;
  entry.fd = connection.socket.get();
  entry.name = EndName(entry.fd);
  entry.peer = connection.peer;
  entry.socket = SocketNumber(entry.fd);
  MutexLock lock(mutex_);
  const uint64_t number = ++last_number_;
  by_name_[entry.name] = number;
  entries_.emplace(number, std::move(entry));
  silent_.insert(number);
}

GrpcConnections::Entry* GrpcConnections::FindLocked(const std::string& name) {
  const std::optional<std::string> end = EndName(absl::string_view(name));
  if (!end) return nullptr;
  const auto number = by_name_.find(*end);
  return number == by_name_.end() ? nullptr : &entries_.at(number->second);
}

void GrpcConnections::RemoveLocked(uint64_t number, Acceptor::End end, Ended& ended) {
  const auto found = entries_.find(number);
  Entry& entry = found->second;
  EndTrackingLocked(entry, ended);
  acceptor_->Ended(entry.peer, end);
  // The other end may have come again.
  if (const auto named = by_name_.find(entry.name);
      named != by_name_.end() && named->second == number)
    by_name_.erase(named);
  silent_.erase(number);
  entries_.erase(found);
}

bool GrpcConnections::DropLocked(uint64_t number, Ended& ended) {
  const Entry& entry = entries_.at(number);
  if (!Reset(entry.fd, entry.socket)) return false;
  RemoveLocked(number, Acceptor::End::kDropped, ended);
  return true;
}

bool GrpcConnections::DropSilentLocked(const std::string* peer, Ended& ended) {
  for (auto at = silent_.begin(); at != silent_.end();) {
    const uint64_t number = *at++;
    const Entry& entry = entries_.at(number);
    if (peer != nullptr && entry.peer != *peer) continue;
    const std::optional<SocketState> state = StateOf(entry.fd, entry.socket);
    if (!state) {
      RemoveLocked(number, Acceptor::End::kClosed, ended);
      return true;
    }
    if (state->received_bytes == 0) return DropLocked(number, ended);
    silent_.erase(number);
    at = silent_.upper_bound(number);
  }
  return false;
}

size_t GrpcConnections::RemoveEndedLocked(Ended& ended) {
  std::vector<uint64_t> closed;
  for (auto& [number, entry] : entries_) {
    const std::optional<SocketState> state = StateOf(entry.fd, entry.socket);
    if (!state) closed.push_back(number);
    // The other end has hung up; gRPC may have much to read before it notices.
    if (state && !state->is_established) EndTrackingLocked(entry, ended);
  }
  for (const uint64_t number : closed) RemoveLocked(number, Acceptor::End::kClosed, ended);
  return closed.size();
}

void GrpcConnections::EndTrackingLocked(Entry& entry, Ended& ended) {
  if (entry.tracked == nullptr) return;
  ended.push_back(std::exchange(entry.tracked, nullptr));
  --num_tracked_;
}

bool GrpcConnections::MakeRoom(const std::string* peer) {
  Ended ended;
  bool has_room;
  {
    MutexLock lock(mutex_);
    has_room = DropSilentLocked(peer, ended);
    const absl::Time now = absl::Now();
    if (!has_room && now >= next_search_) {
      next_search_ = now + kSearchInterval;
      has_room = RemoveEndedLocked(ended) > 0;
    }
  }
  CancelAll(ended);
  return has_room;
}

void GrpcConnections::Sweep() {
  Ended ended;
  {
    MutexLock lock(mutex_);
    RemoveEndedLocked(ended);
  }
  CancelAll(ended);
}

std::shared_ptr<Cancellation> GrpcConnections::Track(const std::string& name) {
  if (scheduler_ == nullptr || !EndName(absl::string_view(name))) return nullptr;
  MutexLock lock(mutex_);
  Entry* const entry = FindLocked(name);
  if (entry == nullptr) {
    auto ended = std::make_shared<Cancellation>();
    CancelAll({ended});
    return ended;
  }
  if (entry->tracked == nullptr) {
    entry->tracked = std::make_shared<Cancellation>();
    ++num_tracked_;
  }
  if (!sweeping_) {
    sweeping_ = true;
    SweepLaterLocked();
  }
  return entry->tracked;
}

bool GrpcConnections::IsOpen(const std::string& name) const {
  const std::optional<std::string> end = EndName(absl::string_view(name));
  if (!end) return true;
  MutexLock lock(mutex_);
  const auto number = by_name_.find(*end);
  if (number == by_name_.end()) return false;
  const Entry& entry = entries_.at(number->second);
  const std::optional<SocketState> state = StateOf(entry.fd, entry.socket);
  return state && state->is_established;
}

void GrpcConnections::NoteWaiting(const std::string& name, int change, int in_all) {
  std::string abuser;
  {
    MutexLock lock(mutex_);
    Entry* entry = FindLocked(name);
    if (entry == nullptr) return;
    const bool becomes_many = entry->waiting == kManyWaiting && change > 0;
    entry->waiting += change;
    if (becomes_many) {
      entry->many_since = absl::Now();
      LookAgainLocked(name);
    }
    if (in_all <= kMostWaiting) return;
    entry = MostWaitingLocked();
    if (entry->waiting <= kManyWaiting) return;
    abuser = entry->name;
  }
  DropAbuser(abuser, "its calls come without requests");
}

void GrpcConnections::NoteServed(const std::string& name) {
  MutexLock lock(mutex_);
  if (Entry* const entry = FindLocked(name)) entry->served = true;
}

void GrpcConnections::DropStrangers() {
  const int64_t now = absl::GetCurrentTimeNanos();
  int64_t next = next_drop_.load(std::memory_order_relaxed);
  if (now < next) return;
  const int64_t later = now + absl::ToInt64Nanoseconds(kDropInterval);
  if (!next_drop_.compare_exchange_strong(next, later)) return;
  std::vector<std::string> strangers;
  {
    MutexLock lock(mutex_);
    for (const auto& [number, entry] : entries_) {
      if (entry.served) continue;
      const std::optional<SocketState> state = StateOf(entry.fd, entry.socket);
      if (state && state->received_bytes > kStrangerBytes) strangers.push_back(entry.name);
    }
  }
  for (const std::string& end : strangers)
    DropAbuser(end, "it has begun many calls and sent no request");
}

GrpcConnections::Entry* GrpcConnections::MostWaitingLocked() {
  Entry* most = &entries_.begin()->second;
  for (auto& [number, entry] : entries_)
    if (entry.waiting > most->waiting) most = &entry;
  return most;
}

void GrpcConnections::LookAgainLocked(const std::string& name) {
  if (scheduler_ == nullptr) return;
  scheduler_->ScheduleAfter(kWaitingTime, [weak = weak_from_this(), name] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    std::string abuser;
    {
      MutexLock lock(self->mutex_);
      const Entry* const entry = self->FindLocked(name);
      if (entry == nullptr || entry->waiting <= kManyWaiting) return;
      // There were fewer meanwhile: their own look is still to come.
      if (absl::Now() - entry->many_since < kWaitingTime) return;
      abuser = entry->name;
    }
    self->DropAbuser(abuser, "its calls come without requests");
  });
}

void GrpcConnections::NoteEmpty(const std::string& name) {
  std::string abuser;
  {
    MutexLock lock(mutex_);
    Entry* const entry = FindLocked(name);
    if (entry == nullptr) return;
    const absl::Time now = absl::Now();
    if (now > entry->empty_since + kEmptyTime) {
      entry->empty_since = now;
      entry->empty = 0;
    }
    if (++entry->empty <= kMostEmpty) return;
    abuser = entry->name;
  }
  DropAbuser(abuser, "it gives up its calls before it has sent their requests");
}

void GrpcConnections::DropAbuser(const std::string& end, absl::string_view what) {
  Ended ended;
  bool is_told = false;
  {
    MutexLock lock(mutex_);
    const auto number = by_name_.find(end);
    const bool is_dropped = number != by_name_.end() && DropLocked(number->second, ended);
    const absl::Time now = absl::Now();
    if (is_dropped) ReturnMemoryLaterLocked();
    is_told = is_dropped && now >= next_line_;
    if (is_told) next_line_ = now + kBetweenLines;
  }
  if (is_told) LOG(WARNING) << "The connection from " << end << " is closed: " << what;
  CancelAll(ended);
}

void GrpcConnections::ReturnMemoryLaterLocked() {
  if (scheduler_ == nullptr) return;
  const bool is_under_way = returns_left_ > 0;
  returns_left_ = kReturns;
  if (!is_under_way) ReturnMemoryAfterPauseLocked();
}

void GrpcConnections::ReturnMemoryAfterPauseLocked() {
  scheduler_->ScheduleAfter(kReturnInterval, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    ReturnFreeMemory();
    MutexLock lock(self->mutex_);
    if (--self->returns_left_ > 0) self->ReturnMemoryAfterPauseLocked();
  });
}

void GrpcConnections::SweepLaterLocked() {
  scheduler_->ScheduleAfter(kSweepInterval, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->SweepAndGoOn();
  });
}

void GrpcConnections::SweepAndGoOn() {
  Sweep();
  MutexLock lock(mutex_);
  sweeping_ = num_tracked_ > 0;
  if (sweeping_) SweepLaterLocked();
}

}  // namespace muster
