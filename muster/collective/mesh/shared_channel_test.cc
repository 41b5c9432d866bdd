#include "muster/collective/mesh/shared_channel.h"

#include <cstring>
#include <thread>

#include "gtest/gtest.h"
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "muster/collective/mesh/data_port.h"

namespace muster::collective {
namespace {

struct Pair {
  std::unique_ptr<Channel> caller, called;
};

constexpr char kHello[] = "hello";

// Both ends of a channel, made the way that processes make them.
Pair NewPair(const std::string& name) {
  const Descriptor listener = *ListenLocally(name);
  Pair pair;
  pair.caller = *ConnectLocally(name, kHello);
  auto local = LocalCaller::Take(Descriptor(accept(listener.get(), nullptr, nullptr)));
  char hello[sizeof(kHello)] = {};
  const iovec piece{hello, sizeof(hello)};
  EXPECT_EQ(local->Read({&piece, 1}).value(), 5u);
  EXPECT_STREQ(hello, kHello);
  pair.called = std::move(*local).Accept().value();
  return pair;
}

std::string NameOf(int number) {
  return LocalNameOf(number, absl::StrCat("test ", getpid()));
}

size_t WriteText(Channel& channel, absl::string_view text) {
  const iovec piece{const_cast<char*>(text.data()), text.size()};
  return channel.Write({&piece, 1}).value();
}

absl::StatusOr<std::string> ReadText(Channel& channel) {
  std::string text(100, '\0');
  const iovec piece{text.data(), text.size()};
  ASSIGN_OR_RETURN(const size_t got, channel.Read({&piece, 1}));
  text.resize(got);
  return text;
}

bool IsReadable(const Channel& channel) {
  pollfd polled{channel.fd(), POLLIN, 0};
  return poll(&polled, 1, 0) == 1;
}

TEST(SharedChannel, BytesComeInOrderThroughARingThatIsSmallerThanThey) {
  Pair pair = NewPair(NameOf(1));
  std::string sent(20000001, '\0');
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 31 + i / 253);
  std::string got;
  // In two pieces, as a packet is: room that comes between them must not let the second overtake.
  std::thread writer([&] {
    for (size_t written = 0; written < sent.size();) {
      const size_t count = std::min<size_t>(sent.size() - written, written % 70001 + 1);
      const size_t first = std::min<size_t>(count, 32);
      const iovec pieces[2] = {{sent.data() + written, first},
                               {sent.data() + written + first, count - first}};
      written += pair.caller->Write(pieces).value();
    }
  });
  while (got.size() < sent.size()) {
    const absl::Span<const char> bytes = pair.called->Peek().value();
    const size_t count = std::min<size_t>(bytes.size(), got.size() % 5003 + 1);
    got.append(bytes.data(), count);
    pair.called->Consume(count);
  }
  writer.join();
  EXPECT_TRUE(got == sent);
}

TEST(SharedChannel, OnlyWhoSleepsIsWoken) {
  Pair pair = NewPair(NameOf(2));
  EXPECT_EQ(WriteText(*pair.caller, "one"), 3u);
  EXPECT_FALSE(IsReadable(*pair.called));
  EXPECT_TRUE(pair.called->Arm(/*for_room=*/false));  // it is there already
  EXPECT_EQ(ReadText(*pair.called).value(), "one");
  EXPECT_FALSE(pair.called->Arm(/*for_room=*/false));
  EXPECT_EQ(WriteText(*pair.caller, "two"), 3u);
  EXPECT_TRUE(IsReadable(*pair.called));
  pair.called->Polled();
  EXPECT_EQ(ReadText(*pair.called).value(), "two");
  EXPECT_EQ(ReadText(*pair.called).value(), "");
  EXPECT_FALSE(IsReadable(*pair.called));
}

TEST(SharedChannel, WhoWaitsForRoomIsWoken) {
  Pair pair = NewPair(NameOf(3));
  const std::string much(1 << 20, 'm');
  size_t written = 0, count = 0;
  while ((count = WriteText(*pair.called, much)) > 0) written += count;
  EXPECT_FALSE(pair.called->Arm(/*for_room=*/true));
  EXPECT_FALSE(IsReadable(*pair.called));
  size_t read = 0;
  for (std::string text; read < written; read += text.size()) text = ReadText(*pair.caller).value();
  EXPECT_EQ(read, written);
  EXPECT_TRUE(IsReadable(*pair.called));
  EXPECT_GT(WriteText(*pair.called, much), 0u);
}

TEST(SharedChannel, WhatWasWrittenBeforeTheEndIsRead) {
  Pair pair = NewPair(NameOf(4));
  EXPECT_EQ(WriteText(*pair.caller, "last words"), 10u);
  EXPECT_EQ(WriteText(*pair.called, "not read"), 8u);
  pair.caller = nullptr;
  EXPECT_TRUE(IsReadable(*pair.called));
  pair.called->Polled();
  EXPECT_EQ(ReadText(*pair.called).value(), "last words");
  pair.called->Polled();
  EXPECT_TRUE(absl::IsUnavailable(ReadText(*pair.called).status()));
  const iovec piece{const_cast<char*>(kHello), 5};
  EXPECT_TRUE(absl::IsUnavailable(pair.called->Write({&piece, 1}).status()));
}

// A caller of the same user that sends no memory, or memory that it can truncate.
TEST(SharedChannel, MemoryOfAnotherKindIsRefused) {
  for (const bool sends_memory : {false, true}) {
    int sockets[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets), 0);
    const Descriptor near(sockets[0]);
    auto caller = LocalCaller::Take(Descriptor(sockets[1]));
    ASSERT_NE(caller, nullptr);
    const Descriptor memory(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(memory.get(), 4 << 20), 0);
    iovec piece{const_cast<char*>(kHello), 5};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    if (sends_memory) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      const int descriptor = memory.get();
      std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
    }
    ASSERT_EQ(sendmsg(near.get(), &message, 0), 5);
    EXPECT_EQ(ReadText(*caller).value(), kHello);
    EXPECT_TRUE(absl::IsInvalidArgument(std::move(*caller).Accept().status()));
  }
}

TEST(SharedChannel, NobodyIsThere) {
  EXPECT_TRUE(absl::IsUnavailable(ConnectLocally(NameOf(5), kHello).status()));
}

// The local socket exists only where shared memory is allowed.
TEST(SharedChannel, APortHasTheDoorUnlessItEncryptsOrIsToldNotTo) {
  const auto has_door = [](DataPort::Options options) {
    const auto port = DataPort::Listen("127.0.0.1", options).value();
    const Endpoint& endpoint = port->endpoint();
    return ConnectLocally(LocalNameOf(endpoint.port, endpoint.token), kHello).ok();
  };
  EXPECT_TRUE(has_door({}));
  EXPECT_FALSE(has_door({.encrypted = true}));
  EXPECT_FALSE(has_door({.shared_memory = false}));
}

}  // namespace
}  // namespace muster::collective
