#include "muster/tensor/message_proto.h"

#include "google/protobuf/message_lite.h"

namespace muster {

absl::StatusOr<std::string> MessageToBytes(const google::protobuf::MessageLite& message) {
  const size_t size = message.ByteSizeLong();
  if (size > kMaxMessageBytes) {
    return InvalidArgument("A ", message.GetTypeName(), " of ", size,
                           " bytes cannot be written; the limit is ", kMaxMessageBytes, " bytes");
  }
  return message.SerializeAsString();
}

bool MessageFromBytes(absl::string_view bytes, google::protobuf::MessageLite& message) {
  return bytes.size() <= kMaxMessageBytes &&
         message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace muster
