// How statuses travel: codes, texts, and what marks an error as the consequence of another one.
#pragma once

#include <string>

#include "muster/transport/api/call.h"

namespace muster {

// How much of a status's text goes into the header of a gRPC reply.
inline constexpr size_t kMaxStatusTextBytes = 3072;
// `text`, cut to kMaxStatusTextBytes with " ... [truncated]" behind it where it is longer.
std::string TruncatedStatusText(absl::string_view text);

// The text for a peer, which carries the mark of derived errors where payloads cannot: towards
// TensorFlow 1.15, and in the body of replies to ourselves.
std::string StatusTextFor(const absl::Status& status, CallOptions::Peer peer, bool in_body);
// A status with the code (unknown numbers: Unknown) and text that were received.
absl::Status StatusFromWire(int code, absl::string_view text);

// Marks the error of a step that had a plan: TensorFlow's replies then have (empty) metadata.
absl::Status AfterStart(absl::Status status);
bool IsAfterStart(const absl::Status& status);

// A serialized GrpcPayloadContainer; empty when the status has no payloads.
std::string PayloadsToWire(const absl::Status& status);
// Adds them; payloads that cannot be read are remembered as lost.
void AddPayloadsFromWire(absl::string_view serialized, absl::Status& status);

}  // namespace muster
