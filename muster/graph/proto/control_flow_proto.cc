#include "muster/graph/proto/control_flow_proto.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tensorflow/core/protobuf/control_flow.pb.h"

#include "muster/graph/build/build_state.h"
#include "muster/graph/control_flow/cond_context.h"
#include "muster/graph/control_flow/frames.h"
#include "muster/graph/control_flow/while_context.h"

namespace muster {
namespace {

// A meta graph is read from files: nothing in it bounds how deep contexts may nest.
constexpr int kMaxDepth = 100;

std::string Stripped(absl::string_view name, absl::string_view scope) {
  if (!scope.empty() && absl::ConsumePrefix(&name, scope)) absl::ConsumePrefix(&name, "/");
  return std::string(name);
}

std::string Placed(absl::string_view name, absl::string_view scope) {
  return scope.empty() ? std::string(name) : absl::StrCat(scope, "/", name);
}

absl::StatusOr<Output> FindOutput(const Graph& graph, absl::string_view scope,
                                  absl::string_view name) {
  const std::string full = Placed(name, scope);
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(full, absl::MaxSplits(':', 1));
  Node* node = graph.FindNode(parts.first);
  int index = 0;
  if (node == nullptr || (!parts.second.empty() && !absl::SimpleAtoi(parts.second, &index)) ||
      index < 0 || index >= node->num_outputs()) {
    return InvalidArgument("A control-flow context names '", full,
                           "', which is not an output of a node of the graph");
  }
  return Output(node, index);
}

void ValuesToProto(const ControlFlowContext& context, absl::string_view scope,
                   tensorflow::ValuesDef& proto) {
  std::vector<std::string> names;
  for (const Output& value : context.values()) names.push_back(value.name());
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) proto.add_values(Stripped(name, scope));
  for (const auto& [outside, inside] : context.external_values()) {
    (*proto.mutable_external_values())[Stripped(outside.name(), scope)] =
        Stripped(inside.name(), scope);
  }
}

absl::Status ValuesFromProto(Graph& graph, absl::string_view scope,
                             const tensorflow::ValuesDef& proto, ControlFlowContext& context) {
  for (const auto& [outside, inside] : proto.external_values()) {
    ASSIGN_OR_RETURN(const Output from, FindOutput(graph, scope, outside));
    ASSIGN_OR_RETURN(const Output to, FindOutput(graph, scope, inside));
    context.AddExternal(from, to);
  }
  for (const std::string& name : proto.values()) {
    ASSIGN_OR_RETURN(const Output value, FindOutput(graph, scope, name));
    context.AddName(value);
    if (!context.external_values().contains(value)) value.node->set_control_flow_context(&context);
  }
  return absl::OkStatus();
}

template <typename Proto>
void NestedToProto(const ControlFlowContext& context, absl::string_view scope, Proto& proto) {
  for (ControlFlowContext* nested : context.nested()) {
    tensorflow::ControlFlowContextDef& def = *proto.add_nested_contexts();
    if (CondContext* branch = nested->AsCond()) {
      CondContextToProto(*branch, scope, *def.mutable_cond_ctxt());
    } else if (WhileContext* loop = nested->AsWhile()) {
      WhileContextToProto(*loop, scope, *def.mutable_while_ctxt());
    }
  }
}

template <typename Proto>
absl::Status NestedFromProto(Graph& graph, absl::string_view scope, const Proto& proto,
                             ControlFlowContext& context) {
  int depth = 0;
  for (const ControlFlowContext* outer = &context; outer != nullptr; outer = outer->outer())
    ++depth;
  if (depth > kMaxDepth)
    return InvalidArgument("Control-flow contexts nest deeper than ", kMaxDepth);
  for (const tensorflow::ControlFlowContextDef& nested : proto.nested_contexts()) {
    if (nested.has_cond_ctxt()) {
      RETURN_IF_ERROR(CondContextFromProto(graph, scope, nested.cond_ctxt(), &context).status());
    } else if (nested.has_while_ctxt()) {
      RETURN_IF_ERROR(WhileContextFromProto(graph, scope, nested.while_ctxt(), &context).status());
    }
  }
  return absl::OkStatus();
}

using Contexts = absl::flat_hash_set<ControlFlowContext*>;

void AddWithNested(ControlFlowContext* context, Contexts& all) {
  if (!all.insert(context).second) return;
  for (ControlFlowContext* nested : context->nested()) AddWithNested(nested, all);
}

bool IsControlFlow(const Node& node) {
  return IsSwitch(node) || IsMerge(node) || IsLoopEnter(node) || IsLoopExit(node) ||
         node.op() == "NextIteration" || node.op() == "RefNextIteration" || node.op() == "LoopCond";
}

// The name of the loop that a context is in; "" outside of loops.
absl::string_view FrameOf(ControlFlowContext* context) {
  WhileContext* loop = context == nullptr ? nullptr : context->while_context();
  return loop == nullptr ? absl::string_view() : absl::string_view(loop->name());
}

absl::Status CheckBranch(const CondContext& branch) {
  const Node& pivot = *branch.pivot().node;
  const bool is_side = pivot.op() == "Identity" && IsSwitch(*pivot.input(0).node) &&
                       pivot.input(0).index == branch.branch();
  if (!is_side || branch.pred().base_dtype() != DType::kBool) {
    return InvalidArgument("'", branch.name(), "' is not a branch of a conditional on '",
                           branch.pred().name(), "'");
  }
  return absl::OkStatus();
}

absl::Status CheckLoop(const WhileContext& loop) {
  const auto belongs = [&](const Output& output) {
    return output.node->control_flow_context() == &loop;
  };
  bool good = loop.pivot().node->op() == "LoopCond" && belongs(loop.pivot()) &&
              belongs(loop.pivot_for_pred()) && belongs(loop.pivot_for_body()) &&
              loop.loop_enters().size() == loop.loop_exits().size();
  for (const Output& enter : loop.loop_enters())
    good = good && IsLoopEnter(*enter.node) && belongs(enter);
  for (const Output& exit : loop.loop_exits())
    good = good && IsLoopExit(*exit.node) && belongs(exit);
  return good ? absl::OkStatus()
              : InvalidArgument("'", loop.name(), "' is not a loop of the graph");
}

absl::Status CheckNodes(Graph& graph, const Contexts& restored) {
  const Frames frames = FindFrames(graph);
  absl::flat_hash_set<std::string> names;
  for (ControlFlowContext* context : restored) {
    if (context->AsWhile() != nullptr) names.insert(context->name());
  }
  for (const std::unique_ptr<Node>& node : graph.nodes()) {
    const size_t id = static_cast<size_t>(node->id());
    const int where = IsLoopEnter(*node) ? frames.outputs[id] : frames.inside[id];
    const std::string& frame = frames.frames[static_cast<size_t>(where)].name;
    ControlFlowContext* context = node->control_flow_context();
    if (restored.contains(context)) {
      if (FrameOf(context) == frame) continue;
      // TensorFlow names the start values of counters among a loop's own values.
      ControlFlowContext* around = context;
      while (around != nullptr && FrameOf(around) != frame) around = around->outer();
      if (IsControlFlow(*node) || FrameOf(around) != frame) {
        return InvalidArgument("The control-flow context '", context->name(), "' has the node '",
                               node->name(), "', which runs in the frame '", frame, "'");
      }
      node->set_control_flow_context(around);
    } else if (IsControlFlow(*node) && names.contains(frame)) {
      return InvalidArgument("The control-flow context '", frame, "' lacks its node '",
                             node->name(), "'");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAll(Graph& graph, const Contexts& restored) {
  for (ControlFlowContext* context : restored) {
    if (const CondContext* branch = context->AsCond()) RETURN_IF_ERROR(CheckBranch(*branch));
    if (const WhileContext* loop = context->AsWhile()) RETURN_IF_ERROR(CheckLoop(*loop));
  }
  return CheckNodes(graph, restored);
}

}  // namespace

absl::Status CheckRestoredContexts(Graph& graph, absl::Span<ControlFlowContext* const> roots) {
  Contexts restored;
  for (ControlFlowContext* root : roots) AddWithNested(root, restored);
  if (restored.empty()) return absl::OkStatus();
  absl::Status status = CheckAll(graph, restored);
  if (!status.ok()) {
    for (const std::unique_ptr<Node>& node : graph.nodes()) {
      if (restored.contains(node->control_flow_context())) node->set_control_flow_context(nullptr);
    }
  }
  return status;
}

std::vector<ControlFlowContext*> RootContexts(Graph& graph) {
  std::vector<ControlFlowContext*> roots;
  for (const std::unique_ptr<ControlFlowContext>& context : graph.build_state().contexts) {
    WhileContext* loop = context->AsWhile();
    if (context->outer() != nullptr || (loop != nullptr && loop->grad_state() != nullptr)) continue;
    roots.push_back(context.get());
  }
  return roots;
}

void CondContextToProto(CondContext& context, absl::string_view export_scope,
                        tensorflow::CondContextDef& proto) {
  proto.set_context_name(Stripped(context.name(), export_scope));
  proto.set_pred_name(Stripped(context.pred().name(), export_scope));
  proto.set_pivot_name(Stripped(context.pivot().name(), export_scope));
  proto.set_branch(context.branch());
  ValuesToProto(context, export_scope, *proto.mutable_values_def());
  NestedToProto(context, export_scope, proto);
}

void WhileContextToProto(WhileContext& context, absl::string_view export_scope,
                         tensorflow::WhileContextDef& proto) {
  const auto named = [&](Output output) {
    return output ? Stripped(output.name(), export_scope) : std::string();
  };
  proto.set_context_name(Stripped(context.name(), export_scope));
  proto.set_parallel_iterations(context.parallel_iterations());
  proto.set_maximum_iterations_name(named(context.settings().maximum_iterations));
  proto.set_back_prop(context.back_prop());
  proto.set_swap_memory(context.settings().swap_memory);
  proto.set_pivot_for_pred_name(named(context.pivot_for_pred()));
  proto.set_pivot_for_body_name(named(context.pivot_for_body()));
  proto.set_pivot_name(named(context.pivot()));
  for (const Output& exit : context.loop_exits()) proto.add_loop_exit_names(named(exit));
  for (const Output& enter : context.loop_enters()) proto.add_loop_enter_names(named(enter));
  ValuesToProto(context, export_scope, *proto.mutable_values_def());
  NestedToProto(context, export_scope, proto);
}

absl::StatusOr<CondContext*> CondContextFromProto(Graph& graph, absl::string_view import_scope,
                                                  const tensorflow::CondContextDef& proto,
                                                  ControlFlowContext* outer) {
  ASSIGN_OR_RETURN(const Output pred, FindOutput(graph, import_scope, proto.pred_name()));
  ASSIGN_OR_RETURN(const Output pivot, FindOutput(graph, import_scope, proto.pivot_name()));
  CondContext& context = CondContext::Restore(graph, Placed(proto.context_name(), import_scope),
                                              outer, pred, pivot, proto.branch() != 0 ? 1 : 0);
  RETURN_IF_ERROR(ValuesFromProto(graph, import_scope, proto.values_def(), context));
  RETURN_IF_ERROR(NestedFromProto(graph, import_scope, proto, context));
  return &context;
}

absl::StatusOr<WhileContext*> WhileContextFromProto(Graph& graph, absl::string_view import_scope,
                                                    const tensorflow::WhileContextDef& proto,
                                                    ControlFlowContext* outer) {
  WhileContext::Pivots pivots;
  ASSIGN_OR_RETURN(pivots.for_pred, FindOutput(graph, import_scope, proto.pivot_for_pred_name()));
  ASSIGN_OR_RETURN(pivots.for_body, FindOutput(graph, import_scope, proto.pivot_for_body_name()));
  ASSIGN_OR_RETURN(pivots.condition, FindOutput(graph, import_scope, proto.pivot_name()));
  WhileSettings settings;
  settings.parallel_iterations = std::max(1, proto.parallel_iterations());
  settings.back_prop = proto.back_prop();
  settings.swap_memory = proto.swap_memory();
  if (!proto.maximum_iterations_name().empty()) {
    ASSIGN_OR_RETURN(settings.maximum_iterations,
                     FindOutput(graph, import_scope, proto.maximum_iterations_name()));
  }
  WhileContext& context = WhileContext::Restore(graph, Placed(proto.context_name(), import_scope),
                                                outer, settings, pivots);
  for (const std::string& name : proto.loop_exit_names()) {
    ASSIGN_OR_RETURN(const Output exit, FindOutput(graph, import_scope, name));
    context.AddLoopExit(exit);
  }
  for (const std::string& name : proto.loop_enter_names()) {
    ASSIGN_OR_RETURN(const Output enter, FindOutput(graph, import_scope, name));
    context.AddLoopEnter(enter);
  }
  RETURN_IF_ERROR(ValuesFromProto(graph, import_scope, proto.values_def(), context));
  if (!import_scope.empty()) {
    // The frame is called like the context, which has another name here.
    for (const Output& value : context.values()) {
      if (IsLoopEnter(*value.node) && value.node->control_flow_context() == &context)
        value.node->SetAttr("frame_name", AttrValue(context.name()));
    }
  }
  RETURN_IF_ERROR(NestedFromProto(graph, import_scope, proto, context));
  return &context;
}

}  // namespace muster
