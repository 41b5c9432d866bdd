// Shards of data that the workers of a cluster take one by one: the ops of ShardQueue, Muster's
// own.
#include "muster/base/random.h"
#include "muster/ops/resource_kernel.h"
#include "muster/params/shard_ledger.h"

namespace muster {
namespace {

class ShardQueueKernel : public ResourceKernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(ResourceKernel::Init(setup));
    ASSIGN_OR_RETURN(options_.shards, setup.Attr<std::vector<std::string>>("shards"));
    ASSIGN_OR_RETURN(options_.count, setup.Attr<int64_t>("count"));
    ASSIGN_OR_RETURN(options_.epochs, setup.Attr<int64_t>("epochs"));
    ASSIGN_OR_RETURN(options_.shuffle, setup.Attr<bool>("shuffle"));
    ASSIGN_OR_RETURN(const int64_t seed, setup.Attr<int64_t>("seed"));
    ASSIGN_OR_RETURN(const int64_t lease, setup.Attr<int64_t>("lease_millis"));
    ASSIGN_OR_RETURN(options_.backup, setup.Attr<bool>("backup"));
    options_.seed = static_cast<uint64_t>(seed);
    options_.lease = absl::Milliseconds(lease);
    return CheckShardLedgerOptions(options_);
  }

 protected:
  absl::StatusOr<RefPtr<Resource>> Make(const std::string& name) override {
    ShardLedgerOptions options = options_;
    options.name = name;
    // Without a seed every run has orders of its own.
    if (options.seed == 0) options.seed = EntropySeed();
    return RefPtr<Resource>(MakeRef<ShardLedger>(std::move(options)));
  }
  absl::Status Verify(Resource& resource) override {
    const auto* ledger = dynamic_cast<ShardLedger*>(&resource);
    if (ledger == nullptr)
      return InvalidArgument("Expected a shard queue, found a ", resource.Describe());
    const ShardLedgerOptions& has = ledger->options();
    const auto mismatch = [&](absl::string_view what, auto of_it, auto wanted) {
      return InvalidArgument("Shared shard queue '", has.name, "' has ", what, " ", of_it,
                             " but requested was ", wanted);
    };
    if (NumShards(has) != NumShards(options_))
      return mismatch("a number of shards of", NumShards(has), NumShards(options_));
    if (ShardFingerprint(has) != ShardFingerprint(options_))
      return InvalidArgument("Shared shard queue '", has.name, "' has other shards than requested");
    if (has.epochs != options_.epochs) return mismatch("epochs", has.epochs, options_.epochs);
    if (has.shuffle != options_.shuffle) return mismatch("shuffle", has.shuffle, options_.shuffle);
    if (has.lease != options_.lease) {
      return mismatch("a lease of", absl::FormatDuration(has.lease),
                      absl::FormatDuration(options_.lease));
    }
    return absl::OkStatus();
  }
  std::string type_name() const override { return ShardLedger::kTypeName; }
  bool use_node_name() const override { return true; }

 private:
  ShardLedgerOptions options_;
};

absl::StatusOr<std::string> ScalarText(const Tensor& tensor, absl::string_view what) {
  if (tensor.rank() != 0)
    return InvalidArgument(what, " must be a scalar, but has shape ", tensor.shape().ToString());
  return tensor.scalar<std::string>();
}

absl::Status WorkerIdentity(KernelContext& c) {
  const DeviceAttributes& device = c.device().attributes();
  // The task: all devices of a process are one worker.
  c.SetOutput(0, Tensor::Scalar<std::string>(device.name.substr(0, device.name.find("/device:"))));
  c.SetOutput(1, Tensor::Scalar<int64_t>(static_cast<int64_t>(device.incarnation)));
  return absl::OkStatus();
}

class InitKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(gentle_, setup.Attr<bool>("gentle"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const RefPtr<ShardLedger> ledger, InputResourceAs<ShardLedger>(c, 0));
    ledger->Initialize(gentle_, *c.step().scheduler);
    return absl::OkStatus();
  }

 private:
  bool gentle_ = false;
};

absl::Status IsInitialized(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<ShardLedger> ledger, InputResourceAs<ShardLedger>(c, 0));
  const bool initialized = ledger->initialized();
  std::vector<std::string> missing;
  if (!initialized) missing.push_back(ledger->options().name);
  c.SetOutput(0, Tensor::Scalar<bool>(initialized));
  c.SetOutput(1, Tensor::Vector<std::string>(missing));
  return absl::OkStatus();
}

