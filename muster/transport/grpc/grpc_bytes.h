// Messages and statuses in gRPC's types.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include "muster/transport/api/call.h"
#include "muster/transport/wire/wire_message.h"

namespace muster {

// Large tensors come in few frames, on both sides of a connection.
inline constexpr int kFrameBytes = 1 << 20;

// The same limit where messages do not go through gRPC: only what was set is one.
inline size_t NeighbourLimit(int max_message_bytes) {
  return max_message_bytes == INT32_MAX ? SIZE_MAX : static_cast<size_t>(max_message_bytes);
}

// Shares the memory of `buffer`. ResourceExhausted where that is more than the process may have.
absl::StatusOr<WireBytes> FromByteBuffer(const grpc::ByteBuffer& buffer);
// Shares the memory of attached tensors.
grpc::ByteBuffer ToByteBuffer(WireMessage message);

grpc::Status ToGrpcStatus(const absl::Status& status, CallOptions::Peer peer);
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace muster
