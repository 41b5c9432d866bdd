// What a link receives.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "absl/time/clock.h"
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "muster/tensor/memory_guard.h"
#include "muster/tensor/unused_memory.h"
#include "muster/transport/fast/fast_link.h"

namespace muster::fast {
namespace {

constexpr uint64_t kMaxBodyBytes = uint64_t{2} << 30;
// Over the network all of a message is in the body.
constexpr uint64_t kMaxNetworkBodyBytes = uint64_t{1} << 40;
constexpr size_t kStagingBytes = 64 << 10;
// A thread that handles what it reads so quickly may read on by itself.
constexpr int64_t kQuickHandleNanos = 200'000;
constexpr int64_t kMuchTooLongNanos = 300'000'000;

size_t TableBytes(const PacketHeader& header) {
  return header.num_pieces * sizeof(PieceEntry);
}

// Null where there is no memory for it. Short ones are not asked about, as those over gRPC.
Buffer MakeBody(uint64_t bytes) {
  std::optional<MustHaveMemory> must;
  if (bytes < kLargeUseBytes) must.emplace();
  return HostAllocator().Allocate(std::max<size_t>(bytes, 1));
}

}  // namespace

// The loans that back a received message.
struct FastLink::Loans {
  ~Loans() {
    if (!loans.empty()) link->Release(std::move(loans), bytes);
  }
  std::shared_ptr<FastLink> link;
  Buffer body;
  std::vector<std::shared_ptr<const SharedMapping>> mappings;
  std::vector<uint64_t> loans;
  size_t bytes = 0;
};

void FastLink::Ready() {
  const int64_t idle_since = idle_since_.exchange(0, std::memory_order_relaxed);
  if (idle_since != 0) calls_pace_.NoteSleep(absl::GetCurrentTimeNanos() - idle_since);
  const auto watch = [this] { Watch(); };
  Duty duty(watch);
  do {
    const int64_t begin = absl::GetCurrentTimeNanos();
    // Packets that arrive while this thread works for long should not wait for its end.
    const int until_trusted = handles_until_trusted_.load(std::memory_order_relaxed);
    if (until_trusted == 0) unwatched_since_.store(begin, std::memory_order_relaxed);
    ReadAndHandle(/*hand_over=*/until_trusted > 0);
    unwatched_since_.store(0, std::memory_order_relaxed);
    duty.DropKept();
    const int64_t end = absl::GetCurrentTimeNanos();
    idle_since_.store(end, std::memory_order_relaxed);
    if (end - begin > kQuickHandleNanos) {
      handles_until_trusted_.store(kQuickToBeTrusted, std::memory_order_relaxed);
    } else if (until_trusted > 0) {
      handles_until_trusted_.store(until_trusted - 1, std::memory_order_relaxed);
    }
    if (duty.is_handed_over()) {
      if (!calls_pace_.is_quick() || !Pause()) return;
      duty.TakeBack();
    }
  } while (SpinForPacket());
  WaitingThread::Current().HandOver();
}

void FastLink::Tick() {
  if (reach_ == Reach::kNetwork && is_open()) CheckSilence();
  {
    MutexLock lock(write_mutex_);
    // The other side's pages go with its mapping only.
    if (!write_failed_) ForgetSegmentsLocked();
  }
  // Something that was always quick is not: others go on.
  const int64_t since = unwatched_since_.load(std::memory_order_relaxed);
  if (since != 0 && absl::GetCurrentTimeNanos() - since > kMuchTooLongNanos)
    Watch(/*unless_read=*/false);
}

void FastLink::Watch(bool unless_read) {
  bool needs_help;
  {
    MutexLock lock(read_mutex_);
    needs_help = !unhandled_.empty();
  }
  MutexLock lock(write_mutex_);
  // A thread that has claimed the link reads it itself, but only what is still in the socket.
  if (socket_ < 0 || (unless_read && has_reader_.load() && !needs_help)) return;
  if (is_full()) return Poller::Global().WatchForWriting(number_, socket_);
  // A socket that can be written to wakes another thread at once.
  Poller::Global().Watch(number_, socket_, !queue_.empty() || needs_help);
}

bool FastLink::Pause() {
  MutexLock lock(write_mutex_);
  if (socket_ < 0 || !queue_.empty()) return false;
  Poller::Global().Pause(number_, socket_);
  return true;
}

bool FastLink::Look() {
  MutexLock lock(read_mutex_);
  if (socket_ < 0) return true;
  if (unhandled_.empty() && read_status_.ok()) read_status_ = ReadLocked(unhandled_);
  return !unhandled_.empty() || !read_status_.ok();
}

bool FastLink::SpinForPacket() {
  if (!is_open() || is_full()) return false;
  bool has_spun = false;
  const bool came = WaitingThread::Spin(calls_pace_, [this, &has_spun] {
    has_spun = true;
    if (has_reader_.load(std::memory_order_relaxed)) return WaitingThread::Seen::kStop;
    return Look() ? WaitingThread::Seen::kWork : WaitingThread::Seen::kNothing;
  });
  // The pace knows; otherwise it learns from how long the poller sleeps.
  if (has_spun && !came) idle_since_.store(0, std::memory_order_relaxed);
  return came;
}

void FastLink::ReadAndHandle(bool hand_over) {
  absl::Status status;
  {
    MutexLock lock(read_mutex_);
    if (socket_ < 0) return;
    // A thread that has looked before has read already.
    if (unhandled_.empty() && read_status_.ok()) read_status_ = ReadLocked(unhandled_);
    status = read_status_;
  }
  {
    MutexLock lock(write_mutex_);
    if (socket_ < 0) return;
    FlushLocked();
  }
  {
    // Answers to these packets may be sent together.
    const Turn turn;
    std::optional<Received> packet = TakeUnhandled();
    if (hand_over) WaitingThread::Current().HandOver();
    for (; packet; packet = TakeUnhandled()) Handle(*std::move(packet));
  }
  if (!status.ok()) Break(std::string(status.message()));
}

bool FastLink::Claim() {
  if (!is_open() || has_reader_.exchange(true)) return false;
  MutexLock lock(write_mutex_);
  // The threads of the poller sleep on.
  if (socket_ >= 0) Poller::Global().Pause(number_, socket_);
  return true;
}

void FastLink::GiveBack() {
  has_reader_.store(false);
  Watch();
}

bool FastLink::Serve() {
  unwatched_since_.store(absl::GetCurrentTimeNanos(), std::memory_order_relaxed);
  ReadAndHandle(/*hand_over=*/false);
  unwatched_since_.store(0, std::memory_order_relaxed);
  return is_open();
}

bool FastLink::Sleep(WaitingThread& thread, int64_t nanos) {
  pollfd socket = {-1, POLLIN | POLLRDHUP, 0};
  {
    MutexLock lock(write_mutex_);
    if (socket_ < 0) return true;
    socket.fd = socket_;
    if (!queue_.empty()) socket.events |= POLLOUT;
  }
  if (!thread.Poll(absl::MakeSpan(&socket, 1), nanos) || (socket.revents & POLLOUT) == 0)
    return true;
  MutexLock lock(write_mutex_);
  if (socket_ >= 0) FlushLocked();
  return true;
}

bool FastLink::TryBeginSpin() {
  {
    // A sleeping thread is woken when more can be written.
    MutexLock lock(write_mutex_);
    if (!queue_.empty()) return false;
  }
  return WorkSource::TryBeginSpin();
}

std::optional<FastLink::Received> FastLink::TakeUnhandled() {
  MutexLock lock(read_mutex_);
  if (unhandled_.empty() || is_full()) return std::nullopt;
  Received packet = std::move(unhandled_.front());
  unhandled_.pop_front();
  return packet;
}

absl::StatusOr<size_t> FastLink::ReceiveLocked(char* to, size_t size) {
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
  if (received <= 0) {
    other_has_gone_.store(true);
    return absl::UnavailableError("Socket closed");
  }
  if (descriptors_.size() > kMaxSegmentsAtOnce)
    return InvalidArgument("more descriptors came than were announced");
  if (reach_ == Reach::kNetwork) heard_.store(true, std::memory_order_relaxed);
  return static_cast<size_t>(received);
}

absl::Status FastLink::ReadLocked(std::deque<Received>& packets) {
  if (is_full()) return absl::OkStatus();
  thread_local const std::unique_ptr<char[]> staging(new char[kStagingBytes]);
  // Others want their turn too; what is left is still there.
  constexpr int kMaxReads = 64;
  for (int i = 0; i < kMaxReads; ++i) {
    const bool in_body = header_read_ == sizeof(PacketHeader);
    const size_t missing = in_body ? header_.body_bytes - body_read_ : 0;
    if (missing >= kStagingBytes && body_lack_.ok()) {
      ASSIGN_OR_RETURN(const size_t received, ReceiveLocked(body_.data() + body_read_, missing));
      if (received == 0) return absl::OkStatus();
      body_read_ += received;
      if (received == missing) RETURN_IF_ERROR(PacketReadLocked(packets));
      continue;
    }
    ASSIGN_OR_RETURN(const size_t received, ReceiveLocked(staging.get(), kStagingBytes));
    if (received == 0) return absl::OkStatus();
    RETURN_IF_ERROR(TakeBytesLocked({staging.get(), received}, packets));
    if (received < kStagingBytes) return absl::OkStatus();
  }
  return absl::OkStatus();
}

// Before there is memory for it: what a message lends is not in its body, what it sends is.
absl::Status FastLink::CheckBodySize(const PacketHeader& header) const {
  if (reach_ == Reach::kMachine) return absl::OkStatus();
  const uint64_t beside = TableBytes(header) + header.num_pieces * kBufferAlignment;
  return header.body_bytes <= beside ? absl::OkStatus() : CheckSize(header.body_bytes - beside);
}

absl::Status FastLink::TakeBytesLocked(absl::string_view bytes, std::deque<Received>& packets) {
  while (!bytes.empty()) {
    if (header_read_ < sizeof(PacketHeader)) {
      const size_t taken = std::min(bytes.size(), sizeof(PacketHeader) - header_read_);
      std::memcpy(reinterpret_cast<char*>(&header_) + header_read_, bytes.data(), taken);
      header_read_ += taken;
      bytes.remove_prefix(taken);
      if (header_read_ < sizeof(PacketHeader)) return absl::OkStatus();
      RETURN_IF_ERROR(
          CheckHeader(header_, reach_ == Reach::kNetwork ? kMaxNetworkBodyBytes : kMaxBodyBytes));
      body_read_ = 0;
      body_lack_ = CheckBodySize(header_);
      if (body_lack_.ok()) body_ = MakeBody(header_.body_bytes);
      if (!body_) {
        if (body_lack_.ok()) {
          body_lack_ = absl::ResourceExhaustedError(absl::StrCat(
              "OOM when receiving a message of ", header_.body_bytes, " bytes: ", TakeShortage()));
        }
        // Only its table is read, to release the loans.
        const MustHaveMemory must;
        body_ = HostAllocator().Allocate(std::max<size_t>(TableBytes(header_), 1));
        if (!body_) return body_lack_;
      }
    }
    const size_t taken = std::min(bytes.size(), header_.body_bytes - body_read_);
    const size_t end = body_lack_.ok() ? header_.body_bytes : TableBytes(header_);
    const size_t kept = body_read_ < end ? std::min(taken, end - body_read_) : 0;
    if (kept > 0) std::memcpy(body_.data() + body_read_, bytes.data(), kept);
    body_read_ += taken;
    bytes.remove_prefix(taken);
    if (body_read_ == header_.body_bytes) RETURN_IF_ERROR(PacketReadLocked(packets));
  }
  return absl::OkStatus();
}

// Segments and calls are known before anybody can say that they are gone.
absl::Status FastLink::PacketReadLocked(std::deque<Received>& packets) {
  header_read_ = 0;
  Packet packet{header_, std::move(body_)};
  body_ = Buffer();
  Received received;
  received.header = packet.header;
  received.lack = std::exchange(body_lack_, absl::OkStatus());
  const bool is_message =
      packet.header.kind == PacketKind::kCall || packet.header.kind == PacketKind::kReply;
  if (!received.lack.ok() && !is_message) return received.lack;
  switch (packet.header.kind) {
    case PacketKind::kSegments: {
      RETURN_IF_ERROR(MapSegmentsLocked(packet.numbers()));
      if (MappingReader::Get() == nullptr) return absl::OkStatus();
      const auto numbers = packet.numbers();
      received.numbers.assign(numbers.begin(), numbers.end());
      break;
    }
    case PacketKind::kForget:
      for (const uint64_t segment : packet.numbers()) segments_.erase(segment);
      return absl::OkStatus();
    case PacketKind::kPing:
      break;
    case PacketKind::kPong:
      return absl::OkStatus();
    case PacketKind::kKeep:
    case PacketKind::kKept:
    case PacketKind::kRelease: {
      const auto numbers = packet.numbers();
      received.numbers.assign(numbers.begin(), numbers.end());
      break;
    }
    case PacketKind::kCall: {
      MutexLock lock(calls_mutex_);
      const bool added =
          served_.emplace(packet.header.call, std::make_shared<Cancellation>()).second;
      if (!added) return InvalidArgument("call ", packet.header.call, " was made twice");
      [[fallthrough]];
    }
    case PacketKind::kReply:
    case PacketKind::kCancel: {
      if (!received.lack.ok()) {
        received.bytes.owner = LoansOf(packet);
        break;
      }
      ASSIGN_OR_RETURN(received.bytes, BytesOfLocked(std::move(packet)));
      break;
    }
  }
  packets.push_back(std::move(received));
  return absl::OkStatus();
}

absl::Status FastLink::MapSegmentsLocked(absl::Span<const uint64_t> numbers_and_sizes) {
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

std::shared_ptr<const void> FastLink::LoansOf(const Packet& packet) {
  auto owner = std::make_shared<Loans>();
  owner->link = shared_from_this();
  for (const PieceEntry& piece : packet.pieces()) {
    if (piece.segment == 0) continue;
    owner->loans.push_back(piece.loan);
    owner->bytes += piece.length;
  }
  return owner;
}

absl::StatusOr<WireBytes> FastLink::BytesOfLocked(Packet packet) {
  auto owner = std::make_shared<Loans>();
  owner->link = shared_from_this();
  const auto find = [&](const PieceEntry& piece)
                        ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_) -> const char* {
    const auto found = segments_.find(piece.segment);
    if (found == segments_.end()) return nullptr;
    const std::shared_ptr<const SharedMapping>& mapping = found->second;
    if (piece.offset > mapping->size_bytes() || piece.length > mapping->size_bytes() - piece.offset)
      return nullptr;
    // Those that were lent together mostly come one after the other.
    if (owner->mappings.empty() || owner->mappings.back() != mapping)
      owner->mappings.push_back(mapping);
    if (owner->loans.empty() || owner->loans.back() != piece.loan)
      owner->loans.push_back(piece.loan);
    if ((piece.loan & PieceEntry::kNoHurry) == 0) owner->bytes += piece.length;
    return mapping->data() + piece.offset;
  };
  WireBytes bytes;
  ASSIGN_OR_RETURN(bytes.pieces, PiecesOf(packet, find));
  owner->body = std::move(packet.body);
  bytes.owner = std::move(owner);
  return bytes;
}

void FastLink::Handle(Received packet) {
  switch (packet.header.kind) {
    case PacketKind::kCall:
      if (!packet.lack.ok()) return Reply(packet.header.call, std::move(packet.lack));
      return HandleCall(packet.header, std::move(packet.bytes));
    case PacketKind::kReply:
      if (!packet.lack.ok()) return Abandon(packet.header.call, packet.lack);
      return HandleReply(packet.header, std::move(packet.bytes));
    case PacketKind::kRelease:
      return HandleRelease(packet.numbers);
    case PacketKind::kCancel: {
      std::shared_ptr<Cancellation> call;
      {
        MutexLock lock(calls_mutex_);
        const auto found = served_.find(packet.header.call);
        if (found != served_.end()) call = found->second;
      }
      if (call != nullptr)
        call->Cancel(absl::CancelledError("The call was cancelled by the caller"));
      return;
    }
    case PacketKind::kPing: {
      MutexLock lock(write_mutex_);
      if (!write_failed_) WriteNumbersLocked(PacketKind::kPong, {}, {});
      return;
    }
    case PacketKind::kSegments:
      return AskToKeep(packet.numbers);
    case PacketKind::kKeep:
      return HandleKeep(packet.numbers);
    case PacketKind::kKept:
      return HandleKept(packet.numbers);
    case PacketKind::kForget:
    case PacketKind::kPong:
      return;  // done when they were read
  }
}

// The device finds pages once: the other side must not replace them afterwards.
void FastLink::AskToKeep(absl::Span<const uint64_t> numbers_and_sizes) {
  std::vector<uint64_t> segments;
  for (size_t i = 0; i < numbers_and_sizes.size(); i += 2) segments.push_back(numbers_and_sizes[i]);
  MutexLock lock(write_mutex_);
  if (!write_failed_) WriteNumbersLocked(PacketKind::kKeep, segments, {});
}

void FastLink::HandleKeep(absl::Span<const uint64_t> segments) {
  std::vector<uint64_t> kept;
  MutexLock lock(write_mutex_);
  if (write_failed_) return;
  for (const uint64_t segment : segments) {
    if (!shown_.contains(segment) || kept_.contains(segment)) continue;
    if (!SharedMemory::Global().KeepPages(segment)) continue;
    kept_.insert(segment);
    kept.push_back(segment);
  }
  if (!kept.empty()) WriteNumbersLocked(PacketKind::kKept, kept, {});
}

void FastLink::HandleKept(absl::Span<const uint64_t> segments) {
  MappingReader* const reader = MappingReader::Get();
  if (reader == nullptr || scheduler_ == nullptr) return;
  for (const uint64_t segment : segments) {
    std::shared_ptr<const SharedMapping> mapping;
    {
      MutexLock lock(read_mutex_);
      const auto found = segments_.find(segment);
      if (found != segments_.end()) mapping = found->second;
    }
    if (mapping == nullptr) continue;
    scheduler_->Schedule([mapping = std::move(mapping), reader] { mapping->LetRead(*reader); });
  }
}

void FastLink::HandleRelease(absl::Span<const uint64_t> loans) {
  const bool was_congested = is_congested();
  {
    std::vector<std::vector<Buffer>> returned;
    MutexLock lock(write_mutex_);
    for (const uint64_t loan : loans) {
      const auto found = lent_.find(loan);
      if (found == lent_.end()) continue;
      if (found->second.abandoned) abandoned_bytes_ -= found->second.bytes;
      returned.push_back(std::move(found->second.buffers));
      lent_.erase(found);
    }
  }
  if (was_congested && !is_congested()) SendDelayed();
}

}  // namespace muster::fast
