// A byte stream to and from one other rank, and how a mesh opens one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/types/span.h"
#include <sys/uio.h>

#include "muster/base/status.h"

namespace muster::collective {

// Never blocks. Used by one thread at a time.
class Channel {
 public:
  virtual ~Channel() = default;
  // Bytes taken from or put into the pieces, in order; 0 when there is no room or nothing to read
  // at the moment. UNAVAILABLE once the other side has closed and everything it had sent is read.
  virtual absl::StatusOr<size_t> Write(absl::Span<const iovec> pieces) = 0;
  virtual absl::StatusOr<size_t> Read(absl::Span<const iovec> pieces) = 0;
  // What epoll watches; -1 for a channel that calls the waker instead.
  virtual int fd() const { return -1; }
  // Bytes have been taken from the operating system that no Read has handed out yet.
  virtual bool HoldsBytes() const { return false; }
  // Bytes that can be read in place, until Consume; empty when there are none at the moment. Errors
  // are those of Read.
  virtual bool can_peek() const { return false; }
  virtual absl::StatusOr<absl::Span<const char>> Peek() { return absl::Span<const char>(); }
  virtual void Consume(size_t /*bytes*/) {}
  // For a channel whose bytes do not come through fd(). Arm: a thread is about to wait, so incoming
  // bytes, and room if `for_room`, must make fd() readable until the next Read or Peek; true when
  // they are there already. Polled: fd() has become readable.
  virtual bool Arm(bool /*for_room*/) { return false; }
  virtual void Polled() {}
  // fd() is writable when there is room; otherwise it becomes readable then.
  virtual bool room_is_polled() const { return true; }
  // Called, from any thread, when a Write or Read that gave 0 is worth another try.
  virtual void SetWaker(std::function<void()> /*waker*/) {}
  // No more bytes will be written; those that were still arrive.
  virtual void CloseWriting() = 0;
  // Everything written has arrived, so that destroying the channel loses nothing.
  virtual bool Flushed() const = 0;
};

// Gives a mesh its channels. Thread-safe. The destructor returns when no call of `connected` is
// under way; none comes after it.
class Connector {
 public:
  // The channel to `peer`, or why there will be none; null: `peer` wants one, and this rank is to
  // ask for it.
  using Connected = std::function<void(int peer, absl::StatusOr<std::unique_ptr<Channel>>)>;

  virtual ~Connector() = default;
  // From now on channels that other ranks open may be handed to `connected`, at any time and from
  // any thread. Called once, before the others.
  virtual void Open(uint64_t group, int rank, Connected connected) = 0;
  // Asks for the channel to `peer`; both ranks do. Does not wait. If the peer's process, or its
  // part in the group, has ended, that is reported at once.
  virtual void Connect(int peer) = 0;
  // Other ranks that ask for a channel from now on get `reason`. Does not wait.
  virtual void End(const absl::Status& reason) = 0;
};

}  // namespace muster::collective
