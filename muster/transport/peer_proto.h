// What tasks of Muster tell each other, as a message.
#pragma once

#include "muster/transport/peer.h"

namespace muster {

class PeerHello;

PeerInfo PeerFromProto(const PeerHello& proto);
void PeerToProto(const PeerInfo& peer, PeerHello& proto);

}  // namespace muster
