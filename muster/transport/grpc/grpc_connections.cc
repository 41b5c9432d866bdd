#include "muster/transport/grpc/grpc_connections.h"

#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include <fcntl.h>
#include <sys/socket.h>

#include "muster/base/log.h"
#include "muster/base/status.h"
#include "muster/transport/grpc/grpc_library.h"
#include "muster/transport/grpc/grpc_sockets.h"

namespace muster {
namespace {

constexpr absl::Duration kSweepInterval = absl::Seconds(1);
// Between two searches for ended connections when there is no place for new ones.
constexpr absl::Duration kSearchInterval = absl::Milliseconds(20);
constexpr absl::Duration kBetweenLines = absl::Seconds(10);
// A peer that only begins calls soon sends this much; others do not before their first request.
constexpr uint64_t kStrangerBytes = 64 << 10;
constexpr absl::Duration kDropInterval = absl::Milliseconds(20);
// gRPC takes a moment to end the calls of a closed connection, on a busy machine several.
constexpr absl::Duration kReturnInterval = absl::Seconds(2);
constexpr int kReturns = 5;

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

std::shared_ptr<const Caller> GrpcConnections::Serve(const std::string& name, size_t bytes,
                                                     absl::string_view introduction, bool tracked,
                                                     absl::FunctionRef<void(Caller&)> describe) {
  MutexLock lock(mutex_);
  Entry* const entry = FindLocked(name);
  const bool is_tracked = tracked && scheduler_ != nullptr;
  std::shared_ptr<Cancellation> connection;
  if (entry != nullptr) {
    entry->served = true;
    entry->served_bytes += bytes;
    if (is_tracked) connection = TrackLocked(*entry);
    const bool is_same = entry->caller != nullptr && entry->introduction == introduction &&
                         (!is_tracked || entry->caller->connection == connection);
    if (is_same) return entry->caller;
  } else if (is_tracked && EndName(absl::string_view(name))) {
    connection = std::make_shared<Cancellation>();
    CancelAll({connection});
  }
  auto caller = std::make_shared<Caller>();
  caller->name = entry != nullptr ? entry->name : name;
  caller->host = entry != nullptr ? entry->peer : name;
  caller->connection = std::move(connection);
  caller->Introduce(std::string(introduction));
  describe(*caller);
  if (entry == nullptr) return caller;
  entry->caller = std::move(caller);
  entry->introduction = std::string(introduction);
  return entry->caller;
}

void GrpcConnections::NoteLink(const std::string& end) {
  MutexLock lock(mutex_);
  const auto number = by_name_.find(end);
  if (number == by_name_.end()) return;
  entries_.at(number->second).served = true;
  silent_.erase(number->second);
}

std::shared_ptr<Cancellation> GrpcConnections::TrackLocked(Entry& entry) {
  if (entry.tracked == nullptr) {
    entry.tracked = std::make_shared<Cancellation>();
    ++num_tracked_;
  }
  if (!sweeping_) {
    sweeping_ = true;
    SweepLaterLocked();
  }
  return entry.tracked;
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

std::optional<GrpcConnections::Traffic> GrpcConnections::TrafficOf(const std::string& name) {
  MutexLock lock(mutex_);
  const Entry* const entry = FindLocked(name);
  if (entry == nullptr) return std::nullopt;
  const std::optional<SocketState> state = StateOf(entry->fd, entry->socket);
  if (!state) return std::nullopt;
  return Traffic{state->received_bytes, entry->served_bytes};
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
  DropAbuser(abuser, "it cancels its calls before it has sent their requests");
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
