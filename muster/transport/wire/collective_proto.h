// What the ranks of collectives ask each other, as TensorFlow's messages. Bytes of tensors bypass
// protobuf.
#pragma once

#include "muster/transport/api/worker_api.h"
#include "muster/transport/wire/wire_message.h"

namespace muster {

absl::StatusOr<RecvBufRequest> ReadRecvBuf(const WireBytes& bytes);
absl::StatusOr<WireMessage> WriteRecvBuf(const RecvBufRequest& request);
// Chunks of this size, as TensorFlow sends them; zero: all in one.
inline constexpr size_t kRecvBufChunk = 4096;
WireMessage WriteRecvBufReply(const RecvBufReply& reply, int64_t now_micros, size_t chunk_bytes);
// The bytes are copied to aligned memory of their own.
absl::StatusOr<RecvBufReply> ReadRecvBufReply(const WireBytes& bytes);

// Both forms: the name of the device (before 2.4), or all about it.
absl::StatusOr<CollectiveJoin> ReadCompleteGroup(const WireBytes& bytes);
absl::StatusOr<WireMessage> WriteCompleteGroup(const CollectiveJoin& request);
absl::StatusOr<WireMessage> WriteCompleteGroupReply(const CompleteGroupReply& reply);
absl::StatusOr<CompleteGroupReply> ReadCompleteGroupReply(const WireBytes& bytes);

absl::StatusOr<CollectiveInstance> ReadCompleteInstance(const WireBytes& bytes);
absl::StatusOr<WireMessage> WriteCompleteInstance(const CollectiveInstance& request);

}  // namespace muster
