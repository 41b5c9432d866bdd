// A channel over a connected TCP socket, and small things about sockets.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "muster/collective/channel.h"

namespace muster::collective {

// Owns a descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int get() const { return fd_; }

 private:
  int fd_;
};

// Writes at once, never blocks.
void SetUpSocket(int socket);
// The other side has acknowledged every byte, or is gone.
bool SocketIsFlushed(int socket);

// Takes a connected socket and sets it up.
std::unique_ptr<Channel> NewTcpChannel(Descriptor socket);

}  // namespace muster::collective
