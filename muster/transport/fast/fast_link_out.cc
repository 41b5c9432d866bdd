// What a link sends.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "muster/tensor/memory_guard.h"
#include "muster/tensor/unused_memory.h"
#include "muster/transport/fast/fast_link.h"

namespace muster::fast {
namespace {

// Memory that cannot be shown is copied to where it can, unless the socket is as quick.
constexpr size_t kCopyFromBytes = 64 << 10;
// So many bytes of small pieces are copied to one place, which the receiver reads: through the
// socket they would be copied twice, and into memory that is cold.
constexpr size_t kGatherFromBytes = 64 << 10;
// Loans that are this large are given back at once, others with what is sent next.
constexpr size_t kReleaseAtOnceBytes = 64 << 10;
constexpr size_t kMaxReleases = 64;
// So much may wait for a process that does not read: one of this machine is given up then, the
// calls of one elsewhere are not read until there is less.
constexpr size_t kMaxQueuedBytes = size_t{256} << 20;
// And so much may be lent to it with calls that have ended.
constexpr size_t kMaxAbandonedBytes = size_t{64} << 20;
constexpr size_t kMaxParts = 512;

template <typename T>
absl::Span<const char> BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// A part of SharedMemory.
class SharedRegion : public Region {
 public:
  SharedRegion(void* base, size_t size_bytes) : Region(base, size_bytes, MemoryKind::kSharedHost) {}
  ~SharedRegion() override {
    MemoryGuard::Global().Return(base_, size_bytes_);
    SharedMemory::Global().Free(base_, size_bytes_);
  }
};

// Null when there is no memory for it.
RefPtr<SharedRegion> MakeShared(size_t bytes) {
  void* const block = MemoryGuard::Global().Take(
      bytes, ReleaseUnusedMemory, [bytes] { return SharedMemory::Global().Allocate(bytes); });
  return block == nullptr ? nullptr : MakeRef<SharedRegion>(block, bytes);
}

// A copy that can be shown; the buffer itself when there is no memory for one.
Buffer CopyToShare(const Buffer& buffer) {
  RefPtr<SharedRegion> region = MakeShared(buffer.length_bytes());
  if (!region) return buffer;
  std::memcpy(region->base(), buffer.data(), buffer.length_bytes());
  return Buffer(std::move(region), 0, buffer.length_bytes());
}

Buffer BufferOf(std::string text) {
  auto kept = std::make_unique<std::string>(std::move(text));
  const absl::string_view bytes = *kept;
  return Buffer::AdoptExternal(bytes.data(), bytes.size(), [owner = std::move(kept)] {});
}

// A run of small pieces becomes one that can be shown. The result says of each piece that is left
// whether it is such a one.
std::vector<bool> GatherSmall(std::vector<WireMessage::Piece>& pieces, size_t first) {
  const auto is_small = [](const WireMessage::Piece& piece) {
    return piece.size() < kSharedFromBytes;
  };
  std::vector<WireMessage::Piece> result;
  std::vector<bool> is_gathered;
  const auto keep = [&](WireMessage::Piece piece, bool gathered) {
    result.push_back(std::move(piece));
    is_gathered.push_back(gathered);
  };
  for (size_t i = 0; i < pieces.size();) {
    size_t end = i;
    size_t bytes = 0;
    for (; i >= first && end < pieces.size() && is_small(pieces[end]); ++end)
      bytes += pieces[end].size();
    RefPtr<SharedRegion> region = bytes >= kGatherFromBytes ? MakeShared(bytes) : nullptr;
    if (!region) {
      end = std::max(end, i + 1);
      for (; i < end; ++i) keep(std::move(pieces[i]), false);
      continue;
    }
    char* to = static_cast<char*>(region->base());
    for (; i < end; ++i) {
      const WireMessage::Piece& piece = pieces[i];
      std::memcpy(to, piece.buffer ? piece.buffer.data() : piece.text.data(), piece.size());
      to += piece.size();
    }
    keep({"", Buffer(std::move(region), 0, bytes)}, true);
  }
  pieces = std::move(result);
  return is_gathered;
}

size_t RoundUp(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Where the piece is in a body that so far ends `at`; adds its bytes to `parts`, after a gap where
// a tensor may keep them as they arrive.
PieceEntry AddToBody(const WireMessage::Piece& piece, uint64_t& at,
                     std::vector<absl::string_view>& parts) {
  static constexpr char kGap[kBufferAlignment] = {};
  if (piece.size() >= kSharedFromBytes) {
    const uint64_t aligned = RoundUp(at, kBufferAlignment);
    if (aligned > at) parts.emplace_back(kGap, aligned - at);
    at = aligned;
  }
  PieceEntry entry;
  entry.offset = at;
  entry.length = piece.size();
  at += piece.size();
  if (piece.size() > 0) {
    parts.push_back(piece.buffer ? absl::string_view(piece.buffer.data(), piece.size())
                                 : absl::string_view(piece.text));
  }
  return entry;
}

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

size_t SizeOf(const std::vector<WireMessage::Piece>& pieces) {
  size_t size = 0;
  for (const WireMessage::Piece& piece : pieces) size += piece.size();
  return size;
}

bool CanBeShown(const Buffer& buffer) {
  return buffer && buffer.length_bytes() >= kSharedTogetherFromBytes &&
         buffer.region()->kind() == MemoryKind::kSharedHost;
}

// Whether the small pieces are nearly all such as can be shown, so that none has to be gathered.
bool CanBeShownTogether(const std::vector<WireMessage::Piece>& pieces) {
  size_t shown_bytes = 0, other_bytes = 0;
  for (const WireMessage::Piece& piece : pieces) {
    if (piece.size() >= kSharedFromBytes) continue;
    (CanBeShown(piece.buffer) ? shown_bytes : other_bytes) += piece.size();
  }
  return shown_bytes >= kGatherFromBytes && other_bytes < kGatherFromBytes;
}

void CloseAll(std::vector<int>& descriptors) {
  for (const int descriptor : descriptors) close(descriptor);
  descriptors.clear();
}

}  // namespace

absl::Status FastLink::Send(Outgoing packet) {
  return reach_ == Reach::kMachine ? SendLent(std::move(packet)) : SendWhole(std::move(packet));
}

absl::Status FastLink::SendWhole(Outgoing packet) {
  std::vector<PieceEntry> table(packet.pieces.size());
  std::vector<absl::string_view> parts;
  uint64_t at = table.size() * sizeof(PieceEntry);
  for (size_t i = 0; i < table.size(); ++i) table[i] = AddToBody(packet.pieces[i], at, parts);
  packet.header.num_pieces = static_cast<uint32_t>(table.size());
  packet.header.body_bytes = at;
  MutexLock lock(write_mutex_);
  WriteLocked(packet.header, BytesOf(table), std::move(packet.pieces), parts, {});
  return absl::OkStatus();
}

absl::Status FastLink::SendLent(Outgoing packet) {
  std::vector<bool> is_gathered;  // empty: none is
  const bool is_much = SizeOf(packet.pieces) >= kGatherFromBytes && packet.header.code == 0;
  const bool shows_small = is_much && CanBeShownTogether(packet.pieces);
  if (is_much && !shows_small) {
    // The path of a call is a piece of its own.
    is_gathered = GatherSmall(packet.pieces, packet.header.kind == PacketKind::kCall ? 1 : 0);
  }
  std::vector<std::optional<SharedMemory::Place>> places(packet.pieces.size());
  for (size_t i = 0; i < packet.pieces.size(); ++i) {
    Buffer& buffer = packet.pieces[i].buffer;
    if (!buffer && packet.pieces[i].size() >= kCopyFromBytes)
      buffer = BufferOf(std::exchange(packet.pieces[i].text, ""));
    if (!buffer) continue;
    if (buffer.length_bytes() < kSharedFromBytes && !(shows_small && CanBeShown(buffer))) continue;
    places[i] = SharedMemory::Global().Find(buffer.data());
    if (places[i] || buffer.length_bytes() < kCopyFromBytes) continue;
    buffer = CopyToShare(buffer);
    places[i] = SharedMemory::Global().Find(buffer.data());
  }
  std::vector<PieceEntry> table(packet.pieces.size());
  std::vector<absl::string_view> parts;
  absl::flat_hash_set<uint64_t> segments;
  uint64_t at = table.size() * sizeof(PieceEntry);
  for (size_t i = 0; i < table.size(); ++i) {
    const WireMessage::Piece& piece = packet.pieces[i];
    if (!places[i]) {
      table[i] = AddToBody(piece, at, parts);
      continue;
    }
    table[i].length = piece.size();
    table[i].segment = places[i]->segment;
    table[i].offset = places[i]->offset;
    segments.insert(places[i]->segment);
  }
  packet.header.num_pieces = static_cast<uint32_t>(table.size());
  packet.header.body_bytes = at;
  if (at > kMaxQueuedBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("There is no shared memory for ", at,
                                                     " bytes of a message to a task of this "
                                                     "machine"));
  }
  MutexLock lock(write_mutex_);
  if (write_failed_) return absl::OkStatus();  // the reader finds it broken
  ForgetSegmentsLocked();
  ShowSegmentsLocked(segments);
  SendReleasesLocked();
  const uint64_t call = packet.header.kind == PacketKind::kCall ? packet.header.call : 0;
  uint64_t loan_of_small = 0;
  Lent small{{}, 0, call};
  for (size_t i = 0; i < table.size(); ++i) {
    if (!places[i]) continue;
    Buffer& buffer = packet.pieces[i].buffer;
    const size_t bytes = buffer.length_bytes();
    if (bytes < kSharedFromBytes) {
      if (loan_of_small == 0) loan_of_small = ++last_loan_ | PieceEntry::kNoHurry;
      table[i].loan = loan_of_small;
      small.buffers.push_back(std::move(buffer));
      small.bytes += bytes;
      continue;
    }
    table[i].loan = ++last_loan_;
    if (!is_gathered.empty() && is_gathered[i]) table[i].loan |= PieceEntry::kNoHurry;
    lent_.emplace(table[i].loan, Lent{{std::move(buffer)}, bytes, call});
  }
  if (loan_of_small != 0) lent_.emplace(loan_of_small, std::move(small));
  WriteLocked(packet.header, BytesOf(table), std::move(packet.pieces), parts, {});
  return absl::OkStatus();
}

bool FastLink::is_congested() const {
  return abandoned_bytes_.load(std::memory_order_relaxed) > kMaxAbandonedBytes;
}

void FastLink::AbandonLoans(uint64_t call) {
  MutexLock lock(write_mutex_);
  for (auto& [loan, lent] : lent_) {
    if (lent.call != call || lent.abandoned) continue;
    lent.abandoned = true;
    abandoned_bytes_ += lent.bytes;
  }
}

void FastLink::SendDelayed() {
  // The lock orders an abandonment of one of them after the call itself.
  MutexLock lock(calls_mutex_);
  for (auto& [call, packet] : delayed_) {
    const absl::Status sent = Send(std::move(packet));
    if (sent.ok()) continue;
    scheduler_->Schedule([weak = weak_from_this(), id = call, sent] {
      if (const auto self = weak.lock()) self->Abandon(id, sent);
    });
  }
  delayed_.clear();
}

void FastLink::WriteNumbersLocked(PacketKind kind, absl::Span<const uint64_t> numbers,
                                  std::vector<int> descriptors) {
  PacketHeader header;
  header.kind = kind;
  header.body_bytes = numbers.size() * sizeof(uint64_t);
  WriteLocked(header, {reinterpret_cast<const char*>(numbers.data()), header.body_bytes}, {}, {},
              std::move(descriptors));
}

void FastLink::ShowSegmentsLocked(const absl::flat_hash_set<uint64_t>& segments) {
  std::vector<uint64_t> numbers_and_sizes;
  std::vector<int> descriptors;
  const auto show = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) {
    if (descriptors.empty()) return;
    WriteNumbersLocked(PacketKind::kSegments, numbers_and_sizes, std::move(descriptors));
    numbers_and_sizes.clear();
    descriptors.clear();
  };
  for (const uint64_t segment : segments) {
    if (!shown_.insert(segment).second) continue;
    const absl::StatusOr<SharedMemory::Opened> opened = SharedMemory::Global().Open(segment);
    if (!opened.ok()) {
      CloseAll(descriptors);
      return GiveUpLocked();
    }
    numbers_and_sizes.push_back(segment);
    numbers_and_sizes.push_back(opened->size_bytes);
    descriptors.push_back(opened->descriptor);
    if (descriptors.size() == kMaxSegmentsAtOnce) show();
  }
  show();
}

