// Where certificates and tokens come from.
#pragma once

#include "muster/base/settings.h"
#include "muster/transport/grpc/grpc_transport.h"

namespace muster {

// The secret in a file, without the white space around it. InvalidArgument for an empty one.
absl::StatusOr<std::string> ReadAuthToken(const std::string& path);

// What the settings say; reads the file of the token.
absl::StatusOr<SecurityOptions> SecurityFrom(const Settings& settings);

}  // namespace muster
