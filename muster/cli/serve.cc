// muster serve: one task of a cluster.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include <CLI/CLI.hpp>
#include <pthread.h>
#include <unistd.h>

#include "muster/base/threads/thread_name.h"
#include "muster/cli/commands.h"
#include "muster/cli/security_flags.h"
#include "muster/server/server.h"
#include "muster/server/server_options_proto.h"
#include "muster/server/server_settings.h"
#include "muster/transport/api/cluster_json.h"

namespace muster {
namespace {

struct ServeFlags {
  std::string cluster, job, config, bind;
  int task = -1;
  int port = -1;
  int metrics_port = -1;
  int cpu_devices = 0;
  int gpu_devices = -1;
  std::string visible_gpus;
  double gpu_memory_fraction = 0;
  double grace_seconds = -1;
  // Negative: what the environment says, or the default.
  double heartbeat_seconds = -1;
  double warn_seconds = -1;
  double fail_seconds = -1;
  double orphan_seconds = -1;
  double master_seconds = -1;
  int64_t max_message_bytes = -1;
  int64_t max_graph_nodes = -1;
  int64_t max_memory_bytes = -1;
  int64_t max_session_memory_bytes = -1;
  int max_connections = -1;
  int max_connections_per_peer = -1;
  SecurityFlags security;
};

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream contents;
  if (!file || !(contents << file.rdbuf()))
    return NotFound("cannot read '", path, "': ", std::strerror(errno));
  return contents.str();
}

// From --config, --cluster and TF_CONFIG, the first that is there; flags win over each.
absl::StatusOr<ServerOptions> Options(const ServeFlags& flags) {
  ServerOptions options;
  if (!flags.config.empty()) {
    ASSIGN_OR_RETURN(const std::string contents, ReadFile(flags.config));
    absl::StatusOr<ServerOptions> read = ParseServerDefFile(contents);
    if (!read.ok()) return Prefixed(read.status(), absl::StrCat(flags.config, ": "));
    options = *std::move(read);
  }
  if (!flags.cluster.empty()) {
    ASSIGN_OR_RETURN(options.cluster, ClusterSpec::Parse(flags.cluster));
  } else if (const std::string variable = EnvironmentVariable("TF_CONFIG");
             !variable.empty() && flags.config.empty()) {
    ASSIGN_OR_RETURN(TfConfig config, ParseTfConfig(variable));
    if (config.job == "evaluator")
      return InvalidArgument("TF_CONFIG: an evaluator reads checkpoints and serves nothing");
    options.cluster = std::move(config.cluster);
    options.cluster.jobs().erase("evaluator");  // no session may wait for it
    options.job = std::move(config.job);
    options.task = config.task;
  }
  if (options.cluster.empty()) {
    return InvalidArgument(
        "which cluster? give --cluster 'ps=HOST:PORT;worker=HOST:PORT', --config or TF_CONFIG");
  }
  if (!flags.job.empty()) options.job = flags.job;
  if (flags.task >= 0) options.task = flags.task;
  if (flags.port >= 0) options.port = flags.port;
  options.bind = flags.bind;
  ASSIGN_OR_RETURN(const Settings settings, ReadSettings());
  ASSIGN_OR_RETURN(options.security, SecurityOf(flags.security, settings));
  if (flags.cpu_devices > 0) options.config.devices.cpu_devices = flags.cpu_devices;
  if (flags.gpu_devices >= 0) options.config.devices.gpu_devices = flags.gpu_devices;
  if (!flags.visible_gpus.empty()) options.config.devices.visible_gpus = flags.visible_gpus;
  if (flags.gpu_memory_fraction > 0)
    options.config.devices.gpu_memory_fraction = flags.gpu_memory_fraction;
  if (flags.grace_seconds >= 0) options.stop_grace = absl::Seconds(flags.grace_seconds);
  ApplySettings(settings, options);
  const auto seconds = [](double flag, absl::Duration& option) {
    if (flag >= 0) option = absl::Seconds(flag);
  };
  seconds(flags.heartbeat_seconds, options.liveness.heartbeat);
  seconds(flags.warn_seconds, options.liveness.warn_after);
  seconds(flags.fail_seconds, options.liveness.fail_after);
  seconds(flags.orphan_seconds, options.orphan_grace);
  seconds(flags.master_seconds, options.master_timeout);
  if (flags.metrics_port >= 0) options.metrics_port = flags.metrics_port;
  if (flags.max_message_bytes > 0)
    options.max_message_bytes = static_cast<int>(flags.max_message_bytes);
  if (flags.max_graph_nodes > 0) options.max_graph_nodes = flags.max_graph_nodes;
  if (flags.max_memory_bytes > 0) options.max_memory_bytes = flags.max_memory_bytes;
  if (flags.max_session_memory_bytes > 0)
    options.max_session_memory_bytes = flags.max_session_memory_bytes;
  if (flags.max_connections > 0) options.max_connections = flags.max_connections;
  if (flags.max_connections_per_peer > 0)
    options.max_connections_per_peer = flags.max_connections_per_peer;
  return options;
}

// Waits for SIGINT and SIGTERM, which every thread blocks. The first stops the server, the second
// the process.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  void StopOnSignal(Server& server) {
    int signal = 0;
    sigwait(&set_, &signal);
    std::thread([this] {
      NameThread("muster-signal");
      int second = 0;
      sigwait(&set_, &second);
      _exit(128 + second);
    }).detach();
    server.Stop();
  }

 private:
  sigset_t set_;
};

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "muster serve: %s\n", std::string(status.message()).c_str());
  return 1;
}

