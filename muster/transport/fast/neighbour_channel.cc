#include "muster/transport/fast/neighbour_channel.h"

#include <algorithm>

#include "muster/transport/api/peer.h"
#include "muster/transport/fast/fast_server.h"
#include "muster/transport/messages/methods.h"
#include "muster/transport/wire/peer_proto.h"

namespace muster::fast {
namespace {

constexpr absl::Duration kAnswerWithin = absl::Seconds(10);
// After a look that found nothing.
constexpr int kCallsBetweenLooks = 1000;

// The calls of which steps consist. Liveness checks go over gRPC, which every task has, and calls
// that happen once are not worth another connection.
bool IsForLinks(absl::string_view service, absl::string_view method) {
  if (service == kPeerService) return method == "RecvTensors";
  return method == "RunStep" || method == "RunCallable" || method == "RunGraph" ||
         method == "RecvTensor" || method == "RecvBuf" || method == "CleanupGraph";
}

// The name of its server; empty for a task that is elsewhere or has none.
std::string NameOf(const PeerInfo& peer, absl::string_view address) {
  const PeerInfo& self = LocalPeer();
  if (self.boot_id.empty() || peer.boot_id != self.boot_id || self.network_namespace == 0 ||
      peer.network_namespace != self.network_namespace)
    return "";
  for (const std::string& capability : peer.capabilities) {
    const absl::string_view name = NameIn(capability, address);
    if (!name.empty()) return std::string(name);
  }
  return "";
}

}  // namespace

std::shared_ptr<FastLink> NeighbourChannel::FindLink() const {
  {
    MutexLock lock(mutex_);
    if (link_ != nullptr && link_->is_open()) return link_;
    link_ = nullptr;
    if (--calls_until_look_ != 0) {
      calls_until_look_ = std::max(calls_until_look_, -1);
      return nullptr;
    }
  }
  Look();
  return nullptr;
}

void NeighbourChannel::Look() const {
  CallOptions options;
  options.timeout = kAnswerWithin;
  slow_->Call(kPeerService, "Hello", std::move(options), WritePeer(LocalPeer()),
              [self = shared_from_this()](absl::StatusOr<WireBytes> bytes) {
                const absl::StatusOr<PeerInfo> peer =
                    bytes.ok() ? ReadPeer(*bytes) : absl::StatusOr<PeerInfo>(bytes.status());
                const std::string name = peer.ok() ? NameOf(*peer, self->address()) : "";
                absl::StatusOr<std::shared_ptr<FastLink>> link = nullptr;
                if (!name.empty()) link = LinkTo(name, self->scheduler_, self->max_message_bytes_);
                self->Found(link.value_or(nullptr));
              });
}

void NeighbourChannel::Found(std::shared_ptr<FastLink> link) const {
  if (link != nullptr) ShareLargeBuffers();
  MutexLock lock(mutex_);
  calls_until_look_ = link == nullptr ? kCallsBetweenLooks : 1;
  link_ = std::move(link);
}

void NeighbourChannel::Call(absl::string_view service, absl::string_view method,
                            CallOptions options, absl::StatusOr<WireMessage> request,
                            Done done) const {
  const std::shared_ptr<FastLink> link = IsForLinks(service, method) ? FindLink() : nullptr;
  if (link == nullptr || !request.ok()) {
    return slow_->Call(service, method, std::move(options), std::move(request), std::move(done));
  }
  link->Call(absl::StrCat("/", service, "/", method), absl::StrCat(name_, " (", address(), ")"),
             std::move(options), *std::move(request), std::move(done));
}

}  // namespace muster::fast
