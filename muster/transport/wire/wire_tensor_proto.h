// The messages that carry tensors, in TensorFlow's encoding. Plain elements never pass through
// protobuf.
#pragma once

#include <optional>
#include <vector>

#include "muster/transport/api/worker_api.h"
#include "muster/transport/wire/wire_message.h"

namespace google::protobuf {
class Message;
}

namespace muster {

// InvalidArgument for bytes that are not such a message.
absl::Status ParseMessage(const WireBytes& bytes, google::protobuf::Message& message);
// Internal for one that is larger than any peer takes.
absl::StatusOr<WireMessage> SerializeMessage(const google::protobuf::Message& message);
absl::Status CheckSize(const WireMessage& message, size_t limit_bytes = INT32_MAX);

// The occurrences of one length-delimited field; protobuf reads the others into `rest`.
absl::StatusOr<std::vector<WireReader>> SplitField(const WireBytes& bytes, uint32_t field,
                                                   google::protobuf::Message& rest);

// A TensorProto. Elements in one aligned piece are used in place.
absl::StatusOr<Tensor> ReadTensor(const WireReader& message);
absl::StatusOr<WireMessage> WriteTensor(const Tensor& tensor);
// A NamedTensorProto.
absl::StatusOr<NamedTensor> ReadNamedTensor(const WireReader& message);
// Appends `tensor` as a field of a message.
absl::Status AppendNamedTensor(uint32_t field, const NamedTensor& tensor, WireMessage& to);
absl::Status AppendTensor(uint32_t field, const Tensor& tensor, WireMessage& to);

// A RecvTensorResponse, byte for byte as TensorFlow writes it.
absl::StatusOr<WireMessage> WriteRecvTensorReply(const RecvTensorReply& reply,
                                                 int64_t send_start_micros);
absl::StatusOr<RecvTensorReply> ReadRecvTensorReply(const WireBytes& bytes);

// The same for a tensor whose elements the receiver fetches: type and shape only.
absl::StatusOr<WireMessage> WriteRecvTensorInPieces(const RecvTensorReply& reply,
                                                    int64_t send_start_micros, uint64_t id);
struct TensorPieces {
  uint64_t id = 0;
  RecvTensorReply reply;  // with memory for the elements
};
// Nothing where the reply carries its tensor. ResourceExhausted when there is no memory for it.
absl::StatusOr<std::optional<TensorPieces>> ReadTensorPieces(const WireBytes& bytes);

// A RecvTensorsProto.
absl::StatusOr<WireMessage> WriteRecvTensors(const RecvTensorsRequest& request);
absl::StatusOr<RecvTensorsRequest> ReadRecvTensors(const WireBytes& bytes);

// Items of a RecvTensorsReplyProto: a tensor, or the head of one in pieces.
absl::Status AppendReceivedItem(const RecvTensorsReply::Tensor& tensor, WireMessage& to);
void AppendPiecesItem(size_t index, const WireMessage& head, WireMessage& to);
struct ReceivedTensors {
  RecvTensorsReply reply;
  // Those that came without their elements, by their place in the reply.
  std::vector<std::pair<size_t, TensorPieces>> in_pieces;
};
absl::StatusOr<ReceivedTensors> ReadRecvTensorsReply(const WireBytes& bytes);

}  // namespace muster
