#include "muster/graph/lower.h"

#include <algorithm>

#include "absl/strings/strip.h"

#include "muster/base/status.h"
#include "muster/device/device_name.h"
#include "muster/graph/frames.h"
#include "muster/graph/function_gradient.h"
#include "muster/graph/function_proto.h"
#include "muster/graph/op_registry.h"

namespace muster {
namespace {

constexpr absl::string_view kColocation = "loc:@";

bool IsCall(const Node& node) {
  return node.op() == "PartitionedCall" || node.op() == "StatefulPartitionedCall";
}
bool IsIf(const Node& node) {
  return node.op() == "If" || node.op() == "StatelessIf";
}
bool IsWhile(const Node& node) {
  return node.op() == "While" || node.op() == "StatelessWhile";
}
bool IsCase(const Node& node) {
  return node.op() == "Case" || node.op() == "StatelessCase";
}
bool IsGradient(const Node& node) {
  return node.op() == kSymbolicGradient;
}
// A call under the function's own name.
bool IsDirectCall(const Node& node, const Graph& library) {
  return library.functions().contains(node.op());
}

bool HasTrueAttr(const AttrMap& attrs, absl::string_view name) {
  const auto found = attrs.find(name);
  const bool* const value = found == attrs.end() ? nullptr : found->second.get<bool>();
  return value != nullptr && *value;
}

AttrValue ColocateWith(const Node& node) {
  return std::vector<std::string>{absl::StrCat(kColocation, node.name())};
}

// The device of a node of a function that is called on `caller`.
std::string DeviceInside(const std::string& caller, const std::string& inner) {
  if (inner.empty() || caller.empty()) return inner.empty() ? caller : inner;
  const absl::StatusOr<DeviceName> outer_name = DeviceName::Parse(caller);
  const absl::StatusOr<DeviceName> inner_name = DeviceName::Parse(inner);
  if (!outer_name.ok() || !inner_name.ok()) return inner;
  return outer_name->Override(*inner_name).ToString();
}

// The functions that a node stands in, innermost first.
struct CallChain {
  std::string function;
  std::shared_ptr<const CallChain> outer;
};

class Lowering {
 public:
  Lowering(const Graph& original, const Graph& library)
      : original_(original), library_(library), result_(std::make_unique<Graph>()) {}

  absl::StatusOr<LoweredGraph> Run() {
    CopyFunctions(library_, *result_);
    RETURN_IF_ERROR(CopyNodes());
    // Nodes that are added on the way are looked at too.
    for (int i = 0; i < result_->num_nodes(); ++i) {
      Node& node = *result_->nodes()[i];
      const absl::Status status = Lower(node);
      if (!status.ok())
        return Suffixed(status,
                        absl::StrCat("\n\t [[while writing out {{node ", node.name(), "}}]]"));
    }
    return Finish();
  }

 private:
  // --- The graph as it is being rewritten ----------------------------------------------------

  absl::Status CopyNodes() {
    result_->versions() = original_.versions();
    for (const auto& node : original_.nodes()) {
      std::vector<Output> inputs;
      for (const Output& input : node->inputs()) {
        const auto copy = copies_.find(input.node);
        inputs.push_back(copy == copies_.end() ? Output() : Output(copy->second, input.index));
      }
      copies_[node.get()] = result_->AddCopy(*node, node->name(), std::move(inputs), {});
    }
    for (const auto& node : original_.nodes()) {
      Node& copy = *copies_[node.get()];
      for (int i = 0; i < node->num_inputs(); ++i) {
        if (copy.input(i)) continue;
        const Output& input = node->input(i);
        RETURN_IF_ERROR(result_->UpdateInput(copy, i, Output(copies_[input.node], input.index)));
      }
      for (const Node* before : node->control_inputs()) Wait(copy, *copies_[before]);
    }
    return absl::OkStatus();
  }

  // `prefix/_7`: the numbers count on through the whole graph.
  std::string NewName(absl::string_view prefix) {
    std::string name;
    do {
      name = absl::StrCat(prefix, "/_", next_number_++);
    } while (result_->FindNode(name) != nullptr);
    return name;
  }

