// Raw Snappy, for reading only: tables written before TensorFlow 1.2 have blocks of it.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace muster {

// The text, or nothing if the input is not raw Snappy or the text is longer than `max_length`.
std::optional<std::string> UncompressSnappy(absl::string_view compressed, size_t max_length);

}  // namespace muster
