#include "muster/transport/fast/fast_link.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "absl/strings/str_cat.h"
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "muster/transport/wire/status_proto.h"

namespace muster::fast {
namespace {

constexpr absl::Duration kKeepLentFor = absl::Seconds(30);
// Calls of the other side at a time, as many as gRPC takes over a connection.
constexpr size_t kMostServed = 1 << 16;
int64_t MonotonicNanos() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// The system ends the connection when what was sent is not acknowledged.
void SetUpForNetwork(int socket) {
  const int on = 1;
  // As long as a task may be silent in all other ways.
  const int timeout_millis = 30'000;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_millis, sizeof(timeout_millis));
}

}  // namespace

std::shared_ptr<const Caller> FastLink::CallerAt(int socket) {
  ucred process = {};
  socklen_t size = sizeof(process);
  const bool is_known = getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &process, &size) == 0;
  auto caller = std::make_shared<Caller>();
  caller->host = is_known ? absl::StrCat("process ", process.pid) : "unknown process";
  caller->name = is_known ? absl::StrCat(caller->host, " of user ", process.uid) : caller->host;
  return caller;
}

FastLink::FastLink(int socket, ServeCall serve, Scheduler* scheduler, size_t max_message_bytes,
                   Reach reach, std::shared_ptr<const Caller> caller)
    : socket_(socket),
      serve_(std::move(serve)),
      caller_(serve_ != nullptr && caller == nullptr ? CallerAt(socket) : std::move(caller)),
      scheduler_(scheduler),
      max_message_bytes_(max_message_bytes),
      reach_(reach) {}

std::shared_ptr<FastLink> FastLink::Create(int socket, ServeCall serve, Scheduler* scheduler,
                                           size_t max_message_bytes, Reach reach,
                                           std::shared_ptr<const Caller> caller) {
  if (reach == Reach::kNetwork) SetUpForNetwork(socket);
  std::shared_ptr<FastLink> link(new FastLink(socket, std::move(serve), scheduler,
                                              max_message_bytes, reach, std::move(caller)));
  Poller& poller = Poller::Global();
  link->number_ = poller.Add(link);
  poller.Watch(link->number_, socket, /*for_writing=*/false, /*first=*/true);
  return link;
}

FastLink::~FastLink() {
  Break("Socket closed");
}

void FastLink::Call(std::string path, std::string who, CallOptions options, WireMessage request,
                    Channel::Done done) {
  Outgoing packet;
  packet.header.kind = PacketKind::kCall;
  if (options.timeout < absl::InfiniteDuration())
    packet.header.timeout_micros = std::max<int64_t>(1, absl::ToInt64Microseconds(options.timeout));
  packet.pieces.push_back({path, Buffer()});
  for (WireMessage::Piece& piece : request.pieces()) packet.pieces.push_back(std::move(piece));
  const std::shared_ptr<Cancellation> cancellation = options.cancellation;
  const auto on_cancel = cancellation == nullptr ? nullptr : std::make_shared<CancelCallback>();
  uint64_t id;
  {
    MutexLock lock(calls_mutex_);
    id = ++last_call_;
    MadeCall& call = made_[id];
    call.done = std::move(done);
    call.path = std::move(path);
    call.who = std::move(who);
    call.cancellation = cancellation;
    call.on_cancel = on_cancel;
  }
  if (cancellation != nullptr) {
    const bool is_wanted = on_cancel->StartScheduled(
        cancellation, *scheduler_, weak_from_this(),
        [id](FastLink& self, const absl::Status& reason) { self.Abandon(id, reason); });
    if (!is_wanted) return;
  }
  if (options.timeout < absl::InfiniteDuration()) {
    const Scheduler::TimerId timer =
        scheduler_->ScheduleAfter(options.timeout, [weak = weak_from_this(), id] {
          if (const auto self = weak.lock())
            self->Abandon(id, absl::DeadlineExceededError("Deadline Exceeded"));
        });
    MutexLock lock(calls_mutex_);
    const auto call = made_.find(id);
    if (call != made_.end()) call->second.timer = timer;
  }
  packet.header.call = id;
  WaitingThread::Current().NoteCall(weak_from_this());
  if (is_congested()) {
    {
      MutexLock lock(calls_mutex_);
      if (made_.contains(id)) delayed_.emplace(id, std::move(packet));
    }
    if (!is_congested()) SendDelayed();
  } else if (absl::Status sent = Send(std::move(packet)); !sent.ok()) {
    return Abandon(id, sent);
  }
  // It may have broken before the call was in the table.
  if (!is_open()) Abandon(id, absl::UnavailableError("Socket closed"));
}

