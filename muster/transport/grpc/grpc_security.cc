#include "muster/transport/grpc/grpc_security.h"

#include <fstream>
#include <sstream>

namespace muster {
namespace {

absl::StatusOr<std::string> ReadFile(absl::string_view what, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || text.str().empty()) {
    return NotFound("The ", what, " '", path, "' cannot be read or is empty");
  }
  return text.str();
}

absl::Status CheckPair(const SecurityOptions& security) {
  if (security.certificate_file.empty() == security.key_file.empty()) return absl::OkStatus();
  return InvalidArgument("TLS needs both a certificate and its key; only the ",
                         security.key_file.empty() ? "certificate" : "key", " was given");
}

absl::StatusOr<grpc::SslServerCredentialsOptions::PemKeyCertPair> ReadPair(
    const SecurityOptions& security) {
  grpc::SslServerCredentialsOptions::PemKeyCertPair pair;
  ASSIGN_OR_RETURN(pair.private_key, ReadFile("key", security.key_file));
  ASSIGN_OR_RETURN(pair.cert_chain, ReadFile("certificate", security.certificate_file));
  return pair;
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsFor(
    const SecurityOptions& security) {
  RETURN_IF_ERROR(CheckPair(security));
  if (security.certificate_file.empty()) {
    if (!security.ca_file.empty()) {
      return InvalidArgument(
          "A server that checks certificates needs one of its own, with its key");
    }
    return grpc::InsecureServerCredentials();
  }
  grpc::SslServerCredentialsOptions options(
      security.ca_file.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                               : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  ASSIGN_OR_RETURN(auto pair, ReadPair(security));
  options.pem_key_cert_pairs.push_back(std::move(pair));
  if (!security.ca_file.empty()) {
    ASSIGN_OR_RETURN(options.pem_root_certs, ReadFile("CA certificate", security.ca_file));
  }
  return grpc::SslServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsFor(
    const SecurityOptions& security) {
  RETURN_IF_ERROR(CheckPair(security));
  if (security.certificate_file.empty() && security.ca_file.empty()) {
    return grpc::InsecureChannelCredentials();
  }
  grpc::SslCredentialsOptions options;
  if (!security.ca_file.empty()) {
    ASSIGN_OR_RETURN(options.pem_root_certs, ReadFile("CA certificate", security.ca_file));
  } else {
    // Tasks that all have one self-signed certificate trust that one.
    ASSIGN_OR_RETURN(options.pem_root_certs, ReadFile("certificate", security.certificate_file));
  }
  if (!security.certificate_file.empty() && !security.ca_file.empty()) {
    ASSIGN_OR_RETURN(auto pair, ReadPair(security));
    options.pem_private_key = std::move(pair.private_key);
    options.pem_cert_chain = std::move(pair.cert_chain);
  }
  return grpc::SslCredentials(options);
}

std::string SubjectOf(const grpc::AuthContext* context) {
  if (context == nullptr) return "";
  const auto values = context->FindPropertyValues(GRPC_X509_SUBJECT_PROPERTY_NAME);
  return values.empty() ? "" : std::string(values.front().data(), values.front().size());
}

std::string TokenHeaderValue(absl::string_view token) {
  return absl::StrCat("Bearer ", token);
}

bool SameSecret(absl::string_view a, absl::string_view b) {
  // Every byte of `a` is compared, whatever `b` is.
  unsigned different = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    different |= static_cast<unsigned char>(a[i]) ^
                 static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  }
  return different == 0;
}

}  // namespace muster
