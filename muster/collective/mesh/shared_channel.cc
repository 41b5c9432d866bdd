#include "muster/collective/mesh/shared_channel.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/escaping.h"
#include <fcntl.h>
#include <openssl/sha.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace muster::collective {
namespace {

// Of one direction; small enough to stay in a core's cache.
constexpr size_t kRingBytes = 512 << 10;
// Written and read in pieces of this size, so that both sides are at work.
constexpr size_t kPieceBytes = 32 << 10;
// After this many attempts without progress the socket is checked for the end of the peer.
constexpr unsigned kReadsBetweenLooks = 64, kWritesBetweenLooks = 8;
constexpr int kBacklog = 128;
// A process that maps a segment must never fault because it was truncated.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Each in a cache line of its own, since another process writes the next one.
struct Ring {
  alignas(64) std::atomic<uint64_t> written;  // bytes, ever
  alignas(64) std::atomic<uint64_t> taken;
  alignas(64) std::atomic<uint32_t> reader_sleeps;  // the writer then signals on the socket
  alignas(64) std::atomic<uint32_t> writer_sleeps;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

struct Layout {
  Ring rings[2];  // written by the side that has connected, by the one that was called
  alignas(4096) char bytes[2][kRingBytes];
};

absl::Status SystemError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

class Mapping {
 public:
  explicit Mapping(void* data) : data_(data) {}
  Mapping(Mapping&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (data_ != nullptr) munmap(data_, sizeof(Layout));
  }
  Layout& layout() const { return *static_cast<Layout*>(data_); }

 private:
  void* data_;
};

absl::StatusOr<Mapping> Map(const Descriptor& memory) {
  void* const data =
      mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (data == MAP_FAILED) return SystemError("cannot map shared memory");
  return Mapping(data);
}

class SharedChannel : public Channel {
 public:
  SharedChannel(Descriptor socket, Mapping mapping, int side)
      : socket_(std::move(socket)),
        mapping_(std::move(mapping)),
        out_(mapping_.layout().rings[side]),
        in_(mapping_.layout().rings[1 - side]),
        out_bytes_(mapping_.layout().bytes[side]),
        in_bytes_(mapping_.layout().bytes[1 - side]) {}

  absl::StatusOr<size_t> Write(absl::Span<const iovec> pieces) override {
    if (!closed_.ok()) return closed_;
    size_t total = 0;
    // Room may appear at any moment: the first piece that does not fit ends the write, or the next
    // piece would overtake the rest of this one.
    bool full = false;
    for (const iovec& piece : pieces) {
      const auto* from = static_cast<const char*>(piece.iov_base);
      for (size_t left = piece.iov_len; left > 0 && !full;) {
        ASSIGN_OR_RETURN(const size_t room, Room());
        const size_t at = (written_ + pending_) % kRingBytes;
        const size_t count = std::min({left, room, kRingBytes - at, kPieceBytes});
        full = count == 0;
        std::memcpy(out_bytes_ + at, from, count);
        from += count;
        left -= count;
        total += count;
        pending_ += count;
        // A header goes with what follows it.
        if (pending_ >= kPieceBytes) Publish();
      }
    }
    if (pending_ > 0) Publish();
    if (total == 0 && ++full_ % kWritesBetweenLooks == 0) {
      Look();
      if (!closed_.ok()) return closed_;
    }
    return total;
  }

  absl::StatusOr<size_t> Read(absl::Span<const iovec> pieces) override {
    size_t total = 0;
    for (const iovec& piece : pieces) {
      auto* to = static_cast<char*>(piece.iov_base);
      for (size_t left = piece.iov_len; left > 0;) {
        const absl::StatusOr<absl::Span<const char>> bytes = Peek();
        // Bytes that have been read are returned first; the next call returns the error.
        if (!bytes.ok() && total == 0) return bytes.status();
        if (!bytes.ok() || bytes->empty()) return total;
        const size_t count = std::min(left, bytes->size());
        std::memcpy(to, bytes->data(), count);
        Consume(count);
        to += count;
        left -= count;
        total += count;
      }
    }
    return total;
  }

  absl::StatusOr<absl::Span<const char>> Peek() override {
    if (armed_) {
      armed_ = false;
      in_.reader_sleeps.store(0, std::memory_order_relaxed);
      looks_ = true;
    }
    ASSIGN_OR_RETURN(size_t used, Used());
    if (used == 0) {
      if (!looks_ && ++empty_ % kReadsBetweenLooks != 0) return absl::Span<const char>();
      Look();
      // Bytes that the peer wrote before it closed.
      ASSIGN_OR_RETURN(used, Used());
      if (used == 0) {
        if (!closed_.ok()) return closed_;
        return absl::Span<const char>();
      }
    }
    const size_t at = taken_ % kRingBytes;
    return absl::Span<const char>(in_bytes_ + at, std::min({used, kRingBytes - at, kPieceBytes}));
  }
  void Consume(size_t bytes) override {
    taken_ += bytes;
    in_.taken.store(taken_);
    if (in_.writer_sleeps.load() != 0 && in_.writer_sleeps.exchange(0) != 0) Wake();
  }
  bool can_peek() const override { return true; }

  int fd() const override { return socket_.get(); }
  bool Arm(bool for_room) override {
    armed_ = true;
    in_.reader_sleeps.store(1);
    if (for_room) out_.writer_sleeps.store(1);
    // Wrong numbers are for Read to find.
    const auto used = Used(), room = Room();
    return !used.ok() || !room.ok() || *used > 0 || (for_room && *room > 0);
  }
  void Polled() override { looks_ = true; }
  bool room_is_polled() const override { return false; }
  void CloseWriting() override { shutdown(fd(), SHUT_WR); }
  bool Flushed() const override { return true; }  // what is in the ring outlives its writer

