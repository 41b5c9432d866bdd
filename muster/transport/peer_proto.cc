#include "muster/transport/peer_proto.h"

#include "muster/transport/peer.pb.h"

namespace muster {

PeerInfo PeerFromProto(const PeerHello& proto) {
  PeerInfo peer;
  peer.version = proto.version();
  peer.incarnation = proto.incarnation();
  peer.boot_id = proto.boot_id();
  peer.network_namespace = proto.network_namespace();
  peer.capabilities = {proto.capabilities().begin(), proto.capabilities().end()};
  return peer;
}

void PeerToProto(const PeerInfo& peer, PeerHello& proto) {
  proto.Clear();
  proto.set_version(peer.version);
  proto.set_incarnation(peer.incarnation);
  proto.set_boot_id(peer.boot_id);
  proto.set_network_namespace(peer.network_namespace);
  *proto.mutable_capabilities() = {peer.capabilities.begin(), peer.capabilities.end()};
}

}  // namespace muster
