#include "muster/transport/security.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"

namespace muster {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

absl::StatusOr<std::string> ReadAuthToken(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream contents;
  if (!file || !(contents << file.rdbuf()))
    return NotFound("cannot read the token file '", path, "': ", std::strerror(errno));
  std::string token(absl::StripAsciiWhitespace(contents.str()));
  if (token.empty()) return InvalidArgument("the token file '", path, "' is empty");
  return token;
}

absl::StatusOr<SecurityOptions> SecurityFromEnvironment() {
  SecurityOptions security;
  security.certificate_file = Variable("MUSTER_TLS_CERT");
  security.key_file = Variable("MUSTER_TLS_KEY");
  security.ca_file = Variable("MUSTER_TLS_CA");
  if (const std::string path = Variable("MUSTER_AUTH_TOKEN_FILE"); !path.empty()) {
    ASSIGN_OR_RETURN(security.token, ReadAuthToken(path));
  }
  return security;
}

}  // namespace muster
