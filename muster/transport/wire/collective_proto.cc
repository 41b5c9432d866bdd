#include "muster/transport/wire/collective_proto.h"

#include <algorithm>
#include <set>

#include "tensorflow/core/protobuf/worker.pb.h"

#include "muster/device/device_name.h"
#include "muster/tensor/tensor_proto.h"
#include "muster/transport/wire/device_proto.h"
#include "muster/transport/wire/wire_tensor_proto.h"

namespace muster {
namespace {

constexpr absl::string_view kExtraType = "type.googleapis.com/tensorflow.RecvBufRespExtra";
// Fields of 1.15 that later versions have taken back.
constexpr uint32_t kRequestDeviceName = 4;
constexpr uint32_t kReplyDeviceName = 5;
constexpr uint32_t kReplyTaskName = 6;
// Of RecvBufResponse, Any and RecvBufRespExtra.
constexpr uint32_t kTransportOptions = 4;
constexpr uint32_t kSendStartMicros = 5;
constexpr uint32_t kRequireAck = 6;
constexpr uint32_t kTypeUrl = 1;
constexpr uint32_t kValue = 2;
constexpr uint32_t kTensorContent = 1;

// All texts of one field.
absl::StatusOr<std::vector<std::string>> TextsOf(const WireBytes& bytes, uint32_t field) {
  std::vector<std::string> texts;
  WireReader reader(bytes);
  while (!reader.at_end()) {
    ASSIGN_OR_RETURN(const WireReader::Tag tag, reader.NextTag());
    if (tag.field != field || tag.type != WireType::kBytes) {
      RETURN_IF_ERROR(reader.SkipValue(tag.type));
      continue;
    }
    ASSIGN_OR_RETURN(const WireReader text, reader.Bytes());
    texts.push_back(text.Text());
  }
  return texts;
}

// A tag below 16 and a length.
size_t HeaderSize(size_t length) {
  size_t size = 2;
  for (; length >= 128; length >>= 7) ++size;
  return size;
}

// Calls body(part) with every value of a field of bytes.
template <typename Body>
absl::Status ForEachBytes(WireReader reader, uint32_t field, Body body) {
  while (!reader.at_end()) {
    ASSIGN_OR_RETURN(const WireReader::Tag tag, reader.NextTag());
    if (tag.field != field || tag.type != WireType::kBytes) {
      RETURN_IF_ERROR(reader.SkipValue(tag.type));
      continue;
    }
    ASSIGN_OR_RETURN(WireReader part, reader.Bytes());
    RETURN_IF_ERROR(body(part));
  }
  return absl::OkStatus();
}

// Calls body(chunk) with every chunk of a RecvBufResponse.
template <typename Body>
absl::Status ForEachChunk(const WireBytes& bytes, Body body) {
  return ForEachBytes(WireReader(bytes), kTransportOptions, [&](WireReader options) {
    RETURN_IF_ERROR(ForEachBytes(options, kTypeUrl, [](const WireReader& type) -> absl::Status {
      if (type.Text() == kExtraType) return absl::OkStatus();
      return InvalidArgument("A RecvBufResponse carries '", type.Text(), "' where ", kExtraType,
                             " is expected");
    }));
    return ForEachBytes(options, kValue, [&](const WireReader& extra) {
      return ForEachBytes(extra, kTensorContent, body);
    });
  });
}

}  // namespace

absl::StatusOr<RecvBufRequest> ReadRecvBuf(const WireBytes& bytes) {
  tensorflow::RecvBufRequest proto;
  RETURN_IF_ERROR(ParseMessage(bytes, proto));
  RecvBufRequest request;
  request.step_id = proto.step_id();
  request.key = proto.buf_rendezvous_key();
  request.num_bytes = proto.num_bytes();
  request.src_device = proto.src_device();
  request.src_incarnation = proto.src_incarnation();
  request.dst_device = proto.dst_device();
  request.request_id = proto.request_id();
  return request;
}

absl::StatusOr<WireMessage> WriteRecvBuf(const RecvBufRequest& request) {
  tensorflow::RecvBufRequest proto;
  proto.set_step_id(request.step_id);
  proto.set_buf_rendezvous_key(request.key);
  proto.set_num_bytes(request.num_bytes);
  proto.set_src_device(request.src_device);
  proto.set_src_incarnation(request.src_incarnation);
  proto.set_dst_device(request.dst_device);
  proto.set_request_id(request.request_id);
  return SerializeMessage(proto);
}

WireMessage WriteRecvBufReply(const RecvBufReply& reply, int64_t now_micros, size_t chunk_bytes) {
  const size_t total = reply.bytes.length_bytes();
  const size_t chunk = chunk_bytes == 0 ? std::max<size_t>(total, 1) : chunk_bytes;
  const size_t whole = total / chunk;
  const size_t rest = total % chunk;
  const size_t extra =
      whole * (HeaderSize(chunk) + chunk) + (rest > 0 ? HeaderSize(rest) + rest : 0);
  const size_t any = HeaderSize(kExtraType.size()) + kExtraType.size() + HeaderSize(extra) + extra;
  WireMessage message;
  message.AppendHeader(kTransportOptions, any);
  message.AppendBytesField(kTypeUrl, kExtraType);
  message.AppendHeader(kValue, extra);
  for (size_t offset = 0; offset < total; offset += chunk) {
    const size_t length = std::min(chunk, total - offset);
    message.AppendHeader(kTensorContent, length);
    message.Attach(reply.bytes.Slice(offset, length));
  }
  message.AppendVarintField(kSendStartMicros, static_cast<uint64_t>(now_micros));
  if (reply.require_ack) message.AppendVarintField(kRequireAck, 1);
  return message;
}

absl::StatusOr<RecvBufReply> ReadRecvBufReply(const WireBytes& bytes) {
  RecvBufReply reply;
  size_t total = 0;
  RETURN_IF_ERROR(ForEachChunk(bytes, [&total](const WireReader& chunk) {
    total += chunk.remaining();
    return absl::OkStatus();
  }));
  const Buffer memory = HostAllocator().Allocate(std::max<size_t>(total, 1));
  if (!memory) {
    return absl::ResourceExhaustedError(
        absl::StrCat("No memory for the ", total, " bytes of a collective"));
  }
  reply.bytes = memory.Slice(0, total);
  size_t offset = 0;
  RETURN_IF_ERROR(ForEachChunk(bytes, [&](WireReader chunk) {
    const size_t length = chunk.remaining();
    chunk.CopyTo(reply.bytes.data() + offset, length);
    offset += length;
    return absl::OkStatus();
  }));
  WireReader reader(bytes);
  while (!reader.at_end()) {
    ASSIGN_OR_RETURN(const WireReader::Tag tag, reader.NextTag());
    if (tag.field != kRequireAck || tag.type != WireType::kVarint) {
      RETURN_IF_ERROR(reader.SkipValue(tag.type));
      continue;
    }
    ASSIGN_OR_RETURN(const uint64_t value, reader.Varint());
    reply.require_ack = value != 0;
  }
  return reply;
}

absl::StatusOr<CollectiveJoin> ReadCompleteGroup(const WireBytes& bytes) {
  tensorflow::CompleteGroupRequest proto;
  RETURN_IF_ERROR(ParseMessage(bytes, proto));
  CollectiveJoin join;
  join.group_key = proto.group_key();
  join.group_size = proto.group_size();
  join.device_type = proto.device_type();
  if (proto.has_device_attributes()) {
    join.device = DeviceFromProto(proto.device_attributes());
    return join;
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> names, TextsOf(bytes, kRequestDeviceName));
  if (names.empty()) {
    return Internal(
        "CompleteGroupRequest device_attributes is not set. Make sure you're running the same "
        "version of Tensorflow on all workers.");
  }
  join.is_legacy = true;
  join.device.name = names.front();
  join.device.device_type = proto.device_type();
  return join;
}

absl::StatusOr<WireMessage> WriteCompleteGroup(const CollectiveJoin& request) {
  tensorflow::CompleteGroupRequest proto;
  proto.set_group_key(request.group_key);
  proto.set_group_size(request.group_size);
  proto.set_device_type(request.device_type);
  DeviceToProto(request.device, *proto.mutable_device_attributes());
  ASSIGN_OR_RETURN(WireMessage message, SerializeMessage(proto));
  message.AppendBytesField(kRequestDeviceName, request.device.name);
  return message;
}

absl::StatusOr<WireMessage> WriteCompleteGroupReply(const CompleteGroupReply& reply) {
  tensorflow::CompleteGroupResponse proto;
  proto.set_group_key(reply.group_key);
  proto.set_group_size(static_cast<int>(reply.devices.size()));
  proto.set_device_type(reply.device_type);
  std::set<std::string> tasks;
  for (const DeviceAttributes& device : reply.devices) {
    tasks.emplace(TaskOf(device.name));
    DeviceToProto(device, *proto.add_device_attributes());
  }
  proto.set_num_tasks(static_cast<int>(tasks.size()));
  ASSIGN_OR_RETURN(WireMessage message, SerializeMessage(proto));
  if (!reply.is_legacy) return message;
  for (const DeviceAttributes& device : reply.devices) {
    message.AppendBytesField(kReplyDeviceName, device.name);
    message.AppendBytesField(kReplyTaskName, TaskOf(device.name));
  }
  return message;
}

absl::StatusOr<CompleteGroupReply> ReadCompleteGroupReply(const WireBytes& bytes) {
  tensorflow::CompleteGroupResponse proto;
  RETURN_IF_ERROR(ParseMessage(bytes, proto));
  CompleteGroupReply reply;
  reply.group_key = proto.group_key();
  reply.device_type = proto.device_type();
  for (const auto& device : proto.device_attributes())
    reply.devices.push_back(DeviceFromProto(device));
  if (!reply.devices.empty()) return reply;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, TextsOf(bytes, kReplyDeviceName));
  reply.is_legacy = true;
  for (const std::string& name : names) {
    DeviceAttributes device;
    device.name = name;
    device.device_type = proto.device_type();
    reply.devices.push_back(std::move(device));
  }
  return reply;
}