void FastLink::Abandon(uint64_t call, const absl::Status& reason) {
  std::optional<MadeCall> abandoned;
  bool never_sent;
  {
    MutexLock lock(calls_mutex_);
    const auto found = made_.find(call);
    if (found == made_.end()) return;
    abandoned = std::move(found->second);
    made_.erase(found);
    never_sent = delayed_.erase(call) > 0;
  }
  if (!never_sent) {
    Outgoing packet;
    packet.header.kind = PacketKind::kCancel;
    packet.header.call = call;
    Send(std::move(packet)).IgnoreError();  // it is short
    AbandonLoans(call);
  }
  Finish(*std::move(abandoned), reason);
}

void FastLink::Finish(MadeCall call, absl::StatusOr<WireBytes> reply) {
  if (call.timer) scheduler_->CancelTimer(*call.timer);
  const bool cancelled = call.cancellation != nullptr && call.cancellation->cancelled();
  if (call.on_cancel != nullptr) call.on_cancel->Release();
  if (reply.ok()) return std::move(call.done)(std::move(reply));
  absl::Status status = reply.status();
  if (absl::IsCancelled(status)) {
    status = cancelled ? call.cancellation->reason() : Derived(std::move(status));
  } else if (absl::IsUnavailable(status) && !cancelled) {
    status = CallFailed(status, call.who, call.path);
  }
  std::move(call.done)(std::move(status));
}

absl::Status FastLink::CheckSize(uint64_t size) const {
  if (size <= max_message_bytes_) return absl::OkStatus();
  // As gRPC says it.
  return absl::ResourceExhaustedError(
      absl::StrCat("Received message larger than max (", size, " vs. ", max_message_bytes_, ")"));
}

void FastLink::HandleReply(const PacketHeader& header, WireBytes bytes) {
  std::optional<MadeCall> call;
  {
    MutexLock lock(calls_mutex_);
    const auto found = made_.find(header.call);
    if (found == made_.end()) return;  // abandoned
    call = std::move(found->second);
    made_.erase(found);
  }
  if (absl::Status size = CheckSize(bytes.size_bytes()); !size.ok())
    return Finish(*std::move(call), std::move(size));
  if (header.code == 0) return Finish(*std::move(call), std::move(bytes));
  absl::Status status =
      StatusFromWire(header.code, bytes.pieces.empty() ? "" : bytes.pieces.front());
  if (bytes.pieces.size() > 1) AddPayloadsFromWire(bytes.pieces[1], status);
  Finish(*std::move(call), std::move(status));
}

void FastLink::HandleCall(const PacketHeader& header, WireBytes bytes) {
  FastCall call;
  bool too_many;
  {
    MutexLock lock(calls_mutex_);
    const auto found = served_.find(header.call);
    if (found == served_.end()) return;
    call.options.cancellation = found->second;
    // It goes at once, so that another thread does not refuse a call more.
    too_many = served_.size() > kMostServed;
    if (too_many) served_.erase(found);
  }
  if (too_many) {
    return SendReply(header.call,
                     absl::ResourceExhaustedError(absl::StrCat(
                         "More than ", kMostServed, " calls over a link wait for replies")));
  }
  call.options.peer = CallOptions::Peer::kMuster;
  call.options.caller = caller_;
  if (header.timeout_micros > 0) call.options.timeout = absl::Microseconds(header.timeout_micros);
  call.reply = [self = shared_from_this(), id = header.call](absl::StatusOr<WireMessage> reply) {
    self->Reply(id, std::move(reply));
  };
  if (serve_ == nullptr || bytes.pieces.empty())
    return std::move(call.reply)(Unimplemented("This end of a connection takes no calls"));
  if (absl::Status size = CheckSize(bytes.size_bytes()); !size.ok())
    return std::move(call.reply)(size);
  call.path = std::string(bytes.pieces.front());
  bytes.pieces.erase(bytes.pieces.begin());
  call.request = std::move(bytes);
  serve_(std::move(call));
}

void FastLink::Reply(uint64_t call, absl::StatusOr<WireMessage> reply) {
  {
    MutexLock lock(calls_mutex_);
    if (served_.erase(call) == 0) return;
  }
  SendReply(call, std::move(reply));
}

