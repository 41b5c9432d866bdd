// The environment variables that Muster reads, and the only place that reads them. Their table is
// in settings.cc and, for users, in docs/operations.md. Values go from here into the option structs
// of what uses them (ServerOptions, GrpcOptions, ...); nothing below asks the environment again.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "muster/base/status.h"

namespace muster {

// The value of a variable, null where it is not set: std::getenv, or a table of a test.
using Environment = absl::FunctionRef<const char*(const char* name)>;

// How tasks and clients of Muster reach each other besides gRPC: over links of transport/fast.
enum class Links : uint8_t {
  kNone,     // not at all
  kNetwork,  // as between machines, also on one machine
  kAll,      // and with shared memory, on one machine
};

// What variables named MUSTER_... say; what is not set keeps the default of the struct that has it.
struct Settings {
  Links links = Links::kAll;  // MUSTER_FAST
  bool batches = true;        // MUSTER_BATCHES
  bool cache_rpc_response = false;
  std::string status_socket;
  std::string tls_certificate_file, tls_key_file, tls_ca_file, auth_token_file;
  std::optional<absl::Duration> heartbeat, warn_after, fail_after, orphan_grace, master_timeout;
  std::optional<int> max_message_bytes, max_connections, max_connections_per_peer, metrics_port;
  std::optional<int64_t> max_graph_nodes, max_memory_bytes, max_session_memory_bytes;
};

// InvalidArgument naming the variable, its value and the rule for a value that is not accepted. An
// empty value counts as not set.
absl::StatusOr<Settings> ReadSettings();
absl::StatusOr<Settings> ReadSettings(Environment environment);

// TF_CPP_MIN_LOG_LEVEL: 0 where it is not set, an error like that of ReadSettings for what is no
// number.
absl::StatusOr<int> ReadLogLevel();

// The value of a variable that belongs to others (TF_CONFIG, SLURM_JOB_ID, ...), empty where it is
// not set. Requires: the variable is in the table of settings.cc.
std::string EnvironmentVariable(absl::string_view name);

// All variables of the process, for processes that it starts elsewhere.
std::map<std::string, std::string> WholeEnvironment();

}  // namespace muster
