#include "muster/transport/grpc/grpc_bytes.h"

#include "absl/strings/str_cat.h"

#include "muster/tensor/memory_guard.h"
#include "muster/tensor/unused_memory.h"
#include "muster/transport/wire/status_proto.h"

namespace muster {
namespace {

// Shorter texts are copied into the slice.
constexpr size_t kShareFromBytes = 2048;

// Tensors may share this memory for their whole lifetime, so large messages count towards the
// limit.
struct Received {
  ~Received() {
    if (counted_bytes > 0) MemoryGuard::Global().Return(this, counted_bytes);
  }
  std::vector<grpc::Slice> slices;
  size_t counted_bytes = 0;
};

// A slice over memory that `owner` keeps alive.
template <typename Owner>
grpc::Slice SharedSlice(char* data, size_t size, std::unique_ptr<Owner> owner) {
  const auto release = [](void* held) { std::unique_ptr<Owner>(static_cast<Owner*>(held)); };
  return grpc::Slice(data, size, release, owner.release());
}

grpc::Slice ToSlice(WireMessage::Piece& piece) {
  if (piece.buffer) {
    return SharedSlice(piece.buffer.data(), piece.buffer.length_bytes(),
                       std::make_unique<Buffer>(piece.buffer));
  }
  if (piece.text.size() < kShareFromBytes) return grpc::Slice(piece.text);
  auto text = std::make_unique<std::string>(std::move(piece.text));
  char* data = text->data();
  const size_t size = text->size();
  return SharedSlice(data, size, std::move(text));
}

}  // namespace

absl::StatusOr<WireBytes> FromByteBuffer(const grpc::ByteBuffer& buffer) {
  auto received = std::make_shared<Received>();
  WireBytes bytes;
  if (!buffer.Valid() || !buffer.Dump(&received->slices).ok()) return bytes;
  for (const grpc::Slice& slice : received->slices) {
    bytes.pieces.emplace_back(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  const size_t size = bytes.size_bytes();
  if (size >= kLargeUseBytes) {
    NoteLargeUse();
    if (!MemoryGuard::Global().Adopt(size, ReleaseUnusedMemory)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("OOM when receiving a message of ", size, " bytes: ", TakeShortage()));
    }
    received->counted_bytes = size;
  }
  bytes.owner = std::move(received);
  return bytes;
}

grpc::ByteBuffer ToByteBuffer(WireMessage message) {
  if (message.size_bytes() >= kLargeUseBytes) NoteLargeUse();
  std::vector<grpc::Slice> slices;
  slices.reserve(message.pieces().size());
  for (WireMessage::Piece& piece : message.pieces()) slices.push_back(ToSlice(piece));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

grpc::Status ToGrpcStatus(const absl::Status& status, CallOptions::Peer peer) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      TruncatedStatusText(StatusTextFor(status, peer, /*in_body=*/false)),
                      PayloadsToWire(status));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  absl::Status result = StatusFromWire(status.error_code(), status.error_message());
  AddPayloadsFromWire(status.error_details(), result);
  return result;
}

}  // namespace muster
