#include "muster/transport/wire/wire_tensor_proto.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "google/protobuf/io/zero_copy_stream_impl.h"
#include "google/protobuf/message.h"
#include "tensorflow/core/framework/tensor.pb.h"
#include "tensorflow/core/protobuf/worker.pb.h"

#include "muster/tensor/tensor_proto.h"
#include "muster/transport/peer.pb.h"

namespace muster {
namespace {

// Smaller tensors are copied: a tensor in a network buffer keeps all of that buffer alive.
constexpr size_t kAdoptFromBytes = 16 << 10;

absl::Status NotA(absl::string_view name) {
  return InvalidArgument("The bytes received are not a message of type ", name);
}

absl::Status BadContent(DType dtype, const Shape& shape, size_t length) {
  return InvalidArgument("tensor_content of ", length, " bytes does not hold a tensor of type ",
                         DTypeName(dtype), " and shape ", shape.ToString());
}

// In the typed encoding the last value repeats, so that a few bytes can stand for gigabytes, many
// times in one message. Peers send contents; what others write by hand may grow this much.
absl::Status CheckGrowth(const tensorflow::TensorProto& proto, size_t message_bytes) {
  constexpr int64_t kFreeBytes = 4096, kMostGrowth = 64;
  if (!proto.tensor_content().empty() || !IsValidDType(proto.dtype())) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Shape shape, ShapeFromProto(proto.tensor_shape()));
  const std::optional<int64_t> bytes = MultiplyWithoutOverflow(
      shape.num_elements(), static_cast<int64_t>(DTypeSize(static_cast<DType>(proto.dtype()))));
  if (bytes && *bytes <= kFreeBytes + kMostGrowth * static_cast<int64_t>(message_bytes)) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat("A message of ", message_bytes,
                                                   " bytes may not hold a tensor of shape ",
                                                   shape.ToString(), " by repeating values"));
}

absl::StatusOr<Tensor> ReadTensorWithProtobuf(absl::Span<const WireReader> parts) {
  // Parts of one field that comes several times merge as if they were written one after the other.
  std::string text;
  for (const WireReader& part : parts) part.AppendTextTo(text);
  tensorflow::TensorProto proto;
  if (!proto.ParseFromString(text)) return NotA(proto.GetTypeName());
  RETURN_IF_ERROR(CheckGrowth(proto, text.size()));
  return TensorFromProto(proto);
}

// Sizes alone, as all senders of values write them.
std::optional<Dims> ReadSizes(WireReader reader) {
  Dims dims;
  while (!reader.at_end()) {
    const absl::StatusOr<WireReader::Tag> tag = reader.NextTag();
    if (!tag.ok() || tag->field != 2 || tag->type != WireType::kBytes) return std::nullopt;
    absl::StatusOr<WireReader> dim = reader.Bytes();
    if (!dim.ok()) return std::nullopt;
    int64_t size = 0;
    if (!dim->at_end()) {
      const absl::StatusOr<WireReader::Tag> field = dim->NextTag();
      if (!field.ok() || field->field != 1 || field->type != WireType::kVarint) return std::nullopt;
      const absl::StatusOr<uint64_t> value = dim->Varint();
      if (!value.ok() || !dim->at_end()) return std::nullopt;
      size = static_cast<int64_t>(*value);
    }
    if (size < 0) return std::nullopt;
    dims.push_back(size);
  }
  return dims;
}

absl::StatusOr<Shape> ReadShape(const WireReader& reader) {
  if (const std::optional<Dims> dims = ReadSizes(reader)) return Shape::Make(*dims);
  tensorflow::TensorShapeProto proto;
  if (!proto.ParseFromString(reader.Text())) return NotA(proto.GetTypeName());
  return ShapeFromProto(proto);
}

