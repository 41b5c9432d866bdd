#include "muster/transport/grpc/security.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"

namespace muster {

absl::StatusOr<std::string> ReadAuthToken(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream contents;
  if (!file || !(contents << file.rdbuf()))
    return NotFound("cannot read the token file '", path, "': ", std::strerror(errno));
  std::string token(absl::StripAsciiWhitespace(contents.str()));
  if (token.empty()) return InvalidArgument("the token file '", path, "' is empty");
  return token;
}

absl::StatusOr<SecurityOptions> SecurityFrom(const Settings& settings) {
  SecurityOptions security;
  security.certificate_file = settings.tls_certificate_file;
  security.key_file = settings.tls_key_file;
  security.ca_file = settings.tls_ca_file;
  if (!settings.auth_token_file.empty()) {
    ASSIGN_OR_RETURN(security.token, ReadAuthToken(settings.auth_token_file));
  }
  return security;
}

}  // namespace muster
