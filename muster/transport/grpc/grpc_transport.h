// Tasks reach each other with TensorFlow's gRPC services.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/base/net/acceptor.h"
#include "muster/base/net/listening_sockets.h"
#include "muster/base/settings.h"
#include "muster/transport/api/peers.h"
#include "muster/transport/api/task_status.h"

namespace muster {

// Authentication and encryption. Empty: any peer, in the clear, as in TensorFlow.
struct SecurityOptions {
  std::string certificate_file;  // PEM; with the key: TLS
  std::string key_file;
  std::string ca_file;  // with the other two: both sides show certificates
  std::string token;    // a secret that every caller must know
  bool enabled() const { return !certificate_file.empty() || !ca_file.empty() || !token.empty(); }
};

struct GrpcOptions {
  Scheduler* scheduler = nullptr;  // for timers; outlives the transport
  // What callers that are no task say of themselves.
  Caller::Role role = Caller::Role::kClient;
  SecurityOptions security;
  int max_message_bytes = INT32_MAX;
  // gRPC carries no longer messages.
  size_t max_sent_bytes = INT32_MAX;
  // Longer ones go to tasks of Muster in parts, so that the other side can say that it has no
  // memory for them before they are sent. More than kPartPieceBytes.
  size_t max_whole_bytes = size_t{64} << 20;
  // To other tasks of Muster, unless `security` asks for something.
  Links links = Links::kAll;
};

std::unique_ptr<Transport> NewGrpcTransport(GrpcOptions options);

struct GrpcServerOptions {
  std::string host;  // to which to bind; empty: all interfaces
  int port = 0;      // 0: any free one
  // Those of a port that was taken before, for the server to have; null: of `host` and `port`.
  std::shared_ptr<ListeningSockets> sockets;
  // Has the limits of connections; null: one for as many descriptors as the process may have.
  std::shared_ptr<Acceptor> acceptor;
  SecurityOptions security;
  int max_message_bytes = INT32_MAX;
  size_t max_sent_bytes = INT32_MAX;          // as in GrpcOptions
  size_t max_whole_bytes = size_t{64} << 20;  // likewise
  // For TLS's greeting and HTTP/2's, from the connection on.
  absl::Duration handshake_timeout = absl::Seconds(20);
  // Runs calls that take long to read, such as graphs, instead of gRPC's threads; outlives the
  // server. Null: gRPC's threads do.
  Scheduler* scheduler = nullptr;
  // Larger tensors go to other tasks of Muster in pieces of this size.
  size_t max_piece_bytes = size_t{1} << 30;
  // Other tasks of Muster may ask for several tensors at once.
  bool batches = true;
  // Further capabilities that this task announces to other tasks of Muster.
  std::vector<std::string> capabilities;
  std::shared_ptr<StatusApi> status;  // may be null
  Links links = Links::kAll;          // as in GrpcOptions
};

// The services of one task on one port.
class GrpcServer {
 public:
  // Unknown "Could not start gRPC server" naming the address when the port is taken. `master` may
  // be null.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(GrpcServerOptions options,
                                                           std::shared_ptr<MasterApi> master,
                                                           std::shared_ptr<WorkerApi> worker);
  virtual ~GrpcServer() = default;
  virtual int port() const = 0;
  // No new calls; those under way have `grace` before they are cancelled. Blocks until all have
  // ended.
  virtual void Stop(absl::Duration grace) = 0;
};

}  // namespace muster
