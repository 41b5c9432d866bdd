#include "muster/train/loop/shard_queue.h"

#include <algorithm>
#include <utility>

#include "muster/base/random.h"
#include "muster/device/device_name.h"
#include "muster/graph/build/emit.h"
#include "muster/params/shard_ledger.h"
#include "muster/train/loop/looper.h"
#include "muster/train/loop/notice.h"

namespace muster {
namespace {

absl::Status CheckOptions(const ShardQueueOptions& options) {
  ShardLedgerOptions checked;
  checked.shards = options.shards;
  checked.count = options.count;
  checked.epochs = options.epochs;
  checked.lease = options.lease;
  return CheckShardLedgerOptions(checked);
}

// Each worker's own place for it would be another queue each.
absl::StatusOr<std::string> SharedDevice(const std::string& device) {
  ASSIGN_OR_RETURN(DeviceName name, DeviceName::Parse(device));
  if (!name.job.has_value() || *name.job == "ps") return device;
  name.task = 0;
  return name.ToString();
}

}  // namespace

absl::Status SessionOrMonitored::Call(absl::FunctionRef<absl::Status(Session&)> call) const {
  if (session_ != nullptr) return call(*session_);
  return monitored_->RunStep([&](StepContext& context) { return call(context.session()); });
}

absl::StatusOr<std::shared_ptr<ShardQueue>> ShardQueue::Make(const Scope& scope,
                                                             ShardQueueOptions options) {
  RETURN_IF_ERROR(CheckOptions(options));
  std::shared_ptr<ShardQueue> queue(new ShardQueue(std::move(options)));
  RETURN_IF_ERROR(queue->AddNodes(scope.WithFreshStatus()));
  return queue;
}

absl::Status ShardQueue::PlaceHandle(const Scope& own) {
  const std::string name = own.prefix().substr(0, own.prefix().size() - 1);
  const AttrMap attrs = {{"shards", AttrValue(options_.shards)},
                         {"count", AttrValue(options_.count)},
                         {"epochs", AttrValue(options_.epochs)},
                         {"shuffle", AttrValue(options_.shuffle)},
                         {"seed", AttrValue(options_.seed)},
                         {"lease_millis", AttrValue(absl::ToInt64Milliseconds(options_.lease))},
                         {"backup", AttrValue(options_.backup)},
                         {"shared_name", AttrValue(name)}};
  const Scope at =
      options_.device.empty() ? own : own.WithoutColocation().WithDevice(options_.device);
  handle_ = OpNamed(at, "MusterShardQueue", {}, attrs);
  RETURN_IF_ERROR(at.status());
  if (!options_.device.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string device, SharedDevice(handle_.node->device()));
  handle_.node->set_device(device);
  return absl::OkStatus();
}

absl::Status ShardQueue::AddNodes(const Scope& scope) {
  ASSIGN_OR_RETURN(const Scope own, scope.TryNameScope(options_.name));
  RETURN_IF_ERROR(PlaceHandle(own));
  const Scope beside = own.WithoutColocation().ColocatedWith(*handle_.node);
  // At the task whose session runs it, wherever the queue itself is.
  identity_ = own.WithoutColocation().Add("MusterWorkerIdentity", {}, {}, "worker");
  const auto input = [&](DType dtype, const PartialShape& shape, const char* name) {
    return own.WithoutColocation().Op("Placeholder", {}, {{"dtype", dtype}, {"shape", shape}},
                                      name);
  };
  request_ = input(DType::kInt64, PartialShape::Scalar(), "request");
  ticket_ = input(DType::kInt64, PartialShape::Scalar(), "ticket");
  tickets_ = input(DType::kInt64, PartialShape({-1}), "tickets");
  initializer_ = beside.Add("MusterInitShardQueue", {handle_}, {}, "init");
  gentle_initializer_ =
      beside.Add("MusterInitShardQueue", {handle_}, {{"gentle", AttrValue(true)}}, "gentle_init");
  is_initialized_ = beside.Add("MusterShardQueueIsInitialized", {handle_}, {}, "is_initialized");
  RETURN_IF_ERROR(own.status());
  take_ = AddTakeNode(own, request_);
  done_ = beside.Op("MusterShardDone", {handle_, ticket_}, {}, "done");
  return_ = beside.Add("MusterShardReturn", {handle_, ticket_}, {}, "return");
  renew_ = beside.Op("MusterShardRenew", {handle_, tickets_}, {}, "renew");
  report_ = beside.Op("MusterShardReport", {handle_}, {}, "report");
  MutexLock lock(mutex_);
  // Other clients of the same task must not ask under the same numbers.
  next_request_ = static_cast<int64_t>(EntropySeed() >> 2);
  return own.status();
}

Node* ShardQueue::AddTakeNode(const Scope& scope, Output request) const {
  return scope.WithoutColocation()
      .ColocatedWith(*handle_.node)
      .Add("MusterShardTake", {handle_, identity_->output(0), identity_->output(1), request}, {},
           "take");
}

absl::StatusOr<ShardQueue::Taken> ShardQueue::AddTake(const Scope& scope) const {
  const Scope own = scope.WithFreshStatus();
  const Output none = own.ConstScalar<int64_t>(-1, "request");
  Node* const take = AddTakeNode(own, none);
  RETURN_IF_ERROR(own.status());
  return Taken{take->output(0), take->output(1), take->output(2), take->output(3)};
}

absl::StatusOr<Output> ShardQueue::AddDone(const Scope& scope, Output ticket) const {
  ASSIGN_OR_RETURN(Node * node, scope.WithoutColocation()
                                    .ColocatedWith(*handle_.node)
                                    .TryAdd("MusterShardDone", {handle_, ticket}, {}, "done"));
  return node->output(0);
}

absl::StatusOr<Output> ShardQueue::AddRenew(const Scope& scope, Output tickets) const {
  ASSIGN_OR_RETURN(Node * node, scope.WithoutColocation()
                                    .ColocatedWith(*handle_.node)
                                    .TryAdd("MusterShardRenew", {handle_, tickets}, {}, "renew"));
  return node->output(0);
}

Saveable ShardQueue::ToSaveable() const {
  const Output handle = handle_;
  Saveable saveable;
  saveable.name = name();
  saveable.op = handle.node;
  // A shard that is done in a checkpoint whose variables do not have its updates would be lost.
  saveable.comes_first = true;
  SaveSpec spec;
  spec.name = name();
  spec.dtype = DType::kString;
  spec.device = handle.node->device();
  spec.tensor = [handle](const Scope& scope) -> absl::StatusOr<Output> {
    ASSIGN_OR_RETURN(
        Node * state,
        scope.WithoutColocation().ColocatedWith(*handle.node).TryAdd("MusterShardState", {handle}));
    return state->output(0);
  };
  saveable.specs.push_back(std::move(spec));
  saveable.restore = [handle](const Scope& scope, const std::vector<Output>& tensors,
                              const std::optional<std::vector<RestoredShape>>&) {
    return scope.WithoutColocation()
        .ColocatedWith(*handle.node)
        .TryAdd("MusterRestoreShardState", {handle, tensors[0]});
  };
  return saveable;
}

int64_t ShardQueue::BeginRequest() {
  MutexLock lock(mutex_);
  if (unanswered_.empty()) return next_request_++;
  const int64_t request = unanswered_.back();
  unanswered_.pop_back();
  return request;
}

absl::StatusOr<std::optional<DataShard>> ShardQueue::Take(SessionOrMonitored session) {
  const int64_t request = BeginRequest();
  std::optional<DataShard> taken;
  const absl::Status status = session.Call([&](Session& on) -> absl::Status {
    const absl::StatusOr<std::vector<Tensor>> got =
        on.Run({{request_, Tensor::Scalar<int64_t>(request)}},
               {take_->output(0), take_->output(1), take_->output(2), take_->output(3)});
    // The end is nothing to stop a session for.
    if (absl::IsOutOfRange(got.status())) return absl::OkStatus();
    RETURN_IF_ERROR(got.status());
    taken = DataShard{(*got)[0].scalar<int64_t>(), (*got)[1].scalar<int64_t>(),
                      (*got)[2].scalar<std::string>(), (*got)[3].scalar<int64_t>()};
    return absl::OkStatus();
  });
  MutexLock lock(mutex_);
  if (!status.ok()) {
    unanswered_.push_back(request);
    return status;
  }
  if (taken.has_value()) held_.insert(taken->ticket);
  return taken;
}

void ShardQueue::Forget(int64_t ticket) {
  MutexLock lock(mutex_);
  held_.erase(ticket);
}

absl::StatusOr<bool> ShardQueue::Done(SessionOrMonitored session, const DataShard& shard) {
  bool counts = false;
  RETURN_IF_ERROR(session.Call([&](Session& on) -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<Tensor> got,
                     on.Run({{ticket_, Tensor::Scalar<int64_t>(shard.ticket)}}, {done_}));
    counts = got[0].scalar<bool>();
    return absl::OkStatus();
  }));
  Forget(shard.ticket);
  return counts;
}