absl::StatusOr<Tensor> ReadPlain(WireReader content, DType dtype, Shape shape) {
  const std::optional<int64_t> bytes =
      MultiplyWithoutOverflow(shape.num_elements(), static_cast<int64_t>(DTypeSize(dtype)));
  const size_t length = content.remaining();
  if (!bytes || *bytes != static_cast<int64_t>(length)) return BadContent(dtype, shape, length);
  const absl::string_view whole = content.Contiguous();
  if (length >= kAdoptFromBytes && dtype != DType::kBool && whole.data() != nullptr &&
      reinterpret_cast<uintptr_t>(whole.data()) % kBufferAlignment == 0) {
    return Tensor::FromBuffer(
        dtype, std::move(shape),
        Buffer::AdoptExternal(whole.data(), length, [owner = content.owner()] {}));
  }
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Make(dtype, std::move(shape)));
  content.CopyTo(tensor.raw(), length);
  if (dtype == DType::kBool) {
    // Any other byte is not a valid bool in C++.
    std::transform(tensor.raw(), tensor.raw() + length, tensor.data<bool>(),
                   [](char c) { return c != 0; });
  }
  return tensor;
}

// All lengths, then the elements back to back.
absl::StatusOr<Tensor> ReadStrings(WireReader content, Shape shape) {
  const size_t length = content.remaining();
  const int64_t count = shape.num_elements();
  // Each length takes a byte at least.
  if (count > static_cast<int64_t>(length)) return BadContent(DType::kString, shape, length);
  std::vector<uint64_t> lengths(static_cast<size_t>(count));
  uint64_t total = 0;
  for (uint64_t& each : lengths) {
    ASSIGN_OR_RETURN(each, content.Varint());
    if (each > length) return BadContent(DType::kString, shape, length);
    total += each;
  }
  if (total != content.remaining()) return BadContent(DType::kString, shape, length);
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Make(DType::kString, std::move(shape)));
  std::string* out = tensor.data<std::string>();
  for (const uint64_t each : lengths) {
    out->resize(each);
    content.CopyTo(out->data(), each);
    ++out;
  }
  return tensor;
}

// Lengths and elements of a string tensor as tensor_content.
std::string StringContent(const Tensor& tensor) {
  WireMessage lengths;
  size_t total = 0;
  for (const std::string& value : tensor.values<std::string>()) {
    lengths.AppendVarint(value.size());
    total += value.size();
  }
  std::string content = lengths.Text();
  content.reserve(content.size() + total);
  for (const std::string& value : tensor.values<std::string>()) content += value;
  return content;
}

// A TensorShapeProto. RecvTensor writes sizes of zero, other messages leave them out.
std::string ShapeText(const Shape& shape, bool with_zeros) {
  WireMessage text;
  for (const int64_t size : shape.dims()) {
    WireMessage dim;
    if (size != 0 || with_zeros) dim.AppendVarintField(1, static_cast<uint64_t>(size));
    text.AppendHeader(2, dim.size_bytes());
    text.Append(std::move(dim));
  }
  return text.Text();
}

// A few fields before the elements, without a message of their own.
class Head {
 public:
  void AddVarint(uint64_t value) {
    while (value >= 0x80) {
      bytes_.push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    bytes_.push_back(static_cast<char>(value));
  }
  void AddVarintField(uint32_t field, uint64_t value) {
    AddVarint(uint64_t{field} << 3);
    AddVarint(value);
  }
  void AddHeader(uint32_t field, size_t length) {
    AddVarint(uint64_t{field} << 3 | static_cast<uint64_t>(WireType::kBytes));
    AddVarint(length);
  }
  void Add(const Head& other) {
    bytes_.insert(bytes_.end(), other.bytes_.begin(), other.bytes_.end());
  }
  absl::string_view text() const { return {bytes_.data(), bytes_.size()}; }

 private:
  absl::InlinedVector<char, 96> bytes_;
};

Buffer Elements(const Tensor& tensor) {
  return tensor.num_elements() == 0 ? Buffer()
                                    : Buffer(tensor.buffer().Slice(0, tensor.size_bytes()));
}

// A RecvTensorsReplyProto.Item with a tensor of plain elements, of which there is one at least.
void AppendPlainItem(size_t index, const Tensor& tensor, WireMessage& to) {
  Head shape;
  for (const int64_t size : tensor.shape().dims()) {
    Head dim;
    dim.AddVarintField(1, static_cast<uint64_t>(size));
    shape.AddHeader(2, dim.text().size());
    shape.Add(dim);
  }
  Head value;
  value.AddVarintField(1, static_cast<uint64_t>(tensor.dtype()));
  value.AddHeader(2, shape.text().size());
  value.Add(shape);
  value.AddHeader(4, tensor.size_bytes());
  Head item;
  item.AddVarintField(1, index);
  item.AddHeader(3, value.text().size() + tensor.size_bytes());
  item.Add(value);
  Head all;
  all.AddHeader(1, item.text().size() + tensor.size_bytes());
  all.Add(item);
  to.Append(all.text());
  to.Attach(Elements(tensor));
}

}  // namespace

