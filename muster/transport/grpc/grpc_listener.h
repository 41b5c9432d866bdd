// Accepts the connections of a gRPC server. gRPC's own listener stops for ever when the process is
// out of descriptors once, and takes as many connections as come.
#pragma once

#include <memory>
#include <thread>

#include <grpcpp/server_builder.h>

#include "muster/base/net/acceptor.h"
#include "muster/base/net/listening_sockets.h"
#include "muster/transport/grpc/grpc_connections.h"

namespace muster {

// A connection ends when data has not been acknowledged for this long.
inline constexpr int kServerKeepaliveTimeoutMillis = 30'000;

class GrpcListener {
 public:
  using Server = grpc::experimental::ExternalConnectionAcceptor;

  // Listens, and hands connections to `server`, which has been started and must not be shut down
  // while the listener lives: it would lose them.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Start(
      ListeningSockets sockets, std::unique_ptr<Server> server, std::shared_ptr<Acceptor> acceptor,
      std::shared_ptr<GrpcConnections> connections);
  ~GrpcListener();

 private:
  GrpcListener(ListeningSockets sockets, Descriptor wake, std::unique_ptr<Server> server,
               std::shared_ptr<Acceptor> acceptor, std::shared_ptr<GrpcConnections> connections);
  void Run();
  void AcceptFrom(int listener);

  const ListeningSockets sockets_;
  const Descriptor wake_;
  const std::unique_ptr<Server> server_;
  const std::shared_ptr<Acceptor> acceptor_;
  const std::shared_ptr<GrpcConnections> connections_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace muster