void FastLink::SendReply(uint64_t call, absl::StatusOr<WireMessage> reply) {
  Outgoing packet;
  packet.header.kind = PacketKind::kReply;
  packet.header.call = call;
  absl::Status status = reply.status();
  if (status.ok()) {
    packet.pieces = std::move(reply->pieces());
    status = Send(std::move(packet));
    if (status.ok()) return;
    packet = Outgoing();
    packet.header.kind = PacketKind::kReply;
    packet.header.call = call;
  }
  packet.header.code = static_cast<int32_t>(status.code());
  packet.pieces.push_back(
      {StatusTextFor(status, CallOptions::Peer::kMuster, /*in_body=*/false), Buffer()});
  packet.pieces.push_back({PayloadsToWire(status), Buffer()});
  Send(std::move(packet)).IgnoreError();  // it is short
}

void FastLink::SetSilence(absl::Duration ask_after, absl::Duration break_after) {
  ask_after_.store(absl::ToInt64Nanoseconds(ask_after));
  break_after_.store(absl::ToInt64Nanoseconds(break_after));
}

bool FastLink::IsWaited() const {
  {
    // The rest of a packet, whose memory is taken already.
    MutexLock lock(read_mutex_);
    if (header_read_ > 0) return true;
  }
  MutexLock lock(calls_mutex_);
  return !made_.empty() || !served_.empty();
}

void FastLink::CheckSilence() {
  constexpr int64_t kStoppedNanos = 3'000'000'000;
  const int64_t now = MonotonicNanos();
  const int64_t since_look = now - last_look_.exchange(now);
  // What is not read is not heard.
  if (heard_.exchange(false) || !IsWaited() || is_full()) {
    silent_since_.store(now);
    return;
  }
  // This process was stopped itself: what has come meanwhile was not read yet.
  if (since_look > kStoppedNanos) silent_since_.fetch_add(since_look);
  const int64_t silent = now - silent_since_.load();
  const int64_t break_after = break_after_.load();
  if (silent > break_after) {
    return Break(absl::StrCat("nothing came over the connection for ",
                              absl::FormatDuration(absl::Nanoseconds(break_after))));
  }
  if (silent < ask_after_.load()) return;
  MutexLock lock(write_mutex_);
  // What waits to be sent asks as well.
  if (!write_failed_ && queue_.empty()) WriteNumbersLocked(PacketKind::kPing, {}, {});
}

size_t FastLink::num_served() const {
  MutexLock lock(calls_mutex_);
  return served_.size();
}

void FastLink::CancelServed(const absl::Status& reason) {
  std::vector<std::shared_ptr<Cancellation>> served;
  {
    MutexLock lock(calls_mutex_);
    for (const auto& [id, cancellation] : served_) served.push_back(cancellation);
  }
  for (const auto& cancellation : served) cancellation->Cancel(reason);
}

void FastLink::Break(const std::string& why) {
  if (!open_.exchange(false, std::memory_order_acq_rel)) return;
  absl::flat_hash_map<uint64_t, Lent> lent;
  decltype(segments_) segments;
  decltype(unhandled_) unhandled;
  decltype(queue_) queue;
  {
    MutexLock read(read_mutex_);
    MutexLock write(write_mutex_);
    Poller::Global().Remove(number_, socket_);
    shutdown(socket_, SHUT_RDWR);  // a thread that sleeps in Sleep is woken
    close(socket_);
    socket_ = -1;
    write_failed_ = true;
    for (const Queued& queued : queue_)
      for (const int descriptor : queued.descriptors) close(descriptor);
    queue.swap(queue_);
    for (const int descriptor : descriptors_) close(descriptor);
    descriptors_.clear();
    for (const uint64_t segment : kept_) SharedMemory::Global().ReleasePages(segment);
    kept_.clear();
    lent.swap(lent_);
    segments.swap(segments_);
    unhandled.swap(unhandled_);
  }
  absl::flat_hash_map<uint64_t, MadeCall> made;
  decltype(delayed_) delayed;
  std::map<uint64_t, std::shared_ptr<Cancellation>> served;
  {
    MutexLock lock(calls_mutex_);
    made.swap(made_);
    delayed.swap(delayed_);
    served.swap(served_);
  }
  // The other side may live, and still read what it has received.
  if (scheduler_ != nullptr && (has_given_up_ || !other_has_gone_) && !lent.empty())
    scheduler_->ScheduleAfter(kKeepLentFor, [kept = std::move(lent)] {});
  for (auto& [id, call] : made) Finish(std::move(call), absl::UnavailableError(why));
  const absl::Status gone = absl::UnavailableError("The connection of the caller has ended");
  for (const auto& [id, cancellation] : served) cancellation->Cancel(gone);
}

}  // namespace muster::fast
