// One collective in progress at one rank: how far its schedule has come. Knows no channel and no
// lock.
//
// Receives are completed strictly in the order of the schedule, so that every reduction has the
// same order on all runs. A send that depends on a receive (Send::after) starts as soon as a prefix
// of its bytes is there: this pipelines rings and chains. Flow control is per peer (a lane): sends
// up to kEagerBytes may go out at once, and the receiver buffers those that come before their turn;
// larger ones wait for a grant, which the receiver gives when it can place the bytes directly.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"

#include "muster/collective/mesh/group.h"
#include "muster/collective/mesh/schedule.h"

namespace muster::collective {

// A send up to this size may go out before its receiver is known to wait for it.
inline constexpr size_t kEagerBytes = 256 << 10;

// Bytes of one step that have come before their turn.
struct EarlyStep {
  uint32_t step = 0;
  std::string bytes;
};
using EarlySteps = std::list<EarlyStep>;

// Thread-compatible.
class Operation {
 public:
  // The traffic with one peer.
  struct Lane {
    int peer = 0;
    absl::InlinedVector<int, 4> sends, receives;  // places in the schedule
    size_t next_send = 0;
    size_t sent = 0;               // bytes of it that are written
    uint32_t granted_by_peer = 0;  // sends that the peer awaits
    uint32_t granted_to_peer = 0;  // receives that the peer knows we await
    bool announced = false;        // the peer has been told that we take part
    bool heard = false;            // the peer takes part
    bool charged = false;          // the next send counts against what may be unheard of
    EarlySteps early;
  };
  struct Piece {
    const char* data = nullptr;
    size_t bytes = 0;
    uint32_t step = 0;
  };

  // `kernel` is null when nothing is reduced and bytes are the elements; `divisor` 0 when nothing
  // is divided.
  Operation(uint64_t tag, uint64_t signature, Schedule schedule, char* data,
            const ReduceKernel* kernel, int64_t divisor, Done done);

  uint64_t tag() const { return tag_; }
  uint64_t signature() const { return signature_; }
  Done TakeDone() { return std::move(done_); }
  absl::Span<Lane> lanes() { return absl::MakeSpan(lanes_); }
  Lane* FindLane(int peer);
  // Packets hold whole elements.
  size_t element_bytes() const { return kernel_.element_bytes; }
  bool finished() const { return current_ == schedule_.receives.size() && sends_left_ == 0; }
  // The peer whose bytes come next; -1 when all are there.
  int awaited_peer() const {
    return current_ < schedule_.receives.size() ? schedule_.receives[current_].peer : -1;
  }
  bool Needs(const Lane& lane) const;
  int64_t progress_nanos = 0;  // when bytes moved last

  // The next bytes for the lane's peer, at most kPacketBytes; empty when they are not there yet.
  // Valid until more bytes arrive.
  Piece NextPiece(const Lane& lane) const;
  size_t NextSendBytes(const Lane& lane) const {
    return schedule_.sends[lane.sends[lane.next_send]].bytes;
  }
  // The piece is written.
  void Sent(Lane& lane, size_t bytes);

  // Whether a piece of `bytes` for step `step` of the lane can be taken at all, and whether now.
  absl::Status CheckPiece(const Lane& lane, uint32_t step, size_t bytes) const;
  bool IsNext(const Lane& lane, uint32_t step) const;
  // Takes a prefix of the current receive's bytes: whole elements when they are reduced.
  size_t Accept(const char* bytes, size_t count);
  // Where the current receive's next bytes can be written to; null when they are to be reduced.
  char* CopyTarget();
  void Copied(size_t count);
  // Takes what came early and has its turn now.
  absl::Status AcceptEarly();
  // Receives of the lane that may now be granted: those that can be taken as they come. 0 when
  // there is nothing new to tell the peer.
  uint32_t NewGrant(const Lane& lane) const;

 private:
  size_t Available(const Send& send) const;
  // Before bytes are overwritten that are still to be sent.
  void TakeSnapshots();

  const uint64_t tag_;
  const uint64_t signature_;
  const Schedule schedule_;
  char* const data_;
  const ReduceKernel kernel_;
  const int64_t divisor_;
  Done done_;
  std::vector<Lane> lanes_;
  absl::InlinedVector<uint32_t, 4> receive_steps_;  // the number of each receive on its lane
  // Of each send.
  struct Outgoing {
    bool sent = false;
    std::unique_ptr<char[]> snapshot;  // null while the bytes are still in place
  };
  absl::InlinedVector<Outgoing, 4> outgoing_;
  size_t next_snapshot_ = 0;
  size_t current_ = 0;   // the receive under way
  size_t received_ = 0;  // bytes of it
  size_t sends_left_ = 0;
};

}  // namespace muster::collective
