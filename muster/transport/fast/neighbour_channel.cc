#include "muster/transport/fast/neighbour_channel.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"

#include "muster/base/threads/blocking_threads.h"
#include "muster/transport/api/peer.h"
#include "muster/transport/fast/fast_server.h"
#include "muster/transport/fast/greeting.h"
#include "muster/transport/fast/remote_link.h"
#include "muster/transport/messages/methods.h"
#include "muster/transport/wire/peer_proto.h"

namespace muster::fast {
namespace {

constexpr absl::Duration kAnswerWithin = absl::Seconds(10);
constexpr absl::Duration kConnectWithin = absl::Seconds(10);
// After a look that found nothing: a task that takes no links, or with which no link comes about.
// The task may only not have been there yet, so that the first looks follow each other sooner.
constexpr int kCallsBetweenLooks = 1000;
constexpr int kCallsAfterFirstLook = 20;

// The calls of which steps consist. Liveness checks go over gRPC, which every task has, and calls
// that happen once are not worth another connection.
bool IsForLinks(absl::string_view service, absl::string_view method) {
  if (service == kPeerService) return method == "RecvTensors";
  return method == "RunStep" || method == "RunCallable" || method == "RunGraph" ||
         method == "RecvTensor" || method == "RecvBuf" || method == "CleanupGraph";
}

bool IsNeighbour(const PeerInfo& peer) {
  const PeerInfo& self = LocalPeer();
  return !self.boot_id.empty() && peer.boot_id == self.boot_id && self.network_namespace != 0 &&
         peer.network_namespace == self.network_namespace;
}

// The name of its server; empty where it has none, or a proxy stands before it.
std::string NameOf(const PeerInfo& peer, absl::string_view address) {
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
                if (!peer.ok()) return self->Found(peer.status());
                if (self->links_ == Links::kNetwork || !IsNeighbour(*peer)) {
                  if (absl::c_linear_search(peer->capabilities, kLinkCapability))
                    return self->Connect(peer->incarnation);
                  return self->Found(absl::UnavailableError("it takes no links"));
                }
                const std::string name = NameOf(*peer, self->address());
                if (name.empty()) return self->Found(absl::UnavailableError("no server"));
                ShareLargeBuffers();
                self->Found(LinkTo(name, self->scheduler_, self->max_message_bytes_));
              });
}

void NeighbourChannel::Connect(uint64_t incarnation) const {
  const auto connect = [self = shared_from_this(), incarnation] {
    self->Found(ConnectLink(self->address(), incarnation, kConnectWithin, self->scheduler_,
                            self->max_message_bytes_));
  };
  const auto begun = BlockingThreads::Global().Run(*OrThisProcess(nullptr), connect);
  if (!begun.ok()) Found(begun.status());
}

void NeighbourChannel::Found(absl::StatusOr<std::shared_ptr<FastLink>> link) const {
  MutexLock lock(mutex_);
  calls_until_look_ = link.ok() ? 1 : calls_between_looks_;
  calls_between_looks_ =
      link.ok() ? kCallsAfterFirstLook : std::min(kCallsBetweenLooks, calls_between_looks_ * 4);
  link_ = std::move(link).value_or(nullptr);
}

void NeighbourChannel::Renew() const {
  slow_->Renew();
  // Its calls that are under way go on; new ones get a new link.
  std::shared_ptr<FastLink> left;
  MutexLock lock(mutex_);
  left = std::exchange(link_, nullptr);
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