absl::StatusOr<CollectiveInstance> ReadCompleteInstance(const WireBytes& bytes) {
  tensorflow::CompleteInstanceRequest proto;
  RETURN_IF_ERROR(ParseMessage(bytes, proto));
  CollectiveInstance instance;
  instance.node = proto.name();
  switch (proto.type()) {
    case 0:
    case 1:
    case 2:
    case 4:
    case 5:
      instance.type = static_cast<CollectiveType>(proto.type());
      break;
    default:
      return InvalidArgument("type is ", proto.type(), ", which is not a kind of collective");
  }
  if (!IsValidDType(proto.data_type()))
    return InvalidArgument("data_type is ", static_cast<int>(proto.data_type()));
  instance.dtype = static_cast<DType>(proto.data_type());
  ASSIGN_OR_RETURN(instance.shape, ShapeFromProto(proto.shape()));
  instance.group_key = proto.group_key();
  instance.group_size = proto.group_size();
  instance.instance_key = proto.instance_key();
  instance.device_type = proto.device_type();
  instance.subdiv_offsets = {proto.subdiv_offset().begin(), proto.subdiv_offset().end()};
  instance.device = proto.device();
  instance.is_source = proto.is_source();
  instance.step_id = proto.step_id();
  return instance;
}

absl::StatusOr<WireMessage> WriteCompleteInstance(const CollectiveInstance& request) {
  tensorflow::CompleteInstanceRequest proto;
  proto.set_name(request.node);
  proto.set_type(static_cast<int>(request.type));
  proto.set_data_type(static_cast<tensorflow::DataType>(request.dtype));
  ShapeToProto(request.shape, *proto.mutable_shape());
  proto.set_group_key(request.group_key);
  proto.set_group_size(request.group_size);
  proto.set_instance_key(request.instance_key);
  proto.set_device_type(request.device_type);
  *proto.mutable_subdiv_offset() = {request.subdiv_offsets.begin(), request.subdiv_offsets.end()};
  proto.set_device(request.device);
  proto.set_is_source(request.is_source);
  proto.set_step_id(request.step_id);
  return SerializeMessage(proto);
}

}  // namespace muster
