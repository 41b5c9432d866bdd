// A connection to one task, over which calls go out.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include <grpcpp/channel.h>

#include "muster/base/mutex.h"
#include "muster/transport/grpc/grpc_transport.h"
#include "muster/transport/messages/channel.h"

namespace muster {

// Thread-safe. Connects with the first call, and again after failures. Calls that are under way
// when the connection is renewed stay with the old one, which goes with the last of them.
class GrpcChannel final : public Channel, public std::enable_shared_from_this<GrpcChannel> {
 public:
  // `name` is how error texts call the other side, `introduction` what it is told of the caller.
  GrpcChannel(std::string name, std::string address, std::string introduction,
              const GrpcOptions& options);

  void Call(absl::string_view service, absl::string_view method, CallOptions options,
            absl::StatusOr<WireMessage> request, Done done) const override;
  void Reconnect() const override;
  void Renew() const override;
  const std::string& address() const override { return address_; }

  // The outcome of a call of muster.Peer, which tells whether the other side is Muster.
  void NoteAnswerOfPeer(const absl::Status& answer) const;

 private:
  using Connection = absl::StatusOr<std::shared_ptr<grpc::Channel>>;
  Connection connection() const {
    MutexLock lock(mutex_);
    return connection_;
  }

  // With a list in place of the message when `is_list`.
  void Start(absl::string_view service, absl::string_view method, CallOptions options,
             WireMessage request, bool is_list, Done done) const;
  void CallInParts(absl::string_view service, absl::string_view method, CallOptions options,
                   WireMessage request, Done done) const;

  const std::string name_;
  const std::string address_;
  const std::string introduction_;
  const GrpcOptions options_;
  mutable Mutex mutex_;
  mutable Connection connection_ ABSL_GUARDED_BY(mutex_);
  mutable int renewals_ ABSL_GUARDED_BY(mutex_) = 0;
  // Until then (absl::Now() in ns) calls wait for the connection that is being made.
  mutable std::atomic<int64_t> reconnecting_until_{0};
  // By its answers to calls of muster.Peer; another program may run as the task later.
  enum class PeerKind : uint8_t { kUnknown, kMuster, kOther };
  mutable std::atomic<PeerKind> peer_kind_{PeerKind::kUnknown};
};

}  // namespace muster