  absl::StatusOr<Node*> Add(NodeSpec spec) {
    const std::vector<Node*> control = spec.control_inputs;
    ASSIGN_OR_RETURN(Node* const node, result_->AddNode(std::move(spec)));
    for (Node* before : control) waiting_[before].push_back(node);
    if (chain_ != nullptr) chains_[node] = chain_;
    return node;
  }

  void Wait(Node& node, Node& before) {
    result_->AddControlInput(node, before);
    waiting_[&before].push_back(&node);
  }

  // Readers of `node` read `outputs`; whoever waits for it waits for `executed`. In its place stays
  // a node that can be fetched and run under its name.
  absl::Status Replace(Node& node, std::vector<Output> outputs, Node& executed) {
    NodeSpec spec;
    spec.name = NewName(absl::StrCat(node.name(), "/lowered"));
    --next_number_;
    spec.device = node.device();
    spec.control_inputs = {&executed};
    spec.op = "NoOp";
    if (!outputs.empty()) {
      spec.op = "IdentityN";
      spec.inputs = {NodeInput(outputs)};
    }
    ASSIGN_OR_RETURN(Node* const stand_in, Add(std::move(spec)));
    const std::vector<Node::Consumer> consumers = node.consumers();
    for (const Node::Consumer& consumer : consumers) {
      RETURN_IF_ERROR(
          result_->UpdateInput(*consumer.node, consumer.input, outputs[consumer.output]));
    }
    for (Node* after : waiting_[&node]) {
      result_->RemoveControlInput(*after, node);
      if (after != stand_in) Wait(*after, executed);
    }
    waiting_.erase(&node);
    for (size_t i = 0; i < outputs.size(); ++i)
      moved_[Output(&node, static_cast<int>(i))] = outputs[i];
    stand_ins_[&node] = stand_in;
    takes_name_[stand_in] = node.name();
    return absl::OkStatus();
  }

  LoweredGraph Finish() {
    LoweredGraph lowered;
    for (const auto& [original, copy] : copies_) {
      const auto stand_in = stand_ins_.find(copy);
      lowered.nodes[original] = stand_in == stand_ins_.end() ? copy : stand_in->second;
      for (int i = 0; i < copy->num_outputs(); ++i) {
        const auto moved = moved_.find(Output(copy, i));
        lowered.outputs[Output(const_cast<Node*>(original), i)] =
            moved == moved_.end() ? Output(copy, i) : moved->second;
      }
    }
    std::vector<Graph::Wiring> wiring;
    for (const auto& node : result_->nodes()) {
      if (stand_ins_.contains(node.get())) continue;
      Graph::Wiring kept{node.get(), node->inputs(), node->control_inputs(), ""};
      const auto name = takes_name_.find(node.get());
      if (name != takes_name_.end()) kept.new_name = name->second;
      wiring.push_back(std::move(kept));
    }
    result_->Rewire(std::move(wiring));
    lowered.graph = std::move(result_);
    return lowered;
  }

  // --- What is written out ----------------------------------------------------------------------

  absl::Status Lower(Node& node) {
    const auto chain = chains_.find(&node);
    chain_ = chain == chains_.end() ? nullptr : chain->second;
    if (IsDirectCall(node, library_)) return LowerDirectCall(node);
    if (IsCall(node)) {
      ASSIGN_OR_RETURN(const FunctionRef function, node.Attr<FunctionRef>("f"));
      // An executor that does not exist is the call's error to report.
      if (!MayInline(function) || !node.Attr<std::string>("executor_type").value_or("").empty())
        return absl::OkStatus();
      ASSIGN_OR_RETURN(const std::vector<std::string> names,
                       ControlResults(library_, function.name));
      // A function made without saying what must run has all its effects when it is called.
      const bool says_nothing = names.empty() && node.op() == "StatefulPartitionedCall";
      return Inline(node, function,
                    says_nothing ? Effects::kAllStateful : Effects::kControlResults);
    }
    if (IsGradient(node)) return LowerGradient(node);
    if (!HasTrueAttr(node.attrs(), "_lower_using_switch_merge")) return absl::OkStatus();
    if (IsIf(node) && node.input(0).base_dtype() == DType::kBool) return LowerIf(node);
    if (IsCase(node)) return LowerCase(node);
    if (IsWhile(node)) return LowerWhile(node);
    return absl::OkStatus();
  }