absl::Status ParseMessage(const WireBytes& bytes, google::protobuf::Message& message) {
  namespace io = google::protobuf::io;
  if (bytes.size_bytes() > INT32_MAX) return NotA(message.GetTypeName());
  std::vector<std::unique_ptr<io::ArrayInputStream>> streams;
  std::vector<io::ZeroCopyInputStream*> pointers;
  for (absl::string_view piece : bytes.pieces) {
    streams.push_back(
        std::make_unique<io::ArrayInputStream>(piece.data(), static_cast<int>(piece.size())));
    pointers.push_back(streams.back().get());
  }
  io::ConcatenatingInputStream all(pointers.data(), static_cast<int>(pointers.size()));
  return message.ParseFromZeroCopyStream(&all) ? absl::OkStatus() : NotA(message.GetTypeName());
}

absl::Status CheckSize(const WireMessage& message, size_t limit_bytes) {
  if (message.size_bytes() <= limit_bytes) return absl::OkStatus();
  const std::string largest =
      message.largest_name().empty()
          ? ""
          : absl::StrCat("; tensor '", message.largest_name(), "' has ", message.largest_bytes());
  return Internal("A message of ", message.size_bytes(), " bytes cannot be sent; the limit is ",
                  limit_bytes, " bytes, tensors included", largest);
}

absl::StatusOr<WireMessage> SerializeMessage(const google::protobuf::Message& message) {
  if (message.ByteSizeLong() > INT32_MAX) {
    return Internal("A ", message.GetTypeName(), " of ", message.ByteSizeLong(),
                    " bytes cannot be sent; the limit is ", INT32_MAX, " bytes");
  }
  WireMessage result;
  result.Append(message.SerializeAsString());
  return result;
}

absl::StatusOr<std::vector<WireReader>> SplitField(const WireBytes& bytes, uint32_t field,
                                                   google::protobuf::Message& rest) {
  std::vector<WireReader> parts;
  std::string others;
  WireReader reader(bytes);
  while (!reader.at_end()) {
    const WireReader start = reader;
    ASSIGN_OR_RETURN(const WireReader::Tag tag, reader.NextTag());
    if (tag.field == field && tag.type == WireType::kBytes) {
      ASSIGN_OR_RETURN(WireReader part, reader.Bytes());
      parts.push_back(part);
      continue;
    }
    RETURN_IF_ERROR(reader.SkipValue(tag.type));
    WireReader whole = start;
    ASSIGN_OR_RETURN(const WireReader copied, whole.Part(start.remaining() - reader.remaining()));
    copied.AppendTextTo(others);
  }
  if (others.size() > INT32_MAX || !rest.ParseFromString(others)) return NotA(rest.GetTypeName());
  return parts;
}

absl::StatusOr<Tensor> ReadTensor(const WireReader& message) {
  constexpr uint32_t kDType = 1, kShape = 2, kVersion = 3, kContent = 4;
  uint64_t dtype_number = 0;
  std::optional<WireReader> shape_part;
  std::optional<WireReader> content;
  WireReader reader = message;
  while (!reader.at_end()) {
    ASSIGN_OR_RETURN(const WireReader::Tag tag, reader.NextTag());
    if (tag.field == kDType && tag.type == WireType::kVarint) {
      ASSIGN_OR_RETURN(dtype_number, reader.Varint());
    } else if (tag.field == kShape && tag.type == WireType::kBytes && !shape_part) {
      ASSIGN_OR_RETURN(shape_part, reader.Bytes());
    } else if (tag.field == kVersion && tag.type == WireType::kVarint) {
      RETURN_IF_ERROR(reader.Varint().status());
    } else if (tag.field == kContent && tag.type == WireType::kBytes && !content) {
      ASSIGN_OR_RETURN(content, reader.Bytes());
    } else {
      return ReadTensorWithProtobuf({message});
    }
  }
  const DType dtype = static_cast<DType>(dtype_number);
  if (!content || content->at_end() || dtype_number > 100 ||
      !IsValidDType(static_cast<int>(dtype_number)) || dtype == DType::kResource ||
      dtype == DType::kVariant) {
    return ReadTensorWithProtobuf({message});
  }
  ASSIGN_OR_RETURN(Shape shape, shape_part ? ReadShape(*shape_part) : Shape());
  if (shape.num_elements() == 0) return Tensor::Make(dtype, std::move(shape));
  return dtype == DType::kString ? ReadStrings(*content, std::move(shape))
                                 : ReadPlain(*content, dtype, std::move(shape));
}

