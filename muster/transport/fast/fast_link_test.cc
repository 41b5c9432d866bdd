#include "muster/transport/fast/fast_link.h"

#include <cstring>
#include <future>
#include <thread>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "muster/tensor/memory_guard.h"
#include "muster/tensor/unused_memory.h"

namespace muster::fast {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);

template <typename Condition>
bool Eventually(Condition condition) {
  const absl::Time end = absl::Now() + kPatience;
  while (!condition() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
  return condition();
}

std::string TextOf(const WireBytes& bytes) {
  return WireReader(bytes).Text();
}

WireMessage MessageOf(absl::string_view text) {
  WireMessage message;
  message.Append(text);
  return message;
}

Buffer Filled(size_t size, char value) {
  ShareLargeBuffers();
  Buffer buffer = HostAllocator().Allocate(size);
  std::memset(buffer.data(), value, size);
  return buffer;
}

// Memory that can be shown, also where the allocator has none of it.
class ShownRegion : public Region {
 public:
  explicit ShownRegion(size_t size)
      : Region(SharedMemory::Global().Allocate(size), size, MemoryKind::kSharedHost) {}
  ~ShownRegion() override { SharedMemory::Global().Free(base_, size_bytes_); }
};

Buffer Shown(size_t size, char value) {
  Buffer buffer(MakeRef<ShownRegion>(size), 0, size);
  std::memset(buffer.data(), value, size);
  return buffer;
}

// And some that cannot.
Buffer Hidden(size_t size, char value) {
  auto text = std::make_shared<std::string>(size, value);
  return Buffer::AdoptExternal(text->data(), size, [text] {});
}

struct Pair {
  explicit Pair(ServeCall serve, Reach reach = Reach::kMachine) {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) != 0) return;
    server = FastLink::Create(sockets[0], std::move(serve), &DefaultScheduler(), SIZE_MAX, reach);
    client = FastLink::Create(sockets[1], nullptr, &DefaultScheduler(), SIZE_MAX, reach);
  }
  std::future<absl::StatusOr<WireBytes>> Call(const std::string& path, WireMessage request,
                                              CallOptions options = {}) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<WireBytes>>>();
    client->Call(
        path, "/job:ps/replica:0/task:0 (here)", std::move(options), std::move(request),
        [promise](absl::StatusOr<WireBytes> reply) { promise->set_value(std::move(reply)); });
    return promise->get_future();
  }
  std::shared_ptr<FastLink> server;
  std::shared_ptr<FastLink> client;
};

void Echo(FastCall call) {
  WireMessage reply = MessageOf(absl::StrCat(call.path, ":"));
  reply.Append(TextOf(call.request));
  std::move(call.reply)(std::move(reply));
}

TEST(FastLinkTest, CallsAndReplies) {
  Pair pair(Echo);
  for (const size_t size : {0, 1, 1000, 70'000, 3'000'000}) {
    const std::string text(size, 'x');
    const auto reply = pair.Call("/a/b", MessageOf(text)).get();
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(TextOf(*reply), "/a/b:" + text);
  }
}

// What can be neither shown nor received.
TEST(FastLinkTest, AMessageWithoutMemoryIsAnErrorAndOthersGoOn) {
  Pair pair(Echo);
  const std::string text(4'000'000, 'x');
  ASSERT_TRUE(pair.Call("/a/b", MessageOf(text)).get().ok());
  ReleaseUnusedMemory();
  MemoryGuard& guard = MemoryGuard::Global();
  guard.Limit(0);
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = pair.Call("/a/b", MessageOf(text)).get().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("OOM when receiving a message of 40"));
    const auto reply = pair.Call("/a/b", MessageOf("short")).get();
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(TextOf(*reply), "/a/b:short");
  }
  guard.Limit(INT64_MAX);
  EXPECT_TRUE(pair.Call("/a/b", MessageOf(text)).get().ok());
}

