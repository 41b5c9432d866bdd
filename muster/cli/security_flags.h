// The flags that give commands certificates and tokens.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "muster/base/settings.h"
#include "muster/transport/grpc/grpc_transport.h"

namespace muster {

struct SecurityFlags {
  std::string certificate_file, key_file, ca_file, token_file;
};

// --tls-cert, --tls-key, --tls-ca and --auth-token-file.
void AddSecurityFlags(CLI::App& command, SecurityFlags& flags);

// What the flags say, and the settings where they say nothing. Reads the file of the token.
absl::StatusOr<SecurityOptions> SecurityOf(const SecurityFlags& flags, Settings settings);

}  // namespace muster
