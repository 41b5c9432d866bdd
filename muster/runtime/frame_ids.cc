#include "muster/runtime/frame_ids.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace muster {
namespace {

uint64_t Combine(uint64_t a, uint64_t b) {
  return a ^ (b + 0x9e3779b97f4a7800 + (a << 10) + (a >> 4));
}

}  // namespace

uint64_t FrameHash(absl::string_view text) {
  constexpr uint64_t kSeed = 0xDECAFCAFFE;
  constexpr uint64_t kMultiplier = 0xc6a4a7935bd1e995;
  constexpr int kShift = 47;
  uint64_t hash = kSeed ^ (text.size() * kMultiplier);
  const char* p = text.data();
  size_t left = text.size();
  for (; left >= 8; left -= 8, p += 8) {
    uint64_t block;
    std::memcpy(&block, p, 8);
    block *= kMultiplier;
    block ^= block >> kShift;
    block *= kMultiplier;
    hash ^= block;
    hash *= kMultiplier;
  }
  if (left > 0) {
    uint64_t block = 0;
    std::memcpy(&block, p, left);
    hash ^= block;
    hash *= kMultiplier;
  }
  hash ^= hash >> kShift;
  hash *= kMultiplier;
  hash ^= hash >> kShift;
  return hash;
}

FrameName FrameName::Child(absl::string_view frame_name, int64_t iteration) const {
  FrameName child;
  child.path = absl::StrCat(path, ";", iteration, ";", frame_name);
  child.since_23 =
      Combine(since_23, Combine(static_cast<uint64_t>(iteration), FrameHash(frame_name)));
  return child;
}

uint64_t FrameName::id(FrameIds rule) const {
  if (rule == FrameIds::kSince23) return since_23;
  return path.empty() ? 0 : FrameHash(path);
}

}  // namespace muster
