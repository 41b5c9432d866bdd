#include "muster/train/replicas/all_reduce.h"

#include <algorithm>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

#include "muster/device/device_name.h"
#include "muster/graph/build/emit.h"
#include "muster/graph/control_flow/cond_context.h"
#include "muster/train/model/operand.h"

namespace muster {
namespace {

// Rows of a table, added up where they belong.
Output SumOfRows(const Scope& scope, Output values, Output rows, int64_t num_rows) {
  return scope.Op("UnsortedSegmentSum",
                  {values, rows, scope.ConstScalar<int64_t>(num_rows, "num_rows")});
}

// How often a gradient has each row, in the gradient's type.
Output RowCounts(const Scope& scope, const IndexedSlices& gradient, int64_t num_rows) {
  const DType dtype = gradient.values.base_dtype();
  const Output ones = CallOpOutput(scope, "Fill",
                                   {{"dims", scope.Op("Shape", {gradient.indices})},
                                    {"value", EmitScalar(scope, dtype, 1, "one")}});
  return SumOfRows(scope, ones, gradient.indices, num_rows);
}

// The rows that any rank has: optimizers leave the others alone.
IndexedSlices CountedRows(const Scope& scope, Output mean, Output counts, DType index_type) {
  const Output is_there = scope.Op(
      "Greater", {counts, EmitScalar(scope, counts.base_dtype(), 0, "none")}, {}, "is_there");
  const Output rows =
      CastToOutput(scope, EmitReshape(scope, scope.Op("Where", {is_there}), {-1}), index_type);
  const Scope gather = scope.NameScope("rows");
  const Output values =
      OpNamed(gather, "GatherV2", {mean, rows, gather.ConstScalar<int32_t>(0, "axis")});
  return {values, rows, EmitShape(scope, mean)};
}

absl::StatusOr<Shape> KnownShape(const TrainVariable& variable) {
  std::optional<Shape> shape = variable.shape.ToShape();
  if (shape.has_value()) return *std::move(shape);
  return InvalidArgument("The shape of ", variable.name(),
                         " is not known: ", variable.shape.ToString());
}

Output Flat(const Scope& scope, Output value) {
  return EmitReshape(scope, value, {-1});
}

}  // namespace

AllReduce::AllReduce(AllReduceOptions options) : options_(std::move(options)) {}

absl::StatusOr<Node*> AllReduce::ApplyGradients(const Scope& scope,
                                                absl::Span<const GradientAndVariable> gradients,
                                                const TrainVariable& global_step,
                                                const AllReduceParts& parts) {
  if (train_ != nullptr) return FailedPrecondition("Gradients were applied already");
  if (options_.bucket_bytes < 0 || options_.average_every < 0) {
    return InvalidArgument("bucket_bytes and average_every must not be negative: ",
                           options_.bucket_bytes, ", ", options_.average_every);
  }
  if (std::none_of(gradients.begin(), gradients.end(),
                   [](const GradientAndVariable& entry) { return HasValue(entry.gradient); }))
    return InvalidArgument("No gradients provided for any variable");
  global_step_ = global_step;
  ASSIGN_OR_RETURN(const Scope own, scope.TryNameScope(options_.name));
  RETURN_IF_ERROR(MakeLocals(own, parts));
  ASSIGN_OR_RETURN(train_, options_.average_every > 0 ? StepAlone(own, gradients, parts)
                                                      : StepTogether(own, gradients, parts));
  RETURN_IF_ERROR(own.status());
  return train_;
}

// Variables beside the step, wherever the program has that.
absl::Status AllReduce::MakeLocals(const Scope& scope, const AllReduceParts& parts) {
  ASSIGN_OR_RETURN(Node * anchor, scope.TryAdd("NoOp", {}, {}, "group"));
  own_device_ = anchor->device();
  const Scope beside = scope.ColocatedWith(*anchor);
  const auto make = [&](const char* name, int32_t initial) -> absl::StatusOr<TrainVariable> {
    if (parts.make_local) return parts.make_local(beside, name, initial);
    return MakeVariable(beside, name, Tensor::Scalar<int32_t>(initial));
  };
  // No group yet: an all-reduce of no members is an error.
  ASSIGN_OR_RETURN(group_key_, make("group_key", 0));
  ASSIGN_OR_RETURN(group_size_, make("group_size", 0));
  ASSIGN_OR_RETURN(group_rank_, make("group_rank", 0));
  return absl::OkStatus();
}

bool AllReduce::IsReplicated(const TrainVariable& variable) const {
  if (options_.stays) return !options_.stays(variable);
  const absl::StatusOr<DeviceName> where = DeviceName::Parse(variable.node().device());
  const absl::StatusOr<DeviceName> own = DeviceName::Parse(own_device_);
  if (!where.ok() || !where->job.has_value()) return true;
  if (!own.ok() || !own->job.has_value()) return *where->job != "ps";
  return *where->job == *own->job && where->task.value_or(0) == own->task.value_or(0);
}

absl::StatusOr<Node*> AllReduce::StepTogether(const Scope& scope,
                                              absl::Span<const GradientAndVariable> gradients,
                                              const AllReduceParts& parts) {
  std::vector<GradientAndVariable> replicated;
  std::vector<Part> values;
  Staying staying;
  for (const GradientAndVariable& entry : gradients) {
    if (!HasValue(entry.gradient)) continue;
    if (!IsReplicated(entry.variable)) {
      RETURN_IF_ERROR(Accumulate(scope, entry, staying));
      continue;
    }
    ASSIGN_OR_RETURN(Shape shape, KnownShape(entry.variable));
    replicated.push_back(entry);
    if (const auto* slices = std::get_if<IndexedSlices>(&entry.gradient)) {
      const int64_t rows = shape.dim(0);
      values.push_back({SumOfRows(scope, slices->values, slices->indices, rows), shape});
      values.push_back({RowCounts(scope, *slices, rows), Shape({rows})});
    } else {
      values.push_back({std::get<Output>(entry.gradient), std::move(shape)});
    }
  }
  ASSIGN_OR_RETURN(const std::vector<Output> means, Means(scope, values));
  size_t next = 0;
  for (GradientAndVariable& entry : replicated) {
    const auto* slices = std::get_if<IndexedSlices>(&entry.gradient);
    if (slices == nullptr) {
      entry.gradient = means[next++];
      continue;
    }
    entry.gradient = CountedRows(scope, means[next], means[next + 1], slices->indices.base_dtype());
    next += 2;
  }
  // Gradients are accumulated with the step number before the update.
  const Scope after_pushes = scope.WithControlDependencies(staying.pushes).WithPrefix("");
  std::vector<Node*> done;
  if (!replicated.empty()) {
    ASSIGN_OR_RETURN(Node * update,
                     parts.apply(after_pushes, replicated, IsReplicated(global_step_)));
    done.push_back(update);
  }
  if (!staying.entries.empty()) {
    ASSIGN_OR_RETURN(Node * update, ApplyStaying(scope, staying, parts));
    // No rank continues before rank 0 has applied them.
    const Scope after = scope.WithControlDependencies({update});
    const Output all = Reduce(after, Awaited(after, DType::kInt32), "Max", "Id");
    if (!awaited_) awaited_ = CastToOutput(scope, all, DType::kFloat);
    done.push_back(all.node);
  }
  RETURN_IF_ERROR(scope.status());
  return Group(scope, done, "train");
}

absl::StatusOr<Node*> AllReduce::StepAlone(const Scope& scope,
                                           absl::Span<const GradientAndVariable> gradients,
                                           const AllReduceParts& parts) {
  std::vector<TrainVariable> averaged;
  for (const GradientAndVariable& entry : gradients) {
    if (!IsReplicated(entry.variable)) {
      return InvalidArgument("average_every averages copies of variables, but ",
                             entry.variable.name(), " stays at ", entry.variable.node().device());
    }
    if (HasValue(entry.gradient)) averaged.push_back(entry.variable);
  }
  ASSIGN_OR_RETURN(Node * update, parts.apply(scope.WithPrefix(""), gradients, true));
  const Scope after = scope.WithControlDependencies({update});
  const Output step = CastToOutput(after, ReadValue(after, global_step_), DType::kInt64);
  const Output every = scope.ConstScalar<int64_t>(options_.average_every, "average_every");
  const Output rest = after.Op("FloorMod", {step, every});
  const Output is_due =
      after.Op("Equal", {rest, scope.ConstScalar<int64_t>(0, "zero")}, {}, "is_due");
  const auto average = [&](const Scope& branch) -> absl::StatusOr<std::vector<BranchResult>> {
    std::vector<Part> values;
    for (const TrainVariable& variable : averaged) {
      ASSIGN_OR_RETURN(Shape shape, KnownShape(variable));
      values.push_back({ReadValue(branch, variable), std::move(shape)});
    }
    ASSIGN_OR_RETURN(const std::vector<Output> means, Means(branch, values));
    std::vector<Node*> assigns;
    for (size_t i = 0; i < averaged.size(); ++i)
      assigns.push_back(Assign(branch, averaged[i], means[i], "Assign", true).node);
    RETURN_IF_ERROR(branch.status());
    ASSIGN_OR_RETURN(const Output awaited, AddWithDependencies(branch, assigns, awaited_));
    return std::vector<BranchResult>{awaited};
  };
  const auto nothing = [](const Scope& branch) -> absl::StatusOr<std::vector<BranchResult>> {
    return std::vector<BranchResult>{branch.ConstScalar<float>(0, "nobody")};
  };
  ASSIGN_OR_RETURN(const std::vector<Output> merged,
                   Cond(scope, is_due, average, nothing, "average"));
  awaited_ = merged[0];
  return Group(scope, {merged[0].node}, "train");
}

// --- Averages ----------------------------------------------------------------------------------

// The last gradients are ready first, so they are put together first.
std::vector<AllReduce::Bucket> AllReduce::Buckets(const std::vector<Part>& parts) const {
  std::vector<Bucket> buckets;
  absl::flat_hash_map<DType, size_t> open;
  for (size_t left = parts.size(); left > 0; --left) {
    const Part& part = parts[left - 1];
    const DType dtype = part.value.base_dtype();
    const int64_t bytes = part.shape.num_elements() * static_cast<int64_t>(DTypeSize(dtype));
    const auto found = open.find(dtype);
    const bool fits = found != open.end() && bytes < options_.bucket_bytes &&
                      buckets[found->second].bytes + bytes <= options_.bucket_bytes;
    if (!fits) {
      buckets.emplace_back();
      if (bytes < options_.bucket_bytes) open[dtype] = buckets.size() - 1;
    }
    Bucket& bucket = fits ? buckets[found->second] : buckets.back();
    bucket.parts.push_back(left - 1);
    bucket.bytes += bytes;
  }
  return buckets;
}

absl::StatusOr<std::vector<Output>> AllReduce::Means(const Scope& scope,
                                                     const std::vector<Part>& parts) {
  std::vector<Output> means(parts.size());
  const std::vector<Bucket> buckets = Buckets(parts);
  // The flag that a task waits travels with the smallest bucket: no message of its own.
  const auto smallest =
      std::min_element(buckets.begin(), buckets.end(),
                       [](const Bucket& a, const Bucket& b) { return a.bytes < b.bytes; });
  for (const Bucket& bucket : buckets) {
    const bool carries_flag = &bucket == &*smallest;
    if (bucket.parts.size() == 1 && !carries_flag) {
      const size_t only = bucket.parts[0];
      means[only] = Reduce(scope, parts[only].value, "Add", "Div");
      continue;
    }
    std::vector<Output> flat;
    std::vector<int32_t> sizes;
    for (const size_t i : bucket.parts) {
      flat.push_back(Flat(scope, parts[i].value));
      const int64_t size = parts[i].shape.num_elements();
      if (size > std::numeric_limits<int32_t>::max() / 2)
        return Unimplemented("An all-reduce of ", size, " elements together with others");
      sizes.push_back(static_cast<int32_t>(size));
    }
    if (carries_flag) {
      const DType dtype = parts[bucket.parts[0]].value.base_dtype();
      flat.push_back(Flat(scope, Awaited(scope, dtype)));
      sizes.push_back(1);
    }
    const Output mean = Reduce(scope, EmitConcat(scope, flat), "Add", "Div");
    const Scope split = scope.NameScope("split");
    Node* const pieces =
        AddNamed(split, "SplitV",
                 {mean, split.ConstVector(sizes, "sizes"), split.ConstScalar<int32_t>(0, "axis")},
                 {{"num_split", static_cast<int64_t>(sizes.size())}});
    RETURN_IF_ERROR(scope.status());
    for (size_t k = 0; k < bucket.parts.size(); ++k) {
      const size_t i = bucket.parts[k];
      means[i] = EmitReshape(scope, pieces->output(static_cast<int>(k)), parts[i].shape.dims());
    }
    if (carries_flag) {
      const Output flag =
          EmitReshape(scope, pieces->output(static_cast<int>(bucket.parts.size())), {});
      awaited_ = CastToOutput(scope, flag, DType::kFloat);
    }
  }
  RETURN_IF_ERROR(scope.status());
  return means;
}

Output AllReduce::Reduce(const Scope& scope, Output value, const char* merge_op,
                         const char* final_op) {
  const Output instance = scope.ConstScalar<int32_t>(++last_instance_, "instance_key");
  return scope.Op(
      "CollectiveReduceV2",
      {value, Value(scope, group_size_), Value(scope, group_key_), instance, std::vector<Output>()},
      {{"merge_op", std::string(merge_op)}, {"final_op", std::string(final_op)}});
}

Output AllReduce::Awaited(const Scope& scope, DType dtype) const {
  const Output awaited = scope.Op("MusterGroupAwaited", {}, {{"shared_name", options_.name}});
  return CastToOutput(scope, awaited, dtype);
}

// --- Variables that stay -----------------------------------------------------------------------

absl::Status AllReduce::Accumulate(const Scope& scope, const GradientAndVariable& entry,
                                   Staying& staying) {
  const Scope here = scope.WithDevice(entry.variable.node().device());
  const auto* slices = std::get_if<IndexedSlices>(&entry.gradient);
  const bool is_sparse = slices != nullptr;
  const DType dtype =
      is_sparse ? slices->values.base_dtype() : std::get<Output>(entry.gradient).base_dtype();
  const Output accumulator =
      here.Op(is_sparse ? "SparseConditionalAccumulator" : "ConditionalAccumulator", {},
              {{"dtype", dtype},
               {"shape", is_sparse ? PartialShape() : entry.variable.shape},
               {"shared_name", absl::StrCat(entry.variable.name(), "/", options_.name)}},
              "accumulator");
  const Output step = CastToOutput(here, ReadValue(here, global_step_), DType::kInt64);
  if (is_sparse) {
    const Output indices = CastToOutput(here, slices->indices, DType::kInt64);
    const Output shape = slices->dense_shape
                             ? CastToOutput(here, slices->dense_shape, DType::kInt64)
                             : here.Const(Tensor::Zeros(DType::kInt64, Shape({0})), "no_shape");
    staying.pushes.push_back(here.Add(
        "SparseAccumulatorApplyGradient", {accumulator, step, indices, slices->values, shape},
        {{"has_known_shape", static_cast<bool>(slices->dense_shape)}}));
  } else {
    staying.pushes.push_back(here.Add("AccumulatorApplyGradient",
                                      {accumulator, step, std::get<Output>(entry.gradient)}));
  }
  const char* const take_op =
      is_sparse ? "SparseAccumulatorTakeGradient" : "AccumulatorTakeGradient";
  const std::string device = entry.variable.node().device();
  const auto take = [=](const Scope& at, Output required) -> Node* {
    return at.WithDevice(device).Add(take_op, {accumulator, required}, {{"dtype", dtype}});
  };
  staying.entries.push_back(entry);
  staying.takes.push_back([=, this](const Scope& at) -> Gradient {
    Node* const taken = take(at, Value(at, group_size_));
    if (taken == nullptr) return Gradient();
    if (is_sparse) return IndexedSlices{taken->output(1), taken->output(0), taken->output(2)};
    taken->set_output_shape(0, entry.variable.shape);
    return taken->output(0);
  });
  Accumulator kept;
  kept.count = here.Op("AccumulatorNumAccumulated", {accumulator});
  kept.drop = take(here, here.ConstScalar<int32_t>(1, "one"));
  kept.set_step = here.Add("AccumulatorSetGlobalStep", {accumulator, step});
  accumulators_.push_back(kept);
  return here.status();
}

absl::StatusOr<Node*> AllReduce::ApplyStaying(const Scope& scope, const Staying& staying,
                                              const AllReduceParts& parts) {
  if (!parts.apply_staying) {
    return InvalidArgument("Variable ", staying.entries[0].variable.name(), " stays at ",
                           staying.entries[0].variable.node().device(),
                           ": it needs an optimizer of its own (staying_optimizer)");
  }
  const Scope after = scope.WithControlDependencies(staying.pushes);
  const Output is_first = after.Op(
      "Equal", {Value(after, group_rank_), after.ConstScalar<int32_t>(0, "first")}, {}, "is_first");
  const auto apply = [&](const Scope& branch) -> absl::StatusOr<std::vector<BranchResult>> {
    std::vector<GradientAndVariable> means = staying.entries;
    for (size_t i = 0; i < means.size(); ++i) means[i].gradient = staying.takes[i](branch);
    RETURN_IF_ERROR(branch.status());
    ASSIGN_OR_RETURN(Node * update,
                     parts.apply_staying(branch, means, !IsReplicated(global_step_)));
    return std::vector<BranchResult>{update};
  };
  const auto nothing = [](const Scope& branch) -> absl::StatusOr<std::vector<BranchResult>> {
    ASSIGN_OR_RETURN(Node * none, branch.TryAdd("NoOp", {}));
    return std::vector<BranchResult>{none};
  };
  ASSIGN_OR_RETURN(const std::vector<Output> merged,
                   Cond(after, is_first, apply, nothing, "apply_staying"));
  return merged[0].node;
}

// --- Starting together -------------------------------------------------------------------------

absl::StatusOr<AllReduce::Broadcast> AllReduce::AddBroadcast(
    const Scope& scope, absl::Span<const TrainVariable> variables) {
  if (train_ == nullptr) return FailedPrecondition("Gradients were not applied yet");
  ASSIGN_OR_RETURN(const Scope own, scope.TryNameScope(options_.name + "/broadcast"));
  std::vector<Node*> sends;
  std::vector<TrainVariable> received;
  std::vector<Output> values;
  for (const TrainVariable& variable : variables) {
    if (!IsReplicated(variable)) continue;
    ASSIGN_OR_RETURN(const Shape shape, KnownShape(variable));
    const Scope at = own.WithDevice(variable.node().device());
    const Output instance = at.ConstScalar<int32_t>(++last_instance_, "instance_key");
    const Output size = Value(at, group_size_);
    const Output key = Value(at, group_key_);
    sends.push_back(
        at.Add("CollectiveBcastSendV2", {ReadValue(at, variable), size, key, instance}));
    std::vector<int32_t> dims(shape.dims().begin(), shape.dims().end());
    const Output value =
        at.Op("CollectiveBcastRecvV2", {size, key, instance, at.ConstVector(dims, "shape")},
              {{"T", variable.dtype}});
    if (value) value.node->set_output_shape(0, variable.shape);
    received.push_back(variable);
    values.push_back(value);
  }
  RETURN_IF_ERROR(own.status());
  // All or none: when the source is lost half-way, the old model is still whole.
  std::vector<Node*> arrivals;
  for (const Output& value : values) arrivals.push_back(value.node);
  ASSIGN_OR_RETURN(Node* const arrived, Group(own, arrivals, "arrived"));
  std::vector<Node*> receives;
  for (size_t i = 0; i < received.size(); ++i) {
    const Scope at = own.WithDevice(received[i].node().device()).WithControlDependencies({arrived});
    receives.push_back(Assign(at, received[i], values[i], "Assign", true).node);
  }
  RETURN_IF_ERROR(own.status());
  Broadcast broadcast;
  ASSIGN_OR_RETURN(broadcast.send, Group(own, sends, "send"));
  ASSIGN_OR_RETURN(broadcast.receive, Group(own, receives, "receive"));
  broadcast.meet = Reduce(own, own.ConstScalar<int32_t>(0, "nothing"), "Max", "Id").node;
  RETURN_IF_ERROR(own.status());
  return broadcast;
}

absl::StatusOr<Node*> AllReduce::AddGentleInitializer(const Scope& scope,
                                                      absl::Span<const TrainVariable> variables,
                                                      bool with_staying) const {
  std::vector<Node*> nodes;
  for (const TrainVariable& variable : variables) {
    if (!with_staying && !IsReplicated(variable)) continue;
    const Scope at = scope.WithDevice(variable.node().device());
    ASSIGN_OR_RETURN(const Output value, InitializedValue(at, variable));
    nodes.push_back(Assign(at, variable, value, "Assign", true).node);
  }
  RETURN_IF_ERROR(scope.status());
  return Group(scope, nodes, "init_if_needed");
}

}  // namespace muster
