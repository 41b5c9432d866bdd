// What a link receives.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/time/clock.h"
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "muster/base/attention.h"
#include "muster/base/turn.h"
#include "muster/transport/fast/link.h"

namespace muster::fast {
namespace {

constexpr uint64_t kMaxBodyBytes = uint64_t{2} << 30;
constexpr size_t kStagingBytes = 64 << 10;
// A thread that handles what it reads so quickly may read on by itself.
constexpr int64_t kQuickHandleNanos = 200'000;
constexpr int64_t kMuchTooLongNanos = 300'000'000;

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

void Link::Ready() {
  const int64_t idle_since = idle_since_.exchange(0, std::memory_order_relaxed);
  if (idle_since != 0) calls_pace_.NoteSleep(absl::GetCurrentTimeNanos() - idle_since);
  const auto watch = [this] { Watch(); };
  Attention attention(watch);
  do {
    const int64_t begin = absl::GetCurrentTimeNanos();
    // What comes while somebody works for long should not wait for the end of it.
    const int until_trusted = handles_until_trusted_.load(std::memory_order_relaxed);
    if (until_trusted == 0) unwatched_since_.store(begin, std::memory_order_relaxed);
    ReadAndHandle(/*let_go=*/until_trusted > 0);
    unwatched_since_.store(0, std::memory_order_relaxed);
    attention.DropKept();
    const int64_t end = absl::GetCurrentTimeNanos();
    idle_since_.store(end, std::memory_order_relaxed);
    if (end - begin > kQuickHandleNanos) {
      handles_until_trusted_.store(kQuickToBeTrusted, std::memory_order_relaxed);
    } else if (until_trusted > 0) {
      handles_until_trusted_.store(until_trusted - 1, std::memory_order_relaxed);
    }
    if (attention.has_let_go()) {
      if (!calls_pace_.is_quick() || !Pause()) return;
      attention.TakeBack();
    }
  } while (StayAwake());
  Attention::LetGo();
}

void Link::Tick() {
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

void Link::Watch(bool unless_read) {
  bool needs_help;
  {
    MutexLock lock(read_mutex_);
    needs_help = !unhandled_.empty();
  }
  MutexLock lock(write_mutex_);
  // Who reads in ReadUntil does so itself, but only what is still in the socket.
  if (socket_ < 0 || (unless_read && has_reader_.load() && !needs_help)) return;
  // A socket that can be written to wakes another thread at once.
  Poller::Global().Watch(number_, socket_, !queue_.empty() || needs_help);
}

bool Link::Pause() {
  MutexLock lock(write_mutex_);
  if (socket_ < 0 || !queue_.empty()) return false;
  Poller::Global().Pause(number_, socket_);
  return true;
}

bool Link::Look() {
  MutexLock lock(read_mutex_);
  if (socket_ < 0) return true;
  if (read_status_.ok()) read_status_ = ReadLocked(unhandled_);
  return !unhandled_.empty() || !read_status_.ok();
}

bool Link::StayAwake() {
  if (!calls_pace_.is_quick() || !is_open() || !Awake::TryBegin()) return false;
  const int64_t begin = absl::GetCurrentTimeNanos();
  bool came = false;
  while (!has_reader_.load(std::memory_order_relaxed)) {
    came = Look();
    if (came || absl::GetCurrentTimeNanos() - begin > kAwakeNanos) {
      calls_pace_.NoteAwake(came);
      break;
    }
    sched_yield();
  }
  Awake::End();
  if (!came) idle_since_.store(0, std::memory_order_relaxed);
  return came;
}

void Link::ReadAndHandle(bool let_go) {
  absl::Status status;
  {
    MutexLock lock(read_mutex_);
    if (socket_ < 0) return;
    // Who stayed awake has read already.
    if (unhandled_.empty() && read_status_.ok()) read_status_ = ReadLocked(unhandled_);
    status = read_status_;
  }
  {
    MutexLock lock(write_mutex_);
    if (socket_ < 0) return;
    FlushLocked();
  }
  {
    // What the frames ask for may have answers that go together.
    const Turn turn;
    std::optional<Received> frame = TakeUnhandled();
    if (let_go) Attention::LetGo();
    for (; frame; frame = TakeUnhandled()) Handle(*std::move(frame));
  }
  if (!status.ok()) Break(std::string(status.message()));
}

bool Link::ReadUntil(absl::FunctionRef<bool()> done, int event, absl::Time until) {
  if (has_reader_.exchange(true)) return false;
  const auto stop_reading = [this] {
    has_reader_.store(false);
    Watch();
  };
  Attention attention(stop_reading);
  bool is_watched = true;
  while (!done() && is_open()) {
    if (attention.has_let_go()) {
      if (has_reader_.exchange(true)) return false;
      attention.TakeBack();
      is_watched = true;
    }
    const int64_t begin = absl::GetCurrentTimeNanos();
    const int64_t left = absl::ToUnixNanos(until) - begin;
    if (left <= 0) break;
    pollfd waited[] = {{-1, POLLIN | POLLRDHUP, 0}, {event, POLLIN, 0}};
    {
      MutexLock lock(write_mutex_);
      if (socket_ < 0) break;
      // The threads of the poller sleep on.
      if (is_watched) Poller::Global().Pause(number_, socket_);
      waited[0].fd = socket_;
      if (!queue_.empty()) waited[0].events |= POLLOUT;
    }
    is_watched = false;
    bool came = false;
    const bool is_awake =
        answers_pace_.is_quick() && (waited[0].events & POLLOUT) == 0 && Awake::TryBegin();
    if (is_awake) {
      while (!(came = Look()) && !done() && absl::GetCurrentTimeNanos() - begin < kAwakeNanos)
        sched_yield();
      Awake::End();
      answers_pace_.NoteAwake(came || done());
    }
    const timespec timeout = {left / 1'000'000'000, left % 1'000'000'000};
    if (!came && !done() && ppoll(waited, 2, &timeout, nullptr) > 0) {
      uint64_t count;
      if (waited[1].revents != 0 && read(event, &count, sizeof(count)) < 0) break;
      came = waited[0].revents != 0;
      if (!is_awake) answers_pace_.NoteSleep(absl::GetCurrentTimeNanos() - begin);
    }
    if (came) {
      unwatched_since_.store(absl::GetCurrentTimeNanos(), std::memory_order_relaxed);
      ReadAndHandle(/*let_go=*/false);
      unwatched_since_.store(0, std::memory_order_relaxed);
    }
    attention.DropKept();
  }
  if (!attention.has_let_go()) stop_reading();
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
  if (received <= 0) {
    other_has_gone_.store(true);
    return absl::UnavailableError("Socket closed");
  }
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
    // Those that were lent together mostly come one after the other.
    if (owner->mappings.empty() || owner->mappings.back() != mapping)
      owner->mappings.push_back(mapping);
    if (owner->loans.empty() || owner->loans.back() != piece.loan)
      owner->loans.push_back(piece.loan);
    if ((piece.loan & PieceEntry::kNoHurry) == 0) owner->bytes += piece.length;
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
