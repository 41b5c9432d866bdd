#include "muster/collective/task_groups.h"

#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "muster/base/cancel_callback.h"
#include "muster/base/mutex.h"
#include "muster/base/random.h"
#include "muster/collective/mesh/data_port.h"
#include "muster/collective/mesh/memory_channel.h"
#include "muster/collective/mesh/mesh.h"

namespace muster::collective {
namespace {

constexpr absl::string_view kEncrypted = "tls";

// Tasks that share a process need no sockets.
struct Address {
  std::string process;
  Endpoint endpoint;  // port 0: none
};

const std::string& ThisProcess() {
  static const auto* id = new std::string(absl::StrCat(absl::Hex(EntropySeed())));
  return *id;
}

LocalExchange& ProcessExchange() {
  static auto* exchange = new LocalExchange;
  return *exchange;
}

// "process|host|port|token|tls"; a host may have colons. The last is empty where nothing is
// encrypted.
std::string ToText(const Address& address) {
  return absl::StrCat(address.process, "|", address.endpoint.host, "|", address.endpoint.port, "|",
                      absl::BytesToHexString(address.endpoint.token), "|",
                      address.endpoint.encrypted ? kEncrypted : "");
}

absl::StatusOr<Address> FromText(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '|');
  Address address;
  if (parts.size() != 5 || !absl::SimpleAtoi(parts[2], &address.endpoint.port) ||
      address.endpoint.port < 0 || address.endpoint.port > 65535 ||
      (address.endpoint.port > 0 && parts[3].size() != 2 * kTokenBytes))
    return InvalidArgument("Not an endpoint of a task: '", parts[0], "'");
  address.process = parts[0];
  address.endpoint.host = parts[1];
  address.endpoint.token = absl::HexStringToBytes(parts[3]);
  address.endpoint.encrypted = parts[4] == kEncrypted;
  return address;
}

// The same number at all ranks, so not a per-process seeded hash.
uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a ^ (b + 0x9e3779b97f4a7c15 + (a << 6) + (a >> 2));
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t Mix(uint64_t a, absl::string_view text) {
  for (const char c : text) a = Mix(a, static_cast<unsigned char>(c));
  return a;
}

// A group. Owned by the task's list and, for the length of a call, by the caller that starts or
// aborts a collective; never by what the mesh keeps or calls, because its thread cannot wait for
// itself.
struct Member {
  DirectGroup group;
  std::shared_ptr<DataPort> port;  // outlives the mesh
  std::unique_ptr<Mesh> mesh;
  Mutex mutex;
  // How often each collective has run: ranks that are in step count the same.
  std::map<uint64_t, uint64_t> rounds ABSL_GUARDED_BY(mutex);

  uint64_t NextTag(const CollectiveParams& params) {
    const uint64_t place = Mix(Mix(params.instance_key, params.frame_and_iteration),
                               static_cast<uint64_t>(params.type));
    MutexLock lock(mutex);
    return Mix(place, ++rounds[place]);
  }
};

// One collective: its tensors stay until the mesh has done with them.
struct Running {
  CollectiveCall call;
  muster::Done done;
  CancelCallback on_cancel;

  void End(absl::Status status) {
    on_cancel.Release();
    muster::Done then = std::move(done);
    call.input = call.output = Tensor();
    std::move(then)(std::move(status));
  }
};

class TaskGroups : public DirectGroups {
 public:
  explicit TaskGroups(TaskGroupsOptions options) : options_(std::move(options)) {}

  absl::StatusOr<std::string> Endpoint() override {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(ListenLocked());
    Address address;
    address.process = ThisProcess();
    if (port_ != nullptr) address.endpoint = port_->endpoint();
    address.endpoint.host = options_.host;
    return ToText(address);
  }

  absl::Status Enter(DirectGroup group) override {
    const int size = static_cast<int>(group.tasks.size());
    if (group.rank < 0 || group.rank >= size || group.source < 0 || group.source >= size ||
        group.endpoints.size() != group.tasks.size()) {
      return InvalidArgument("A group of ", size, " tasks with ", group.endpoints.size(),
                             " endpoints has no rank ", group.rank, " or ", group.source);
    }
    std::vector<Address> addresses;
    for (size_t i = 0; i < group.endpoints.size(); ++i) {
      ASSIGN_OR_RETURN(Address address, FromText(group.endpoints[i]));
      if (address.process != ThisProcess() && (address.endpoint.port == 0 || options_.host.empty()))
        return InvalidArgument(group.tasks[i], " is in another process and has no port");
      if (address.process != ThisProcess() && address.endpoint.encrypted != options_.encrypted) {
        return absl::FailedPreconditionError(
            absl::StrCat(group.tasks[i], options_.encrypted ? " does not encrypt" : " encrypts",
                         " its connections, unlike this task: give all tasks TLS, or none"));
      }
      addresses.push_back(std::move(address));
    }
    Leave(group.name);
    auto member = std::make_shared<Member>();
    MeshOptions options;
    options.group = Mix(static_cast<uint32_t>(group.key), group.name);
    options.rank = group.rank;
    options.names = group.tasks;
    options.silence = options_.silence;
    options.lateness = options_.lateness;
    options.moved = moved_;
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(ListenLocked());
    member->port = port_;
    ASSIGN_OR_RETURN(member->mesh,
                     Mesh::Create(std::move(options), NewConnectorLocked(std::move(addresses))));
    member->group = std::move(group);
    std::swap(by_key_[member->group.key], member);
    if (member != nullptr) member->mesh->Abort(absl::AbortedError("Another group has its key"));
    return absl::OkStatus();
  }