void FastLink::ForgetSegmentsLocked() {
  const uint64_t returned = SharedMemory::Global().num_returned();
  if (returned == returned_seen_) return;
  returned_seen_ = returned;
  std::vector<uint64_t> gone;
  for (const uint64_t segment : shown_)
    if (!SharedMemory::Global().Has(segment)) gone.push_back(segment);
  if (gone.empty()) return;
  for (const uint64_t segment : gone) {
    shown_.erase(segment);
    kept_.erase(segment);
  }
  WriteNumbersLocked(PacketKind::kForget, gone, {});
}

void FastLink::SendReleasesLocked() {
  if (releases_.empty()) return;
  const std::vector<uint64_t> releases = std::exchange(releases_, {});
  WriteNumbersLocked(PacketKind::kRelease, releases, {});
}

void FastLink::Release(std::vector<uint64_t> loans, size_t bytes) {
  MutexLock lock(write_mutex_);
  if (write_failed_) return;
  releases_.insert(releases_.end(), loans.begin(), loans.end());
  if (bytes >= kReleaseAtOnceBytes || releases_.size() >= kMaxReleases) SendReleasesLocked();
}

void FastLink::GiveUpLocked() {
  has_given_up_.store(true);
  FailWritingLocked();
}

void FastLink::FailWritingLocked() {
  if (write_failed_) return;
  write_failed_ = true;
  // Whoever reads finds the end.
  if (socket_ >= 0) shutdown(socket_, SHUT_RDWR);
}

