#include "muster/base/settings.h"

#include <cstdlib>
#include <limits>

#include "absl/strings/numbers.h"
#include <unistd.h>

#include "muster/base/check.h"

namespace muster {
namespace {

constexpr char kSwitch[] = "0 or 1";
constexpr char kLinks[] = "0, network or 1";
constexpr char kSeconds[] = "a positive number of seconds";
constexpr char kCount32[] = "a number between 1 and 2147483647";
constexpr char kCount64[] = "a number between 1 and 9223372036854775807";
constexpr char kPort[] = "a port, 0 to 65535";
constexpr char kFile[] = "a file";
constexpr char kText[] = "text";

struct Variable {
  const char* name;
  const char* accepted;
  const char* otherwise;  // what holds where it is not set
  const char* used_by;
  const char* meaning;
};

// tests/test_settings.py checks that docs/operations.md has the same table.
constexpr Variable kVariables[] = {
    {"MUSTER_FAST", kLinks, "1", "tasks, clients",
     "0: processes talk over gRPC only; network: those of one machine talk as those of several do"},
    {"MUSTER_BATCHES", kSwitch, "1", "tasks",
     "0: other tasks ask this one for tensors one by one, as TensorFlow's do"},
    {"MUSTER_CACHE_RPC_RESPONSE", kSwitch, "0", "muster serve",
     "1: answers to RecvTensor are kept until the other side has acknowledged them"},
    {"MUSTER_STATUS_SOCKET", kText, "none", "tasks",
     "the Unix socket to which a task reports; muster launch sets it"},
    {"MUSTER_TLS_CERT", kFile, "none", "tasks, clients, muster status", "our certificate (PEM)"},
    {"MUSTER_TLS_KEY", kFile, "none", "tasks, clients, muster status", "its private key (PEM)"},
    {"MUSTER_TLS_CA", kFile, "none", "tasks, clients, muster status",
     "the authority that signed the certificates of others (PEM)"},
    {"MUSTER_AUTH_TOKEN_FILE", kFile, "none", "tasks, clients, muster status",
     "holds a secret that every caller must know"},
    {"MUSTER_HEARTBEAT", kSeconds, "1", "tasks, clients",
     "between questions whether a task with open calls is alive"},
    {"MUSTER_WARN_AFTER", kSeconds, "5", "tasks, clients",
     "of silence before a warning names the task"},
    {"MUSTER_FAIL_AFTER", kSeconds, "30", "tasks, clients", "of silence before calls to it fail"},
    {"MUSTER_ORPHAN_GRACE", kSeconds, "10", "tasks",
     "that a vanished client has to come back before its session is closed"},
    {"MUSTER_MASTER_TIMEOUT", kSeconds, "600", "tasks",
     "of silence before a session goes whose master is not heard of"},
    {"MUSTER_MAX_MESSAGE_BYTES", kCount32, "2147483647", "tasks", "larger messages are refused"},
    {"MUSTER_MAX_GRAPH_NODES", kCount64, "10000000", "tasks", "larger graphs are refused"},
    {"MUSTER_MAX_MEMORY_BYTES", kCount64, "what machine and cgroup have", "tasks",
     "the tensors of the process"},
    {"MUSTER_MAX_SESSION_MEMORY_BYTES", kCount64, "no limit", "tasks",
     "the tensors that the steps of one session have made"},
    {"MUSTER_MAX_CONNECTIONS", kCount32, "3/4 of the open files", "tasks",
     "connections to the port; more are closed at once"},
    {"MUSTER_MAX_CONNECTIONS_PER_PEER", kCount32, "3/4 of all connections", "tasks",
     "the same for connections from one address"},
    {"MUSTER_METRICS_PORT", kPort, "none", "tasks", "where /metrics and /healthz are"},
    {"MUSTER_PYTHON", kFile, "that of the virtual environment", "muster run, muster launch",
     "the Python that runs scripts"},
    {"MUSTER_INSTALLED_PYTHON", kFile, "none", "muster run, muster launch",
     "the Python that Muster was installed for; the command that pip installs sets it"},
    {"TF_CONFIG", "JSON", "none", "muster serve, run and launch, estimators",
     "the cluster and this task, as in TensorFlow"},
    {"TF_CPP_MIN_LOG_LEVEL", "a number", "0", "the command muster",
     "lines below this level are not logged: 0 information, 1 warnings, 2 errors"},
    {"NO_COLOR", kText, "none", "muster launch, muster status", "set: no colours"},
    {"TMPDIR", "a folder", "/tmp", "muster launch", "where sockets and the files of ranks are"},
    {"PATH", "folders", "none", "muster run, muster launch", "where a Python is looked for"},
    {"PYTHONPATH", "folders", "none", "muster run, muster launch",
     "is given to scripts behind Muster's own folder"},
    {"VIRTUAL_ENV", "a folder", "none", "muster run, muster launch",
     "the activated virtual environment, whose Python runs scripts"},
    {"JOB_COMPLETION_INDEX", "a number", "none", "muster launch",
     "the number of this task in an indexed job of Kubernetes"},
    {"SLURM_JOB_ID", "a number", "none", "muster launch", "the job of Slurm"},
    {"SLURM_STEP_ID", "a number", "none", "muster launch", "the step of that job"},
    {"SLURM_STEP_NUM_TASKS", "a number", "none", "muster launch", "its tasks"},
    {"SLURM_PROCID", "a number", "none", "muster launch", "the number of this task"},
    {"SLURM_NODEID", "a number", "none", "muster launch", "the number of its node"},
    {"SLURM_STEP_NODELIST", kText, "SLURM_JOB_NODELIST", "muster launch", "the nodes of the step"},
    {"SLURM_JOB_NODELIST", kText, "SLURM_NODELIST", "muster launch", "the nodes of the job"},
    {"SLURM_NODELIST", kText, "none", "muster launch", "the same in older versions of Slurm"},
    {"SLURM_STEP_TASKS_PER_NODE", kText, "SLURM_TASKS_PER_NODE", "muster launch",
     "how many tasks of the step each node has"},
    {"SLURM_TASKS_PER_NODE", kText, "none", "muster launch", "the same of the job"},
    {"SLURM_DISTRIBUTION", kText, "block", "muster launch", "which tasks are on which node"},
    {"OMPI_COMM_WORLD_RANK", "a number", "none", "muster launch", "the rank under Open MPI"},
    {"OMPI_COMM_WORLD_SIZE", "a number", "none", "muster launch", "how many ranks there are"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "a number", "none", "muster launch", "and on this node"},
    {"PMIX_NAMESPACE", kText, "OMPI_MCA_ess_base_jobid", "muster launch", "the job under Open MPI"},
    {"OMPI_MCA_ess_base_jobid", kText, "OMPI_MCA_orte_ess_jobid", "muster launch",
     "the same in older versions"},
    {"OMPI_MCA_orte_ess_jobid", kText, "none", "muster launch", "the same in older versions"},
    {"PMI_RANK", "a number", "none", "muster launch", "the rank under MPICH and its kin"},
    {"PMI_SIZE", "a number", "none", "muster launch", "how many ranks there are"},
    {"MPI_LOCALNRANKS", "a number", "none", "muster launch", "and on this node"},
    {"PMI_ID_JOB", kText, "PMI_KVSNAME", "muster launch", "the job under MPICH and its kin"},
    {"PMI_KVSNAME", kText, "HYDRA_JOBID", "muster launch", "the same in other versions"},
    {"HYDRA_JOBID", kText, "none", "muster launch", "the same in other versions"},
    {"MUSTER_CUDA_PATH", "folders", "none", "tasks, clients",
     "where CUDA's libraries are looked for first, separated by colons"},
    {"MUSTER_CUDA_DRIVER", kFile, "libcuda.so.1", "tasks, clients",
     "the library of the GPU's driver; one that stands for a GPU in tests"},
    {"MUSTER_GPU_WAIT", kSwitch, "0", "tasks, clients",
     "1: each function of a GPU is waited for, so that an error names it"},
    {"MUSTER_GPU_FUSE", kSwitch, "1", "tasks, clients",
     "0: functions of a GPU that come again and again are not joined"},
    {"MUSTER_GPU_SHOW", kSwitch, "0", "tasks, clients",
     "1: the functions of each sequence that was joined on a GPU are logged"},
    {"NVIDIA_TF32_OVERRIDE", kText, "none", "tasks, clients",
     "0: GPUs compute products and convolutions of float32 exactly, not as TF32"},
    {"TF_CUDNN_USE_AUTOTUNE", kText, "1", "tasks, clients",
     "0: cuDNN's first plan for a convolution is taken, and none is timed"},
    {"TF_CUDNN_WORKSPACE_LIMIT_IN_MB", "a number", "4096", "tasks, clients",
     "the most memory that one convolution may take to compute in"},
    {"TF_DETERMINISTIC_OPS", kText, "0", "tasks, clients",
     "1: convolutions on GPUs always give the same result"},
    {"TF_CUDNN_DETERMINISTIC", kText, "0", "tasks, clients", "the same"},
    {"MUSTER_CACHE", "a folder", "XDG_CACHE_HOME/muster", "tasks, clients",
     "where functions that were compiled for the GPU are kept"},
    {"XDG_CACHE_HOME", "a folder", "HOME/.cache", "tasks, clients", "where caches are"},
    {"HOME", "a folder", "none", "tasks, clients", "the user's folder"},
    {"MALLOC_TRIM_THRESHOLD_", "a number", "none", "tasks, clients",
     "set: glibc's own rules say which memory goes back to the system"},
};

const Variable* Find(absl::string_view name) {
  for (const Variable& variable : kVariables) {
    if (name == variable.name) return &variable;
  }
  return nullptr;
}

// Remembers the first value that is not accepted.
class Reader {
 public:
  explicit Reader(Environment environment) : environment_(environment) {}

