#include "muster/graph/gradients/function_gradient.h"

#include <algorithm>

#include "muster/base/status.h"
#include "muster/graph/build/emit.h"
#include "muster/graph/gradients/gradients.h"
#include "muster/graph/op_registry.h"
#include "muster/graph/proto/function_proto.h"

namespace muster {
namespace {

absl::StatusOr<Node*> AddBorder(Graph& body, const char* op, absl::string_view name, DType type,
                                int64_t index, std::vector<NodeInput> inputs = {}) {
  NodeSpec spec;
  spec.name = body.UniqueName(name);
  spec.op = op;
  spec.inputs = std::move(inputs);
  spec.attrs = {{"T", BaseType(type)}, {"index", index}};
  return body.AddNode(std::move(spec));
}

// A body of one node.
absl::StatusOr<std::unique_ptr<Graph>> BodyOfOp(const FunctionRef& op) {
  const OpRegistration* const registration = OpRegistry::Global().Find(op.name);
  if (registration == nullptr ||
      (!registration->gradient && registration->no_gradient_reason.empty()))
    return NotFound("No gradient defined for op: ", op.name);
  if (!registration->gradient) return InvalidArgument("No gradient is defined for ", op.name);
  auto body = std::make_unique<Graph>();
  NodeSpec spec;
  spec.name = body->UniqueName(op.name);
  spec.op = op.name;
  for (const AttrDef& attr : registration->def.attrs) {
    const auto given = op.attrs.find(attr.name);
    if (given != op.attrs.end()) {
      spec.attrs.emplace(attr.name, given->second);
    } else if (attr.default_value) {
      spec.attrs.emplace(attr.name, *attr.default_value);
    }
  }
  ASSIGN_OR_RETURN(const std::vector<DType> types, ArgTypes(registration->def.inputs, spec.attrs));
  spec.flat_inputs.emplace();
  for (size_t i = 0; i < types.size(); ++i) {
    ASSIGN_OR_RETURN(Node* const argument,
                     AddBorder(*body, "_Arg", "x", types[i], static_cast<int64_t>(i)));
    spec.flat_inputs->emplace_back(argument, 0);
  }
  ASSIGN_OR_RETURN(Node* const node, body->AddNode(std::move(spec)));
  for (int i = 0; i < node->num_outputs(); ++i)
    RETURN_IF_ERROR(
        AddBorder(*body, "_Retval", "y", node->output_types()[i], i, {node->output(i)}).status());
  return body;
}

// The arguments or results of a body, by their index.
absl::StatusOr<std::vector<Node*>> Border(const Graph& body, absl::string_view op) {
  std::vector<Node*> found;
  for (const auto& node : body.nodes()) {
    if (node->op() == op) found.push_back(node.get());
  }
  std::vector<Node*> ordered(found.size());
  for (Node* node : found) {
    ASSIGN_OR_RETURN(const int64_t index, node->Attr<int64_t>("index"));
    if (index < 0 || index >= static_cast<int64_t>(found.size()) || ordered[index] != nullptr)
      return InvalidArgument("'", node->name(), "' cannot be argument or result ", index);
    ordered[index] = node;
  }
  return ordered;
}

// Keeps the arguments and what the results need.
void KeepOnly(Graph& body, const std::vector<Node*>& results) {
  absl::flat_hash_set<const Node*> needed;
  std::vector<const Node*> pending(results.begin(), results.end());
  while (!pending.empty()) {
    const Node* const node = pending.back();
    pending.pop_back();
    if (!needed.insert(node).second) continue;
    for (const Output& input : node->inputs()) pending.push_back(input.node);
    for (const Node* before : node->control_inputs()) pending.push_back(before);
  }
  std::vector<Graph::Wiring> wiring;
  for (const auto& node : body.nodes()) {
    if (node->op() == "_Arg" || needed.contains(node.get()))
      wiring.push_back({node.get(), node->inputs(), node->control_inputs(), ""});
  }
  body.Rewire(std::move(wiring));
}

absl::StatusOr<Output> Dense(const Scope& scope, Output x, const Gradient& gradient) {
  const Scope fresh = scope.WithFreshStatus();
  Output dense;
  if (const auto* value = std::get_if<Output>(&gradient)) {
    dense = *value;
  } else if (const auto* slices = std::get_if<IndexedSlices>(&gradient)) {
    if (!slices->dense_shape)
      return InvalidArgument("The gradient of '", x.name(), "' has no dense shape");
    const Output rows = EmitElement(fresh, slices->dense_shape, 0);
    dense = fresh.Op("UnsortedSegmentSum", {slices->values, slices->indices, rows});
  } else if (x.base_dtype() == DType::kResource) {
    dense = EmitZeros(fresh, fresh.Op("VariableShape", {x}), GradientType(x));
  } else {
    dense = fresh.Op("ZerosLike", {x});
  }
  RETURN_IF_ERROR(fresh.status());
  return dense;
}

bool CarriesGradient(DType type) {
  return IsFloating(type) || IsComplex(type) || IsInteger(type) || type == DType::kVariant;
}

// Turns the body of a function into that of its gradient.
absl::Status Differentiate(Graph& body) {
  ASSIGN_OR_RETURN(const std::vector<Node*> arguments, Border(body, "_Arg"));
  ASSIGN_OR_RETURN(const std::vector<Node*> results, Border(body, "_Retval"));
  const Scope scope(body);
  GradientOptions options;
  options.name = "SymbolicGradient";
  std::vector<Output> xs;
  std::vector<Output> ys;
  for (Node* argument : arguments) xs.emplace_back(argument, 0);
  for (size_t i = 0; i < results.size(); ++i) {
    const Output y = results[i]->input(0);
    ASSIGN_OR_RETURN(Node* const dy, AddBorder(body, "_Arg", absl::StrCat("dy_", i), y.dtype(),
                                               static_cast<int64_t>(arguments.size() + i)));
    if (!CarriesGradient(y.base_dtype())) continue;
    ys.push_back(y);
    options.grad_ys.emplace_back(Output(dy, 0));
  }
  std::vector<Gradient> gradients(xs.size());
  if (!ys.empty()) {
    ASSIGN_OR_RETURN(gradients, Gradients(scope, ys, xs, std::move(options)));
  }
  std::vector<Node*> kept;
  for (size_t i = 0; i < xs.size(); ++i) {
    ASSIGN_OR_RETURN(const Output dx, Dense(scope, xs[i], gradients[i]));
    ASSIGN_OR_RETURN(Node* const result, AddBorder(body, "_Retval", absl::StrCat("dx_", i),
                                                   dx.dtype(), static_cast<int64_t>(i), {dx}));
    kept.push_back(result);
  }
  KeepOnly(body, kept);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Graph>> InstantiateGradient(const Graph& library,
                                                           const FunctionRef& function) {
  if (function.name == kSymbolicGradient)
    return InvalidArgument("Can't take gradient of SymbolicGradient");
  std::unique_ptr<Graph> body;
  const auto found = library.functions().find(function.name);
  if (found == library.functions().end()) {
    ASSIGN_OR_RETURN(body, BodyOfOp(function));
  } else if (!found->second->gradient.empty()) {
    return InstantiateFunction(library, {found->second->gradient, function.attrs});
  } else {
    ASSIGN_OR_RETURN(body, InstantiateFunction(library, function));
  }
  // An error of a step must not carry the error kind of the front end: the payload is dropped.
  if (const absl::Status status = Differentiate(*body); !status.ok())
    return absl::Status(status.code(), status.message());
  return body;
}

bool IsPartitionedCall(const Node& node) {
  return node.op() == "PartitionedCall" || node.op() == "StatefulPartitionedCall";
}

absl::Status DifferentiateCall(GradientContext& c) {
  const Node& node = c.node();
  FunctionRef function{node.op(), node.attrs()};
  if (IsPartitionedCall(node)) {
    ASSIGN_OR_RETURN(const FunctionRef called, node.Attr<FunctionRef>("f"));
    function.name = called.name;
  }
  std::vector<Output> inputs = node.inputs();
  std::vector<DType> types;
  for (const Output& input : node.inputs()) types.push_back(GradientType(input));
  for (int i = 0; i < c.num_outputs(); ++i) inputs.push_back(c.dy(i));
  RETURN_IF_ERROR(c.scope().status());
  ASSIGN_OR_RETURN(Node* const gradient,
                   c.scope().TryAdd(kSymbolicGradient, {std::move(inputs)},
                                    {{"Tout", std::move(types)}, {"f", std::move(function)}}));
  for (int i = 0; i < c.num_inputs(); ++i) c.SetDx(i, gradient->output(i));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Graph>> InstantiateCallee(const Graph& library,
                                                         const FunctionRef& callee) {
  if (callee.name != kSymbolicGradient) return InstantiateFunction(library, callee);
  const auto f = callee.attrs.find("f");
  const auto* const function =
      f == callee.attrs.end() ? nullptr : f->second.get<std::shared_ptr<const FunctionRef>>();
  if (function == nullptr) return InvalidArgument("SymbolicGradient has no attribute f");
  return InstantiateGradient(library, **function);
}

bool HasSymbolicGradient(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const auto& node) { return node->op() == kSymbolicGradient; });
}

GradientFunction CallGradient(const Node& node) {
  if (!IsPartitionedCall(node) && !node.graph().functions().contains(node.op())) return {};
  return DifferentiateCall;
}

}  // namespace muster
