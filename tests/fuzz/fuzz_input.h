// What fuzz targets share: bytes taken from the front of an input, and how an input becomes a
// message that was received.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

#include "muster/transport/wire/wire_message.h"

namespace muster {

// Thread-compatible; a view of the fuzzer's input.
class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
  // Zero when nothing is left.
  uint8_t Byte();
  absl::string_view rest() const { return rest_; }

 private:
  absl::string_view rest_;
};

// The text in pieces of `piece_bytes`, each in memory of its own so that reading past its end is
// seen; zero: all of it in one, aligned as tensors want it.
WireBytes InPieces(absl::string_view text, size_t piece_bytes);

// Stops the program, saying what did not hold.
void FuzzCheck(bool holds, absl::string_view what);

}  // namespace muster