absl::StatusOr<WireMessage> WriteTensor(const Tensor& tensor) {
  if (!tensor.valid()) return InvalidArgument("A tensor without a type cannot be sent");
  WireMessage message;
  if (tensor.dtype() == DType::kResource || tensor.dtype() == DType::kVariant) {
    tensorflow::TensorProto proto;
    RETURN_IF_ERROR(TensorToProto(tensor, TensorEncoding::kContent, proto));
    return SerializeMessage(proto);
  }
  message.AppendVarintField(1, static_cast<uint64_t>(tensor.dtype()));
  message.AppendBytesField(2, ShapeText(tensor.shape(), /*with_zeros=*/false));
  if (tensor.num_elements() == 0) return message;
  if (tensor.dtype() == DType::kString) {
    message.AppendBytesField(4, StringContent(tensor));
  } else {
    message.AppendHeader(4, tensor.size_bytes());
    message.Attach(Elements(tensor));
  }
  return message;
}

absl::StatusOr<NamedTensor> ReadNamedTensor(const WireReader& message) {
  NamedTensor result;
  std::vector<WireReader> parts;
  WireReader reader = message;
  while (!reader.at_end()) {
    ASSIGN_OR_RETURN(const WireReader::Tag tag, reader.NextTag());
    if (tag.type != WireType::kBytes || tag.field > 2) {
      RETURN_IF_ERROR(reader.SkipValue(tag.type));
      continue;
    }
    ASSIGN_OR_RETURN(const WireReader part, reader.Bytes());
    if (tag.field == 1) {
      result.name = part.Text();
    } else {
      parts.push_back(part);
    }
  }
  absl::StatusOr<Tensor> tensor =
      parts.size() == 1 ? ReadTensor(parts[0]) : ReadTensorWithProtobuf(parts);
  if (!tensor.ok()) return Prefixed(tensor.status(), absl::StrCat("Tensor '", result.name, "': "));
  result.tensor = *std::move(tensor);
  return result;
}

absl::Status AppendTensor(uint32_t field, const Tensor& tensor, WireMessage& to) {
  ASSIGN_OR_RETURN(WireMessage value, WriteTensor(tensor));
  to.AppendHeader(field, value.size_bytes());
  to.Append(std::move(value));
  return absl::OkStatus();
}

absl::Status AppendNamedTensor(uint32_t field, const NamedTensor& tensor, WireMessage& to) {
  WireMessage named;
  if (!tensor.name.empty()) named.AppendBytesField(1, tensor.name);
  if (absl::Status status = AppendTensor(2, tensor.tensor, named); !status.ok()) {
    return Prefixed(status, absl::StrCat("Tensor '", tensor.name, "': "));
  }
  named.NoteTensor(tensor.name, named.size_bytes());
  to.AppendHeader(field, named.size_bytes());
  to.Append(std::move(named));
  return absl::OkStatus();
}

