// A connection to one task, over which calls go out.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include <grpcpp/channel.h>

#include "muster/transport/grpc/grpc_transport.h"
#include "muster/transport/messages/channel.h"

namespace muster {

// Thread-safe. Connects with the first call, and again after failures.
class GrpcChannel final : public Channel {
 public:
  // `name` is how error texts call the other side.
  GrpcChannel(std::string name, std::string address, const GrpcOptions& options);

  void Call(absl::string_view service, absl::string_view method, CallOptions options,
            absl::StatusOr<WireMessage> request, Done done) const override;
  void Reconnect() const override;
  const std::string& address() const override { return address_; }

 private:
  const std::string name_;
  const std::string address_;
  std::string token_;
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel_;
  // Until then (absl::Now() in ns) calls wait for the connection that is being made.
  mutable std::atomic<int64_t> reconnecting_until_{0};
};

}  // namespace muster