int Serve(const ServeFlags& flags) {
  // Blocked before any thread exists, so that all of them inherit it; never ends: threads wait.
  static StopSignals signals;
  absl::StatusOr<ServerOptions> options = Options(flags);
  if (!options.ok()) return Fail(options.status());
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Create(*std::move(options));
  if (!server.ok()) return Fail(server.status());
  if (const absl::Status started = (*server)->Start(); !started.ok()) return Fail(started);
  std::printf("muster: %s serves at %s\n", (*server)->self().ToString().c_str(),
              (*server)->target().c_str());
  if ((*server)->metrics_port() >= 0)
    std::printf("muster: metrics are on port %d\n", (*server)->metrics_port());
  std::fflush(stdout);
  signals.StopOnSignal(**server);
  std::fflush(nullptr);
  _exit(0);  // idle pools need not be taken down
}

}  // namespace

void AddServeCommand(CLI::App& app, Command& chosen) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* command = app.add_subcommand("serve", "Serve one task of a cluster until a signal");
  command->add_option("--cluster,--cluster_spec", flags->cluster,
                      "Tasks and addresses: 'ps=a:2222,b:2222;worker=c:2222', "
                      "'ps|a:2222;b:2222,worker|c:2222' or JSON; default: TF_CONFIG");
  command->add_option("--job,--job_name", flags->job, "The job of this task");
  command->add_option("--task,--task_id,--task_index", flags->task, "Its number in the job")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--config", flags->config, "A file with a ServerDef, text or binary");
  command->add_option("--port", flags->port, "Listen on this port instead of the cluster's")
      ->check(CLI::Range(0, 65535));
  command->add_option("--bind", flags->bind,
                      "Listen on this address instead of the cluster's; 0.0.0.0 for all");
  command
      ->add_option("--metrics-port", flags->metrics_port,
                   "Serve /metrics (Prometheus) and /healthz on this port (MUSTER_METRICS_PORT)")
      ->check(CLI::Range(0, 65535));
  command->add_option("--cpu-devices", flags->cpu_devices, "How many CPU devices the task has")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--gpu-devices", flags->gpu_devices,
                   "At most so many GPUs; 0 for none (default: all of this machine)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--visible-gpus", flags->visible_gpus,
                      "The GPUs that the task has, such as 1,0 (default: all)");
  command
      ->add_option("--gpu-memory-fraction", flags->gpu_memory_fraction,
                   "The part of a GPU's memory that the task may take (default: all, as needed)")
      ->check(CLI::Range(0.0, 1.0));
  command
      ->add_option("--grace", flags->grace_seconds,
                   "Seconds that steps have to end after a signal (default 2)")
      ->check(CLI::NonNegativeNumber);
  // Their variables are read where all servers read them.
  const auto number = [command](const char* name, auto& value, const char* text) {
    command->add_option(name, value, text)->check(CLI::PositiveNumber);
  };
  number("--heartbeat", flags->heartbeat_seconds,
         "Seconds between questions whether a task lives, while calls to it are open "
         "(MUSTER_HEARTBEAT, 1)");
  number("--warn-after", flags->warn_seconds,
         "Seconds of silence after which a task is named in a warning (MUSTER_WARN_AFTER, 5)");
  number("--fail-after", flags->fail_seconds,
         "Seconds of silence after which calls to a task fail (MUSTER_FAIL_AFTER, 30)");
  number("--orphan-grace", flags->orphan_seconds,
         "Seconds that a vanished client has to come back (MUSTER_ORPHAN_GRACE, 10)");
  number("--master-timeout", flags->master_seconds,
         "Seconds without contact to its master after which a session is removed "
         "(MUSTER_MASTER_TIMEOUT, 600)");
  command
      ->add_option("--max-message-bytes", flags->max_message_bytes,
                   "Larger messages are refused (MUSTER_MAX_MESSAGE_BYTES, 2147483647)")
      ->check(CLI::Range(int64_t{1}, int64_t{INT32_MAX}));
  number("--max-graph-nodes", flags->max_graph_nodes,
         "Larger graphs are refused (MUSTER_MAX_GRAPH_NODES, 10000000)");
  number(
      "--max-memory-bytes", flags->max_memory_bytes,
      "What the tensors of this task may take (MUSTER_MAX_MEMORY_BYTES, what the machine and its "
      "cgroup have)");
  number("--max-session-memory-bytes", flags->max_session_memory_bytes,
         "What the steps of one session may take of it (MUSTER_MAX_SESSION_MEMORY_BYTES, all)");
  number("--max-connections", flags->max_connections,
         "More connections are closed at once (MUSTER_MAX_CONNECTIONS; as many as the limit of "
         "open files allows)");
  number("--max-connections-per-peer", flags->max_connections_per_peer,
         "The same for those from one address (MUSTER_MAX_CONNECTIONS_PER_PEER; three quarters of "
         "all)");
  AddSecurityFlags(*command, flags->security);
  command->callback([flags, &chosen] { chosen = [flags] { return Serve(*flags); }; });
}

}  // namespace muster
