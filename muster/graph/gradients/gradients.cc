#include "muster/graph/gradients/gradients.h"

#include <algorithm>
#include <deque>

#include "muster/graph/build/emit.h"
#include "muster/graph/control_flow/cond_context.h"
#include "muster/graph/control_flow/control_flow_gradients.h"
#include "muster/graph/gradients/combine_gradients.h"
#include "muster/graph/gradients/gradient_lookup.h"
#include "muster/graph/gradients/sparse_gradients.h"
#include "muster/graph/shape_text.h"

namespace muster {
namespace {

bool IsTrainable(DType dtype) {
  const DType base = BaseType(dtype);
  return base == DType::kHalf || base == DType::kFloat || base == DType::kDouble ||
         IsComplex(base) || base == DType::kResource || base == DType::kVariant;
}

bool CarriesGradient(DType dtype) {
  return IsTrainable(dtype) || BaseType(dtype) == DType::kBfloat16;
}

// The gradients that have arrived at one output: a list until it is summed.
struct Arrived {
  std::vector<Gradient> list;
  bool summed = false;
  Gradient sum;
};

class GradientBuilder {
 public:
  GradientBuilder(const Scope& caller, absl::Span<const Output> ys, absl::Span<const Output> xs,
                  const GradientOptions& options)
      : caller_(caller), scope_(caller), ys_(ys), xs_(xs), options_(options) {
    in_function_ = !xs.empty() && std::all_of(xs.begin(), xs.end(), [](const Output& x) {
      return x && x.node->op() == "_Arg";
    });
  }

  absl::StatusOr<std::vector<Gradient>> Build();

 private:
  absl::StatusOr<std::vector<Gradient>> InitialGradients();
  absl::Status CheckGradientType(Output y, const Gradient& gradient) const;
  absl::Status FindNodesBetween();
  void FindStopNodes();
  absl::Status Differentiate(Node& node);
  absl::StatusOr<std::vector<Gradient>> InputGradients(Node& node, const GradientFunction& function,
                                                       std::vector<Gradient> output_gradients,
                                                       const Scope& scope);
  absl::Status LoopVariableError(const Node& node) const;
  absl::Status Enqueue(Node& node);
  void SetGradient(Output at, const Gradient& gradient);
  bool HasGradient(Node* node) const;
  absl::StatusOr<Gradient> ResultFor(Output x);
  Scope Colocated(const Scope& scope, Node& node) const {
    return options_.colocate_gradients_with_ops ? scope.ColocatedWith(node) : scope;
  }

