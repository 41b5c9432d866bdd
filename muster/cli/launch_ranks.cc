// Clusters of which each launcher has one task: inside a job step of Slurm, and under mpirun.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include <sys/stat.h>
#include <unistd.h>

#include "muster/base/settings.h"
#include "muster/cli/launch_plan.h"
#include "muster/cli/node_list.h"

namespace muster {
namespace {

// Below what systems give to outgoing connections, above the well-known ones.
constexpr int kFirstPort = 10240;
constexpr int kLastPort = 32767;
constexpr absl::Duration kRendezvousTime = absl::Minutes(5);

absl::StatusOr<int> Number(const std::string& name) {
  int value = -1;
  if (!absl::SimpleAtoi(EnvironmentVariable(name), &value) || value < 0)
    return InvalidArgument(name, " is '", EnvironmentVariable(name), "': a number expected");
  return value;
}

std::string FirstOf(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (std::string value = EnvironmentVariable(name); !value.empty()) return value;
  return "";
}

absl::Status CheckSizes(const LaunchFlags& flags, int size, absl::string_view what) {
  if (size <= flags.ps)
    return InvalidArgument(what, " has ", size, " tasks, no more than --ps ", flags.ps,
                           ": no worker is left");
  if (flags.workers_given && size != flags.ps + flags.workers) {
    return InvalidArgument("--ps ", flags.ps, " and --workers ", flags.workers,
                           " do not fit: ", what, " has ", size, " tasks");
  }
  return absl::OkStatus();
}

LaunchPlan PlanRank(const LaunchFlags& flags, const std::vector<std::string>& addresses, int rank,
                    PeersPlan peers) {
  LaunchPlan plan;
  plan.ps.assign(addresses.begin(), addresses.begin() + flags.ps);
  plan.workers.assign(addresses.begin() + flags.ps, addresses.end());
  const LaunchedTask task =
      rank < flags.ps ? LaunchedTask{"ps", rank} : LaunchedTask{"worker", rank - flags.ps};
  plan.processes.push_back({{task}, "", 0});
  peers.rank = rank;
  peers.size = static_cast<int>(addresses.size());
  peers.ps = flags.ps;
  plan.peers = std::move(peers);
  return plan;
}

// Which node each rank is on.
absl::StatusOr<std::vector<int>> NodesOfRanks(const std::vector<int>& counts,
                                              absl::string_view distribution) {
  std::vector<int> nodes;
  if (absl::StartsWith(distribution, "cyclic")) {
    const int most = *std::max_element(counts.begin(), counts.end());
    for (int turn = 0; turn < most; ++turn)
      for (size_t node = 0; node < counts.size(); ++node)
        if (counts[node] > turn) nodes.push_back(static_cast<int>(node));
    return nodes;
  }
  if (absl::StartsWith(distribution, "plane") || absl::StartsWith(distribution, "arbitrary")) {
    return absl::UnimplementedError(
        absl::StrCat("the distribution '", distribution, "' of tasks; block and cyclic are known"));
  }
  for (size_t node = 0; node < counts.size(); ++node)
    nodes.insert(nodes.end(), static_cast<size_t>(counts[node]), static_cast<int>(node));
  return nodes;
}

// When the process that started this one began: process ids alone are reused.
std::string ParentStart() {
  std::ifstream file(absl::StrCat("/proc/", getppid(), "/stat"));
  std::string line;
  std::getline(file, line);
  // The second field, a name in parentheses, may hold anything.
  const std::vector<std::string> fields =
      absl::StrSplit(line.substr(std::min(line.rfind(')'), line.size())), ' ');
  return fields.size() > 20 ? fields[20] : "0";
}

struct Rank {
  int rank = 0;
  int size = 0;
  bool one_node = false;
  std::string job;  // the same for all ranks of one mpirun, and for no other
};

absl::StatusOr<Rank> FindRank() {
  Rank found;
  int local_size = 0;
  if (!EnvironmentVariable("OMPI_COMM_WORLD_RANK").empty()) {
    ASSIGN_OR_RETURN(found.rank, Number("OMPI_COMM_WORLD_RANK"));
    ASSIGN_OR_RETURN(found.size, Number("OMPI_COMM_WORLD_SIZE"));
    ASSIGN_OR_RETURN(local_size, Number("OMPI_COMM_WORLD_LOCAL_SIZE"));
    found.job = FirstOf({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"});
  } else {
    ASSIGN_OR_RETURN(found.rank, Number("PMI_RANK"));
    ASSIGN_OR_RETURN(found.size, Number("PMI_SIZE"));
    const std::string local = EnvironmentVariable("MPI_LOCALNRANKS");
    if (!absl::SimpleAtoi(local, &local_size)) local_size = 0;
    found.job = FirstOf({"PMI_ID_JOB", "PMI_KVSNAME", "HYDRA_JOBID"});
  }
  // Ranks on one node have the same parent, mpirun or its daemon.
  if (local_size == found.size) absl::StrAppend(&found.job, "-", getppid(), "-", ParentStart());
  if (found.job.empty()) {
    return InvalidArgument(
        "the variables of this MPI do not name its job; give --rendezvous a new folder");
  }
  if (found.rank >= found.size)
    return InvalidArgument("rank ", found.rank, " of ", found.size, " ranks");
  found.one_node = local_size == found.size;
  return found;
}

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

// Each rank leaves its address in the folder and waits for the others'.
class Rendezvous {
 public:
  Rendezvous(std::string folder, int size) : folder_(std::move(folder)), size_(size) {}

  absl::Status Open() {
    struct stat about {};
    if (mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST)
      return absl::UnknownError(Problem("cannot make the folder"));
    if (stat(folder_.c_str(), &about) != 0) return absl::UnknownError(Problem("cannot read"));
    if (about.st_uid != geteuid())
      return absl::PermissionDeniedError(
          absl::StrCat("the folder ", folder_, " is another user's"));
    return absl::OkStatus();
  }

  absl::Status Leave(int rank, const std::string& address) {
    const std::string name = File(rank);
    const std::string fresh = absl::StrCat(name, ".", getpid());
    std::ofstream(fresh) << address << "\n" << std::flush;
    if (std::rename(fresh.c_str(), name.c_str()) != 0)
      return absl::UnknownError(Problem("cannot write into"));
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> WaitForAll() {
    const absl::Time end = absl::Now() + kRendezvousTime;
    std::vector<std::string> lines(static_cast<size_t>(size_));
    for (int rank = 0; rank < size_; ++rank) {
      std::string& line = lines[static_cast<size_t>(rank)];
      for (;;) {
        std::ifstream file(File(rank));
        if (std::getline(file, line) && !line.empty()) break;
        if (absl::Now() > end) {
          return absl::DeadlineExceededError(
              absl::StrCat("rank ", rank, " has not come to ", folder_));
        }
        absl::SleepFor(absl::Milliseconds(20));
      }
    }
    return lines;
  }

 private:
  std::string File(int rank) const { return absl::StrCat(folder_, "/rank-", rank); }
  std::string Problem(absl::string_view what) const {
    return absl::StrCat(what, " ", folder_, ": ", std::strerror(errno));
  }
  const std::string folder_;
  const int size_;
};

}  // namespace

absl::StatusOr<LaunchPlan> PlanSlurm(const LaunchFlags& flags) {
  ASSIGN_OR_RETURN(const int rank, Number("SLURM_PROCID"));
  ASSIGN_OR_RETURN(const int job, Number("SLURM_JOB_ID"));
  const int step = Number("SLURM_STEP_ID").value_or(0);
  ASSIGN_OR_RETURN(
      const std::vector<std::string> names,
      ExpandNodeList(FirstOf({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"})));
  ASSIGN_OR_RETURN(
      const std::vector<int> counts,
      ExpandTaskCounts(FirstOf({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"})));
  if (names.size() != counts.size()) {
    return InvalidArgument("Slurm names ", names.size(), " nodes, and tasks for ", counts.size());
  }
  ASSIGN_OR_RETURN(const std::vector<int> nodes,
                   NodesOfRanks(counts, EnvironmentVariable("SLURM_DISTRIBUTION")));
  const int size = static_cast<int>(nodes.size());
  RETURN_IF_ERROR(CheckSizes(flags, size, "the job step"));
  if (rank >= size) return InvalidArgument("SLURM_PROCID ", rank, " of ", size, " tasks");
  if (const absl::StatusOr<int> node = Number("SLURM_NODEID");
      node.ok() && *node != nodes[static_cast<size_t>(rank)]) {
    return absl::UnimplementedError(absl::StrCat("Slurm has put task ", rank, " on node ", *node,
                                                 ", and not on ", nodes[static_cast<size_t>(rank)],
                                                 ": block and cyclic distributions are known"));
  }
  const int room = kLastPort - kFirstPort - size;
  if (room < 1) return InvalidArgument("no ports for ", size, " tasks");
  const uint64_t mixed = (static_cast<uint64_t>(job) * 16 + static_cast<uint64_t>(step)) * 101;
  const int base = flags.port > 0
                       ? flags.port
                       : kFirstPort + static_cast<int>(mixed % static_cast<uint64_t>(room));
  std::vector<std::string> addresses;
  for (int i = 0; i < size; ++i) {
    const std::string& name = names[static_cast<size_t>(nodes[static_cast<size_t>(i)])];
    addresses.push_back(absl::StrCat(names.size() == 1 ? "localhost" : name, ":", base + i));
  }
  PeersPlan peers;
  peers.host = names.size() == 1 ? "localhost" : names[static_cast<size_t>(nodes[0])];
  peers.port = base + size;
  peers.key = absl::StrCat("slurm-", job, ".", step);
  return PlanRank(flags, addresses, rank, std::move(peers));
}

absl::StatusOr<LaunchPlan> PlanMpi(const LaunchFlags& flags) {
  ASSIGN_OR_RETURN(const Rank here, FindRank());
  RETURN_IF_ERROR(CheckSizes(flags, here.size, "mpirun"));
  if (!here.one_node && flags.rendezvous.empty()) {
    return InvalidArgument(
        "the ranks are on several nodes: give --rendezvous a folder that all of them share");
  }
  const std::string parent = EnvironmentVariable("TMPDIR");
  const std::string folder =
      flags.rendezvous.empty()
          ? absl::StrCat(parent.empty() ? "/tmp" : parent, "/muster-mpi-", geteuid(), "-", here.job)
          : absl::StrCat(flags.rendezvous, "/muster-mpi-", here.job);
  const std::string host = !flags.host.empty() ? flags.host
                           : here.one_node     ? "localhost"
                                               : HostName();
  const std::string bind = here.one_node ? "localhost" : "";
  const int given = flags.port > 0 ? flags.port + here.rank : 0;
  ASSIGN_OR_RETURN(ReservedPort port, ReservedPort::Take(bind, given));
  ReservedPort peers_port;
  std::string line = absl::StrCat(host, ":", port.port());
  if (here.rank == 0) {
    ASSIGN_OR_RETURN(peers_port, ReservedPort::Take(bind, 0));
    absl::StrAppend(&line, " ", peers_port.port());
  }
  Rendezvous rendezvous(folder, here.size);
  RETURN_IF_ERROR(rendezvous.Open());
  RETURN_IF_ERROR(rendezvous.Leave(here.rank, line));
  ASSIGN_OR_RETURN(std::vector<std::string> addresses, rendezvous.WaitForAll());
  const std::vector<std::string> leader = absl::StrSplit(addresses[0], ' ');
  PeersPlan peers;
  if (leader.size() != 2 || !absl::SimpleAtoi(leader[1], &peers.port))
    return InvalidArgument("rank 0 has left '", addresses[0], "' in ", folder);
  addresses[0] = leader[0];
  ASSIGN_OR_RETURN(const HostPort first, ParseHostPort(addresses[0]));
  peers.host = first.host;
  peers.key = absl::StrCat("mpi-", here.job);
  peers.folder = folder;
  LaunchPlan plan = PlanRank(flags, addresses, here.rank, std::move(peers));
  plan.reserved.push_back(std::move(port));
  plan.reserved.push_back(std::move(peers_port));
  return plan;
}

}  // namespace muster
