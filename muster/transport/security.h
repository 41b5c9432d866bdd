// Where certificates and tokens come from.
#pragma once

#include "muster/transport/grpc/grpc_transport.h"

namespace muster {

// The secret in a file, without the white space around it. InvalidArgument for an empty one.
absl::StatusOr<std::string> ReadAuthToken(const std::string& path);

// MUSTER_TLS_CERT, MUSTER_TLS_KEY, MUSTER_TLS_CA and MUSTER_AUTH_TOKEN_FILE.
absl::StatusOr<SecurityOptions> SecurityFromEnvironment();

}  // namespace muster
