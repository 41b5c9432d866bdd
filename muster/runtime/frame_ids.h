// The numbers by which tasks know the frames of loops. Every task computes them by itself, so they
// must agree.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace muster {

// TensorFlow changed the rule in 2.3.
enum class FrameIds : uint8_t { kBefore23, kSince23 };

// MurmurHash64A with TensorFlow's seed.
uint64_t FrameHash(absl::string_view text);

// A frame of a running loop as both rules see it. The root frame is the default value.
struct FrameName {
  std::string path;  // before 2.3: hashed as a whole
  uint64_t since_23 = 0;

  // The frame that an Enter with this frame_name starts in iteration `iteration` of this one.
  FrameName Child(absl::string_view frame_name, int64_t iteration) const;
  uint64_t id(FrameIds rule) const;
};

}  // namespace muster
