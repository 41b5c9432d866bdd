// File descriptors: ownership of one, and how many a process may have.
#pragma once

#include <utility>

namespace muster {

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
  // The caller takes ownership.
  int Release() && { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// How many the process may have open: its soft limit.
int DescriptorLimit();
// Raises the soft limit to the hard one, which needs no rights; at most to a million, beyond which
// programs that go through all possible descriptors would take too long. Returns the new limit.
int RaiseDescriptorLimit();

}  // namespace muster