TEST(FastLinkTest, ErrorsKeepCodeTextAndPayloads) {
  Pair pair([](FastCall call) {
    absl::Status status = absl::NotFoundError("no such thing");
    status.SetPayload("type.googleapis.com/some", absl::Cord("more"));
    std::move(call.reply)(status);
  });
  const absl::Status status = pair.Call("/a/b", WireMessage()).get().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "no such thing");
  EXPECT_EQ(status.GetPayload("type.googleapis.com/some"), absl::Cord("more"));
}

TEST(FastLinkTest, LargeMemoryIsLentAndGivenBack) {
  Buffer buffer = Filled(1 << 20, 'm');
  Pair pair([&buffer](FastCall call) {
    WireMessage reply = MessageOf("head");
    reply.Attach(buffer);
    std::move(call.reply)(std::move(reply));
  });
  for (int i = 0; i < 3; ++i) {
    absl::StatusOr<WireBytes> reply = pair.Call("/a/b", WireMessage()).get();
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(TextOf(*reply), "head" + std::string(1 << 20, 'm'));
    // Its elements begin where kernels want them.
    EXPECT_EQ(reinterpret_cast<uintptr_t>(reply->pieces[1].data()) % kBufferAlignment, 0u);
    *reply = WireBytes();
    EXPECT_TRUE(Eventually([&] { return buffer.exclusive(); }));
  }
}

