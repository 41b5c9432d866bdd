// Credentials of gRPC from our options.
#pragma once

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include "muster/transport/grpc/grpc_transport.h"

namespace muster {

// InvalidArgument for options that do not fit together, NotFound for files that cannot be read.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsFor(
    const SecurityOptions& security);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsFor(
    const SecurityOptions& security);

// The subject of the certificate that the other side has shown; empty where it has shown none.
// `context` may be null.
std::string SubjectOf(const grpc::AuthContext* context);

// The header in which callers show the token.
inline constexpr char kTokenHeader[] = "authorization";
std::string TokenHeaderValue(absl::string_view token);
// Takes the same time wherever the two differ.
bool SameSecret(absl::string_view a, absl::string_view b);

}  // namespace muster