absl::StatusOr<WireMessage> WriteRecvTensorReply(const RecvTensorReply& reply,
                                                 int64_t send_start_micros) {
  const bool dead = reply.value.is_dead;
  // A placeholder, which receivers of a dead value do not look at.
  const Tensor tensor = dead ? Tensor(DType::kFloat, Shape({0})) : reply.value.tensor;
  WireMessage message;
  const auto append_flags = [&] {
    if (dead) message.AppendVarintField(2, 1);
    message.AppendVarintField(3, static_cast<uint64_t>(send_start_micros));
    if (reply.require_ack) message.AppendVarintField(5, 1);
  };
  if (!tensor.valid() || !IsPlainData(tensor.dtype())) {
    RETURN_IF_ERROR(AppendTensor(1, tensor, message));
    append_flags();
  } else {
    append_flags();
    WireMessage head;
    head.AppendVarintField(1, static_cast<uint64_t>(tensor.dtype()));
    if (tensor.rank() > 0) {
      head.AppendBytesField(2, ShapeText(tensor.shape(), /*with_zeros=*/true));
    }
    head.AppendHeader(4, tensor.size_bytes());
    message.AppendHeader(1, head.size_bytes() + tensor.size_bytes());
    message.Append(std::move(head));
    message.Attach(Elements(tensor));
  }
  return message;
}

absl::StatusOr<WireMessage> WriteRecvTensorInPieces(const RecvTensorReply& reply,
                                                    int64_t send_start_micros, uint64_t id) {
  const Tensor& tensor = reply.value.tensor;
  TensorInPieces pieces;
  pieces.set_id(id);
  pieces.set_size_bytes(tensor.size_bytes());
  tensorflow::RecvTensorResponse proto;
  proto.mutable_tensor()->set_dtype(static_cast<tensorflow::DataType>(tensor.dtype()));
  ShapeToProto(tensor.shape(), *proto.mutable_tensor()->mutable_tensor_shape());
  proto.set_send_start_micros(send_start_micros);
  proto.set_require_ack(reply.require_ack);
  proto.mutable_transport_options()->PackFrom(pieces);
  return SerializeMessage(proto);
}