  // What must have run before something that waits for a call: the nodes that the function names,
  // all that have effects, or all that have effects also where only a result is read.
  enum class Effects { kControlResults, kAllStateful, kAllStatefulBeforeResults };

  absl::Status LowerDirectCall(Node& node) {
    FunctionRef function{node.op(), {}};
    for (const AttrDef& attr : node.def().attrs) {
      if (const AttrValue* value = node.FindAttr(attr.name))
        function.attrs.emplace(attr.name, *value);
    }
    if (branch_calls_.contains(&node)) return Inline(node, function, Effects::kControlResults);
    if (MayInline(function)) return Inline(node, function, Effects::kAllStatefulBeforeResults);
    NodeSpec spec;
    spec.name = NewName(node.name());
    spec.op = node.def().is_stateful ? "StatefulPartitionedCall" : "PartitionedCall";
    spec.attrs = {{"Tin", node.input_types()}, {"Tout", node.output_types()}, {"f", function}};
    spec.flat_inputs = node.inputs();
    spec.control_inputs = node.control_inputs();
    spec.device = node.device();
    ASSIGN_OR_RETURN(Node* const call, Add(std::move(spec)));
    std::vector<Output> outputs;
    for (int i = 0; i < call->num_outputs(); ++i) outputs.emplace_back(call, i);
    return Replace(node, std::move(outputs), *call);
  }

  // A function without a gradient, or with another signature, is the node's error to report when it
  // runs.
  absl::Status LowerGradient(Node& node) {
    ASSIGN_OR_RETURN(const FunctionRef function, node.Attr<FunctionRef>("f"));
    const FunctionRef gradient{kSymbolicGradient, {{"f", function}}};
    if (IsRecursive(ChainName(gradient))) return absl::OkStatus();
    const absl::StatusOr<const Graph*> body = Body(gradient);
    if (!body.ok()) return absl::OkStatus();
    std::vector<DType> arguments;
    std::vector<DType> results;
    for (const auto& inner : (*body)->nodes()) {
      if (inner->op() == "_Arg") arguments.push_back(inner->output_types()[0]);
      if (inner->op() == "_Retval") results.push_back(inner->input_types()[0]);
    }
    if (arguments != node.input_types() || results != node.output_types()) return absl::OkStatus();
    return Inline(node, gradient, Effects::kAllStateful);
  }

  // What marks a function as being written out.
  static std::string ChainName(const FunctionRef& function) {
    if (function.name != kSymbolicGradient) return function.name;
    const auto f = function.attrs.find("f");
    const auto* const of =
        f == function.attrs.end() ? nullptr : f->second.get<std::shared_ptr<const FunctionRef>>();
    return absl::StrCat(kSymbolicGradient, ":", of == nullptr ? "" : (*of)->name);
  }

  bool MayInline(const FunctionRef& function) const {
    const auto found = library_.functions().find(function.name);
    // What is missing is the call's error to report when it runs.
    if (found == library_.functions().end()) return false;
    return !HasTrueAttr(found->second->attrs, "_noinline") && !IsRecursive(function.name);
  }

  bool IsRecursive(const std::string& function) const {
    for (const CallChain* at = chain_.get(); at != nullptr; at = at->outer.get()) {
      if (at->function == function) return true;
    }
    return false;
  }

