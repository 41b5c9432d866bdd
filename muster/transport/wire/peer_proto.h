// What tasks of Muster tell each other, as a message.
#pragma once

#include "muster/transport/api/peer.h"
#include "muster/transport/wire/wire_message.h"

namespace muster {

class PeerHello;

PeerInfo PeerFromProto(const PeerHello& proto);
void PeerToProto(const PeerInfo& peer, PeerHello& proto);
// The same as bytes.
absl::StatusOr<WireMessage> WritePeer(const PeerInfo& peer);
absl::StatusOr<PeerInfo> ReadPeer(const WireBytes& bytes);

}  // namespace muster
