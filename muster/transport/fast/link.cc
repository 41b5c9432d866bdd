#include "muster/transport/fast/link.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "absl/time/clock.h"
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "muster/transport/messages/methods.h"
#include "muster/transport/status_proto.h"
#include "muster/transport/waiter.h"

namespace muster::fast {
namespace {

// Memory that cannot be shown is copied to where it can, unless the socket is as quick.
constexpr size_t kCopyFromBytes = 64 << 10;
// Loans that are this large are given back at once, others with what is sent next.
constexpr size_t kReleaseAtOnceBytes = 64 << 10;
constexpr size_t kMaxReleases = 64;
// So much may wait for a process that does not read.
constexpr size_t kMaxQueuedBytes = size_t{256} << 20;
constexpr uint64_t kMaxBodyBytes = uint64_t{2} << 30;
constexpr size_t kStagingBytes = 64 << 10;
constexpr size_t kMaxParts = 512;

template <typename T>
absl::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

absl::Status SocketClosed() {
  return absl::UnavailableError("Socket closed");
}

// A part of SharedMemory.
class SharedRegion : public Region {
 public:
  SharedRegion(void* base, size_t size_bytes) : Region(base, size_bytes, MemoryKind::kSharedHost) {}
  ~SharedRegion() override { SharedMemory::Global().Free(base_, size_bytes_); }
};

// A copy that can be shown; the buffer itself when there is no memory for one.
Buffer CopyToShare(const Buffer& buffer) {
  void* const block = SharedMemory::Global().Allocate(buffer.length_bytes());
  if (block == nullptr) return buffer;
  std::memcpy(block, buffer.data(), buffer.length_bytes());
  return Buffer(MakeRef<SharedRegion>(block, buffer.length_bytes()), 0, buffer.length_bytes());
}

size_t RoundUp(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

// What a message that was received rests on.
struct Link::Loans {
  ~Loans() {
    if (!loans.empty()) link->Release(std::move(loans), bytes);
  }
  std::shared_ptr<Link> link;
  Buffer body;
  std::vector<std::shared_ptr<const SharedMapping>> mappings;
  std::vector<uint64_t> loans;
  size_t bytes = 0;
};

std::shared_ptr<Link> Link::Create(int socket, ServeCall serve, Scheduler* scheduler,
                                   size_t max_message_bytes) {
  std::shared_ptr<Link> link(new Link(socket, std::move(serve), scheduler, max_message_bytes));
  Poller& poller = Poller::Global();
  link->number_ = poller.Add(link);
  poller.Watch(link->number_, socket, /*for_writing=*/false, /*first=*/true);
  return link;
}

Link::~Link() {
  Break("Socket closed");
}

// ---- calls ----

void Link::Call(std::string path, std::string who, CallOptions options, WireMessage request,
                Channel::Done done) {
  Outgoing frame;
  frame.header.kind = FrameKind::kCall;
  if (options.timeout < absl::InfiniteDuration())
    frame.header.timeout_micros = std::max<int64_t>(1, absl::ToInt64Microseconds(options.timeout));
  frame.pieces.push_back({path, Buffer()});
  for (WireMessage::Piece& piece : request.pieces()) frame.pieces.push_back(std::move(piece));
  const std::shared_ptr<Cancellation> cancellation = options.cancellation;
  const Cancellation::Token token = cancellation == nullptr ? 0 : cancellation->NewToken();
  uint64_t id;
  {
    MutexLock lock(calls_mutex_);
    id = ++last_call_;
    MadeCall& call = made_[id];
    call.done = std::move(done);
    call.path = std::move(path);
    call.who = std::move(who);
    call.cancellation = cancellation;
    call.token = token;
  }
  if (cancellation != nullptr) {
    // Only scheduled: the end of the call takes the callback back, perhaps because of it.
    const bool registered = cancellation->Register(
        token, [weak = weak_from_this(), id, scheduler = scheduler_, &reasons = *cancellation] {
          scheduler->Schedule([weak, id, reason = reasons.reason()] {
            if (const auto self = weak.lock()) self->Abandon(id, reason);
          });
        });
    if (!registered) return Abandon(id, cancellation->reason());
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
  frame.header.call = id;
  Waiter::NoteCall(weak_from_this());
  Send(std::move(frame));
  // It may have broken before the call was in the table.
  if (!is_open()) Abandon(id, SocketClosed());
}

void Link::Abandon(uint64_t call, const absl::Status& reason) {
  std::optional<MadeCall> abandoned;
  {
    MutexLock lock(calls_mutex_);
    const auto found = made_.find(call);
    if (found == made_.end()) return;
    abandoned = std::move(found->second);
    made_.erase(found);
  }
  Outgoing frame;
  frame.header.kind = FrameKind::kCancel;
  frame.header.call = call;
  Send(std::move(frame));
  Finish(*std::move(abandoned), reason);
}

void Link::Finish(MadeCall call, absl::StatusOr<WireBytes> reply) {
  if (call.timer) scheduler_->CancelTimer(*call.timer);
  const bool cancelled = call.cancellation != nullptr && call.cancellation->cancelled();
  // Once it is cancelled the callback has run or is running, perhaps below us on this thread.
  if (call.cancellation != nullptr && !cancelled) call.cancellation->Deregister(call.token);
  if (reply.ok()) return std::move(call.done)(std::move(reply));
  absl::Status status = reply.status();
  if (absl::IsCancelled(status)) {
    status = cancelled ? call.cancellation->reason() : Derived(std::move(status));
  } else if (absl::IsUnavailable(status) && !cancelled) {
    status = CallFailed(status, call.who, call.path);
  }
  std::move(call.done)(std::move(status));
}

absl::Status Link::CheckSize(const WireBytes& bytes) const {
  const size_t size = bytes.size_bytes();
  if (size <= max_message_bytes_) return absl::OkStatus();
  // As gRPC says it.
  return absl::ResourceExhaustedError(
      absl::StrCat("Received message larger than max (", size, " vs. ", max_message_bytes_, ")"));
}

void Link::HandleReply(const FrameHeader& header, WireBytes bytes) {
  std::optional<MadeCall> call;
  {
    MutexLock lock(calls_mutex_);
    const auto found = made_.find(header.call);
    if (found == made_.end()) return;  // abandoned
    call = std::move(found->second);
    made_.erase(found);
  }
  if (absl::Status size = CheckSize(bytes); !size.ok())
    return Finish(*std::move(call), std::move(size));
  if (header.code == 0) return Finish(*std::move(call), std::move(bytes));
  absl::Status status =
      StatusFromWire(header.code, bytes.pieces.empty() ? "" : bytes.pieces.front());
  if (bytes.pieces.size() > 1) AddPayloadsFromWire(bytes.pieces[1], status);
  Finish(*std::move(call), std::move(status));
}

void Link::HandleCall(const FrameHeader& header, WireBytes bytes) {
  LinkCall call;
  {
    MutexLock lock(calls_mutex_);
    const auto found = served_.find(header.call);
    if (found == served_.end()) return;
    call.options.cancellation = found->second;
  }
  call.options.peer = CallOptions::Peer::kMuster;
  call.options.connection = connection_;
  if (header.timeout_micros > 0) call.options.timeout = absl::Microseconds(header.timeout_micros);
  call.reply = [self = shared_from_this(), id = header.call](absl::StatusOr<WireMessage> reply) {
    self->Reply(id, std::move(reply));
  };
  if (serve_ == nullptr || bytes.pieces.empty())
    return std::move(call.reply)(Unimplemented("This end of a connection takes no calls"));
  if (absl::Status size = CheckSize(bytes); !size.ok()) return std::move(call.reply)(size);
  call.path = std::string(bytes.pieces.front());
  bytes.pieces.erase(bytes.pieces.begin());
  call.request = std::move(bytes);
  serve_(std::move(call));
}

void Link::Reply(uint64_t call, absl::StatusOr<WireMessage> reply) {
  {
    MutexLock lock(calls_mutex_);
    if (served_.erase(call) == 0) return;
  }
  Outgoing frame;
  frame.header.kind = FrameKind::kReply;
  frame.header.call = call;
  if (reply.ok()) {
    frame.pieces = std::move(reply->pieces());
  } else {
    frame.header.code = static_cast<int32_t>(reply.status().code());
    frame.pieces.push_back(
        {StatusTextFor(reply.status(), CallOptions::Peer::kMuster, /*in_body=*/false), Buffer()});
    frame.pieces.push_back({PayloadsToWire(reply.status()), Buffer()});
  }
  Send(std::move(frame));
}

size_t Link::num_served() const {
  MutexLock lock(calls_mutex_);
  return served_.size();
}

void Link::CancelServed(const absl::Status& reason) {
  std::vector<std::shared_ptr<Cancellation>> served;
  {
    MutexLock lock(calls_mutex_);
    for (const auto& [id, cancellation] : served_) served.push_back(cancellation);
  }
  for (const auto& cancellation : served) cancellation->Cancel(reason);
}

void Link::Break(const std::string& why) {
  if (!open_.exchange(false, std::memory_order_acq_rel)) return;
  absl::flat_hash_map<uint64_t, Buffer> lent;
  decltype(segments_) segments;
  decltype(unhandled_) unhandled;
  {
    MutexLock read(read_mutex_);
    MutexLock write(write_mutex_);
    Poller::Global().Remove(number_, socket_);
    shutdown(socket_, SHUT_RDWR);  // whoever waits for it in ReadUntil is woken
    close(socket_);
    socket_ = -1;
    write_failed_ = true;
    for (const Queued& queued : queue_)
      for (const int descriptor : queued.descriptors) close(descriptor);
    queue_.clear();
    for (const int descriptor : descriptors_) close(descriptor);
    descriptors_.clear();
    lent.swap(lent_);
    segments.swap(segments_);
    unhandled.swap(unhandled_);
  }
  absl::flat_hash_map<uint64_t, MadeCall> made;
  std::map<uint64_t, std::shared_ptr<Cancellation>> served;
  {
    MutexLock lock(calls_mutex_);
    made.swap(made_);
    served.swap(served_);
  }
  for (auto& [id, call] : made) Finish(std::move(call), absl::UnavailableError(why));
  const absl::Status gone = absl::UnavailableError("The connection of the caller has ended");
  for (const auto& [id, cancellation] : served) cancellation->Cancel(gone);
  connection_->Cancel(gone);
}

// ---- what goes out ----

void Link::Send(Outgoing frame) {
  std::vector<std::optional<SharedMemory::Place>> places(frame.pieces.size());
  for (size_t i = 0; i < frame.pieces.size(); ++i) {
    Buffer& buffer = frame.pieces[i].buffer;
    if (!buffer || buffer.length_bytes() < kSharedFromBytes) continue;
    places[i] = SharedMemory::Global().Find(buffer.data());
    if (places[i] || buffer.length_bytes() < kCopyFromBytes) continue;
    buffer = CopyToShare(buffer);
    places[i] = SharedMemory::Global().Find(buffer.data());
  }
  std::vector<PieceEntry> table(frame.pieces.size());
  std::vector<absl::string_view> parts;
  absl::flat_hash_set<uint64_t> segments;
  static constexpr char kGap[kBufferAlignment] = {};
  uint64_t at = table.size() * sizeof(PieceEntry);
  for (size_t i = 0; i < table.size(); ++i) {
    const WireMessage::Piece& piece = frame.pieces[i];
    table[i].length = piece.size();
    if (places[i]) {
      table[i].segment = places[i]->segment;
      table[i].offset = places[i]->offset;
      segments.insert(places[i]->segment);
      continue;
    }
    if (piece.size() >= kSharedFromBytes) {
      const uint64_t aligned = RoundUp(at, kBufferAlignment);
      if (aligned > at) parts.emplace_back(kGap, aligned - at);
      at = aligned;
    }
    table[i].offset = at;
    at += piece.size();
    if (piece.size() == 0) continue;
    parts.push_back(piece.buffer ? absl::string_view(piece.buffer.data(), piece.size())
                                 : absl::string_view(piece.text));
  }
  frame.header.num_pieces = static_cast<uint32_t>(table.size());
  frame.header.body_bytes = at;
  MutexLock lock(write_mutex_);
  if (write_failed_) return;
  ForgetSegmentsLocked();
  ShowSegmentsLocked(segments);
  SendReleasesLocked();
  for (size_t i = 0; i < table.size(); ++i) {
    if (!places[i]) continue;
    table[i].loan = ++last_loan_;
    lent_.emplace(last_loan_, frame.pieces[i].buffer);
  }
  std::string head(BytesOf(frame.header));
  head.append(reinterpret_cast<const char*>(table.data()), table.size() * sizeof(PieceEntry));
  WriteLocked(head, parts, {});
}

void Link::WriteNumbersLocked(FrameKind kind, absl::Span<const uint64_t> numbers,
                              std::vector<int> descriptors) {
  FrameHeader header;
  header.kind = kind;
  header.body_bytes = numbers.size() * sizeof(uint64_t);
  const absl::string_view body(reinterpret_cast<const char*>(numbers.data()), header.body_bytes);
  WriteLocked(BytesOf(header), {body}, std::move(descriptors));
}

void Link::ShowSegmentsLocked(const absl::flat_hash_set<uint64_t>& segments) {
  std::vector<uint64_t> numbers_and_sizes;
  std::vector<int> descriptors;
  const auto show = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) {
    if (descriptors.empty()) return;
    WriteNumbersLocked(FrameKind::kSegments, numbers_and_sizes, std::move(descriptors));
    numbers_and_sizes.clear();
    descriptors.clear();
  };
  for (const uint64_t segment : segments) {
    if (!shown_.insert(segment).second) continue;
    const absl::StatusOr<SharedMemory::Opened> opened = SharedMemory::Global().Open(segment);
    if (!opened.ok()) return FailWritingLocked();
    numbers_and_sizes.push_back(segment);
    numbers_and_sizes.push_back(opened->size_bytes);
    descriptors.push_back(opened->descriptor);
    if (descriptors.size() == kMaxSegmentsAtOnce) show();
  }
  show();
}

void Link::ForgetSegmentsLocked() {
  const uint64_t returned = SharedMemory::Global().num_returned();
  if (returned == returned_seen_) return;
  returned_seen_ = returned;
  std::vector<uint64_t> gone;
  for (const uint64_t segment : shown_)
    if (!SharedMemory::Global().Has(segment)) gone.push_back(segment);
  if (gone.empty()) return;
  for (const uint64_t segment : gone) shown_.erase(segment);
  WriteNumbersLocked(FrameKind::kForget, gone, {});
}

void Link::SendReleasesLocked() {
  if (releases_.empty()) return;
  const std::vector<uint64_t> releases = std::exchange(releases_, {});
  WriteNumbersLocked(FrameKind::kRelease, releases, {});
}

void Link::Release(std::vector<uint64_t> loans, size_t bytes) {
  MutexLock lock(write_mutex_);
  if (write_failed_) return;
  releases_.insert(releases_.end(), loans.begin(), loans.end());
  if (bytes >= kReleaseAtOnceBytes || releases_.size() >= kMaxReleases) SendReleasesLocked();
}

void Link::FailWritingLocked() {
  if (write_failed_) return;
  write_failed_ = true;
  // Whoever reads finds the end.
  if (socket_ >= 0) shutdown(socket_, SHUT_RDWR);
}

namespace {

// How much the system took; nothing when it is full; negative: the socket is broken.
ssize_t SendParts(int socket, std::vector<iovec>& parts, absl::Span<const int> descriptors) {
  msghdr message = {};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxSegmentsAtOnce * sizeof(int))];
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : sent;
}

void CloseAll(std::vector<int>& descriptors) {
  for (const int descriptor : descriptors) close(descriptor);
  descriptors.clear();
}

}  // namespace

void Link::WriteLocked(absl::string_view head, absl::Span<const absl::string_view> parts,
                       std::vector<int> descriptors) {
  if (write_failed_) return CloseAll(descriptors);
  std::string flat;  // where there are too many parts
  absl::string_view joined[1];
  if (parts.size() > kMaxParts) {
    for (const absl::string_view part : parts) flat.append(part.data(), part.size());
    joined[0] = flat;
    parts = joined;
  }
  size_t sent = 0;
  if (queue_.empty()) {
    std::vector<iovec> vectors;
    vectors.reserve(parts.size() + 1);
    vectors.push_back({const_cast<char*>(head.data()), head.size()});
    for (const absl::string_view part : parts)
      vectors.push_back({const_cast<char*>(part.data()), part.size()});
    const ssize_t result = SendParts(socket_, vectors, descriptors);
    if (result < 0) {
      CloseAll(descriptors);
      return FailWritingLocked();
    }
    sent = static_cast<size_t>(result);
    if (sent > 0) CloseAll(descriptors);
  }
  Queued rest;
  const auto keep = [&rest, &sent](absl::string_view part) {
    const size_t skipped = std::min(sent, part.size());
    sent -= skipped;
    rest.bytes.append(part.data() + skipped, part.size() - skipped);
  };
  keep(head);
  for (const absl::string_view part : parts) keep(part);
  if (rest.bytes.empty()) return;
  rest.descriptors = std::move(descriptors);
  queued_bytes_ += rest.bytes.size();
  const bool is_first = queue_.empty();
  queue_.push_back(std::move(rest));
  if (queued_bytes_ > kMaxQueuedBytes) return FailWritingLocked();
  if (is_first) Poller::Global().Watch(number_, socket_, /*for_writing=*/true);
}

void Link::FlushLocked() {
  while (!queue_.empty() && !write_failed_) {
    Queued& first = queue_.front();
    std::vector<iovec> vectors = {
        {first.bytes.data() + first.sent, first.bytes.size() - first.sent}};
    const ssize_t result = SendParts(socket_, vectors, first.descriptors);
    if (result < 0) return FailWritingLocked();
    if (result == 0) return;
    CloseAll(first.descriptors);
    first.sent += static_cast<size_t>(result);
    queued_bytes_ -= static_cast<size_t>(result);
    if (first.sent == first.bytes.size()) queue_.pop_front();
  }
}

// ---- what comes in ----

void Link::Ready() {
  absl::Status status;
  bool needs_help;
  {
    MutexLock lock(read_mutex_);
    if (socket_ < 0) return;
    status = ReadLocked(unhandled_);
    // A call may keep this thread for long; what came behind it should not wait.
    needs_help = unhandled_.size() > 1 &&
                 std::any_of(unhandled_.begin(), unhandled_.end() - 1, [](const Received& frame) {
                   return frame.header.kind == FrameKind::kCall;
                 });
  }
  {
    MutexLock lock(write_mutex_);
    if (socket_ < 0) return;
    FlushLocked();
    // A socket that can be written to wakes another thread at once.
    if (status.ok()) Poller::Global().Watch(number_, socket_, !queue_.empty() || needs_help);
  }
  while (std::optional<Received> frame = TakeUnhandled()) Handle(*std::move(frame));
  if (!status.ok()) Break(std::string(status.message()));
}

bool Link::ReadUntil(absl::FunctionRef<bool()> done, int event, absl::Time until) {
  if (has_reader_.exchange(true)) return false;
  while (!done() && is_open() && absl::Now() < until) {
    int socket;
    {
      MutexLock lock(write_mutex_);
      if (socket_ < 0) break;
      // The threads of the poller sleep on.
      Poller::Global().Pause(number_, socket_);
      socket = socket_;
    }
    pollfd waited[] = {{socket, POLLIN | POLLRDHUP, 0}, {event, POLLIN, 0}};
    const int64_t left_nanos = absl::ToInt64Nanoseconds(until - absl::Now());
    const timespec timeout = {left_nanos / 1'000'000'000, left_nanos % 1'000'000'000};
    if (left_nanos <= 0 || ppoll(waited, 2, &timeout, nullptr) <= 0) continue;
    uint64_t count;
    if (waited[1].revents != 0 && read(event, &count, sizeof(count)) < 0) break;
    if (waited[0].revents != 0) Ready();
  }
  has_reader_.store(false);
  MutexLock lock(write_mutex_);
  if (socket_ >= 0) Poller::Global().Watch(number_, socket_, !queue_.empty());
  return true;
}

std::optional<Link::Received> Link::TakeUnhandled() {
  MutexLock lock(read_mutex_);
  if (unhandled_.empty()) return std::nullopt;
  Received frame = std::move(unhandled_.front());
  unhandled_.pop_front();
  return frame;
}

absl::StatusOr<size_t> Link::ReceiveLocked(char* to, size_t size) {
  iovec vector = {to, size};
  msghdr message = {};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxSegmentsAtOnce * sizeof(int))];
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t received;
  do {
    received = recvmsg(socket_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return size_t{0};
  for (cmsghdr* header = received < 0 ? nullptr : CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int descriptor;
      std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      descriptors_.push_back(descriptor);
    }
  }
  if (received <= 0) return SocketClosed();
  if (descriptors_.size() > kMaxSegmentsAtOnce)
    return InvalidArgument("more descriptors came than were announced");
  return static_cast<size_t>(received);
}

