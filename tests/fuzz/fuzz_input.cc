#include "fuzz_input.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "muster/tensor/memory_guard.h"

namespace muster {
namespace {

// A few bytes may ask for any tensor: beyond this there is no memory for tensors. What Muster makes
// of one (a message) may be several times as large.
const bool limited = [] {
  MemoryGuard::Global().Limit(int64_t{128} << 20);
  return true;
}();

}  // namespace

uint8_t FuzzInput::Byte() {
  if (rest_.empty()) return 0;
  const auto first = static_cast<uint8_t>(rest_.front());
  rest_.remove_prefix(1);
  return first;
}

WireBytes InPieces(absl::string_view text, size_t piece_bytes) {
  if (piece_bytes == 0) piece_bytes = std::max<size_t>(text.size(), 1);
  auto owner = std::make_shared<std::vector<Buffer>>();
  WireBytes bytes;
  for (size_t at = 0; at < text.size(); at += piece_bytes) {
    const absl::string_view piece = text.substr(at, piece_bytes);
    Buffer buffer = HostAllocator().Allocate(piece.size());
    FuzzCheck(static_cast<bool>(buffer), "memory for the input");
    std::memcpy(buffer.data(), piece.data(), piece.size());
    bytes.pieces.emplace_back(static_cast<const char*>(buffer.data()), piece.size());
    owner->push_back(std::move(buffer));
  }
  bytes.owner = std::move(owner);
  return bytes;
}

void FuzzCheck(bool holds, absl::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: does not hold: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

}  // namespace muster
