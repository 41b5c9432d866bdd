// If, Case and While as Switch, Merge and loops, under the names that TensorFlow's masters give.
#include <algorithm>

#include "muster/base/status.h"
#include "muster/graph/rewrite/lowering.h"

namespace muster {
namespace {

// One value that a loop carries. Resources are the same in every iteration.
struct LoopValue {
  Node* enter = nullptr;
  Node* merge = nullptr;  // null for resources, as are the following
  Node* split = nullptr;
  Node* exit = nullptr;
};

}  // namespace

absl::StatusOr<Node*> Lowering::AddCall(const FunctionRef& function, std::string name,
                                        const Node& caller, std::vector<Output> inputs,
                                        std::vector<Node*> control) {
  if (!library_.functions().contains(function.name))
    return NotFound("Function ", function.name, " is not defined.");
  NodeSpec spec;
  spec.name = std::move(name);
  spec.op = function.name;
  spec.attrs = function.attrs;
  spec.flat_inputs = std::move(inputs);
  spec.control_inputs = std::move(control);
  spec.device = caller.device();
  ASSIGN_OR_RETURN(Node* const call, Add(std::move(spec)));
  branch_calls_.insert(call);
  return call;
}

absl::Status Lowering::LowerIf(Node& node) {
  ASSIGN_OR_RETURN(const FunctionRef then_branch, node.Attr<FunctionRef>("then_branch"));
  ASSIGN_OR_RETURN(const FunctionRef else_branch, node.Attr<FunctionRef>("else_branch"));
  if (IsRecursive(then_branch.name) || IsRecursive(else_branch.name)) return absl::OkStatus();
  return LowerBranches(node, {then_branch, else_branch}, {"then", "else"});
}

absl::Status Lowering::LowerCase(Node& node) {
  ASSIGN_OR_RETURN(const std::vector<FunctionRef> branches,
                   node.Attr<std::vector<FunctionRef>>("branches"));
  std::vector<std::string> names;
  for (size_t i = 0; i < branches.size(); ++i) {
    if (IsRecursive(branches[i].name)) return absl::OkStatus();
    names.push_back(absl::StrCat("branch", i));
  }
  return LowerBranches(node, branches, names);
}

absl::Status Lowering::LowerBranches(Node& node, const std::vector<FunctionRef>& branches,
                                     const std::vector<std::string>& names) {
  const bool is_if = node.op() == "If" || node.op() == "StatelessIf";
  const std::string& name = node.name();
  const Output selector = node.input(0);
  const auto scoped = [&](absl::string_view part) { return absl::StrCat(name, "/", part); };
  std::vector<std::string> call_names;
  for (const std::string& branch : names) call_names.push_back(NewName(scoped(branch)));
  // The output of a switch that is alive for a branch.
  const auto output_for = [&](size_t branch) {
    return is_if ? 1 - static_cast<int>(branch) : static_cast<int>(branch);
  };
  const auto add_switch = [&](std::string switch_name, Output data, bool colocate,
                              std::vector<Node*> control) {
    NodeSpec spec;
    spec.name = std::move(switch_name);
    spec.op = is_if ? "Switch" : "_SwitchN";
    spec.inputs = {data, selector};
    if (!is_if) spec.attrs.emplace("num_outs", static_cast<int64_t>(branches.size()));
    if (colocate) {
      spec.attrs.emplace("_class", ColocateWith(*data.node));
      spec.device = data.node->device();
    }
    spec.control_inputs = std::move(control);
    return Add(std::move(spec));
  };
  ASSIGN_OR_RETURN(Node* const selected,
                   add_switch(NewName(scoped(is_if ? "switch_pred" : "branch_index")), selector,
                              false, node.control_inputs()));
  std::vector<Node*> pivots(branches.size());
  for (size_t k = 0; k < branches.size(); ++k) {
    const size_t branch = is_if ? branches.size() - 1 - k : k;
    NodeSpec spec;
    spec.name = NewName(scoped(!is_if        ? absl::StrCat("pivot_", branch)
                               : branch == 0 ? "pivot_t"
                                             : "pivot_f"));
    spec.op = "Identity";
    spec.inputs = {Output(selected, output_for(branch))};
    spec.device = node.device();
    ASSIGN_OR_RETURN(pivots[branch], Add(std::move(spec)));
  }
  std::vector<std::vector<Output>> inputs(branches.size());
  for (int i = 1; i < node.num_inputs(); ++i) {
    const Output input = node.input(i);
    ASSIGN_OR_RETURN(Node* const split,
                     add_switch(NewName(scoped(input.node->name())), input, true, {}));
    for (size_t branch = 0; branch < branches.size(); ++branch)
      inputs[branch].emplace_back(split, output_for(branch));
  }
  std::vector<Node*> calls;
  for (size_t branch = 0; branch < branches.size(); ++branch) {
    ASSIGN_OR_RETURN(Node* const call, AddCall(branches[branch], call_names[branch], node,
                                               inputs[branch], {pivots[branch]}));
    if (call->output_types() != node.output_types()) {
      return InvalidArgument("Branch ", branches[branch].name, " of '", name, "' gives ",
                             call->num_outputs(), " values that are not of the types wanted");
    }
    calls.push_back(call);
  }
  std::vector<Output> outputs;
  for (int i = 0; i < node.num_outputs(); ++i) {
    std::vector<Output> results;
    for (Node* call : calls) results.emplace_back(call, i);
    NodeSpec spec;
    spec.name = NewName(scoped(is_if ? "output" : "merge"));
    spec.op = "Merge";
    spec.inputs = {NodeInput(std::move(results))};
    spec.device = node.device();
    ASSIGN_OR_RETURN(Node* const merge, Add(std::move(spec)));
    merge->set_output_shape(0, node.output_shape(i));
    outputs.emplace_back(merge, 0);
  }
  NodeSpec spec;
  spec.name = NewName(scoped("branch_executed"));
  spec.op = "Merge";
  std::vector<Output> alive;
  for (Node* pivot : pivots) alive.emplace_back(pivot, 0);
  spec.inputs = {NodeInput(std::move(alive))};
  spec.control_inputs = calls;
  spec.device = node.device();
  ASSIGN_OR_RETURN(Node* const executed, Add(std::move(spec)));
  return Replace(node, std::move(outputs), *executed);
}

absl::Status Lowering::LowerWhile(Node& node) {
  ASSIGN_OR_RETURN(const FunctionRef cond, node.Attr<FunctionRef>("cond"));
  ASSIGN_OR_RETURN(const FunctionRef body, node.Attr<FunctionRef>("body"));
  ASSIGN_OR_RETURN(const int64_t parallel, node.Attr<int64_t>("parallel_iterations"));
  const auto carries = [&](const Output& input) { return input.dtype() != DType::kResource; };
  // Without a value there is nothing that could go round.
  if (IsRecursive(cond.name) || IsRecursive(body.name) ||
      std::none_of(node.inputs().begin(), node.inputs().end(), carries)) {
    return absl::OkStatus();
  }
  const std::string& name = node.name();
  const auto make = [&](absl::string_view op, std::string made_name, std::vector<NodeInput> inputs,
                        AttrMap attrs = {}, std::vector<Node*> control = {}) {
    NodeSpec spec;
    spec.name = std::move(made_name);
    spec.op = std::string(op);
    spec.inputs = std::move(inputs);
    spec.attrs = std::move(attrs);
    spec.control_inputs = std::move(control);
    spec.device = node.device();
    return Add(std::move(spec));
  };
  const auto scoped = [&](absl::string_view part) {
    return NewName(absl::StrCat(name, "/", part));
  };
  const std::string cond_name = scoped("cond");
  const std::string body_name = scoped("body");
  std::vector<LoopValue> values(node.num_inputs());
  for (int i = 0; i < node.num_inputs(); ++i) {
    AttrMap attrs = {{"frame_name", name}, {"parallel_iterations", parallel}};
    if (!carries(node.input(i))) attrs.emplace("is_constant", true);
    ASSIGN_OR_RETURN(values[i].enter, make("Enter", scoped("enter"), {node.input(i)},
                                           std::move(attrs), node.control_inputs()));
  }
  std::vector<Output> cond_inputs;
  Node* first_merge = nullptr;
  for (int i = 0; i < node.num_inputs(); ++i) {
    LoopValue& value = values[i];
    if (!carries(node.input(i))) {
      cond_inputs.emplace_back(value.enter, 0);
      continue;
    }
    NodeSpec spec;
    spec.name = scoped("merge");
    spec.op = "Merge";
    spec.attrs = {{"N", int64_t{2}}, {"T", node.input(i).base_dtype()}};
    spec.flat_inputs = std::vector<Output>{Output(value.enter, 0), Output()};
    spec.device = node.device();
    ASSIGN_OR_RETURN(value.merge, Add(std::move(spec)));
    if (first_merge == nullptr) first_merge = value.merge;
    cond_inputs.emplace_back(value.merge, 0);
  }
  ASSIGN_OR_RETURN(Node* const cond_call,
                   AddCall(cond, cond_name, node, cond_inputs, {first_merge}));
  if (cond_call->num_outputs() != 1 || cond_call->output_types()[0] != DType::kBool) {
    return InvalidArgument("The condition ", cond.name, " of '", name,
                           "' must give one value of type bool");
  }
  ASSIGN_OR_RETURN(Node* const going, make("LoopCond", scoped("LoopCond"), {Output(cond_call, 0)}));
  std::vector<Output> body_inputs;
  for (int i = 0; i < node.num_inputs(); ++i) {
    LoopValue& value = values[i];
    if (value.merge == nullptr) {
      body_inputs.emplace_back(value.enter, 0);
      continue;
    }
    const std::string source = absl::StrCat(node.input(i).node->name(), "_switch");
    ASSIGN_OR_RETURN(value.split,
                     make("Switch", scoped(source), {Output(value.merge, 0), Output(going, 0)}));
    body_inputs.emplace_back(value.split, 1);
  }
  const Output first_inside = *std::find_if(body_inputs.begin(), body_inputs.end(), carries);
  ASSIGN_OR_RETURN(Node* const inside,
                   make("Identity", scoped("loop_body_control"), {first_inside}));
  ASSIGN_OR_RETURN(Node* const body_call, AddCall(body, body_name, node, body_inputs, {inside}));
  if (body_call->output_types() != node.output_types()) {
    return InvalidArgument("The body ", body.name, " of '", name,
                           "' must give values of the types that it takes");
  }
  std::vector<Output> outputs;
  std::vector<Node*> exits;
  for (int i = 0; i < node.num_inputs(); ++i) {
    LoopValue& value = values[i];
    if (value.merge == nullptr) {
      outputs.push_back(node.input(i));
      continue;
    }
    ASSIGN_OR_RETURN(value.exit, make("Exit", scoped("exit"), {Output(value.split, 0)}));
    value.exit->set_output_shape(0, node.output_shape(i));
    outputs.emplace_back(value.exit, 0);
    exits.push_back(value.exit);
  }
  ASSIGN_OR_RETURN(Node* const executed, make("NoOp", scoped("LoopExecuted"), {}, {}, exits));
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (values[i].merge == nullptr) continue;
    ASSIGN_OR_RETURN(Node* const next, make("NextIteration", scoped("next_iteration"),
                                            {Output(body_call, i)}, {}, {body_call}));
    RETURN_IF_ERROR(result_->UpdateInput(*values[i].merge, 1, Output(next, 0)));
  }
  return Replace(node, std::move(outputs), *executed);
}

}  // namespace muster