absl::Status Link::ReadLocked(std::deque<Received>& frames) {
  thread_local const std::unique_ptr<char[]> staging(new char[kStagingBytes]);
  // Others want their turn too; what is left is still there.
  constexpr int kMaxReads = 64;
  for (int i = 0; i < kMaxReads; ++i) {
    const bool in_body = header_read_ == sizeof(FrameHeader);
    const size_t missing = in_body ? header_.body_bytes - body_read_ : 0;
    if (missing >= kStagingBytes) {
      ASSIGN_OR_RETURN(const size_t received, ReceiveLocked(body_.data() + body_read_, missing));
      if (received == 0) return absl::OkStatus();
      body_read_ += received;
      if (received == missing) RETURN_IF_ERROR(FrameReadLocked(frames));
      continue;
    }
    ASSIGN_OR_RETURN(const size_t received, ReceiveLocked(staging.get(), kStagingBytes));
    if (received == 0) return absl::OkStatus();
    RETURN_IF_ERROR(TakeBytesLocked({staging.get(), received}, frames));
    if (received < kStagingBytes) return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status Link::TakeBytesLocked(absl::string_view bytes, std::deque<Received>& frames) {
  while (!bytes.empty()) {
    if (header_read_ < sizeof(FrameHeader)) {
      const size_t taken = std::min(bytes.size(), sizeof(FrameHeader) - header_read_);
      std::memcpy(reinterpret_cast<char*>(&header_) + header_read_, bytes.data(), taken);
      header_read_ += taken;
      bytes.remove_prefix(taken);
      if (header_read_ < sizeof(FrameHeader)) return absl::OkStatus();
      RETURN_IF_ERROR(CheckHeader(header_, kMaxBodyBytes));
      body_read_ = 0;
      body_ = HostAllocator().Allocate(std::max<size_t>(header_.body_bytes, 1));
      if (!body_) {
        return absl::ResourceExhaustedError(
            absl::StrCat("no memory for a frame of ", header_.body_bytes, " bytes"));
      }
    }
    const size_t taken = std::min(bytes.size(), header_.body_bytes - body_read_);
    if (taken > 0) std::memcpy(body_.data() + body_read_, bytes.data(), taken);
    body_read_ += taken;
    bytes.remove_prefix(taken);
    if (body_read_ == header_.body_bytes) RETURN_IF_ERROR(FrameReadLocked(frames));
  }
  return absl::OkStatus();
}

// Segments and calls are known before anybody can say that they are gone.
absl::Status Link::FrameReadLocked(std::deque<Received>& frames) {
  header_read_ = 0;
  Frame frame{header_, std::move(body_)};
  body_ = Buffer();
  Received received;
  received.header = frame.header;
  switch (frame.header.kind) {
    case FrameKind::kSegments:
      return MapSegmentsLocked(frame.numbers());
    case FrameKind::kForget:
      for (const uint64_t segment : frame.numbers()) segments_.erase(segment);
      return absl::OkStatus();
    case FrameKind::kRelease: {
      const auto numbers = frame.numbers();
      received.numbers.assign(numbers.begin(), numbers.end());
      break;
    }
    case FrameKind::kCall: {
      MutexLock lock(calls_mutex_);
      const bool added =
          served_.emplace(frame.header.call, std::make_shared<Cancellation>()).second;
      if (!added) return InvalidArgument("call ", frame.header.call, " was made twice");
      [[fallthrough]];
    }
    case FrameKind::kReply:
    case FrameKind::kCancel: {
      ASSIGN_OR_RETURN(received.bytes, BytesOfLocked(std::move(frame)));
      break;
    }
  }
  frames.push_back(std::move(received));
  return absl::OkStatus();
}

absl::Status Link::MapSegmentsLocked(absl::Span<const uint64_t> numbers_and_sizes) {
  if (numbers_and_sizes.size() % 2 != 0 || numbers_and_sizes.size() / 2 > descriptors_.size())
    return InvalidArgument("segments came without descriptors");
  for (size_t i = 0; i < numbers_and_sizes.size(); i += 2) {
    const int descriptor = descriptors_.front();
    descriptors_.pop_front();
    ASSIGN_OR_RETURN(SharedMapping mapping,
                     SharedMapping::Map(descriptor, numbers_and_sizes[i + 1]));
    segments_[numbers_and_sizes[i]] = std::make_shared<const SharedMapping>(std::move(mapping));
  }
  return absl::OkStatus();
}

absl::StatusOr<WireBytes> Link::BytesOfLocked(Frame frame) {
  auto owner = std::make_shared<Loans>();
  owner->link = shared_from_this();
  const auto find = [&](const PieceEntry& piece)
                        ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_) -> const char* {
    const auto found = segments_.find(piece.segment);
    if (found == segments_.end()) return nullptr;
    const std::shared_ptr<const SharedMapping>& mapping = found->second;
    if (piece.offset > mapping->size_bytes() || piece.length > mapping->size_bytes() - piece.offset)
      return nullptr;
    owner->mappings.push_back(mapping);
    owner->loans.push_back(piece.loan);
    owner->bytes += piece.length;
    return mapping->data() + piece.offset;
  };
  WireBytes bytes;
  ASSIGN_OR_RETURN(bytes.pieces, PiecesOf(frame, find));
  owner->body = std::move(frame.body);
  bytes.owner = std::move(owner);
  return bytes;
}

void Link::Handle(Received frame) {
  switch (frame.header.kind) {
    case FrameKind::kCall:
      return HandleCall(frame.header, std::move(frame.bytes));
    case FrameKind::kReply:
      return HandleReply(frame.header, std::move(frame.bytes));
    case FrameKind::kRelease:
      return HandleRelease(frame.numbers);
    case FrameKind::kCancel: {
      std::shared_ptr<Cancellation> call;
      {
        MutexLock lock(calls_mutex_);
        const auto found = served_.find(frame.header.call);
        if (found != served_.end()) call = found->second;
      }
      if (call != nullptr)
        call->Cancel(absl::CancelledError("The call was cancelled by the caller"));
      return;
    }
    case FrameKind::kSegments:
    case FrameKind::kForget:
      return;  // done when they were read
  }
}

void Link::HandleRelease(absl::Span<const uint64_t> loans) {
  std::vector<Buffer> returned;
  MutexLock lock(write_mutex_);
  for (const uint64_t loan : loans) {
    const auto found = lent_.find(loan);
    if (found == lent_.end()) continue;
    returned.push_back(std::move(found->second));
    lent_.erase(found);
  }
}

}  // namespace muster::fast