  std::string Text(const char* name) {
    CHECK(Find(name) != nullptr);
    const char* const value = environment_(name);
    return value == nullptr ? "" : value;
  }
  void Switch(const char* name, bool& value) {
    const std::string text = Text(name);
    if (text.empty()) return;
    if (text != "0" && text != "1") return Refuse(name, text);
    value = text == "1";
  }
  void Reach(const char* name, Links& value) {
    const std::string text = Text(name);
    if (text.empty()) return;
    if (text != "0" && text != "network" && text != "1") return Refuse(name, text);
    value = text == "0" ? Links::kNone : text == "1" ? Links::kAll : Links::kNetwork;
  }
  void Seconds(const char* name, std::optional<absl::Duration>& value) {
    const std::string text = Text(name);
    double seconds = 0;
    if (text.empty()) return;
    if (!absl::SimpleAtod(text, &seconds) || !(seconds > 0)) return Refuse(name, text);
    value = absl::Seconds(seconds);
  }
  template <typename Number>
  void Count(const char* name, std::optional<Number>& value) {
    Between(name, 1, std::numeric_limits<Number>::max(), value);
  }
  template <typename Number>
  void Between(const char* name, int64_t least, int64_t most, std::optional<Number>& value) {
    const std::string text = Text(name);
    int64_t number = 0;
    if (text.empty()) return;
    if (!absl::SimpleAtoi(text, &number) || number < least || number > most)
      return Refuse(name, text);
    value = static_cast<Number>(number);
  }
  const absl::Status& status() const { return status_; }