absl::Status ShardQueue::Return(SessionOrMonitored session, const DataShard& shard) {
  Forget(shard.ticket);
  return session.Call([&](Session& on) {
    return on.Run({{ticket_, Tensor::Scalar<int64_t>(shard.ticket)}}, {}, {return_}).status();
  });
}

absl::Status ShardQueue::Renew(Session& session) {
  std::vector<int64_t> tickets;
  {
    MutexLock lock(mutex_);
    tickets.assign(held_.begin(), held_.end());
  }
  if (tickets.empty()) return absl::OkStatus();
  RunOptions options;
  options.timeout = options_.lease;
  return session.Run({{tickets_, Tensor::Vector<int64_t>(tickets)}}, {renew_}, {}, options)
      .status();
}

absl::StatusOr<std::string> ShardQueue::Report(SessionOrMonitored session) const {
  std::string report;
  RETURN_IF_ERROR(session.Call([&](Session& on) -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<Tensor> got, on.Run({}, {report_}));
    report = got[0].scalar<std::string>();
    return absl::OkStatus();
  }));
  return report;
}

absl::Status ShardQueueHook::AfterCreateSession(const std::shared_ptr<Session>& session,
                                                const std::shared_ptr<Coordinator>& coordinator) {
  if (coordinator == nullptr) return absl::OkStatus();
  LoopCalls calls;
  // The main loop handles a lost task; the lease is renewed when it is back.
  calls.run = [queue = queue_, session] {
    const absl::Status renewed = queue->Renew(*session);
    if (!renewed.ok())
      NoticeInfo("The leases of '", queue->name(), "' were not renewed: ", renewed.message());
    return absl::OkStatus();
  };
  StartLooper(coordinator, queue_->options().lease / 3, std::move(calls), "shard_queue");
  return absl::OkStatus();
}

}  // namespace muster
