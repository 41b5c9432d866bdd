#include "muster/cli/security_flags.h"

#include "muster/transport/grpc/security.h"

namespace muster {

void AddSecurityFlags(CLI::App& command, SecurityFlags& flags) {
  command.add_option("--tls-cert", flags.certificate_file,
                     "Our certificate (PEM; MUSTER_TLS_CERT)");
  command.add_option("--tls-key", flags.key_file, "Its private key (PEM; MUSTER_TLS_KEY)");
  command.add_option("--tls-ca", flags.ca_file,
                     "The authority that signed the certificates of others (PEM; MUSTER_TLS_CA)");
  command.add_option("--auth-token-file", flags.token_file,
                     "A file with a secret that every caller must know (MUSTER_AUTH_TOKEN_FILE)");
}

absl::StatusOr<SecurityOptions> SecurityOf(const SecurityFlags& flags, Settings settings) {
  const auto prefer = [](const std::string& flag, std::string& setting) {
    if (!flag.empty()) setting = flag;
  };
  prefer(flags.certificate_file, settings.tls_certificate_file);
  prefer(flags.key_file, settings.tls_key_file);
  prefer(flags.ca_file, settings.tls_ca_file);
  prefer(flags.token_file, settings.auth_token_file);
  return SecurityFrom(settings);
}

}  // namespace muster