TEST(FastLinkTest, ManySmallPiecesAreReadInOnePlace) {
  std::string wanted;
  Pair pair([](FastCall call) { Echo(std::move(call)); });
  Pair small([&wanted](FastCall call) {
    WireMessage reply = MessageOf("head");
    for (int i = 0; i < 100; ++i) {
      reply.Attach(Hidden(4096, static_cast<char>('a' + i % 26)));
      reply.Append("next");
      if (i == 50) reply.Attach(Filled(100'000, 'L'));
    }
    wanted = reply.Text();
    std::move(call.reply)(std::move(reply));
  });
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<WireBytes> reply = small.Call("/a/b", WireMessage()).get();
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(TextOf(*reply), wanted);
    EXPECT_EQ(reply->pieces.size(), 3u);
  }
  // In a request too, beside its path.
  WireMessage request;
  for (int i = 0; i < 40; ++i) request.Attach(Hidden(5000, static_cast<char>('a' + i % 26)));
  const std::string text = request.Text();
  const absl::StatusOr<WireBytes> reply = pair.Call("/c/d", std::move(request)).get();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(TextOf(*reply), "/c/d:" + text);
}

// A message with many small buffers in shared memory lends them instead of copying them.
TEST(FastLinkTest, ManySmallPiecesAreReadWhereTheyLie) {
  constexpr size_t kCount = 100;
  std::vector<Buffer> buffers;
  for (size_t i = 0; i < kCount; ++i)
    buffers.push_back(Shown(4096, static_cast<char>('a' + i % 26)));
  Pair pair([&buffers](FastCall call) {
    WireMessage reply = MessageOf("head");
    for (const Buffer& buffer : buffers) {
      reply.Attach(buffer);
      reply.Append("next");
    }
    std::move(call.reply)(std::move(reply));
  });
  std::string wanted = "head";
  for (const Buffer& buffer : buffers)
    absl::StrAppend(&wanted, absl::string_view(buffer.data(), buffer.length_bytes()), "next");
  for (int i = 0; i < 3; ++i) {
    absl::StatusOr<WireBytes> reply = pair.Call("/a/b", WireMessage()).get();
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_TRUE(TextOf(*reply) == wanted);
    EXPECT_EQ(reply->pieces.size(), 2 * kCount + 1);
    for (const Buffer& buffer : buffers) EXPECT_FALSE(buffer.exclusive());
  }
  // They are given back with whatever is said next, the last ones here with the end of the link.
  pair.client->Break("over");
  for (const Buffer& buffer : buffers) EXPECT_TRUE(Eventually([&] { return buffer.exclusive(); }));
}

TEST(FastLinkTest, WhatIsLentOutlivesItsOwner) {
  absl::StatusOr<WireBytes> reply = WireBytes();
  {
    Pair pair([](FastCall call) {
      WireMessage message;
      message.Attach(Filled(1 << 20, 'z'));
      std::move(call.reply)(std::move(message));
    });
    reply = pair.Call("/a/b", WireMessage()).get();
    pair.server->Break("gone");
    EXPECT_TRUE(Eventually([&] { return !pair.client->is_open(); }));
  }
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(TextOf(*reply), std::string(1 << 20, 'z'));
}

TEST(FastLinkTest, ABorrowerThatGoesGivesBack) {
  Buffer buffer = Filled(1 << 20, 'm');
  Pair pair([&buffer](FastCall call) {
    WireMessage reply;
    reply.Attach(buffer);
    std::move(call.reply)(std::move(reply));
  });
  const absl::StatusOr<WireBytes> reply = pair.Call("/a/b", WireMessage()).get();
  ASSERT_TRUE(reply.ok());
  // Under sanitizers a copy is lent.
  EXPECT_EQ(buffer.exclusive(), !SharedMemory::Global().Find(buffer.data()).has_value());
  pair.client->Break("killed");
  EXPECT_TRUE(Eventually([&] { return buffer.exclusive(); }));
}

TEST(FastLinkTest, ABrokenLinkFailsItsCalls) {
  Mutex mutex;
  std::vector<FastCall> held;
  Pair pair([&](FastCall call) {
    MutexLock lock(mutex);
    held.push_back(std::move(call));
  });
  auto reply = pair.Call("/a/b", WireMessage());
  ASSERT_TRUE(Eventually([&] {
    MutexLock lock(mutex);
    return held.size() == 1;
  }));
  const auto cancellation = held[0].options.cancellation;
  EXPECT_EQ(pair.server->num_served(), 1u);
  pair.client->Break("Socket closed");
  const absl::Status status = reply.get().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/job:ps/replica:0/task:0 (here)"));
  EXPECT_TRUE(Eventually([&] { return cancellation->cancelled(); }));
  EXPECT_EQ(cancellation->reason().code(), absl::StatusCode::kUnavailable);
  std::move(held[0].reply)(WireMessage());  // is dropped
  // Later calls fail at once.
  EXPECT_EQ(pair.Call("/a/b", WireMessage()).get().status().code(), absl::StatusCode::kUnavailable);
}

TEST(FastLinkTest, CancellationAndDeadlinesReachTheOtherSide) {
  Mutex mutex;
  std::vector<FastCall> held;
  Pair pair([&](FastCall call) {
    MutexLock lock(mutex);
    held.push_back(std::move(call));
  });
  CallOptions options;
  options.cancellation = std::make_shared<Cancellation>();
  auto cancelled = pair.Call("/a/b", WireMessage(), options);
  CallOptions timed;
  timed.timeout = absl::Milliseconds(20);
  EXPECT_EQ(pair.Call("/a/b", WireMessage(), timed).get().status().code(),
            absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(Eventually([&] {
    MutexLock lock(mutex);
    return held.size() == 2;
  }));
  options.cancellation->Cancel(absl::AbortedError("enough"));
  EXPECT_EQ(cancelled.get().status(), absl::AbortedError("enough"));
  for (FastCall& call : held) {
    EXPECT_TRUE(Eventually([&] { return call.options.cancellation->cancelled(); }));
    std::move(call.reply)(WireMessage());
  }
  // One that is cancelled before it begins.
  EXPECT_EQ(pair.Call("/a/b", WireMessage(), options).get().status(), absl::AbortedError("enough"));
}

class FastLinkOfBothKindsTest : public testing::TestWithParam<Reach> {};
INSTANTIATE_TEST_SUITE_P(Reaches, FastLinkOfBothKindsTest,
                         testing::Values(Reach::kMachine, Reach::kNetwork));

TEST_P(FastLinkOfBothKindsTest, ManyCallsAtOnce) {
  Pair pair(Echo, GetParam());
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        WireMessage request;
        const Buffer buffer = Filled(t % 2 == 0 ? 100 : 100'000, static_cast<char>('a' + t));
        request.Attach(buffer);
        const auto reply = pair.Call("/p", std::move(request)).get();
        if (reply.ok() &&
            TextOf(*reply) == "/p:" + std::string(buffer.data(), buffer.length_bytes()))
          ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 8 * 200);
}

// A call that never ends does not hold up the others.
TEST(FastLinkTest, ABlockedCallBlocksNoOther) {
  std::promise<void> released;
  const std::shared_future<void> release = released.get_future().share();
  Pair pair([release](FastCall call) {
    if (call.path == "/blocks") release.wait();
    Echo(std::move(call));
  });
  std::vector<std::future<absl::StatusOr<WireBytes>>> blocked;
  for (int i = 0; i < 4; ++i) blocked.push_back(pair.Call("/blocks", WireMessage()));
  EXPECT_TRUE(pair.Call("/runs", WireMessage()).get().ok());
  released.set_value();
  for (auto& call : blocked) EXPECT_TRUE(call.get().ok());
}

TEST(FastLinkTest, ACallThatBlocksAfterManyQuickOnesBlocksNoOther) {
  std::promise<void> released;
  const std::shared_future<void> release = released.get_future().share();
  Pair pair([release](FastCall call) {
    if (call.path == "/blocks") release.wait();
    Echo(std::move(call));
  });
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(pair.Call("/runs", WireMessage()).get().ok());
  auto blocked = pair.Call("/blocks", WireMessage());
  EXPECT_TRUE(pair.Call("/runs", WireMessage()).get().ok());
  released.set_value();
  EXPECT_TRUE(blocked.get().ok());
}

TEST(FastLinkTest, WhoDoesNotReadIsWaitedFor) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets), 0);
  const auto client = FastLink::Create(sockets[1], nullptr, &DefaultScheduler());
  std::atomic<int> replies{0};
  for (int i = 0; i < 50; ++i) {
    client->Call("/a/b", "x", {}, MessageOf(std::string(60'000, 'q')),
                 [&replies](const absl::StatusOr<WireBytes>& reply) { replies += reply.ok(); });
  }
  EXPECT_TRUE(client->is_open());
  const auto server = FastLink::Create(sockets[0], Echo, &DefaultScheduler());
  EXPECT_TRUE(Eventually([&] { return replies == 50; }));
}

TEST(FastLinkTest, LargerMessagesThanAllowedAreRefused) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets), 0);
  Pair pair(nullptr);
  pair.server = FastLink::Create(sockets[0], Echo, &DefaultScheduler(), 100'000);
  pair.client = FastLink::Create(sockets[1], nullptr, &DefaultScheduler());
  EXPECT_TRUE(pair.Call("/p", MessageOf(std::string(99'000, 'q'))).get().ok());
  WireMessage lent;
  lent.Attach(Filled(200'000, 'q'));
  const absl::Status status = pair.Call("/p", std::move(lent)).get().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(pair.Call("/p", MessageOf("short")).get().ok());
}

// Over the network everything is sent, from where it lies.
TEST(NetworkLinkTest, MessagesOfAllSizesArriveWhereTensorsMayStay) {
  for (const size_t size : {0, 1, 100, 20'000, 300'000, 30'000'000}) {
    Buffer buffer = Filled(size, 'm');
    Pair pair(
        [&buffer](FastCall call) {
          WireMessage reply = MessageOf(TextOf(call.request));
          reply.Attach(buffer);
          reply.Append("end");
          std::move(call.reply)(std::move(reply));
        },
        Reach::kNetwork);
    WireMessage request = MessageOf("head");
    request.Attach(Hidden(size, 'r'));
    absl::StatusOr<WireBytes> reply = pair.Call("/a/b", std::move(request)).get();
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_TRUE(TextOf(*reply) ==
                absl::StrCat("head", std::string(size, 'r'), std::string(size, 'm'), "end"));
    for (const absl::string_view piece : reply->pieces) {
      if (piece.size() < size || size < 20'000) continue;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(piece.data()) % kBufferAlignment, 0u);
    }
    // It is not held until the receiver is done.
    EXPECT_TRUE(Eventually([&] { return buffer.exclusive(); }));
  }
}

TEST(NetworkLinkTest, AMessageOfManyPiecesIsSentInParts) {
  Pair pair(Echo, Reach::kNetwork);
  WireMessage request;
  for (int i = 0; i < 3000; ++i)
    request.Attach(Hidden(1000 + static_cast<size_t>(i), static_cast<char>('a' + i % 26)));
  const std::string text = request.Text();
  const absl::StatusOr<WireBytes> reply = pair.Call("/p", std::move(request)).get();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(TextOf(*reply) == "/p:" + text);
}

TEST(NetworkLinkTest, LargerMessagesThanAllowedTakeNoMemory) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets), 0);
  Pair pair(nullptr);
  pair.server = FastLink::Create(sockets[0], Echo, &DefaultScheduler(), 100'000, Reach::kNetwork);
  pair.client =
      FastLink::Create(sockets[1], nullptr, &DefaultScheduler(), SIZE_MAX, Reach::kNetwork);
  WireMessage large;
  large.Attach(Hidden(20'000'000, 'q'));
  const absl::Status status = pair.Call("/p", std::move(large)).get().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("larger than max"));
  EXPECT_TRUE(pair.Call("/p", MessageOf(std::string(90'000, 'q'))).get().ok());
}

// The other end of a link, byte by byte.
struct RawEnd {
  explicit RawEnd(ServeCall serve) {
    int sockets[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    socket = sockets[1];
    const timeval minute = {.tv_sec = 60, .tv_usec = 0};
    EXPECT_EQ(setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof(minute)), 0);
    link = FastLink::Create(sockets[0], std::move(serve), &DefaultScheduler(), SIZE_MAX,
                            Reach::kNetwork);
  }
  ~RawEnd() { close(socket); }
  void Send(PacketHeader header, const std::string& path = "") const {
    PieceEntry piece;
    header.num_pieces = path.empty() ? 0 : 1;
    header.body_bytes = path.empty() ? 0 : sizeof(piece) + path.size();
    piece.offset = sizeof(piece);
    piece.length = path.size();
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
    if (!path.empty()) bytes.append(reinterpret_cast<const char*>(&piece), sizeof(piece));
    bytes += path;
    ASSERT_EQ(write(socket, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  // The next packet, without its body; of kind zero when the connection has ended.
  PacketHeader Receive() const {
    PacketHeader header;
    if (!Read(reinterpret_cast<char*>(&header), sizeof(header))) return {.kind = PacketKind{0}};
    std::string body(header.body_bytes, ' ');
    EXPECT_TRUE(Read(body.data(), body.size()));
    return header;
  }
  bool Read(char* to, size_t size) const {
    while (size > 0) {
      const ssize_t count = read(socket, to, size);
      if (count <= 0) return false;
      to += count;
      size -= static_cast<size_t>(count);
    }
    return true;
  }
  int socket = -1;
  std::shared_ptr<FastLink> link;
};

// 256 MiB of replies may wait for a caller that does not read them.
TEST(NetworkLinkTest, CallsOfACallerThatDoesNotReadWait) {
  constexpr int kCalls = 30;
  // Those that wait, one that is on its way, and some that threads have taken meanwhile.
  constexpr int kMostWaiting = 14;
  const Buffer large = Filled(32 << 20, 'x');
  std::atomic<int> served{0};
  const RawEnd caller([&](FastCall call) {
    ++served;
    WireMessage reply;
    reply.Attach(large);
    std::move(call.reply)(std::move(reply));
  });
  for (uint64_t i = 1; i <= kCalls; ++i) caller.Send({.kind = PacketKind::kCall, .call = i}, "/p");
  ASSERT_TRUE(Eventually([&] { return served >= 8; }));
  for (int read = 0; read < kCalls; ++read) {
    EXPECT_LE(served - read, kMostWaiting);
    ASSERT_EQ(caller.Receive().kind, PacketKind::kReply);
  }
  EXPECT_EQ(served, kCalls);
}

TEST(NetworkLinkTest, SilenceBreaksTheLinkAndIsAskedAbout) {
  const RawEnd silent(nullptr);
  silent.link->SetSilence(absl::ZeroDuration(), absl::Milliseconds(1200));
  std::promise<absl::Status> ended;
  silent.link->Call(
      "/p", "/job:ps/replica:0/task:0 (there)", {}, WireMessage(),
      [&ended](const absl::StatusOr<WireBytes>& reply) { ended.set_value(reply.status()); });
  EXPECT_EQ(silent.Receive().kind, PacketKind::kCall);
  // As long as it answers nothing breaks, for longer than the limit.
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(silent.Receive().kind, PacketKind::kPing);
    silent.Send({.kind = PacketKind::kPong});
  }
  EXPECT_TRUE(silent.link->is_open());
  const absl::Status status = ended.get_future().get();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("nothing came over the connection for 1.2s"));
  EXPECT_FALSE(silent.link->is_open());
}

// The memory of a packet is taken when its header has come.
TEST(NetworkLinkTest, APacketThatIsNotSentToItsEndBreaksTheLink) {
  const RawEnd sends(Echo);
  sends.link->SetSilence(absl::ZeroDuration(), absl::Milliseconds(1200));
  const PacketHeader header = {.kind = PacketKind::kCall, .call = 1, .body_bytes = 50'000'000};
  ASSERT_EQ(write(sends.socket, &header, sizeof(header)), static_cast<ssize_t>(sizeof(header)));
  while (sends.Receive().kind == PacketKind::kPing) {
  }
  EXPECT_FALSE(sends.link->is_open());
}

TEST(NetworkLinkTest, CallsWithoutRepliesAreLimited) {
  Mutex mutex;
  std::vector<FastCall> held;
  const RawEnd caller([&](FastCall call) {
    MutexLock lock(mutex);
    held.push_back(std::move(call));
  });
  constexpr uint64_t kMost = 1 << 16;
  for (uint64_t i = 1; i <= kMost + 1; ++i)
    caller.Send({.kind = PacketKind::kCall, .call = i}, "/p");
  // One of them, not always the last: they are counted when they are read.
  const PacketHeader refused = caller.Receive();
  EXPECT_EQ(refused.kind, PacketKind::kReply);
  EXPECT_EQ(refused.code, static_cast<int32_t>(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(Eventually([&] {
    MutexLock lock(mutex);
    return held.size() == kMost;
  }));
}

TEST(NetworkLinkTest, AQuestionIsAnswered) {
  const RawEnd asks(Echo);
  asks.Send({.kind = PacketKind::kPing});
  EXPECT_EQ(asks.Receive().kind, PacketKind::kPong);
}

TEST(FastLinkTest, GarbageBreaksTheLinkOnly) {
  PacketHeader unknown_kind;
  unknown_kind.kind = static_cast<PacketKind>(77);
  PacketHeader too_long;
  too_long.body_bytes = uint64_t{1} << 60;
  PacketHeader too_many_pieces;
  too_many_pieces.num_pieces = 1000;
  PacketHeader no_descriptors;
  no_descriptors.kind = PacketKind::kSegments;
  no_descriptors.body_bytes = 16;
  PacketHeader bad_piece;
  bad_piece.num_pieces = 1;
  bad_piece.body_bytes = sizeof(PieceEntry);
  PieceEntry not_there;
  not_there.segment = 5;
  not_there.length = 1 << 20;
  PieceEntry outside;
  outside.offset = 16;
  outside.length = uint64_t{1} << 63;
  const auto bytes = [](const auto& value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  for (const std::string& text :
       {std::string(200, 'g'), bytes(unknown_kind), bytes(too_long), bytes(too_many_pieces),
        bytes(no_descriptors) + std::string(16, 1), bytes(bad_piece) + bytes(not_there),
        bytes(bad_piece) + bytes(outside)}) {
    int sockets[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets), 0);
    const auto server = FastLink::Create(sockets[0], Echo, &DefaultScheduler());
    ASSERT_EQ(write(sockets[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    EXPECT_TRUE(Eventually([&] { return !server->is_open(); })) << text.size();
    close(sockets[1]);
  }
}

}  // namespace
}  // namespace muster::fast
