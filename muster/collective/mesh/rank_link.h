// The channel to one peer, cut into packets: which piece of which collective goes out next, and
// where the bytes that come in belong. Guarded by its mesh.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "muster/collective/mesh/channel.h"
#include "muster/collective/mesh/mesh_packet.h"
#include "muster/collective/mesh/operation.h"

namespace muster::collective {

// What a link asks of its mesh.
class RankLinkOwner {
 public:
  virtual ~RankLinkOwner() = default;
  // The collective under way with this tag, or null.
  virtual Operation* FindOperation(uint64_t tag) = 0;
  // Bytes of `operation` have come.
  virtual void Touched(Operation* operation) = 0;
  // Counts bytes that the channel has taken or given.
  virtual void Moved(size_t sent, size_t received) = 0;
};

// Thread-compatible.
class RankLink {
 public:
  RankLink(int peer, RankLinkOwner& owner) : peer_(peer), owner_(owner) {}

  int peer() const { return peer_; }
  bool attached() const { return channel_ != nullptr; }
  Channel* channel() { return channel_.get(); }
  void Attach(std::unique_ptr<Channel> channel);
  void Detach();

  // `operation` has a lane to this peer: hands it what has arrived before.
  absl::Status Join(Operation* operation);
  void Queue(const MeshPacket& packet, absl::string_view text = "");
  // Drops the collectives' bytes (the rest of a packet under way is padded) and queues `reason`.
  void Abandon(const absl::Status& reason);

  // Writes until the channel takes no more, nothing is left, or a batch is written.
  absl::Status Flush(int64_t now_nanos);
  // There are bytes which the channel did not take.
  bool blocked() const { return blocked_; }
  bool idle() const { return !writing_ && control_.empty() && senders_.empty(); }
  bool control_written() const { return !writing_ && control_.empty(); }
  // Reads what is there, up to a batch. Returns the number of bytes.
  absl::StatusOr<size_t> Read(int64_t now_nanos);
  // The error of an abort packet, once.
  absl::Status TakeAbort() { return std::exchange(abort_, absl::OkStatus()); }

  int64_t heard_nanos = 0;  // when bytes came last
  int64_t sent_nanos = 0;
  bool requested = false;  // the connector has been asked
  int64_t requested_nanos = 0;
  absl::Status gone;  // why there will be no more bytes

 private:
  struct Sender {
    Operation* operation;
    Operation::Lane* lane;
  };
  // What has come for a collective that this rank has not begun.
  struct Unknown {
    uint64_t signature = 0;
    uint32_t granted = 0;
    size_t bytes = 0;
    EarlySteps steps;
  };

  bool PickPacket();
  bool MaySend(Sender& sender);
  void Wrote(size_t bytes);
  // Takes packets, and parts of them, from the front. How many bytes that were.
  absl::StatusOr<size_t> Parse(absl::Span<const char> bytes);
  // By way of the buffer, or straight to where the bytes belong. `more` may be there.
  absl::StatusOr<size_t> ReadCopied(bool& more);
  absl::Status BeginPacket();
  absl::Status BeginData(Operation* operation);
  absl::StatusOr<size_t> TakePayload();
  absl::StatusOr<Unknown*> FindUnknown();
  absl::Status TakeReady(Operation* operation);
  void Heard(uint64_t tag);

  const int peer_;
  RankLinkOwner& owner_;
  std::unique_ptr<Channel> channel_;

  // Going out: one packet at a time.
  bool writing_ = false;
  bool blocked_ = false;
  MeshPacketHeader header_{};
  size_t header_left_ = 0;
  const char* payload_ = nullptr;
  size_t payload_left_ = 0;
  size_t payload_bytes_ = 0;
  Sender writer_{};      // of the packet under way; null for control
  std::string control_;  // packets without data, whole
  std::string control_writing_;
  std::vector<Sender> senders_;
  size_t next_sender_ = 0;
  // Sent to collectives that the peer may not have begun, and must therefore keep.
  absl::flat_hash_map<uint64_t, size_t> unheard_;
  size_t unheard_bytes_ = 0;

  // Coming in.
  absl::Span<const char> input_;  // what Parse has not taken
  std::unique_ptr<char[]> buffer_;
  size_t begin_ = 0, end_ = 0;
  MeshPacket packet_;
  bool in_packet_ = false;
  size_t packet_left_ = 0;
  Operation* target_ = nullptr;  // takes the payload as it comes; else it is kept
  absl::flat_hash_map<uint64_t, Unknown> unknown_;
  size_t unknown_bytes_ = 0;
  absl::Status abort_;
};

}  // namespace muster::collective