namespace {

bool HasField(const WireBytes& bytes, uint32_t field) {
  WireReader reader(bytes);
  while (!reader.at_end()) {
    const absl::StatusOr<WireReader::Tag> tag = reader.NextTag();
    if (!tag.ok()) return false;
    if (tag->field == field) return true;
    if (!reader.SkipValue(tag->type).ok()) return false;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::optional<TensorPieces>> ReadTensorPieces(const WireBytes& bytes) {
  // Such a reply is short; one that carries a tensor of that size is not.
  constexpr size_t kLongest = 4096;
  tensorflow::RecvTensorResponse proto;
  TensorInPieces pieces;
  if (bytes.size_bytes() > kLongest || !HasField(bytes, 4) || !ParseMessage(bytes, proto).ok() ||
      !proto.has_transport_options() || !proto.transport_options().UnpackTo(&pieces)) {
    return std::nullopt;
  }
  TensorPieces result;
  result.id = pieces.id();
  result.reply.require_ack = proto.require_ack();
  const auto dtype = static_cast<DType>(proto.tensor().dtype());
  if (!IsPlainData(dtype))
    return InvalidArgument("A tensor of type number ", proto.tensor().dtype(), " has no pieces");
  ASSIGN_OR_RETURN(Shape shape, ShapeFromProto(proto.tensor().tensor_shape()));
  ASSIGN_OR_RETURN(result.reply.value.tensor, Tensor::Make(dtype, std::move(shape)));
  if (result.reply.value.tensor.size_bytes() != pieces.size_bytes()) {
    return InvalidArgument("A tensor of ", result.reply.value.tensor.size_bytes(),
                           " bytes cannot be made of pieces of ", pieces.size_bytes(), " bytes");
  }
  return result;
}

absl::StatusOr<RecvTensorReply> ReadRecvTensorReply(const WireBytes& bytes) {
  tensorflow::RecvTensorResponse rest;
  ASSIGN_OR_RETURN(const std::vector<WireReader> parts, SplitField(bytes, 1, rest));
  RecvTensorReply reply;
  reply.require_ack = rest.require_ack();
  reply.value.is_dead = rest.is_dead();
  if (reply.value.is_dead) {
    reply.value.tensor = Tensor(DType::kFloat, Shape({0}));
    return reply;
  }
  ASSIGN_OR_RETURN(reply.value.tensor,
                   parts.size() == 1 ? ReadTensor(parts[0]) : ReadTensorWithProtobuf(parts));
  return reply;
}

absl::StatusOr<WireMessage> WriteRecvTensors(const RecvTensorsRequest& request) {
  RecvTensorsProto proto;
  proto.set_step_id(request.step_id);
  proto.set_request_id(static_cast<uint64_t>(request.request_id));
  ASSIGN_OR_RETURN(WireMessage message, SerializeMessage(proto));
  for (size_t i = 0; i < request.keys.size(); ++i) message.AppendBytesField(2, request.keys[i]);
  return message;
}

absl::StatusOr<RecvTensorsRequest> ReadRecvTensors(const WireBytes& bytes) {
  RecvTensorsProto rest;
  ASSIGN_OR_RETURN(const std::vector<WireReader> keys, SplitField(bytes, 2, rest));
  RecvTensorsRequest request;
  request.step_id = rest.step_id();
  request.request_id = static_cast<int64_t>(rest.request_id());
  for (const WireReader& key : keys) {
    const absl::string_view text = key.Contiguous();
    request.keys.push_back(text.data() != nullptr ? text : absl::string_view(key.Text()));
  }
  return request;
}

absl::Status AppendReceivedItem(const RecvTensorsReply::Tensor& tensor, WireMessage& to) {
  const Tensor& value = tensor.value.tensor;
  if (!tensor.value.is_dead && value.valid() && IsPlainData(value.dtype()) &&
      value.num_elements() > 0) {
    AppendPlainItem(tensor.index, value, to);
    return absl::OkStatus();
  }
  WireMessage item;
  item.AppendVarintField(1, tensor.index);
  if (tensor.value.is_dead) {
    item.AppendVarintField(2, 1);
  } else {
    RETURN_IF_ERROR(AppendTensor(3, tensor.value.tensor, item));
  }
  to.AppendHeader(1, item.size_bytes());
  to.Append(std::move(item));
  return absl::OkStatus();
}

void AppendPiecesItem(size_t index, const WireMessage& head, WireMessage& to) {
  WireMessage item;
  item.AppendVarintField(1, index);
  item.AppendBytesField(4, head.Text());
  to.AppendHeader(1, item.size_bytes());
  to.Append(std::move(item));
}

namespace {

absl::Status ReadReceivedItem(WireReader reader, ReceivedTensors& to) {
  RecvTensorsReply::Tensor tensor;
  bool has_value = false;
  while (!reader.at_end()) {
    ASSIGN_OR_RETURN(const WireReader::Tag tag, reader.NextTag());
    if (tag.field <= 2 && tag.type == WireType::kVarint) {
      ASSIGN_OR_RETURN(const uint64_t value, reader.Varint());
      if (tag.field == 1) {
        tensor.index = value;
      } else if (value != 0) {
        tensor.value = {Tensor(DType::kFloat, Shape({0})), true};
        has_value = true;
      }
    } else if (tag.field == 3 && tag.type == WireType::kBytes) {
      ASSIGN_OR_RETURN(const WireReader part, reader.Bytes());
      ASSIGN_OR_RETURN(tensor.value.tensor, ReadTensor(part));
      has_value = true;
    } else if (tag.field == 4 && tag.type == WireType::kBytes) {
      ASSIGN_OR_RETURN(const WireReader part, reader.Bytes());
      ASSIGN_OR_RETURN(std::optional<TensorPieces> pieces,
                       ReadTensorPieces(WireBytes::Of(part.Text())));
      has_value = pieces.has_value();
      if (has_value) to.in_pieces.emplace_back(to.reply.tensors.size(), *std::move(pieces));
    } else {
      RETURN_IF_ERROR(reader.SkipValue(tag.type));
    }
  }
  if (!has_value) return InvalidArgument("A tensor came without its value");
  to.reply.tensors.push_back(std::move(tensor));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ReceivedTensors> ReadRecvTensorsReply(const WireBytes& bytes) {
  ReceivedTensors received;
  WireReader reader(bytes);
  while (!reader.at_end()) {
    ASSIGN_OR_RETURN(const WireReader::Tag tag, reader.NextTag());
    if (tag.field != 1 || tag.type != WireType::kBytes) {
      RETURN_IF_ERROR(reader.SkipValue(tag.type));
      continue;
    }
    ASSIGN_OR_RETURN(const WireReader part, reader.Bytes());
    RETURN_IF_ERROR(ReadReceivedItem(part, received));
  }
  return received;
}

}  // namespace muster
