// Messages as bytes, within what protobuf counts: fewer than 2 GiB.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

#include "muster/base/status.h"

namespace google::protobuf {
class MessageLite;
}

namespace muster {

inline constexpr size_t kMaxMessageBytes = INT32_MAX;

// InvalidArgument, with its type and size, for a message that is longer; protobuf itself would
// answer with an empty one.
absl::StatusOr<std::string> MessageToBytes(const google::protobuf::MessageLite& message);
// False when the bytes are not such a message, or are more than a message may have.
bool MessageFromBytes(absl::string_view bytes, google::protobuf::MessageLite& message);

}  // namespace muster
