// Long messages travel in parts between tasks and clients of Muster: the memory of their tensors as
// it is, each part uploaded or fetched by many calls of muster.Peer. A list of the parts is sent
// instead of the message. gRPC carries no more than 2 GiB at once, and takes memory for the whole
// of a message before anything can refuse it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/transport/messages/channel.h"
#include "muster/transport/messages/transient_store.h"

namespace muster {

// The header of a call, or of its reply, whose message is such a list.
inline constexpr char kPartsHeader[] = "muster-parts";

// What stands for a message.
struct PartList {
  uint64_t id = 0;
  std::vector<uint64_t> part_bytes;

  WireMessage Write() const;
  // InvalidArgument for bytes that are not such a list.
  static absl::StatusOr<PartList> Read(const WireBytes& bytes);
};

using Parts = std::vector<Buffer>;
Parts PartsOf(WireMessage message);
std::vector<uint64_t> SizesOf(const Parts& parts);
// Memory for parts of those sizes. ResourceExhausted where there is none.
absl::StatusOr<Parts> AllocateParts(const std::vector<uint64_t>& part_bytes);
WireBytes JoinParts(Parts parts);

// The field of an UploadRequest that has the bytes.
inline constexpr uint32_t kUploadData = 5;
// What is brought or fetched at once.
inline constexpr uint64_t kPartPieceBytes = uint64_t{2} << 20;

// Fills `parts` with the bytes that the other side keeps under `id`, by calls of muster.Peer/Piece,
// a few at a time: while one is copied the next ones are in flight, and few occupy network buffers.
void FetchParts(std::shared_ptr<const Channel> channel, CallOptions options, uint64_t id,
                Parts parts, absl::AnyInvocable<void(absl::Status) &&> done);
// Brings a message to the other side, by calls of muster.Peer/Upload; `done` gets the list that
// stands for it there. Unimplemented where the other side is not a task of Muster.
void UploadParts(std::shared_ptr<const Channel> channel, CallOptions options, Parts parts,
                 absl::AnyInvocable<void(absl::StatusOr<PartList>) &&> done);

// Messages that are on their way in parts. Thread-safe.
class UploadStore {
 public:
  // A message that has received nothing for this long is dropped.
  static constexpr absl::Duration kKeep = absl::Minutes(1);
  static constexpr size_t kMaxMessages = 256;
  static constexpr size_t kMaxParts = 1 << 16;

  // `scheduler` outlives the store.
  UploadStore(Scheduler& scheduler, uint64_t max_message_bytes)
      : max_message_bytes_(max_message_bytes), messages_(scheduler, kKeep, kMaxMessages) {}

  // Under which its bytes come. ResourceExhausted when it is too long, when there is no memory for
  // it, or when too many are under way.
  absl::StatusOr<uint64_t> Begin(const std::vector<uint64_t>& part_bytes);
  // A piece of kPartPieceBytes, at a multiple of them, or the end of its part: each once, in any
  // order. InvalidArgument for others.
  absl::Status Put(uint64_t id, uint64_t part, uint64_t offset, WireReader data);
  // The message, once. FailedPrecondition while some of it is missing.
  absl::StatusOr<WireBytes> Take(uint64_t id);
  size_t size() const { return messages_.size(); }

 private:
  struct Message {
    Parts parts;
    std::vector<std::vector<bool>> claimed;  // by part and piece
    uint64_t missing_bytes = 0;
  };
  using Messages = TransientStore<Message>;
  const uint64_t max_message_bytes_;
  Messages messages_;
};

}  // namespace muster
