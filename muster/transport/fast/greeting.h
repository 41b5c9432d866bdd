// How a connection to the port of a task says that it is to be a link. It sends a greeting first,
// where gRPC and TLS send something else, and the task answers with its own.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

#include "muster/transport/api/peer.h"

namespace muster::fast {

struct Greeting {
  // Links of another version have another text.
  char text[16] = "MUSTER LINK 1\r\n";
  uint64_t incarnation = LocalPeer().incarnation;  // of the sender's process
  uint64_t reserved = 0;

  absl::string_view bytes() const { return {reinterpret_cast<const char*>(this), sizeof(*this)}; }
};
static_assert(sizeof(Greeting) == 32);

// The capability of tasks that take links over the network.
inline constexpr char kLinkCapability[] = "link=1";

// Whether these bytes, which may be too few, begin as a greeting does.
bool MayBeGreeting(absl::string_view bytes);

}  // namespace muster::fast