  // The node that calls a branch or body; it is written out when its turn comes.
  absl::StatusOr<Node*> AddCall(const FunctionRef& function, std::string name, const Node& caller,
                                std::vector<Output> inputs, std::vector<Node*> control) {
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

  absl::Status LowerIf(Node& node) {
    ASSIGN_OR_RETURN(const FunctionRef then_branch, node.Attr<FunctionRef>("then_branch"));
    ASSIGN_OR_RETURN(const FunctionRef else_branch, node.Attr<FunctionRef>("else_branch"));
    if (IsRecursive(then_branch.name) || IsRecursive(else_branch.name)) return absl::OkStatus();
    return LowerBranches(node, {then_branch, else_branch}, {"then", "else"});
  }

  absl::Status LowerCase(Node& node) {
    ASSIGN_OR_RETURN(const std::vector<FunctionRef> branches,
                     node.Attr<std::vector<FunctionRef>>("branches"));
    std::vector<std::string> names;
    for (size_t i = 0; i < branches.size(); ++i) {
      if (IsRecursive(branches[i].name)) return absl::OkStatus();
      names.push_back(absl::StrCat("branch", i));
    }
    return LowerBranches(node, branches, names);
  }

  // If: branch 0 is taken when the predicate holds. Case: branch i for index i.
  absl::Status LowerBranches(Node& node, const std::vector<FunctionRef>& branches,
                             const std::vector<std::string>& names) {
    const bool is_if = IsIf(node);
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

  // One value that a loop carries. Resources are the same in every iteration.
  struct LoopValue {
    Node* enter = nullptr;
    Node* merge = nullptr;  // null for resources, as are the following
    Node* split = nullptr;
    Node* exit = nullptr;
  };

  absl::Status LowerWhile(Node& node) {
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
    const auto make = [&](absl::string_view op, std::string made_name,
                          std::vector<NodeInput> inputs, AttrMap attrs = {},
                          std::vector<Node*> control = {}) {
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
    ASSIGN_OR_RETURN(Node* const going,
                     make("LoopCond", scoped("LoopCond"), {Output(cond_call, 0)}));
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

  // --- Calls ------------------------------------------------------------------------------------

  absl::StatusOr<const Graph*> Body(const FunctionRef& function) {
    std::string key = function.name;
    for (const auto& [name, value] : function.attrs)
      absl::StrAppend(&key, ";", name, "=", value.ToString());
    std::unique_ptr<Graph>& body = bodies_[key];
    if (body == nullptr) {
      ASSIGN_OR_RETURN(body, InstantiateCallee(library_, function));
    }
    return body.get();
  }

  absl::Status Inline(Node& node, const FunctionRef& function, Effects effects) {
    ASSIGN_OR_RETURN(const Graph* const body, Body(function));
    chain_ = std::make_shared<CallChain>(CallChain{ChainName(function), chain_});
    const std::string prefix = absl::StrCat("Func/", node.name());
    const auto is_border = [](const Node& inner) {
      return inner.op() == "_Arg" || inner.op() == "_Retval";
    };
    const bool has_roots =
        std::any_of(body->nodes().begin(), body->nodes().end(), [&](const auto& inner) {
          return !is_border(*inner) && inner->num_inputs() == 0 && inner->control_inputs().empty();
        });
    const bool waits = !node.control_inputs().empty();
    Node* start = nullptr;
    const auto make_start = [&](std::vector<Node*> control) -> absl::Status {
      NodeSpec spec;
      spec.name = NewName(absl::StrCat(prefix, "/input_control_node"));
      spec.op = "NoOp";
      spec.control_inputs = std::move(control);
      spec.device = node.device();
      ASSIGN_OR_RETURN(start, Add(std::move(spec)));
      return absl::OkStatus();
    };
    if (waits) RETURN_IF_ERROR(make_start(node.control_inputs()));
    std::vector<Node*> arguments;
    for (const Output& input : node.inputs()) {
      NodeSpec spec;
      spec.name = NewName(absl::StrCat(prefix, "/input"));
      spec.op = "Identity";
      spec.inputs = {input};
      spec.attrs.emplace("_class", ColocateWith(*input.node));
      if (start != nullptr) spec.control_inputs = {start};
      ASSIGN_OR_RETURN(Node* const argument, Add(std::move(spec)));
      arguments.push_back(argument);
    }
    // Nodes without inputs must run where the call does: in its loop, in its branch.
    if (start == nullptr && has_roots && !arguments.empty()) RETURN_IF_ERROR(make_start(arguments));
    absl::flat_hash_map<const Node*, Node*> copies;
    std::vector<Output> results(node.num_outputs());
    RETURN_IF_ERROR(CopyBody(node, *body, arguments, start, copies, results));

    std::vector<Node*> effect_nodes;
    if (effects == Effects::kControlResults) {
      ASSIGN_OR_RETURN(const std::vector<std::string> names,
                       ControlResults(library_, function.name));
      for (const std::string& name : names) {
        const Node* const inner = body->FindNode(name);
        if (inner != nullptr && !is_border(*inner)) effect_nodes.push_back(copies[inner]);
      }
    } else {
      ASSIGN_OR_RETURN(Node* const all, AfterEffects(node, *body, copies));
      if (all != nullptr) effect_nodes.push_back(all);
    }
    std::vector<Node*> before_results;
    if (effects == Effects::kAllStatefulBeforeResults) before_results = effect_nodes;
    // Dead where the call is.
    if (start != nullptr) {
      effect_nodes.push_back(start);
    } else if (effects != Effects::kControlResults) {
      effect_nodes.insert(effect_nodes.end(), arguments.begin(), arguments.end());
    }
    std::vector<Output> outputs;
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i]) return InvalidArgument("Function ", function.name, " has no result ", i);
      NodeSpec spec;
      spec.name = NewName(absl::StrCat(prefix, "/output"));
      spec.op = "Identity";
      spec.inputs = {results[i]};
      spec.control_inputs = before_results;
      ASSIGN_OR_RETURN(Node* const output, Add(std::move(spec)));
      if (effects != Effects::kControlResults) effect_nodes.push_back(output);
      outputs.emplace_back(output, 0);
    }
    NodeSpec spec;
    spec.name = NewName(absl::StrCat(prefix, "/output_control_node"));
    spec.op = "NoOp";
    spec.control_inputs = std::move(effect_nodes);
    spec.device = node.device();
    ASSIGN_OR_RETURN(Node* const executed, Add(std::move(spec)));
    return Replace(node, std::move(outputs), *executed);
  }

  // A node that runs after everything in the body that has effects; null where nothing has. It does
  // not die with branches that are not taken. What loops do is done when they are left.
  absl::StatusOr<Node*> AfterEffects(const Node& caller, const Graph& body,
                                     const absl::flat_hash_map<const Node*, Node*>& copies) {
    const Frames frames = FindFrames(body);
    const auto outermost = [&](int frame) {
      while (frame > 0 && frames.frames[frame].parent > 0) frame = frames.frames[frame].parent;
      return frame;
    };
    std::vector<Node*> waited;
    absl::flat_hash_set<int> loops;
    for (const auto& inner : body.nodes()) {
      if (!inner->def().is_stateful || inner->op() == "_Arg" || inner->op() == "_Retval") continue;
      const int frame = outermost(frames.inside[inner->id()]);
      if (frame == 0) {
        waited.push_back(copies.at(inner.get()));
      } else {
        loops.insert(frame);
      }
    }
    for (const auto& inner : body.nodes()) {
      if (frames.outputs[inner->id()] == 0 && loops.contains(frames.inside[inner->id()]))
        waited.push_back(copies.at(inner.get()));
    }
    if (waited.empty()) return nullptr;
    NodeSpec spec;
    spec.name = NewName(absl::StrCat("Func/", caller.name(), "/effects"));
    --next_number_;  // TensorFlow has no such node
    spec.op = "ControlTrigger";
    spec.control_inputs = std::move(waited);
    spec.device = caller.device();
    return Add(std::move(spec));
  }

  absl::Status CopyBody(const Node& caller, const Graph& body, const std::vector<Node*>& arguments,
                        Node* start, absl::flat_hash_map<const Node*, Node*>& copies,
                        std::vector<Output>& results) {
    std::vector<const Node*> inner_nodes;
    size_t taken = 0;
    for (const auto& inner : body.nodes()) {
      if (inner->op() == "_Arg") {
        ASSIGN_OR_RETURN(const int64_t index, inner->Attr<int64_t>("index"));
        if (index < 0 || index >= static_cast<int64_t>(arguments.size()) ||
            arguments[index]->output_types()[0] != inner->output_types()[0]) {
          return InvalidArgument("Call '", caller.name(), "' has no fitting argument ", index);
        }
        ++taken;
        copies[inner.get()] = arguments[index];
        // What is known inside, from how the function was made, holds for its argument.
        if (!arguments[index]->output_shape(0).known_rank())
          arguments[index]->set_output_shape(0, inner->output_shape(0));
      } else if (inner->op() != "_Retval") {
        inner_nodes.push_back(inner.get());
      }
    }
    if (taken != arguments.size()) {
      return InvalidArgument("Call '", caller.name(), "' has ", arguments.size(),
                             " arguments where the function takes ", taken);
    }
    for (const Node* inner : inner_nodes) {
      std::vector<Output> inputs;
      for (const Output& input : inner->inputs()) {
        const auto copy = copies.find(input.node);
        inputs.push_back(copy == copies.end() ? Output() : Output(copy->second, input.index));
      }
      std::string name = absl::StrCat(caller.name(), "/", inner->name());
      if (result_->FindNode(name) != nullptr) name = NewName(name);
      Node* const copy = result_->AddCopy(*inner, std::move(name), std::move(inputs), {});
      copy->set_device(DeviceInside(caller.device(), inner->device()));
      copies[inner] = copy;
      chains_[copy] = chain_;
    }
    for (const Node* inner : inner_nodes) {
      Node& copy = *copies[inner];
      for (int i = 0; i < inner->num_inputs(); ++i) {
        if (copy.input(i)) continue;
        const Output& input = inner->input(i);
        RETURN_IF_ERROR(result_->UpdateInput(copy, i, Output(copies[input.node], input.index)));
      }
      for (const Node* before : inner->control_inputs()) Wait(copy, *copies[before]);
      if (inner->num_inputs() == 0 && inner->control_inputs().empty() && start != nullptr)
        Wait(copy, *start);
      RenameReferences(caller, body, copies, copy);
    }
    for (const auto& inner : body.nodes()) {
      if (inner->op() != "_Retval") continue;
      ASSIGN_OR_RETURN(const int64_t index, inner->Attr<int64_t>("index"));
      if (index < 0 || index >= static_cast<int64_t>(results.size()))
        return InvalidArgument("Call '", caller.name(), "' takes no result ", index);
      const Output& input = inner->input(0);
      if (input.base_dtype() != BaseType(caller.output_types()[index])) {
        return InvalidArgument("Output ", index, " of type ", DTypeName(input.base_dtype()),
                               " does not match declared output type ",
                               DTypeName(caller.output_types()[index]), " for node {{node ",
                               caller.name(), "}}");
      }
      results[index] = Output(copies[input.node], input.index);
    }
    return absl::OkStatus();
  }

  // Names in attributes are those inside the function.
  static void RenameReferences(const Node& caller, const Graph& body,
                               const absl::flat_hash_map<const Node*, Node*>& copies, Node& copy) {
    if (copy.op() == "Enter" || copy.op() == "RefEnter") {
      const absl::StatusOr<std::string> frame = copy.Attr<std::string>("frame_name");
      if (frame.ok()) copy.SetAttr("frame_name", absl::StrCat(caller.name(), "/", *frame));
    }
    const auto found = copy.attrs().find("_class");
    if (found == copy.attrs().end()) return;
    const auto* const groups = found->second.get<std::vector<std::string>>();
    if (groups == nullptr) return;
    std::vector<std::string> renamed;
    for (absl::string_view group : *groups) {
      if (!absl::ConsumePrefix(&group, kColocation)) continue;
      const Node* const inner = body.FindNode(group);
      const auto other = copies.find(inner);
      if (inner != nullptr && other != copies.end())
        renamed.push_back(absl::StrCat(kColocation, other->second->name()));
    }
    copy.ClearAttr("_class");
    if (!renamed.empty()) copy.SetAttr("_class", std::move(renamed));
  }

  const Graph& original_;
  const Graph& library_;
  std::unique_ptr<Graph> result_;
  int next_number_ = 0;
  absl::flat_hash_map<const Node*, Node*> copies_;
  absl::flat_hash_map<const Node*, std::vector<Node*>> waiting_;
  absl::flat_hash_map<Output, Output> moved_;
  absl::flat_hash_map<const Node*, Node*> stand_ins_;
  absl::flat_hash_map<const Node*, std::string> takes_name_;
  absl::flat_hash_set<const Node*> branch_calls_;
  absl::flat_hash_map<const Node*, std::shared_ptr<const CallChain>> chains_;
  std::shared_ptr<const CallChain> chain_;  // of the node being written out
  // Nodes that call functions are made from these and gone before they are.
  absl::flat_hash_map<std::string, std::unique_ptr<Graph>> bodies_;
};

}  // namespace

bool IsFunctional(const Node& node, const Graph& library) {
  return IsCall(node) || IsIf(node) || IsWhile(node) || IsCase(node) || IsGradient(node) ||
         IsDirectCall(node, library);
}

absl::StatusOr<LoweredGraph> LowerFunctions(const Graph& graph, const Graph& library) {
  return Lowering(graph, library).Run();
}

}  // namespace muster
