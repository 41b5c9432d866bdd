// A channel between two processes of one machine: a ring buffer in shared memory for each
// direction, and a UNIX socket that wakes a sleeping peer and that breaks when a process dies.
//
// Each ring has one writer and one reader. The writer copies bytes in and then publishes the number
// of bytes ever written; the reader copies them out and publishes the number ever taken. The
// difference is what is in the ring, so that neither side needs a lock. A side that is about to
// sleep sets a flag and looks once more; the other side sends a byte on the socket when it sees the
// flag.
//
// The connecting process creates the memory, a sealed memfd, and passes its descriptor with the
// first bytes it sends. The system frees it with the last of the two processes, however they end.
#pragma once

#include <memory>
#include <string>

#include "muster/collective/mesh/channel.h"
#include "muster/collective/mesh/tcp_channel.h"

namespace muster::collective {

// Where the task with a data port of that number and token takes such channels: a name in the
// abstract namespace, which ends at the network namespace and tells nothing of the token.
std::string LocalNameOf(int port, absl::string_view token);
// A socket that listens there, for processes of the same user.
absl::StatusOr<Descriptor> ListenLocally(const std::string& name);

// Connects, and hands over the memory together with `hello`, which is no longer than a socket takes
// at once. Does not wait.
absl::StatusOr<std::unique_ptr<Channel>> ConnectLocally(const std::string& name,
                                                        absl::string_view hello);

// The other side: reads the hello. Becomes a channel when that is there and right.
class LocalCaller : public Channel {
 public:
  // Null for a process of another user.
  static std::unique_ptr<LocalCaller> Take(Descriptor socket);

  absl::StatusOr<size_t> Write(absl::Span<const iovec> pieces) override;
  absl::StatusOr<size_t> Read(absl::Span<const iovec> pieces) override;
  int fd() const override { return socket_.get(); }
  void CloseWriting() override {}
  bool Flushed() const override { return true; }

  // InvalidArgument when it has sent no memory, or memory that it could truncate.
  absl::StatusOr<std::unique_ptr<Channel>> Accept() &&;

 private:
  explicit LocalCaller(Descriptor socket) : socket_(std::move(socket)) {}
  Descriptor socket_;
  Descriptor memory_;
};

}  // namespace muster::collective