 private:
  void Refuse(const char* name, absl::string_view text) {
    if (status_.ok())
      status_ = InvalidArgument(name, " is '", text, "': it must be ", Find(name)->accepted);
  }

  Environment environment_;
  absl::Status status_;
};

const char* FromProcess(const char* name) {
  return std::getenv(name);
}

}  // namespace

absl::StatusOr<Settings> ReadSettings() {
  return ReadSettings(FromProcess);
}

absl::StatusOr<Settings> ReadSettings(Environment environment) {
  Settings settings;
  Reader read(environment);
  read.Reach("MUSTER_FAST", settings.links);
  read.Switch("MUSTER_BATCHES", settings.batches);
  read.Switch("MUSTER_CACHE_RPC_RESPONSE", settings.cache_rpc_response);
  settings.status_socket = read.Text("MUSTER_STATUS_SOCKET");
  settings.tls_certificate_file = read.Text("MUSTER_TLS_CERT");
  settings.tls_key_file = read.Text("MUSTER_TLS_KEY");
  settings.tls_ca_file = read.Text("MUSTER_TLS_CA");
  settings.auth_token_file = read.Text("MUSTER_AUTH_TOKEN_FILE");
  read.Seconds("MUSTER_HEARTBEAT", settings.heartbeat);
  read.Seconds("MUSTER_WARN_AFTER", settings.warn_after);
  read.Seconds("MUSTER_FAIL_AFTER", settings.fail_after);
  read.Seconds("MUSTER_ORPHAN_GRACE", settings.orphan_grace);
  read.Seconds("MUSTER_MASTER_TIMEOUT", settings.master_timeout);
  read.Count("MUSTER_MAX_MESSAGE_BYTES", settings.max_message_bytes);
  read.Count("MUSTER_MAX_GRAPH_NODES", settings.max_graph_nodes);
  read.Count("MUSTER_MAX_MEMORY_BYTES", settings.max_memory_bytes);
  read.Count("MUSTER_MAX_SESSION_MEMORY_BYTES", settings.max_session_memory_bytes);
  read.Count("MUSTER_MAX_CONNECTIONS", settings.max_connections);
  read.Count("MUSTER_MAX_CONNECTIONS_PER_PEER", settings.max_connections_per_peer);
  read.Between("MUSTER_METRICS_PORT", 0, 65535, settings.metrics_port);
  RETURN_IF_ERROR(read.status());
  return settings;
}

absl::StatusOr<int> ReadLogLevel() {
  Reader read(FromProcess);
  std::optional<int> level;
  read.Between("TF_CPP_MIN_LOG_LEVEL", 0, std::numeric_limits<int>::max(), level);
  RETURN_IF_ERROR(read.status());
  return level.value_or(0);
}

std::string EnvironmentVariable(absl::string_view name) {
  return Reader(FromProcess).Text(std::string(name).c_str());
}

std::map<std::string, std::string> WholeEnvironment() {
  std::map<std::string, std::string> all;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const absl::string_view variable = *at;
    const size_t equals = variable.find('=');
    if (equals != absl::string_view::npos)
      all.emplace(variable.substr(0, equals), variable.substr(equals + 1));
  }
  return all;
}

}  // namespace muster