class TakeKernel : public Kernel {
 public:
  bool is_async() const override { return true; }
  absl::Status Compute(KernelContext&) override { return Internal("Takes run asynchronously"); }
  void ComputeAsync(KernelContext& c, Done done) override {
    absl::StatusOr<ShardTaker> taker = TakerOf(c);
    if (!taker.ok()) return std::move(done)(taker.status());
    const absl::StatusOr<RefPtr<ShardLedger>> ledger = InputResourceAs<ShardLedger>(c, 0);
    if (!ledger.ok()) return std::move(done)(ledger.status());
    const StepWait wait(c, *ledger);
    (*ledger)->Take(
        *std::move(taker), *c.step().scheduler, wait.OnWait(),
        wait.Then([&c, done = std::move(done)](absl::StatusOr<TakenShard> shard) mutable {
          if (shard.ok()) {
            c.SetOutput(0, Tensor::Scalar<int64_t>(shard->epoch));
            c.SetOutput(1, Tensor::Scalar<int64_t>(shard->index));
            c.SetOutput(2, Tensor::Scalar<std::string>(std::move(shard->value)));
            c.SetOutput(3, Tensor::Scalar<int64_t>(shard->ticket));
          }
          std::move(done)(shard.status());
        }));
  }

 private:
  static absl::StatusOr<ShardTaker> TakerOf(const KernelContext& c) {
    ShardTaker taker;
    ASSIGN_OR_RETURN(taker.worker, ScalarText(c.input(1), "worker"));
    ASSIGN_OR_RETURN(taker.incarnation, ScalarInteger(c.input(2), "incarnation"));
    ASSIGN_OR_RETURN(taker.request, ScalarInteger(c.input(3), "request"));
    return taker;
  }
};

absl::Status ReportDone(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<ShardLedger> ledger, InputResourceAs<ShardLedger>(c, 0));
  ASSIGN_OR_RETURN(const int64_t ticket, ScalarInteger(c.input(1), "ticket"));
  ASSIGN_OR_RETURN(const ShardLedger::Outcome outcome, ledger->Done(ticket, *c.step().scheduler));
  const bool counts =
      outcome == ShardLedger::Outcome::kDone || outcome == ShardLedger::Outcome::kKnown;
  c.SetOutput(0, Tensor::Scalar<bool>(counts));
  return absl::OkStatus();
}

absl::Status GiveBack(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<ShardLedger> ledger, InputResourceAs<ShardLedger>(c, 0));
  ASSIGN_OR_RETURN(const int64_t ticket, ScalarInteger(c.input(1), "ticket"));
  return ledger->Return(ticket, *c.step().scheduler);
}

absl::Status Renew(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<ShardLedger> ledger, InputResourceAs<ShardLedger>(c, 0));
  const Tensor& tickets = c.input(1);
  ASSIGN_OR_RETURN(Tensor held, Tensor::Make(DType::kBool, tickets.shape()));
  const std::vector<bool> still = ledger->Renew(tickets.values<int64_t>(), *c.step().scheduler);
  std::copy(still.begin(), still.end(), held.data<bool>());
  c.SetOutput(0, std::move(held));
  return absl::OkStatus();
}

absl::Status Report(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<ShardLedger> ledger, InputResourceAs<ShardLedger>(c, 0));
  c.SetOutput(0, Tensor::Scalar<std::string>(ledger->Report(*c.step().scheduler)));
  return absl::OkStatus();
}

absl::Status SaveState(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<ShardLedger> ledger, InputResourceAs<ShardLedger>(c, 0));
  c.SetOutput(0, Tensor::Scalar<std::string>(ledger->Save()));
  return absl::OkStatus();
}

absl::Status RestoreState(KernelContext& c) {
  ASSIGN_OR_RETURN(const RefPtr<ShardLedger> ledger, InputResourceAs<ShardLedger>(c, 0));
  ASSIGN_OR_RETURN(const std::string state, ScalarText(c.input(1), "state"));
  return ledger->Restore(state, *c.step().scheduler);
}

template <int outputs>
absl::Status Scalars(ShapeContext& c) {
  for (int i = 0; i < outputs; ++i) c.SetOutput(i, PartialShape::Scalar());
  return absl::OkStatus();
}

absl::Status LikeTickets(ShapeContext& c) {
  c.SetOutput(0, c.input(1));
  return absl::OkStatus();
}

