// Who makes a call to a server: identity, role and limits. A transport makes a Caller for each
// connection and hands it to every call that comes over it. A session belongs to the caller that
// made it, and its steps carry that caller to where clients share threads, memory and files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "muster/base/cancellation.h"

namespace muster {

// What a caller may take. The task that a session is made at sets it.
struct CallerLimits {
  int64_t session_nodes = 10'000'000;        // of the graph of a session
  int64_t session_memory_bytes = INT64_MAX;  // that the steps of a session allocate at a task
};

// Immutable, and always held by a shared pointer, once a call has it.
struct Caller : std::enable_shared_from_this<Caller> {
  enum class Role : uint8_t {
    kUnknown,
    kClient,    // runs steps
    kTask,      // of the cluster
    kOperator,  // asks for the state of tasks
  };

  // Of this connection: "10.0.0.3:40112" over the network, "process 4711 of user 1000" over a local
  // socket, the address of the simulator, or the task in whose process the caller is.
  std::string name;
  // By which connections are counted: all callers of an address, or of a process, have the same.
  std::string host;
  // The subject of the certificate that it has shown, in mutual TLS.
  std::string subject;
  bool has_token = false;  // it has shown the token of the task
  // What it says of itself. Nothing proves it, so nothing is granted for it.
  Role role = Role::kUnknown;
  std::string task;  // of kTask: "/job:worker/replica:0/task:1"
  CallerLimits limits;
  // Cancelled when the connection has ended. Null where the transport does not know.
  std::shared_ptr<Cancellation> connection;

  // For logs and errors: "client 10.0.0.3:40112".
  std::string ToString() const;
  // How it calls itself where it connects: the name of the task, or the role.
  std::string Introduction() const;
  // Sets role and task from that; other texts leave the role unknown.
  void Introduce(const std::string& introduction);
};

// The caller, or, where it is null, code of this process that calls without a transport.
std::shared_ptr<const Caller> OrThisProcess(const Caller* caller);

}  // namespace muster
