#include "muster/worker/worker_session.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"

#include "muster/device/device_name.h"

namespace muster {
namespace {

bool IsTransfer(absl::string_view op) {
  return op == "_Send" || op == "_Recv" || op == "_HostSend" || op == "_HostRecv";
}

// Null: as much as there is.
RefPtr<MemoryAccount> NewAccount(const std::string& task, const Caller& owner) {
  const int64_t max_bytes = owner.limits.session_memory_bytes;
  if (max_bytes == INT64_MAX) return {};
  return MakeRef<MemoryAccount>(absl::StrCat("this session at ", task), max_bytes);
}

}  // namespace

WorkerSession::WorkerSession(Options options)
    : options_(std::move(options)),
      task_(options_.self.ToString()),
      on_task_(std::make_shared<TaskSession>(
          TaskDevices::ForSession(options_.devices, task_, NewAccount(task_, *options_.owner)),
          options_.shared != nullptr ? options_.shared
                                     : std::make_shared<ResourceManager>(options_.self.job),
          *options_.scheduler, options_.owner)) {}

absl::Status WorkerSession::CheckDevices(const Graph& graph) const {
  absl::flat_hash_set<absl::string_view> known;
  for (const Device* device : on_task_->devices().list()) known.insert(device->name());
  for (const auto& node : graph.nodes()) {
    if (node->device().empty())
      return InvalidArgument("Node '", node->name(), "' is missing a device specification");
    if (!known.contains(node->device())) return InvalidArgument(node->device(), " unknown device.");
  }
  return absl::OkStatus();
}

// Masters that do not know an incarnation leave zero.
void WorkerSession::FixIncarnations(Graph& graph) const {
  for (const auto& node : graph.nodes()) {
    if (!IsTransfer(node->op()) || node->Attr<bool>("client_terminated").value_or(false)) continue;
    if (node->Attr<int64_t>("send_device_incarnation").value_or(0) != 0) continue;
    const std::string sender = node->Attr<std::string>("send_device").value_or("");
    const Device* const device = on_task_->devices().Find(sender);
    if (device == nullptr) continue;
    node->SetAttr("send_device_incarnation",
                  static_cast<int64_t>(device->attributes().incarnation));
  }
}

// The master has just heard from every task of the graph. A connection to one that was away before
// is retried now, so that no step of the graph fails with an error of that time.
void WorkerSession::ReconnectSenders(const Graph& graph) const {
  absl::flat_hash_set<std::string> senders;
  for (const auto& node : graph.nodes()) {
    if (!IsTransfer(node->op()) || node->Attr<bool>("client_terminated").value_or(false)) continue;
    const std::string device = node->Attr<std::string>("send_device").value_or("");
    const absl::string_view task = TaskOf(device);
    if (!task.empty() && task != task_) senders.emplace(task);
  }
  for (const std::string& sender : senders) {
    const std::shared_ptr<WorkerApi> worker = options_.peers->Worker(sender);
    if (worker != nullptr) worker->Reconnect();
  }
}

absl::StatusOr<std::string> WorkerSession::Register(RegisterGraphRequest request) {
  ASSIGN_OR_RETURN(std::unique_ptr<Graph> graph, std::move(request.graph)());
  if (graph->num_nodes() > options_.owner->limits.session_nodes) {
    return absl::ResourceExhaustedError(absl::StrCat("The graph has ", graph->num_nodes(),
                                                     " nodes; this task takes at most ",
                                                     options_.owner->limits.session_nodes));
  }
  RETURN_IF_ERROR(CheckDevices(*graph));
  FixIncarnations(*graph);
  if (options_.peers != nullptr) ReconnectSenders(*graph);
  if (options_.variables != nullptr) options_.variables->Note(*graph);
  TaskSession::GraphOptions made;
  made.is_placed = true;
  made.frame_ids = request.frame_ids;
  made.partitions.optimize_graph = request.optimize;
  made.partitions.allow_soft_placement = true;  // of what functions ask for
  if (!graph->functions().empty())
    made.functions = on_task_->MakeFunctions(*graph, made.partitions);
  auto registered = std::make_shared<RegisteredGraph>();
  registered->collective_group_leader = std::move(request.collective_group_leader);
  ASSIGN_OR_RETURN(registered->graph, on_task_->MakeGraph(std::move(graph), std::move(made)));
  MutexLock lock(mutex_);
  const std::string handle = absl::StrFormat("%016x", ++last_handle_);
  graphs_.emplace(handle, std::move(registered));
  return handle;
}

absl::Status WorkerSession::Deregister(const std::string& handle) {
  std::shared_ptr<const RegisteredGraph> dropped;
  MutexLock lock(mutex_);
  const auto found = graphs_.find(handle);
  if (found == graphs_.end()) {
    return PossiblyRestarted(absl::AbortedError(absl::StrCat(
        "Graph handle is not found: ", handle, ". Possibly, this worker just restarted.")));
  }
  dropped = std::move(found->second);
  graphs_.erase(found);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const RegisteredGraph>> WorkerSession::Find(
    const std::string& handle) const {
  MutexLock lock(mutex_);
  const auto found = graphs_.find(handle);
  if (found == graphs_.end())
    return absl::AbortedError(absl::StrCat("Graph handle is not found: ", handle));
  return found->second;
}

int64_t WorkerSession::num_graphs() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(graphs_.size());
}

}  // namespace muster
