// What `muster launch` starts: the cluster, and which of its tasks are this launcher's own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "muster/base/status.h"
#include "muster/transport/api/local_address.h"

namespace muster {

struct LaunchFlags {
  int ps = 1;
  int workers = 1;
  bool ps_given = false;
  bool workers_given = false;
  bool no_colour = false;
  bool no_status = false;
  double stop_seconds = 5;
  int max_restarts = 0;
  int metrics_port = 0;  // of the first task of the cluster, the others follow; 0: none
  std::string environment = "auto";
  bool dry_run = false;
  std::string python = {};  // for scripts; empty: FindInterpreter
  // On other hosts, by SSH.
  std::string hosts_file = {};
  std::string ssh = "ssh -o BatchMode=yes";
  std::string remote_muster = {};
  std::vector<std::string> variables = {};
  // Tasks that share processes.
  bool standalone = false;
  int processes = 0;
  // One task, whose place is given by Slurm, MPI or these.
  int port = 0;
  std::string rendezvous = {};
  std::string host = {};
  std::string job_name = {};
  int task_index = -1;
  std::string ps_address = {};
  std::string worker_address = {};
};

struct LaunchedTask {
  std::string job;
  int index = 0;
};

// A process that this launcher starts. Several tasks: threads of one Python interpreter.
struct PlannedProcess {
  std::vector<LaunchedTask> tasks;
  std::string ssh_host;  // "user@host"; empty: this machine
  int port = 0;          // of its task, on another host; 0: the one that is found free there
};

// Where launchers that each have one task of the cluster tell each other of its end.
struct PeersPlan {
  std::string host;  // of rank 0
  int port = 0;
  int rank = 0;
  int size = 0;
  int ps = 0;          // the first ranks, this many, are not workers
  std::string key;     // names the job, so that launchers of different ones do not mix
  std::string folder;  // in which they have met; rank 0 takes it away when all are connected
};

struct LaunchPlan {
  std::vector<std::string> ps, workers;  // addresses
  std::vector<PlannedProcess> processes;
  bool shares_processes = false;
  bool closed = false;           // the cluster is one process: addresses are names
  bool keeps_tf_config = false;  // the environment's own says it all
  std::optional<PeersPlan> peers;
  std::vector<ReservedPort> reserved;  // until the tasks listen on them
};

// The whole cluster on this machine, on free ports; or in one process; or in several shared ones.
absl::StatusOr<LaunchPlan> PlanLocal(const LaunchFlags& flags);
// One task of the cluster for each task of the job step: no communication, the same on all ranks.
absl::StatusOr<LaunchPlan> PlanSlurm(const LaunchFlags& flags);
// One task for each rank of mpirun; they find each other through files in a folder.
absl::StatusOr<LaunchPlan> PlanMpi(const LaunchFlags& flags);
// The one task that TF_CONFIG says; chief and master count as the first worker.
absl::StatusOr<LaunchPlan> PlanTfConfig(const std::string& tf_config);
// The one task --job_name, addresses by pattern.
absl::StatusOr<LaunchPlan> PlanNamed(const LaunchFlags& flags);
// On the hosts of a file. Addresses are known when the remote sides have told their ports.
absl::StatusOr<LaunchPlan> PlanHosts(const LaunchFlags& flags);

// Whichever of these fits the flags and the environment.
absl::StatusOr<LaunchPlan> MakePlan(const LaunchFlags& flags);

// --ps_hosts=... --worker_hosts=... --job_name=... --task_index=...
std::vector<std::string> ClusterFlags(const LaunchPlan& plan, const LaunchedTask& task);
std::string TfConfigText(const LaunchPlan& plan, const LaunchedTask& task);

}  // namespace muster
