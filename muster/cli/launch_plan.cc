#include "muster/cli/launch_plan.h"

#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include <unistd.h>

#include "muster/base/json.h"
#include "muster/base/settings.h"
#include "muster/transport/api/cluster_json.h"

namespace muster {
namespace {

std::string JsonList(const std::vector<std::string>& words) {
  return absl::StrCat("[",
                      absl::StrJoin(words, ", ",
                                    [](std::string* out, const std::string& word) {
                                      absl::StrAppend(out, JsonQuoted(word));
                                    }),
                      "]");
}

LaunchedTask TaskOfRank(int rank, int ps) {
  return rank < ps ? LaunchedTask{"ps", rank} : LaunchedTask{"worker", rank - ps};
}

// The addresses of a job, whose numbers must have no holes.
absl::StatusOr<std::vector<std::string>> DenseAddresses(const std::string& job,
                                                        const ClusterSpec::Tasks& tasks) {
  std::vector<std::string> addresses;
  for (const auto& [number, address] : tasks) {
    if (number != static_cast<int>(addresses.size()))
      return InvalidArgument("TF_CONFIG: job '", job, "' has no task ", addresses.size());
    addresses.push_back(address);
  }
  return addresses;
}

// The number at the end of a pod's name: "digits-ps-2".
absl::StatusOr<int> TaskIndexHere() {
  int index = -1;
  const std::string completion = EnvironmentVariable("JOB_COMPLETION_INDEX");
  if (!completion.empty()) {
    if (!absl::SimpleAtoi(completion, &index) || index < 0)
      return InvalidArgument("JOB_COMPLETION_INDEX is '", completion, "', not a number");
    return index;
  }
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  const std::string host(name);
  const std::string first = host.substr(0, host.find('.'));
  const size_t dash = first.rfind('-');
  if (dash == std::string::npos || !absl::SimpleAtoi(first.substr(dash + 1), &index) || index < 0) {
    return InvalidArgument(
        "which task? give --task_index; neither JOB_COMPLETION_INDEX nor the name of this host, '",
        host, "', says it");
  }
  return index;
}

struct HostLine {
  std::string ssh_host;
  int slots = -1;  // any number
};

absl::StatusOr<std::vector<HostLine>> ReadHosts(const std::string& path) {
  std::ifstream file(path);
  if (!file) return NotFound("cannot read the file of hosts '", path, "'");
  std::vector<HostLine> hosts;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::vector<std::string> words =
        absl::StrSplit(line.substr(0, line.find('#')), absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    HostLine host{words[0]};
    for (size_t i = 1; i < words.size(); ++i) {
      if (!absl::StartsWith(words[i], "slots=") ||
          !absl::SimpleAtoi(words[i].substr(6), &host.slots) || host.slots < 1) {
        return InvalidArgument(path, ", line ", number, ": '", words[i],
                               "' is not understood; HOST [slots=N] expected");
      }
    }
    // It becomes a word of a command.
    if (absl::StartsWith(host.ssh_host, "-"))
      return InvalidArgument(path, ", line ", number, ": '", host.ssh_host, "' is not a host");
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) return InvalidArgument("the file of hosts '", path, "' names none");
  return hosts;
}

}  // namespace

absl::StatusOr<LaunchPlan> PlanLocal(const LaunchFlags& flags) {
  LaunchPlan plan;
  const int count = flags.ps + flags.workers;
  const int processes = flags.standalone ? 1 : flags.processes > 0 ? flags.processes : count;
  if (processes > count)
    return InvalidArgument("--processes ", processes, " for ", count, " tasks");
  plan.shares_processes = flags.standalone || flags.processes > 0;
  plan.closed = plan.shares_processes && processes == 1;
  for (int rank = 0; rank < count; ++rank) {
    std::string address = absl::StrCat("standalone:", rank + 1);
    if (!plan.closed) {
      ASSIGN_OR_RETURN(ReservedPort port,
                       ReservedPort::Take("localhost", flags.port > 0 ? flags.port + rank : 0));
      address = absl::StrCat("localhost:", port.port());
      plan.reserved.push_back(std::move(port));
    }
    (rank < flags.ps ? plan.ps : plan.workers).push_back(std::move(address));
  }
  // Neighbours share a process; sizes differ by one at most.
  for (int i = 0; i < processes; ++i) {
    PlannedProcess process;
    for (int rank = count * i / processes; rank < count * (i + 1) / processes; ++rank)
      process.tasks.push_back(TaskOfRank(rank, flags.ps));
    plan.processes.push_back(std::move(process));
  }
  return plan;
}

absl::StatusOr<LaunchPlan> PlanTfConfig(const std::string& tf_config) {
  ASSIGN_OR_RETURN(const TfConfig config, ParseTfConfig(tf_config));
  if (config.cluster.empty()) return InvalidArgument("TF_CONFIG has no cluster");
  if (config.job.empty()) return InvalidArgument("TF_CONFIG does not say which task this is");
  LaunchPlan plan;
  plan.keeps_tf_config = true;
  int chiefs = 0;
  for (const auto& [job, tasks] : config.cluster.jobs()) {
    if (job == "evaluator") continue;  // reads checkpoints; no task calls it
    ASSIGN_OR_RETURN(const std::vector<std::string> addresses, DenseAddresses(job, tasks));
    if (job == "ps") {
      plan.ps = addresses;
    } else if (job == "chief" || job == "master") {
      if (++chiefs > 1 || addresses.size() > 1)
        return InvalidArgument("TF_CONFIG has more than one chief");
      plan.workers.insert(plan.workers.begin(), addresses[0]);
    } else if (job == "worker") {
      plan.workers.insert(plan.workers.end(), addresses.begin(), addresses.end());
    } else {
      return InvalidArgument("TF_CONFIG has a job '", job,
                             "': chief, master, worker, ps and evaluator can be launched");
    }
  }
  LaunchedTask task{config.job, std::max(config.task, 0)};
  if (task.job != "evaluator") {
    RETURN_IF_ERROR(config.cluster.Address({task.job, task.index}).status());
    if (task.job == "worker") {
      task.index += chiefs;
    } else if (task.job != "ps") {
      task = {"worker", 0};
    }
  }
  plan.processes.push_back({{task}, "", 0});
  return plan;
}

absl::StatusOr<LaunchPlan> PlanNamed(const LaunchFlags& flags) {
  if (flags.job_name != "ps" && flags.job_name != "worker")
    return InvalidArgument("--job_name is '", flags.job_name, "': ps or worker expected");
  LaunchPlan plan;
  const auto fill = [](std::vector<std::string>& addresses, const std::string& pattern, int count,
                       absl::string_view flag) {
    if (count > 1 && !absl::StrContains(pattern, "{}"))
      return InvalidArgument(flag, " is '", pattern, "': {} for the number of the task expected");
    for (int i = 0; i < count; ++i) {
      addresses.push_back(absl::StrReplaceAll(pattern, {{"{}", absl::StrCat(i)}}));
      RETURN_IF_ERROR(ParseHostPort(addresses.back()).status());
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(fill(plan.ps, flags.ps_address, flags.ps, "--ps_address"));
  RETURN_IF_ERROR(fill(plan.workers, flags.worker_address, flags.workers, "--worker_address"));
  ClusterSpec cluster;
  for (size_t i = 0; i < plan.ps.size(); ++i)
    cluster.jobs()["ps"][static_cast<int>(i)] = plan.ps[i];
  for (size_t i = 0; i < plan.workers.size(); ++i)
    cluster.jobs()["worker"][static_cast<int>(i)] = plan.workers[i];
  RETURN_IF_ERROR(cluster.Validate());
  LaunchedTask task{flags.job_name, flags.task_index};
  if (task.index < 0) {
    ASSIGN_OR_RETURN(task.index, TaskIndexHere());
  }
  const int count = task.job == "ps" ? flags.ps : flags.workers;
  if (task.index >= count)
    return InvalidArgument("there is no ", task.job, " ", task.index, ": the cluster has ", count);
  plan.processes.push_back({{task}, "", 0});
  return plan;
}

absl::StatusOr<LaunchPlan> PlanHosts(const LaunchFlags& flags) {
  ASSIGN_OR_RETURN(std::vector<HostLine> hosts, ReadHosts(flags.hosts_file));
  LaunchPlan plan;
  const int count = flags.ps + flags.workers;
  std::vector<int> used(hosts.size());
  size_t at = 0;
  for (int rank = 0; rank < count; ++rank) {
    // In turn, past hosts that are full.
    size_t tried = 0;
    while (hosts[at].slots >= 0 && used[at] >= hosts[at].slots && tried++ < hosts.size())
      at = (at + 1) % hosts.size();
    if (tried > hosts.size()) {
      return InvalidArgument(count, " tasks do not fit: the hosts of '", flags.hosts_file,
                             "' have slots for ", rank);
    }
    const std::string& ssh_host = hosts[at].ssh_host;
    const int port = flags.port > 0 ? flags.port + used[at] : 0;
    plan.processes.push_back({{TaskOfRank(rank, flags.ps)}, ssh_host, port});
    (rank < flags.ps ? plan.ps : plan.workers)
        .push_back(absl::StrCat(ssh_host.substr(ssh_host.find('@') + 1), ":", port));
    ++used[at];
    at = (at + 1) % hosts.size();
  }
  return plan;
}

absl::StatusOr<LaunchPlan> MakePlan(const LaunchFlags& flags) {
  if (flags.metrics_port > 0 && (flags.standalone || flags.processes > 0))
    return InvalidArgument("--metrics-port is for tasks that have processes of their own");
  if (!flags.hosts_file.empty()) return PlanHosts(flags);
  if (!flags.job_name.empty()) return PlanNamed(flags);
  if (flags.standalone || flags.processes > 0) return PlanLocal(flags);
  const auto several = [](const char* name) {
    int size = 0;
    return absl::SimpleAtoi(EnvironmentVariable(name), &size) && size > 1;
  };
  std::string where = flags.environment;
  if (where == "auto") {
    const std::string tf_config = EnvironmentVariable("TF_CONFIG");
    // mpirun inside an allocation starts its daemons by srun: its own variables come first.
    if (several("OMPI_COMM_WORLD_SIZE")) {
      where = "mpi";
    } else if (!EnvironmentVariable("SLURM_STEP_ID").empty() && several("SLURM_STEP_NUM_TASKS")) {
      where = "slurm";
    } else if (several("PMI_SIZE")) {
      where = "mpi";
    } else if (!flags.ps_given && !flags.workers_given && !tf_config.empty()) {
      ASSIGN_OR_RETURN(const TfConfig config, ParseTfConfig(tf_config));
      where = config.cluster.empty() ? "local" : "tf_config";
    } else {
      where = "local";
    }
  }
  if (where == "slurm") return PlanSlurm(flags);
  if (where == "mpi") return PlanMpi(flags);
  if (where == "tf_config") return PlanTfConfig(EnvironmentVariable("TF_CONFIG"));
  return PlanLocal(flags);
}

std::vector<std::string> ClusterFlags(const LaunchPlan& plan, const LaunchedTask& task) {
  return {absl::StrCat("--ps_hosts=", absl::StrJoin(plan.ps, ",")),
          absl::StrCat("--worker_hosts=", absl::StrJoin(plan.workers, ",")),
          absl::StrCat("--job_name=", task.job), absl::StrCat("--task_index=", task.index)};
}

std::string TfConfigText(const LaunchPlan& plan, const LaunchedTask& task) {
  std::string cluster = absl::StrCat("{\"worker\": ", JsonList(plan.workers));
  if (!plan.ps.empty()) absl::StrAppend(&cluster, ", \"ps\": ", JsonList(plan.ps));
  return absl::StrCat("{\"cluster\": ", cluster, "}, \"task\": {\"type\": \"", task.job,
                      "\", \"index\": ", task.index, "}}");
}

}  // namespace muster