  Scope caller_;
  Scope scope_;
  absl::Span<const Output> ys_;
  absl::Span<const Output> xs_;
  const GradientOptions& options_;
  bool in_function_ = false;  // the xs are its arguments; integers carry gradients there
  LoopGradients loops_;
  absl::flat_hash_set<Node*> reachable_ys_;
  absl::flat_hash_set<Node*> stop_nodes_;
  absl::flat_hash_map<Node*, int> pending_;
  absl::flat_hash_map<Node*, std::vector<Arrived>> arrived_;
  std::deque<Node*> queue_;
};

absl::Status GradientBuilder::CheckGradientType(Output y, const Gradient& gradient) const {
  const DType y_type = y.base_dtype();
  const DType type = Components(gradient)[0].base_dtype();
  const auto is_real = [](DType dtype) { return IsFloating(dtype) || IsInteger(dtype); };
  const auto error = [&](const auto&... parts) {
    return WithErrorKind(InvalidArgument(parts...), kTypeError);
  };
  if (is_real(y_type)) {
    if (is_real(type)) return absl::OkStatus();
    return error("Gradient type ", DTypeName(type), " generated for real or integer-valued tensor ",
                 y.name(), " with type ", DTypeName(y_type), " must be real or integer");
  }
  if (IsComplex(y_type)) {
    if (IsComplex(type)) return absl::OkStatus();
    return error("Gradient type ", DTypeName(type), " generated for complex-valued tensor ",
                 y.name(), " with type ", DTypeName(y_type), " must be real");
  }
  if (y_type == DType::kVariant) {
    if (type == DType::kVariant) return absl::OkStatus();
    return error("Gradient type ", DTypeName(type), " generated for variant tensor ", y.name(),
                 " with type ", DTypeName(y_type), " must be variant");
  }
  if (y_type == DType::kResource) {
    if (type != DType::kResource) return absl::OkStatus();
    return error("Input gradient ", Components(gradient)[0].name(), " for resource tensor ",
                 y.name(), " should not be a resource");
  }
  return error("Tensor ", y.name(), " with type ", DTypeName(y_type),
               " must be numeric to obtain a default gradient");
}

absl::StatusOr<std::vector<Gradient>> GradientBuilder::InitialGradients() {
  std::vector<Gradient> given = options_.grad_ys;
  if (given.empty()) given.resize(ys_.size());
  if (given.size() != ys_.size())
    return InvalidArgument("Passed ", given.size(), " grad_ys for ", ys_.size(), " ys");
  for (size_t i = 0; i < given.size(); ++i) {
    const Output y = ys_[i];
    const Scope at = Colocated(scope_, *y.node).WithFreshStatus();
    if (!HasValue(given[i])) {
      if (IsComplex(y.base_dtype())) {
        return WithErrorKind(
            InvalidArgument("Gradients of complex tensors must set grad_ys (y.dtype = ",
                            DTypeName(y.base_dtype()), ")"),
            kTypeError);
      }
      if (const DType type = y.base_dtype();
          type == DType::kString || type == DType::kResource || type == DType::kVariant) {
        return WithErrorKind(
            InvalidArgument("Expected ", DTypeName(type), ", got 1 of type 'int' instead."),
            kTypeError);
      }
      const Output shape = EmitShape(at, y);
      const Output one = EmitScalar(at, y.base_dtype(), 1, absl::StrCat("grad_ys_", i));
      given[i] = at.Op("Fill", {shape, one});
    } else {
      RETURN_IF_ERROR(CheckGradientType(y, given[i]));
      if (auto* sparse = std::get_if<IndexedSlices>(&given[i])) {
        sparse->indices =
            at.Op("Identity", {sparse->indices}, {}, absl::StrCat("grad_ys_", i, "_indices"));
        sparse->values =
            at.Op("Identity", {sparse->values}, {}, absl::StrCat("grad_ys_", i, "_values"));
        if (sparse->dense_shape) {
          sparse->dense_shape =
              at.Op("Identity", {sparse->dense_shape}, {}, absl::StrCat("grad_ys_", i, "_shape"));
        }
      } else {
        given[i] = at.Op("Identity", {std::get<Output>(given[i])}, {}, absl::StrCat("grad_ys_", i));
      }
    }
    RETURN_IF_ERROR(at.status());
  }
  return given;
}

absl::Status GradientBuilder::FindNodesBetween() {
  // Forward from the xs ...
  absl::flat_hash_set<Node*> reached;
  std::deque<Node*> queue;
  for (const Output& x : xs_) queue.push_back(x.node);
  while (!queue.empty()) {
    Node* node = queue.front();
    queue.pop_front();
    if (!reached.insert(node).second) continue;
    for (const Node::Consumer& consumer : node->consumers()) {
      const DType type = node->output_types()[consumer.output];
      if (CarriesGradient(type) || (in_function_ && IsInteger(BaseType(type))))
        queue.push_back(consumer.node);
    }
  }
  for (const Output& y : ys_) {
    if (reached.contains(y.node)) reachable_ys_.insert(y.node);
  }
  // ... and back from the ys.
  absl::flat_hash_set<Node*> between;
  std::vector<Node*> between_list;
  for (const Output& y : ys_) queue.push_back(y.node);
  while (!queue.empty()) {
    Node* node = queue.front();
    queue.pop_front();
    if (reached.erase(node) == 0) continue;
    between.insert(node);
    between_list.push_back(node);
    for (const Output& input : node->inputs()) queue.push_back(input.node);
  }
  // The list grows by further exits of the loops.
  for (size_t i = 0; i < between_list.size(); ++i) {
    Node* node = between_list[i];
    if (IsLoopExit(*node))
      RETURN_IF_ERROR(loops_.AddLoop(Colocated(scope_, *node), *node, between_list, between));
  }
  for (Node* node : between_list) {
    for (const Output& input : node->inputs()) {
      if (between.contains(input.node)) ++pending_[input.node];
    }
  }
  return absl::OkStatus();
}

// Nodes of the xs that do not depend on other xs, and those that the caller named, are not
// differentiated.
void GradientBuilder::FindStopNodes() {
  for (const Output& x : xs_) {
    const auto& inputs = x.node->inputs();
    const bool depends = std::any_of(inputs.begin(), inputs.end(), [this](const Output& input) {
      return pending_[input.node] > 0;
    });
    if (!depends) stop_nodes_.insert(x.node);
  }
  for (const Output& stop : options_.stop_gradients) stop_nodes_.insert(stop.node);
}

void GradientBuilder::SetGradient(Output at, const Gradient& gradient) {
  std::vector<Arrived>& outputs = arrived_[at.node];
  if (outputs.empty()) outputs.resize(at.node->num_outputs());
  Arrived& slot = outputs[at.index];
  if (slot.summed) {
    slot.sum = gradient;  // only the Switch of a loop is visited twice
  } else {
    slot.list.push_back(gradient);
  }
}

bool GradientBuilder::HasGradient(Node* node) const {
  const auto found = arrived_.find(node);
  if (found == arrived_.end()) return false;
  return std::any_of(found->second.begin(), found->second.end(), [](const Arrived& slot) {
    return slot.summed ? HasValue(slot.sum)
                       : std::any_of(slot.list.begin(), slot.list.end(), HasValue);
  });
}

absl::Status GradientBuilder::LoopVariableError(const Node& node) const {
  std::deque<const Node*> queue = {&node};
  absl::flat_hash_set<const Node*> visited;
  while (!queue.empty()) {
    const Node* at = queue.front();
    queue.pop_front();
    if (!visited.insert(at).second) continue;
    if (std::any_of(xs_.begin(), xs_.end(), [&](const Output& x) { return x.node == at; })) {
      return InvalidArgument(
          "Cannot compute gradient inside while loop with respect to op '", at->name(),
          "'. We do not support taking the gradient wrt or through the initial value of a loop "
          "variable. Gradients can be computed through loop invariants or wrt the input parameters "
          "to the loop body.");
    }
    for (const Output& input : at->inputs()) queue.push_back(input.node);
  }
  return Internal("No x above '", node.name(), "'");
}

absl::StatusOr<std::vector<Gradient>> GradientBuilder::InputGradients(
    Node& node, const GradientFunction& function, std::vector<Gradient> output_gradients,
    const Scope& scope) {
  Scope own = scope.NameScope(absl::StrCat(node.name(), "_grad")).WithFreshStatus();
  // Gradients of nodes that a compiler takes are taken by it too.
  const AttrValue* compiled = node.FindAttr("_XlaCompile");
  if (compiled != nullptr && compiled->get<bool>() != nullptr && *compiled->get<bool>()) {
    own = own.WithAttr("_XlaCompile", true);
    if (const AttrValue* xla_scope = node.FindAttr("_XlaScope"))
      own = own.WithAttr("_XlaScope", *xla_scope);
  }
  GradientContext context(node, std::move(output_gradients), own);
  RETURN_IF_ERROR(function(context));
  RETURN_IF_ERROR(own.status());
  std::vector<Gradient> gradients = context.input_gradients();
  if (static_cast<int>(gradients.size()) != node.num_inputs()) {
    return InvalidArgument("Num gradients ", gradients.size(), " generated for op ", node.name(),
                           " do not match num inputs ", node.num_inputs());
  }
  for (Gradient& gradient : gradients) {
    // A function that failed quietly must not leave an output without a node behind.
    for (const Output& part : Components(gradient)) {
      if (!part)
        return Internal("The gradient of '", node.name(), "' (op ", node.op(), ") has no node");
    }
  }
  if (options_.gate_gradients && std::count_if(gradients.begin(), gradients.end(), HasValue) > 1) {
    ASSIGN_OR_RETURN(gradients, GateGradients(own, gradients));
  }
  return gradients;
}

absl::Status GradientBuilder::Differentiate(Node& node) {
  const Scope at = Colocated(scope_, node);
  const auto found = arrived_.find(&node);
  std::vector<Arrived> none(node.num_outputs());  // stays out of the map: such an x is unconnected
  std::vector<Arrived>& slots = found == arrived_.end() ? none : found->second;
  std::vector<Gradient> output_gradients;
  const Scope before = loops_.ScopeFor(node, /*before=*/true, at);
  for (Arrived& slot : slots) {
    if (!slot.summed) {
      ASSIGN_OR_RETURN(slot.sum,
                       SumGradients(before, node.name(), slot.list, options_.aggregation_method));
      slot.summed = true;
    }
    output_gradients.push_back(slot.sum);
  }
  const bool has_gradients =
      std::any_of(output_gradients.begin(), output_gradients.end(), HasValue);
  GradientFunction function;
  bool of_call = false;
  if (has_gradients && !stop_nodes_.contains(&node)) {
    ASSIGN_OR_RETURN(GradientLookup lookup, FindGradient(node));
    function = std::move(lookup.function);
    of_call = lookup.of_call;
  }
  const Scope inside = loops_.ScopeFor(node, /*before=*/false, at);
  ControlFlowContext* context = node.control_flow_context();
  if (IsSwitch(node) && context != nullptr && context->AsWhile() != nullptr &&
      context == inside.control_flow_context()) {
    return LoopVariableError(node);
  }
  if (!function || !has_gradients) return absl::OkStatus();

  for (int i = 0; i < node.num_outputs(); ++i) {
    if (HasValue(output_gradients[i]) || !(of_call || IsTrainable(node.output_types()[i])))
      continue;
    if (loops_.empty()) {
      ASSIGN_OR_RETURN(output_gradients[i], ZerosLikeOutsideLoop(inside, node, i));
    } else {
      ASSIGN_OR_RETURN(output_gradients[i], loops_.ZerosLike(inside, node, i));
    }
    slots[i].sum = output_gradients[i];
  }
  ASSIGN_OR_RETURN(const std::vector<Gradient> input_gradients,
                   InputGradients(node, function, std::move(output_gradients), inside));
  for (int i = 0; i < node.num_inputs(); ++i) {
    const Gradient& gradient = input_gradients[i];
    if (!HasValue(gradient)) continue;
    const Output input = node.input(i);
    if (const auto* dense = std::get_if<Output>(&gradient);
        dense != nullptr && input.base_dtype() != DType::kResource) {
      if (!RefineShape(*dense, input.shape()).ok()) {
        return InvalidArgument(
            "Incompatible shapes between op input and calculated input gradient.  Forward "
            "operation: ",
            node.name(), ".  Input index: ", i,
            ". Original input shape: ", PythonShapeText(input.shape()),
            ".  Calculated input gradient shape: ", PythonShapeText(dense->shape()));
      }
    }
    SetGradient(input, gradient);
  }
  return absl::OkStatus();
}

absl::Status GradientBuilder::Enqueue(Node& node) {
  for (const Output& input : node.inputs()) {
    int& pending = pending_[input.node];
    --pending;
    const bool ready =
        pending == 0 || (!loops_.empty() && pending > 0 && IsLoopSwitch(*input.node));
    if (!ready) continue;
    GradLoopState* state =
        IsLoopExit(*input.node) ? loops_.StateFor(*input.node, /*before=*/false) : nullptr;
    if (state == nullptr) {
      queue_.push_back(input.node);
      continue;
    }
    // All exits of a loop enter its gradient together.
    state->deferred_exits.push_back(input);
    if (--state->pending_exits != 0) continue;
    bool any_gradient = false;
    for (const Output& exit : state->deferred_exits) {
      if (HasGradient(exit.node)) {
        any_gradient = true;
        queue_.push_back(exit.node);
      } else {
        state->unused_exits.push_back(exit);
      }
    }
    for (const Output& exit : state->unused_exits) {
      if (any_gradient && IsTrainable(exit.dtype())) {
        ASSIGN_OR_RETURN(const Output zeros, loops_.ZerosForExit(Colocated(scope_, node), exit));
        SetGradient(exit, zeros);
      }
      queue_.push_back(exit.node);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Gradient> GradientBuilder::ResultFor(Output x) {
  const auto found = arrived_.find(x.node);
  if (found != arrived_.end()) {
    const Arrived& slot = found->second[x.index];
    if (!slot.summed && !slot.list.empty())
      return Internal("The gradients of '", x.name(), "' were not summed");
    return slot.sum;
  }
  if (options_.unconnected_gradients == UnconnectedGradients::kNone) return Gradient();
  const Scope fresh = caller_.WithFreshStatus();
  const Output zeros = x.base_dtype() == DType::kResource
                           ? EmitZeros(fresh, fresh.Op("VariableShape", {x}), GradientType(x))
                           : EmitZerosLike(fresh, x);
  RETURN_IF_ERROR(fresh.status());
  return zeros;
}

absl::StatusOr<std::vector<Gradient>> GradientBuilder::Build() {
  for (const Output& output : ys_) {
    if (!output) return InvalidArgument("A y of gradients has no value");
  }
  for (const Output& output : xs_) {
    if (!output) return InvalidArgument("An x of gradients has no value");
  }
  ASSIGN_OR_RETURN(scope_, caller_.TryNameScope(options_.name));
  scope_.graph().UniqueName(absl::StrCat(scope_.prefix(), "uid"));  // TensorFlow takes this name
  ASSIGN_OR_RETURN(const std::vector<Gradient> initial, InitialGradients());
  RETURN_IF_ERROR(FindNodesBetween());
  for (size_t i = 0; i < ys_.size(); ++i) SetGradient(ys_[i], initial[i]);

  absl::flat_hash_set<Node*> to_nodes;
  for (const Output& y : ys_) {
    if (pending_[y.node] == 0 && reachable_ys_.contains(y.node) && to_nodes.insert(y.node).second) {
      queue_.push_back(y.node);
    }
  }
  for (const Output& exit : loops_.UnusedExits(pending_, to_nodes)) {
    if (!IsTrainable(exit.dtype())) continue;
    ASSIGN_OR_RETURN(const Output zeros, loops_.ZerosForExit(scope_, exit));
    SetGradient(exit, zeros);
    queue_.push_back(exit.node);
  }
  FindStopNodes();
  while (!queue_.empty()) {
    Node* node = queue_.front();
    queue_.pop_front();
    RETURN_IF_ERROR(Differentiate(*node));
    RETURN_IF_ERROR(Enqueue(*node));
  }
  RETURN_IF_ERROR(loops_.Finish(caller_));
  std::vector<Gradient> results;
  for (const Output& x : xs_) {
    ASSIGN_OR_RETURN(Gradient result, ResultFor(x));
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace

absl::StatusOr<std::vector<Gradient>> Gradients(const Scope& scope, absl::Span<const Output> ys,
                                                absl::Span<const Output> xs,
                                                GradientOptions options) {
  RETURN_IF_ERROR(scope.status());
  return GradientBuilder(scope, ys, xs, options).Build();
}

}  // namespace muster
