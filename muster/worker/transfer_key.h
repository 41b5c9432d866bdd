// "src_device;incarnation;dst_device;name;frame:iteration", by which tasks ask each other for
// values.
#pragma once

#include <cstdint>
#include <string>

#include "muster/base/status.h"
#include "muster/device/device_name.h"

namespace muster {

// Views into the text that was parsed.
struct TransferKey {
  absl::string_view source;
  uint64_t incarnation = 0;
  absl::string_view destination;
  absl::string_view name;
  uint64_t frame = 0;
  int64_t iteration = 0;
  DeviceName source_device;

  // InvalidArgument "Invalid  rendezvous key: ...", TensorFlow's words.
  static absl::StatusOr<TransferKey> Parse(absl::string_view text);
  // The same key in another frame.
  std::string InFrame(uint64_t other, absl::string_view text) const;
};

}  // namespace muster
