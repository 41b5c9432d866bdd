// A task of a cluster: a master and a worker on one port.
#pragma once

#include <memory>
#include <string>

#include "muster/transport/api/cluster.h"
#include "muster/transport/api/session_config.h"
#include "muster/transport/api/task_status.h"
#include "muster/transport/grpc/grpc_transport.h"
#include "muster/transport/inproc/local_tasks.h"
#include "muster/transport/watch/watched_peers.h"

namespace muster {

// Of a process that serves, when a device of it has failed for good; see device/device_failure.h. A
// temporary failure in sysexits.h: to be started again.
inline constexpr int kDeviceFailedExitStatus = 75;

struct ServerOptions {
  ClusterSpec cluster;
  std::string job;  // may be empty when there is one job
  int task = -1;    // may be -1 when the job has one task
  int port = -1;    // -1: the one in the cluster's entry
  // Where to listen; empty: the address that the cluster gives for the task, or all interfaces
  // (with a warning) when that is not an address of this machine.
  std::string bind;
  SessionConfig config;  // under every session's own
  SecurityOptions security;
  // Set where the task shares the process with others of its cluster, itself among them.
  std::shared_ptr<LocalTasks> local_tasks;
  Scheduler* scheduler = nullptr;  // null: pools that all servers of the process share
  absl::Duration stop_grace = absl::Seconds(2);
  LivenessOptions liveness;
  // How long a client that has vanished may take to come back before its steps are cancelled and
  // its session is closed.
  absl::Duration orphan_grace = absl::Seconds(10);
  // A session that is idle, and whose master has not been heard of for this long, is removed.
  absl::Duration master_timeout = absl::Minutes(10);
  // Limits on what clients may send: a message, and the nodes of a graph with all its extensions.
  int max_message_bytes = INT32_MAX;
  int64_t max_graph_nodes = 10'000'000;
  // What tensors may take at most: those of all tasks of the process, and those that the steps of
  // one session make.
  int64_t max_memory_bytes = INT64_MAX;
  int64_t max_session_memory_bytes = INT64_MAX;
  // Connections to the port, in all and from one address; more are closed at once. 0: as many as
  // the descriptors of the process allow.
  int max_connections = 0;
  int max_connections_per_peer = 0;
  bool cache_rpc_response = false;
  // Besides gRPC, where `security` asks for nothing.
  Links links = Links::kAll;
  // Other tasks of Muster may ask for several tensors at once.
  bool batches = true;
  // A Unix socket to which the task reports how it does; empty: none (status_report.h).
  std::string status_socket;
  // The port for /metrics and /healthz, open to any client that reaches it; 0: any free port, -1:
  // none.
  int metrics_port = -1;
};

// Thread-safe.
class Server {
 public:
  // Binds the port; calls are answered after Start. Raises the process' soft limit of open files.
  // Internal 'Job "x" was not defined in cluster', InvalidArgument for an unknown task, Unknown
  // when the port is taken: TensorFlow's codes.
  static absl::StatusOr<std::unique_ptr<Server>> Create(ServerOptions options);
  // One task "/job:local/replica:0/task:0" on a free port.
  static absl::StatusOr<std::unique_ptr<Server>> CreateLocal(SessionConfig config = {});
  // For timers and calls of all servers of the process; never ends.
  static Scheduler& SharedScheduler();
  virtual ~Server() = default;  // stops it

  virtual absl::Status Start() = 0;  // again: does nothing
  // Running steps have the grace period, then they are cancelled; the port closes; Join returns.
  virtual void Stop() = 0;
  virtual void StopWithin(absl::Duration grace) = 0;  // the same with another grace period
  virtual void Join() = 0;
  // Join with an end: whether the server has stopped within `timeout`.
  virtual bool JoinFor(absl::Duration timeout) = 0;
  virtual std::string target() const = 0;  // "grpc://host:port"
  virtual int port() const = 0;
  virtual int metrics_port() const = 0;  // -1: there is none
  // The health of the tasks of the cluster, as this one last knew it.
  virtual ClusterStatus Status() const = 0;
  virtual const ClusterSpec& cluster() const = 0;
  virtual TaskName self() const = 0;
};

}  // namespace muster