absl::Status InitializedShapes(ShapeContext& c) {
  c.SetOutput(0, PartialShape::Scalar());
  c.SetOutput(1, PartialShape({-1}));
  return absl::OkStatus();
}

constexpr const char* kNoNumber = "which shards are done is not a number";

}  // namespace

DEFINE_OP(MusterShardQueue) {
  op.Attr("shards: list(string) >= 0 = []")
      .Attr("count: int = 0")
      .Attr("epochs: int = 1")
      .Attr("shuffle: bool = false")
      .Attr("seed: int = 0")
      .Attr("lease_millis: int = 30000")
      .Attr("backup: bool = false")
      .Attr("container: string = ''")
      .Attr("shared_name: string = ''")
      .Output("handle: resource")
      .Stateful()
      .Doc("Shards of data that workers take one by one and report done.")
      .Shape(HandleOutputShape)
      .NoGradient(kNoNumber)
      .Cpu(New<ShardQueueKernel>());
}

DEFINE_OP(MusterInitShardQueue) {
  op.Attr("gentle: bool = false")
      .Input("handle: resource")
      .Stateful()
      .Doc("Restarts with the first epoch; a gentle one only if it has not begun yet.")
      .Shape(NoOutputs)
      .NoGradient(kNoNumber)
      .Cpu(New<InitKernel>());
}

DEFINE_OP(MusterShardQueueIsInitialized) {
  op.Input("handle: resource")
      .Output("initialized: bool")
      .Output("missing: string")
      .Stateful()
      .Doc("Whether a shard queue was initialized or restored; its name when not.")
      .Shape(InitializedShapes)
      .NoGradient(kNoNumber)
      .Cpu(IsInitialized);
}

DEFINE_OP(MusterWorkerIdentity) {
  op.Output("worker: string")
      .Output("incarnation: int64")
      .Stateful()
      .Doc("The task at which this runs, and a number that its process alone has.")
      .Shape(Scalars<2>)
      .NoGradient(kNoNumber)
      .Cpu(WorkerIdentity);
}

DEFINE_OP(MusterShardTake) {
  op.Input("handle: resource")
      .Input("worker: string")
      .Input("incarnation: int64")
      .Input("request: int64")
      .Output("epoch: int64")
      .Output("index: int64")
      .Output("shard: string")
      .Output("ticket: int64")
      .Stateful()
      .Doc("Takes the next shard; waits while others have the last ones of an epoch.")
      .Shape(Scalars<4>)
      .NoGradient(kNoNumber)
      .Cpu(New<TakeKernel>());
}

DEFINE_OP(MusterShardDone) {
  op.Input("handle: resource")
      .Input("ticket: int64")
      .Output("counts: bool")
      .Stateful()
      .Doc("Reports a shard done; false when another had done it, or a restore has undone it.")
      .Shape(Scalars<1>)
      .NoGradient(kNoNumber)
      .Cpu(ReportDone);
}

DEFINE_OP(MusterShardReturn) {
  op.Input("handle: resource")
      .Input("ticket: int64")
      .Stateful()
      .Doc("Gives a shard back, not done.")
      .Shape(NoOutputs)
      .NoGradient(kNoNumber)
      .Cpu(GiveBack);
}

DEFINE_OP(MusterShardRenew) {
  op.Input("handle: resource")
      .Input("tickets: int64")
      .Output("held: bool")
      .Stateful()
      .Doc("Renews the leases of shards; tells whether each is still held.")
      .Shape(LikeTickets)
      .NoGradient(kNoNumber)
      .Cpu(Renew);
}

DEFINE_OP(MusterShardReport) {
  op.Input("handle: resource")
      .Output("report: string")
      .Stateful()
      .Doc("The account of a shard queue, as JSON.")
      .Shape(Scalars<1>)
      .NoGradient(kNoNumber)
      .Cpu(Report);
}

DEFINE_OP(MusterShardState) {
  op.Input("handle: resource")
      .Output("state: string")
      .Stateful()
      .Doc("What a checkpoint keeps of a shard queue.")
      .Shape(Scalars<1>)
      .NoGradient(kNoNumber)
      .Cpu(SaveState);
}

DEFINE_OP(MusterRestoreShardState) {
  op.Input("handle: resource")
      .Input("state: string")
      .Stateful()
      .Doc("Sets a shard queue to what a checkpoint has kept.")
      .Shape(NoOutputs)
      .NoGradient(kNoNumber)
      .Cpu(RestoreState);
}

}  // namespace muster
