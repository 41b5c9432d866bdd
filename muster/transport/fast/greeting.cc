#include "muster/transport/fast/greeting.h"

#include <algorithm>

namespace muster::fast {

bool MayBeGreeting(absl::string_view bytes) {
  const Greeting greeting;
  const absl::string_view text(greeting.text, sizeof(greeting.text));
  const size_t compared = std::min(bytes.size(), text.size());
  return bytes.substr(0, compared) == text.substr(0, compared);
}

}  // namespace muster::fast
