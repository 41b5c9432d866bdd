#include "muster/worker/transfer_key.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace muster {
namespace {

bool ParseHex(absl::string_view text, uint64_t& value) {
  return text.size() <= 16 && absl::SimpleHexAtoi(text, &value);
}

}  // namespace

absl::StatusOr<TransferKey> TransferKey::Parse(absl::string_view text) {
  const absl::Status invalid = InvalidArgument("Invalid  rendezvous key: ", text);
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ';');
  if (parts.size() != 5) return invalid;
  TransferKey key;
  key.source = parts[0];
  key.destination = parts[2];
  key.name = parts[3];
  const std::vector<absl::string_view> frame = absl::StrSplit(parts[4], ':');
  if (key.name.empty() || frame.size() != 2 || !ParseHex(parts[1], key.incarnation) ||
      !absl::SimpleAtoi(frame[0], &key.frame) || !absl::SimpleAtoi(frame[1], &key.iteration)) {
    return invalid;
  }
  const absl::StatusOr<DeviceName> source = DeviceName::Parse(key.source);
  const absl::StatusOr<DeviceName> destination = DeviceName::Parse(key.destination);
  if (!source.ok() || !source->full() || !destination.ok() || !destination->full()) return invalid;
  key.source_device = *source;
  return key;
}

std::string TransferKey::InFrame(uint64_t other, absl::string_view text) const {
  return absl::StrCat(text.substr(0, text.rfind(';') + 1), other, ":", iteration);
}

}  // namespace muster
