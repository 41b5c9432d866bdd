#include "muster/transport/wire/status_proto.h"

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "xla/tsl/protobuf/distributed_runtime_payloads.pb.h"

#include "muster/tensor/message_proto.h"

namespace muster {
namespace {

constexpr absl::string_view kDerivedMark = "[_Derived_]";
constexpr absl::string_view kAfterStart = "muster/after-start";  // stays in this process
constexpr size_t kMaxPayloadBytes = 1024;
constexpr absl::string_view kPayloadsLost =
    "type.googleapis.com/tensorflow.distributed_runtime.GrpcPayloadsLost";

// The text with '?' for bytes that are not UTF-8, which text fields of messages must be.
std::string AsUtf8(std::string text) {
  for (size_t i = 0; i < text.size();) {
    const uint8_t lead = static_cast<uint8_t>(text[i]);
    size_t length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    // Leads that start nothing, or only forms that are too long.
    bool good = lead < 0x80 || (lead >= 0xC2 && lead <= 0xF4);
    for (size_t k = 1; good && k < length; ++k) {
      good = i + k < text.size() && (static_cast<uint8_t>(text[i + k]) & 0xC0) == 0x80;
    }
    if (good && length > 2) {
      const uint8_t second = static_cast<uint8_t>(text[i + 1]);
      // Too long, half of a surrogate pair, or beyond the last character.
      good = !(lead == 0xE0 && second < 0xA0) && !(lead == 0xED && second >= 0xA0) &&
             !(lead == 0xF0 && second < 0x90) && !(lead == 0xF4 && second >= 0x90);
    }
    if (!good) {
      text[i] = '?';
      length = 1;
    }
    i += length;
  }
  return text;
}

}  // namespace

std::string TruncatedStatusText(absl::string_view text) {
  if (text.size() <= kMaxStatusTextBytes) return std::string(text);
  return absl::StrCat(text.substr(0, kMaxStatusTextBytes), " ... [truncated]");
}

std::string StatusTextFor(const absl::Status& status, CallOptions::Peer peer, bool in_body) {
  const bool marked =
      peer == CallOptions::Peer::kTensorFlow1 || (in_body && peer == CallOptions::Peer::kMuster);
  std::string text =
      absl::StrCat(marked && IsDerived(status) ? kDerivedMark : "", status.message());
  return in_body ? AsUtf8(std::move(text)) : text;
}

absl::Status StatusFromWire(int code, absl::string_view text) {
  if (code == 0) return absl::OkStatus();
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  const auto status_code = known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown;
  if (!absl::StrContains(text, kDerivedMark)) return absl::Status(status_code, text);
  return Derived(absl::Status(status_code, absl::StrReplaceAll(text, {{kDerivedMark, ""}})));
}

absl::Status AfterStart(absl::Status status) {
  status.SetPayload(kAfterStart, absl::Cord());
  return status;
}

bool IsAfterStart(const absl::Status& status) {
  return status.GetPayload(kAfterStart).has_value();
}

std::string PayloadsToWire(const absl::Status& status) {
  tensorflow::distributed_runtime::GrpcPayloadContainer container;
  status.ForEachPayload([&](absl::string_view key, const absl::Cord& value) {
    // Headers have little room; what marks errors is empty.
    if (value.size() > kMaxPayloadBytes || key == kAfterStart) return;
    (*container.mutable_payloads())[std::string(key)] = std::string(value);
  });
  return container.SerializeAsString();
}

void AddPayloadsFromWire(absl::string_view serialized, absl::Status& status) {
  if (status.ok() || serialized.empty()) return;
  tensorflow::distributed_runtime::GrpcPayloadContainer container;
  if (!MessageFromBytes(serialized, container)) {
    status.SetPayload(kPayloadsLost, absl::Cord());
    return;
  }
  for (const auto& [key, value] : container.payloads()) {
    status.SetPayload(key, absl::Cord(value));
  }
}

}  // namespace muster
