#include "muster/worker/worker_session.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"

#include "muster/graph/function_proto.h"

namespace muster {
namespace {

// What it gives is charged to an account.
class ChargingAllocator : public Allocator {
 public:
  ChargingAllocator(Allocator& allocator, RefPtr<MemoryAccount> account)
      : allocator_(allocator), account_(std::move(account)) {}
  Buffer Allocate(size_t size_bytes) override {
    const MemoryAccount::Scope charged(account_.get());
    return allocator_.Allocate(size_bytes);
  }
  MemoryKind memory_kind() const override { return allocator_.memory_kind(); }
  Usage usage() const override { return allocator_.usage(); }

 private:
  Allocator& allocator_;
  const RefPtr<MemoryAccount> account_;  // null: nobody's
};

class SessionDevice : public Device {
 public:
  SessionDevice(Device& device, DeviceAttributes attributes, const RefPtr<MemoryAccount>& account)
      : Device(std::move(attributes)),
        device_(device),
        allocator_(device.allocator(), account),
        host_allocator_(device.host_allocator(), account) {}
  Allocator& allocator() override { return allocator_; }
  Allocator& host_allocator() override { return host_allocator_; }
  Scheduler& scheduler() override { return device_.scheduler(); }
  Stream& stream() override { return device_.stream(); }
  void Copy(const Tensor& tensor, Device& to, CopyDone done) override {
    device_.Copy(tensor, &to == this ? device_ : to, std::move(done));
  }

 private:
  Device& device_;
  ChargingAllocator allocator_;
  ChargingAllocator host_allocator_;
};

// Nodes at the border of a partition are stateful to the graph only, and their names mean something
// else in another graph.
bool IsBorder(absl::string_view op) {
  static const auto* borders = new absl::flat_hash_set<absl::string_view>{
      "_Arg", "_Retval", "_Send", "_Recv", "_HostSend", "_HostRecv"};
  return borders->contains(op);
}

// Functions may have them too, and count as if they did.
bool HasCollectives(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (absl::StartsWith(node->op(), "Collective") || absl::StartsWith(node->op(), "Muster"))
      return true;
  }
  return false;
}

bool IsTransfer(absl::string_view op) {
  return op == "_Send" || op == "_Recv" || op == "_HostSend" || op == "_HostRecv";
}

}  // namespace

std::unique_ptr<Device> NewSessionDevice(Device& device, std::string name,
                                         const RefPtr<MemoryAccount>& account) {
  DeviceAttributes attributes = device.attributes();
  attributes.name = std::move(name);
  return std::make_unique<SessionDevice>(device, std::move(attributes), account);
}

WorkerSession::WorkerSession(Options options)
    : options_(std::move(options)),
      task_(options_.self.ToString()),
      resources_(options_.shared != nullptr
                     ? options_.shared
                     : std::make_shared<ResourceManager>(options_.self.job)) {
  RefPtr<MemoryAccount> account;
  if (options_.max_memory_bytes < INT64_MAX) {
    account =
        MakeRef<MemoryAccount>(absl::StrCat("this session at ", task_), options_.max_memory_bytes);
  }
  int number = 0;
  for (const auto& device : *options_.devices) {
    if (!options_.rename_devices && !account) {
      devices_.push_back(device.get());
      continue;
    }
    std::string name = options_.rename_devices
                           ? absl::StrCat(task_, "/device:", device->type(), ":", number++)
                           : device->name();
    own_devices_->push_back(NewSessionDevice(*device, std::move(name), account));
    devices_.push_back(own_devices_->back().get());
  }
}

absl::Status WorkerSession::CheckDevices(const Graph& graph) const {
  absl::flat_hash_set<absl::string_view> known;
  for (const Device* device : devices_) known.insert(device->name());
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
    for (const Device* device : devices_) {
      if (device->name() != sender) continue;
      node->SetAttr("send_device_incarnation",
                    static_cast<int64_t>(device->attributes().incarnation));
    }
  }
}

absl::StatusOr<std::shared_ptr<Kernel>> WorkerSession::KernelFor(const Node& node, Device& device) {
  const bool shared = node.def().is_stateful && !IsBorder(node.op());
  const auto key = std::make_pair(device.name(), node.name());
  if (shared) {
    MutexLock lock(kernels_mutex_);
    const auto found = kernels_.find(key);
    if (found != kernels_.end()) return found->second;
  }
  ASSIGN_OR_RETURN(std::shared_ptr<Kernel> kernel, MakeKernel(node, device, *resources_));
  if (!shared) return kernel;
  MutexLock lock(kernels_mutex_);
  return kernels_.emplace(key, std::move(kernel)).first->second;
}

absl::StatusOr<std::string> WorkerSession::Register(RegisterGraphRequest request) {
  ASSIGN_OR_RETURN(std::unique_ptr<Graph> graph, std::move(request.graph)());
  if (graph->num_nodes() > options_.max_graph_nodes) {
    return absl::ResourceExhaustedError(absl::StrCat("The graph has ", graph->num_nodes(),
                                                     " nodes; this task takes at most ",
                                                     options_.max_graph_nodes));
  }
  RETURN_IF_ERROR(CheckDevices(*graph));
  FixIncarnations(*graph);
  if (options_.variables != nullptr) options_.variables->Note(*graph);
  auto registered = std::make_shared<RegisteredGraph>();
  registered->frame_ids = request.frame_ids;
  registered->collective_group_leader = std::move(request.collective_group_leader);
  registered->has_collectives = !graph->functions().empty() || HasCollectives(*graph);
  if (!graph->functions().empty()) {
    auto library = std::make_shared<Graph>();
    library->versions() = graph->versions();
    CopyFunctions(*graph, *library);
    LocalPartitions::Options options;
    options.optimize_graph = request.optimize;
    options.allow_soft_placement = true;
    registered->functions = std::make_shared<FunctionRuntime>(
        std::move(library), devices_, *resources_, options,
        std::make_shared<std::pair<std::shared_ptr<DeviceList>, std::shared_ptr<DeviceList>>>(
            options_.devices, own_devices_));
  }
  ASSIGN_OR_RETURN(registered->partitions,
                   LocalPartitions::CreatePlaced(std::move(graph), devices_, request.optimize,
                                                 [this](const Node& node, Device& device) {
                                                   return KernelFor(node, device);
                                                 }));
  MutexLock lock(mutex_);
  const std::string handle = absl::StrFormat("%016x", ++last_handle_);
  graphs_.emplace(handle, std::move(registered));
  return handle;
}

absl::Status WorkerSession::Deregister(const std::string& handle) {
  std::shared_ptr<RegisteredGraph> dropped;
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

absl::StatusOr<std::shared_ptr<RegisteredGraph>> WorkerSession::Find(const std::string& handle) {
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