void FastLink::WriteLocked(const PacketHeader& header, absl::Span<const char> table,
                           std::vector<WireMessage::Piece> pieces,
                           absl::Span<const absl::string_view> body, std::vector<int> descriptors) {
  if (write_failed_) return CloseAll(descriptors);
  Queued packet;
  packet.head.resize(sizeof(header) + table.size());
  std::memcpy(packet.head.data(), &header, sizeof(header));
  if (!table.empty()) std::memcpy(packet.head.data() + sizeof(header), table.data(), table.size());
  packet.pieces = std::move(pieces);
  packet.parts.reserve(body.size() + 1);
  packet.parts.emplace_back(packet.head.data(), packet.head.size());
  packet.parts.insert(packet.parts.end(), body.begin(), body.end());
  for (const absl::string_view part : packet.parts) packet.bytes += part.size();
  packet.descriptors = std::move(descriptors);
  queued_bytes_ += packet.bytes;
  const bool is_first = queue_.empty();
  queue_.push_back(std::move(packet));
  if (is_first) {
    FlushLocked();
  } else {
    replies_wait_.store(queued_bytes_ > kMaxQueuedBytes);
  }
  if (write_failed_ || queue_.empty()) return;
  if (reach_ == Reach::kMachine && queued_bytes_ > kMaxQueuedBytes) return GiveUpLocked();
  if (is_first) Poller::Global().Watch(number_, socket_, /*for_writing=*/true);
}

void FastLink::FlushLocked() {
  while (!queue_.empty() && !write_failed_) {
    Queued& first = queue_.front();
    std::vector<iovec> vectors;
    const size_t end = std::min(first.parts.size(), first.next + kMaxParts);
    vectors.reserve(end - first.next);
    for (size_t i = first.next; i < end; ++i)
      vectors.push_back({const_cast<char*>(first.parts[i].data()), first.parts[i].size()});
    const ssize_t result = SendParts(socket_, vectors, first.descriptors);
    if (result < 0) return FailWritingLocked();
    if (result == 0) break;
    CloseAll(first.descriptors);
    size_t sent = static_cast<size_t>(result);
    first.bytes -= sent;
    queued_bytes_ -= sent;
    while (sent > 0) {
      absl::string_view& part = first.parts[first.next];
      const size_t taken = std::min(sent, part.size());
      part.remove_prefix(taken);
      sent -= taken;
      if (part.empty()) ++first.next;
    }
    if (first.bytes == 0) queue_.pop_front();
  }
  replies_wait_.store(queued_bytes_ > kMaxQueuedBytes);
}

}  // namespace muster::fast
