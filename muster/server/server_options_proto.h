// What a ServerDef says about a server.
#pragma once

#include "muster/server/server.h"

namespace muster {

// NotFound, as in TensorFlow, for a protocol other than "grpc".
absl::StatusOr<ServerOptions> ParseServerDef(absl::string_view serialized);
// The contents of a file: text or binary. InvalidArgument saying where the text is wrong.
absl::StatusOr<ServerOptions> ParseServerDefFile(const std::string& contents);

}  // namespace muster
