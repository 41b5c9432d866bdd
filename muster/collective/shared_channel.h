// A channel between two processes of one machine: a ring of memory for each direction, and a UNIX
// socket that wakes whoever sleeps and that breaks when its owner dies.
//
// Whoever connects makes the memory, a sealed memfd without a name, and hands it over with the
// first bytes it sends. It goes with the last of the two, however they end.
#pragma once

#include <memory>
#include <string>

#include "muster/collective/channel.h"
#include "muster/collective/tcp_channel.h"

namespace muster::collective {

// Whether the user wants it: MUSTER_FAST is not 0.
bool SharedMemoryIsWanted();

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

  // InvalidArgument when it has sent no memory, or some that it could shorten.
  absl::StatusOr<std::unique_ptr<Channel>> Accept() &&;

 private:
  explicit LocalCaller(Descriptor socket) : socket_(std::move(socket)) {}
  Descriptor socket_;
  Descriptor memory_;
};

}  // namespace muster::collective