  void Leave(const std::string& name) override {
    std::vector<std::shared_ptr<Member>> left;
    MutexLock lock(mutex_);
    for (auto member = by_key_.begin(); member != by_key_.end();) {
      if (member->second->group.name == name) {
        left.push_back(std::move(member->second));
        member = by_key_.erase(member);
      } else {
        ++member;
      }
    }
    for (const auto& member : left)
      member->mesh->Abort(absl::AbortedError("A rank has left the group"));
  }

  bool TryRun(CollectiveCall& call, muster::Done& done) override {
    std::shared_ptr<Member> member;
    {
      MutexLock lock(mutex_);
      const auto found = by_key_.find(call.params.group_key);
      if (found == by_key_.end()) return false;
      member = found->second;
    }
    if (call.params.group_size != member->mesh->size()) {
      std::move(done)(InvalidArgument(call.params.ToString(), ": the group has ",
                                      member->mesh->size(), " ranks"));
      return true;
    }
    auto running = std::make_shared<Running>();
    running->call = std::move(call);
    running->done = std::move(done);
    Start(member, std::move(running), options_.scheduler);
    return true;
  }

  Moved moved() const override {
    return {moved_->sent.load(std::memory_order_relaxed),
            moved_->received.load(std::memory_order_relaxed)};
  }

 private:
  std::unique_ptr<Connector> NewConnectorLocked(std::vector<Address> addresses)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::unique_ptr<Connector> local = ProcessExchange().NewConnector();
    if (port_ == nullptr) return local;
    const auto known = std::make_shared<const std::vector<Address>>(std::move(addresses));
    return NewMixedConnector(
        [known](int rank) { return (*known)[rank].process == ThisProcess(); }, std::move(local),
        port_->NewConnector([known](int rank) -> absl::StatusOr<collective::Endpoint> {
          return (*known)[rank].endpoint;
        }));
  }

  absl::Status ListenLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (port_ != nullptr || options_.host.empty()) return absl::OkStatus();
    const DataPort::Options listening{.encrypted = options_.encrypted,
                                      .shared_memory = options_.shared_memory};
    absl::StatusOr<std::unique_ptr<DataPort>> port = DataPort::Listen(options_.host, listening);
    // An address that is not this machine's own, as behind NAT: any of its own will do.
    if (!port.ok()) port = DataPort::Listen("0.0.0.0", listening);
    RETURN_IF_ERROR(port.status());
    port_ = *std::move(port);
    return absl::OkStatus();
  }

  static void Start(const std::shared_ptr<Member>& member, std::shared_ptr<Running> running,
                    Scheduler* scheduler) {
    CollectiveCall& call = running->call;
    // A step that ends must get its tensors back: the others cannot go on without this rank.
    if (call.cancellation != nullptr && call.cancellation->cancelled())
      return running->End(call.cancellation->reason());
    running->on_cancel.StartScheduled(
        call.cancellation, *scheduler, std::weak_ptr<Member>(member),
        [](Member& used, const absl::Status& reason) { used.mesh->Abort(reason); });
    Mesh& mesh = *member->mesh;
    const CollectiveParams params = call.params;
    const uint64_t tag = member->NextTag(params);
    const size_t count = static_cast<size_t>(call.output.num_elements());
    const size_t bytes = call.output.size_bytes(), block = call.input.size_bytes();
    char* const data = call.output.raw();
    if (params.type == CollectiveType::kGather && block > 0) {
      std::memcpy(data + block * mesh.rank(), call.input.raw(), block);
    }
    // Leaves nothing of the step with the thread that calls it.
    auto ended = [running = std::move(running), scheduler](absl::Status status) mutable {
      scheduler->Schedule([running = std::move(running), status = std::move(status)]() mutable {
        running->End(std::move(status));
      });
    };
    switch (params.type) {
      case CollectiveType::kReduce: {
        Reduction reduction;
        reduction.dtype = params.dtype;
        reduction.op = params.merge;
        reduction.mean = params.final == FinalOp::kDiv;
        return mesh.AllReduce(tag, reduction, data, count, std::move(ended));
      }
      case CollectiveType::kBroadcast:
        return mesh.Broadcast(tag, member->group.source, data, bytes, std::move(ended));
      case CollectiveType::kGather:
        return mesh.AllGather(tag, data, block, std::move(ended));
      default:
        return ended(Unimplemented(params.ToString(), " in a group of tasks that has met"));
    }
  }

  const TaskGroupsOptions options_;
  const std::shared_ptr<MovedBytes> moved_ = std::make_shared<MovedBytes>();
  Mutex mutex_;
  std::shared_ptr<DataPort> port_ ABSL_GUARDED_BY(mutex_);
  std::map<int32_t, std::shared_ptr<Member>> by_key_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::shared_ptr<DirectGroups> NewTaskGroups(TaskGroupsOptions options) {
  return std::make_shared<TaskGroups>(std::move(options));
}

}  // namespace muster::collective
