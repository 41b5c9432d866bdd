#include "muster/transport/wire/peer_proto.h"

#include "muster/transport/peer.pb.h"
#include "muster/transport/wire/wire_tensor_proto.h"

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

absl::StatusOr<WireMessage> WritePeer(const PeerInfo& peer) {
  PeerHello proto;
  PeerToProto(peer, proto);
  return SerializeMessage(proto);
}

absl::StatusOr<PeerInfo> ReadPeer(const WireBytes& bytes) {
  PeerHello proto;
  RETURN_IF_ERROR(ParseMessage(bytes, proto));
  return PeerFromProto(proto);
}

}  // namespace muster
