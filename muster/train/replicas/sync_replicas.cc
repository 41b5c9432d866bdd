#include "muster/train/replicas/sync_replicas.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "muster/train/model/operand.h"

namespace muster {
namespace {

// The name that queue operations carry: the last part of the queue's own.
std::string LastPart(const std::string& name) {
  return name.substr(name.rfind('/') + 1);
}

Output AddQueue(const Scope& scope, const std::string& name, int64_t capacity, DType dtype) {
  return scope.Op("FIFOQueueV2", {},
                  {{"component_types", std::vector<DType>{dtype}},
                   {"shapes", std::vector<PartialShape>{PartialShape::Scalar()}},
                   {"capacity", capacity},
                   {"container", std::string()},
                   {"shared_name", name}},
                  name);
}

Node* AddClose(const Scope& scope, Output queue, bool cancel_pending) {
  return scope.Add("QueueCloseV2", {queue}, {{"cancel_pending_enqueues", cancel_pending}},
                   absl::StrCat(LastPart(queue.node->name()), "_Close"));
}

}  // namespace

SyncReplicas::SyncReplicas(SyncReplicasOptions options) : options_(std::move(options)) {}

absl::StatusOr<Node*> SyncReplicas::ApplyGradients(const Scope& scope,
                                                   absl::Span<const GradientAndVariable> gradients,
                                                   const TrainVariable& global_step,
                                                   const SyncReplicasParts& parts) {
  if (gradients.empty()) return InvalidArgument("Must supply at least one variable");
  global_step_ = global_step;
  ASSIGN_OR_RETURN(Node * anchor, scope.TryAdd("NoOp", {}));
  const Scope beside = scope.ColocatedWith(*anchor);
  if (parts.make_local_step) {
    ASSIGN_OR_RETURN(local_step_, parts.make_local_step(beside, global_step.dtype));
  } else {
    ASSIGN_OR_RETURN(local_step_, MakeVariable(beside, "sync_rep_local_step",
                                               Tensor::Zeros(global_step.dtype, Shape())));
  }
  local_step_init_ = Assign(scope, local_step_, Value(scope, global_step), "Assign", true).node;
  ASSIGN_OR_RETURN(ready_for_local_init_, ReportUninitialized(scope, parts.global_variables));

  ASSIGN_OR_RETURN(const Scope own, scope.TryNameScope(options_.name));
  std::vector<GradientAndVariable> means;
  for (const GradientAndVariable& entry : gradients) {
    ASSIGN_OR_RETURN(Gradient mean, AddAccumulator(own, entry));
    means.push_back({std::move(mean), entry.variable});
  }
  const Scope at_step = own.WithDevice(global_step.node().device()).WithPrefix("");
  ASSIGN_OR_RETURN(Node * update, parts.apply(at_step, means));
  token_queue_ = AddQueue(at_step, "sync_token_q", -1, global_step.dtype);
  // Exists so that the chief's work can be a queue runner like any other.
  const Output dummy_queue = AddQueue(at_step, "dummy_queue", 1, DType::kInt32);
  RETURN_IF_ERROR(scope.status());

  const Output token = at_step.WithControlDependencies(apply_nodes_)
                           .Op("QueueDequeueV2", {token_queue_},
                               {{"component_types", std::vector<DType>{global_step.dtype}}},
                               absl::StrCat(LastPart(token_queue_.node->name()), "_Dequeue"));
  train_ = Assign(at_step, local_step_, token, "Assign", true).node;
  ASSIGN_OR_RETURN(tokens_,
                   EnqueueTokens(at_step.WithControlDependencies({update}), tokens_per_update()));
  Node* sync = tokens_.enqueue;
  if (parts.average) {
    ASSIGN_OR_RETURN(sync, parts.average(at_step.WithControlDependencies({sync})));
  }
  chief_queue_runner_.queue_name = dummy_queue.node->name();
  chief_queue_runner_.enqueue_ops = {sync};
  chief_queue_runner_.close_op = AddClose(at_step, dummy_queue, false);
  chief_queue_runner_.cancel_op = AddClose(at_step, dummy_queue, true);
  ASSIGN_OR_RETURN(chief_init_, AddChiefInit(own));
  RETURN_IF_ERROR(scope.status());
  return train_;
}

absl::StatusOr<Gradient> SyncReplicas::AddAccumulator(const Scope& scope,
                                                      const GradientAndVariable& entry) {
  if (!HasValue(entry.gradient)) return Gradient();
  const std::string device = entry.variable.node().device();
  const Scope here = scope.WithDevice(device);
  const std::string shared_name = absl::StrCat(entry.variable.name(), ":0/grad_accum");
  const auto* slices = std::get_if<IndexedSlices>(&entry.gradient);
  Gradient mean = slices != nullptr ? AddSparse(here, shared_name, *slices)
                                    : AddDense(here, shared_name, std::get<Output>(entry.gradient),
                                               entry.variable);
  RETURN_IF_ERROR(here.status());
  accumulators_.back().device = device;
  return mean;
}

Gradient SyncReplicas::AddDense(const Scope& scope, const std::string& shared_name, Output gradient,
                                const TrainVariable& variable) {
  const Output accumulator = scope.Op("ResourceConditionalAccumulator", {},
                                      {{"dtype", gradient.base_dtype()},
                                       {"shape", variable.shape},
                                       {"container", std::string()},
                                       {"shared_name", shared_name},
                                       {"reduction_type", std::string("MEAN")}},
                                      "conditional_accumulator");
  accumulators_.push_back({accumulator, false, ""});
  const Output step = CastToOutput(scope, local_step_, DType::kInt64);
  apply_nodes_.push_back(
      scope.Add("ResourceAccumulatorApplyGradient", {accumulator, step, gradient}));
  Node* const take =
      CallOp(scope, "ResourceAccumulatorTakeGradient",
             {{"handle", accumulator}, {"num_required", options_.replicas_to_aggregate}},
             {{"dtype", gradient.base_dtype()}});
  if (take == nullptr) return Gradient();
  take->set_output_shape(0, variable.shape);
  return take->output(0);
}

// Unchecked shapes, as TensorFlow makes them: a row may come any number of times.
Gradient SyncReplicas::AddSparse(const Scope& scope, const std::string& shared_name,
                                 const IndexedSlices& gradient) {
  const DType dtype = gradient.values.base_dtype();
  const Output accumulator = scope.Op("SparseConditionalAccumulator", {},
                                      {{"dtype", dtype},
                                       {"shape", PartialShape::Scalar()},
                                       {"container", std::string()},
                                       {"shared_name", shared_name},
                                       {"reduction_type", std::string("MEAN")}},
                                      "sparse_conditional_accumulator");
  accumulators_.push_back({accumulator, true, ""});
  const Output step = CastToOutput(scope, local_step_, DType::kInt64);
  const Output indices = CastToOutput(scope, gradient.indices, DType::kInt64);
  const bool has_shape = gradient.dense_shape.node != nullptr;
  Output shape;
  if (has_shape) {
    shape = CastToOutput(scope, gradient.dense_shape, DType::kInt64);
  } else {
    const Scope cast = scope.NameScope("Cast");
    const Output nothing = cast.Const(Tensor::Zeros(DType::kFloat, Shape({0})), "x");
    shape = OpNamed(cast, "Cast", {nothing}, {{"DstT", DType::kInt64}});
  }
  apply_nodes_.push_back(scope.Add("SparseAccumulatorApplyGradient",
                                   {accumulator, step, indices, gradient.values, shape},
                                   {{"has_known_shape", has_shape}}));
  Node* const take =
      CallOp(scope, "SparseAccumulatorTakeGradient",
             {{"handle", accumulator}, {"num_required", options_.replicas_to_aggregate}},
             {{"dtype", dtype}});
  if (take == nullptr) return Gradient();
  return IndexedSlices{take->output(1), take->output(0), take->output(2)};
}

absl::StatusOr<SyncReplicas::Tokens> SyncReplicas::EnqueueTokens(const Scope& scope,
                                                                 int count) const {
  const Output tokens =
      CallOpOutput(scope, "Fill",
                   {{"dims", Operand(Tensor::Vector<int32_t>({count}))}, {"value", global_step_}});
  RETURN_IF_ERROR(scope.status());
  ASSIGN_OR_RETURN(Node * enqueue,
                   scope.TryAdd("QueueEnqueueManyV2", {token_queue_, tokens},
                                {{"Tcomponents", std::vector<DType>{global_step_.dtype}}},
                                absl::StrCat(LastPart(token_queue_.node->name()), "_EnqueueMany")));
  return Tokens{tokens, enqueue};
}

absl::StatusOr<Node*> SyncReplicas::AddChiefInit(const Scope& scope) const {
  std::vector<Node*> nodes = {local_step_init_};
  for (const Accumulator& accumulator : accumulators_) {
    const Scope here = scope.WithDevice(accumulator.device);
    const Output step = CastToOutput(here, global_step_, DType::kInt64);
    nodes.push_back(here.Add(
        accumulator.is_sparse ? "AccumulatorSetGlobalStep" : "ResourceAccumulatorSetGlobalStep",
        {accumulator.handle, step}, {}, "SetGlobalStep"));
  }
  RETURN_IF_ERROR(scope.status());
  return Group(scope, nodes);
}

absl::StatusOr<Node*> SyncReplicas::InitTokens(const Scope& scope, int num_tokens) const {
  if (token_queue_.node == nullptr) {
    return InvalidArgument("get_init_tokens_op() should be called after apply_gradients().");
  }
  const int needed = options_.replicas_to_aggregate - total();
  if (num_tokens == -1) {
    num_tokens = options_.replicas_to_aggregate;
  } else if (num_tokens < needed) {
    return InvalidArgument("Too few tokens to finish the first step: ", num_tokens, " (given) vs ",
                           needed, " (needed)");
  }
  if (num_tokens <= 0) return scope.TryAdd("NoOp", {}, {}, "no_init_tokens");
  ASSIGN_OR_RETURN(
      const Tokens tokens,
      EnqueueTokens(scope.WithDevice(global_step_.node().device()).WithPrefix(""), num_tokens));
  return tokens.enqueue;
}

QueueRunnerDef SyncReplicas::ChiefQueueRunner(std::shared_ptr<const SyncReplicas> sync) {
  QueueRunnerDef def = sync->chief_queue_runner_;
  def.waits = sync->train();
  def.on_clean_stop = [sync = std::move(sync)](Session& session) {
    return sync->ReleaseWorkers(session);
  };
  return def;
}

absl::Status SyncReplicas::ReleaseWorkers(Session& session) const {
  return GiveTokens(session, 2);
}

absl::Status SyncReplicas::ReturnTokens(Session& session) const {
  return GiveTokens(session, 1);
}

absl::Status SyncReplicas::GiveTokens(Session& session, int updates) const {
  constexpr absl::Duration kTimeout = absl::Seconds(5);
  RunOptions options;
  options.timeout = kTimeout;
  ASSIGN_OR_RETURN(const auto read, session.Prepare({{}, {global_step_.snapshot}, {}}));
  ASSIGN_OR_RETURN(const std::vector<Tensor> step, session.Run(*read, {}, options));
  const int count = tokens_per_update();
  ASSIGN_OR_RETURN(Tensor tokens, Tensor::Make(global_step_.dtype, Shape({count})));
  const size_t bytes = DTypeSize(global_step_.dtype);
  for (int i = 0; i < count; ++i) std::memcpy(tokens.raw() + i * bytes, step[0].raw(), bytes);
  // Fed, the tokens do not wait for an update.
  ASSIGN_OR_RETURN(const auto enqueue, session.Prepare({{tokens_.values}, {}, {tokens_.enqueue}}));
  for (int i = 0; i < updates; ++i)
    RETURN_IF_ERROR(session.Run(*enqueue, {tokens}, options).status());
  return absl::OkStatus();
}

}  // namespace muster
