// Accepts the connections of a gRPC server. gRPC's own listener stops for ever when the process is
// out of descriptors once, and takes as many connections as come. Where the task takes links, the
// first bytes of a connection tell whether it is one of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/server_builder.h>
#include <poll.h>

#include "muster/base/net/acceptor.h"
#include "muster/base/net/listening_sockets.h"
#include "muster/transport/grpc/grpc_connections.h"

namespace muster {

// A connection ends when data has not been acknowledged for this long.
inline constexpr int kServerKeepaliveTimeoutMillis = 30'000;

class GrpcListener {
 public:
  using Server = grpc::experimental::ExternalConnectionAcceptor;
  // Takes a connection that is to be a link, and has been greeted.
  using TakeLink = std::function<void(Descriptor socket, std::shared_ptr<const Caller> caller)>;

  // Listens, and hands connections to `server`, which has been started and must not be shut down
  // while the listener lives: it would lose them. `take_link` null: the task takes no links, and
  // gRPC gets every connection at once.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Start(
      ListeningSockets sockets, std::unique_ptr<Server> server, std::shared_ptr<Acceptor> acceptor,
      std::shared_ptr<GrpcConnections> connections, TakeLink take_link = nullptr);
  ~GrpcListener();

 private:
  GrpcListener(ListeningSockets sockets, Descriptor wake, std::unique_ptr<Server> server,
               std::shared_ptr<Acceptor> acceptor, std::shared_ptr<GrpcConnections> connections,
               TakeLink take_link);
  // A connection of which it is not known yet whether it is to be a link.
  struct Undecided {
    Acceptor::Connection connection;
    int listener = -1;
    std::string greeting;  // what has come of it
    absl::Time until;      // then it is decided without
  };

  void Run();
  void AcceptFrom(int listener);
  // True: it was handed on or closed.
  bool Decide(Undecided& undecided);
  void HandToGrpc(Acceptor::Connection connection, int listener);
  void HandToLinks(Acceptor::Connection connection);
  int PollMillis() const;

  const ListeningSockets sockets_;
  const Descriptor wake_;
  const std::unique_ptr<Server> server_;
  const std::shared_ptr<Acceptor> acceptor_;
  const std::shared_ptr<GrpcConnections> connections_;
  const TakeLink take_link_;
  std::vector<Undecided> undecided_;  // of the thread
  std::thread thread_;                // last: it uses the others
};

}  // namespace muster