 private:
  absl::StatusOr<size_t> Used() const {
    const uint64_t used = in_.written.load() - taken_;
    if (used > kRingBytes) return InvalidArgument("has filled more of its memory than there is");
    return static_cast<size_t>(used);
  }
  absl::StatusOr<size_t> Room() const {
    const uint64_t used = written_ + pending_ - out_.taken.load();
    if (used > kRingBytes) return InvalidArgument("has taken more than it was sent");
    return static_cast<size_t>(kRingBytes - used);
  }
  void Publish() {
    written_ += std::exchange(pending_, 0);
    out_.written.store(written_);
    if (out_.reader_sleeps.load() != 0 && out_.reader_sleeps.exchange(0) != 0) Wake();
  }
  // The byte carries no information. When there is no room for it, the peer is being woken already.
  void Wake() const { send(fd(), "", 1, MSG_NOSIGNAL | MSG_DONTWAIT); }

  // Whether the other side is still there.
  void Look() {
    looks_ = false;
    char ignored[64];
    ssize_t got = 0;
    while ((got = recv(fd(), ignored, sizeof(ignored), MSG_DONTWAIT)) > 0) {
    }
    if (got == 0) {
      closed_ = absl::UnavailableError("closed its connection");
    } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
      closed_ = SystemError("connection lost");
    }
  }

  const Descriptor socket_;
  const Mapping mapping_;
  Ring& out_;
  Ring& in_;
  char* const out_bytes_;
  const char* const in_bytes_;
  // Counted here too: what another process can change is not relied upon.
  uint64_t written_ = 0, taken_ = 0;
  size_t pending_ = 0;  // written, and not yet told
  unsigned empty_ = 0, full_ = 0;
  bool armed_ = false;
  bool looks_ = false;
  absl::Status closed_;
};

struct LocalAddress {
  sockaddr_un address{};
  socklen_t length = 0;
};

LocalAddress AddressOf(const std::string& name) {
  LocalAddress result;
  result.address.sun_family = AF_UNIX;
  // A leading zero: the abstract namespace, no file.
  const size_t count = std::min(name.size(), sizeof(result.address.sun_path) - 1);
  std::memcpy(result.address.sun_path + 1, name.data(), count);
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
  return result;
}

Descriptor NewSocket() {
  return Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bool IsSameUser(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

absl::StatusOr<Descriptor> NewMemory() {
  Descriptor memory(memfd_create("muster", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (memory.get() < 0 || ftruncate(memory.get(), sizeof(Layout)) != 0 ||
      fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0)
    return SystemError("no shared memory");
  return memory;
}

}  // namespace

std::string LocalNameOf(int port, absl::string_view token) {
  const std::string text = absl::StrCat("muster ", port, " ", token);
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return absl::StrCat("muster-", absl::BytesToHexString(absl::string_view(
                                     reinterpret_cast<const char*>(digest.data()), 16)));
}

absl::StatusOr<Descriptor> ListenLocally(const std::string& name) {
  Descriptor socket = NewSocket();
  const LocalAddress address = AddressOf(name);
  if (socket.get() < 0 ||
      bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.address), address.length) !=
          0 ||
      listen(socket.get(), kBacklog) != 0)
    return SystemError("cannot listen");
  return socket;
}

absl::StatusOr<std::unique_ptr<Channel>> ConnectLocally(const std::string& name,
                                                        absl::string_view hello) {
  Descriptor socket = NewSocket();
  const LocalAddress address = AddressOf(name);
  if (socket.get() < 0 || connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.address),
                                  address.length) != 0)
    return SystemError("cannot connect");
  if (!IsSameUser(socket.get())) return absl::PermissionDeniedError("belongs to another user");
  ASSIGN_OR_RETURN(const Descriptor memory, NewMemory());
  ASSIGN_OR_RETURN(Mapping mapping, Map(memory));
  iovec piece{const_cast<char*>(hello.data()), hello.size()};  // iovec knows no const
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int descriptor = memory.get();
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  if (sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) !=
      static_cast<ssize_t>(hello.size()))
    return SystemError("cannot hand over memory");
  return std::make_unique<SharedChannel>(std::move(socket), std::move(mapping), 0);
}

std::unique_ptr<LocalCaller> LocalCaller::Take(Descriptor socket) {
  if (!IsSameUser(socket.get())) return nullptr;
  return std::unique_ptr<LocalCaller>(new LocalCaller(std::move(socket)));
}

absl::StatusOr<size_t> LocalCaller::Write(absl::Span<const iovec> /*pieces*/) {
  return Internal("a caller is answered when it has become a channel");
}

absl::StatusOr<size_t> LocalCaller::Read(absl::Span<const iovec> pieces) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());  // msghdr knows no const
  message.msg_iovlen = pieces.size();
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(fd(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return size_t{0};
    return SystemError("connection lost");
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
    memory_ = Descriptor(descriptor);
  }
  if (got == 0) return absl::UnavailableError("closed its connection");
  return static_cast<size_t>(got);
}

absl::StatusOr<std::unique_ptr<Channel>> LocalCaller::Accept() && {
  struct stat status;
  const int seals = memory_.get() < 0 ? -1 : fcntl(memory_.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(memory_.get(), &status) != 0 ||
      static_cast<size_t>(status.st_size) != sizeof(Layout))
    return InvalidArgument("has sent no memory of the right kind");
  ASSIGN_OR_RETURN(Mapping mapping, Map(memory_));
  return std::make_unique<SharedChannel>(std::move(socket_), std::move(mapping), 1);
}

}  // namespace muster::collective
