// An encrypted and authenticated channel over a TCP socket: TLS 1.3 with a secret that both sides
// know, so that neither needs a certificate.
#pragma once

#include <memory>

#include "absl/strings/string_view.h"

#include "muster/collective/mesh/channel.h"
#include "muster/collective/mesh/tcp_channel.h"

namespace muster::collective {

enum class TlsSide { kConnects, kAccepts };

// The handshake is part of the first Read or Write; a peer that does not know `secret` fails it.
absl::StatusOr<std::unique_ptr<Channel>> NewTlsChannel(Descriptor socket, TlsSide side,
                                                       absl::string_view secret);

}  // namespace muster::collective
