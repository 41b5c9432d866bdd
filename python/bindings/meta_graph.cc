// What meta graphs need of a graph: conditionals and loops as messages, and messages as text.
#include "bindings.h"
#include "tensorflow/core/protobuf/control_flow.pb.h"

#include "muster/graph/control_flow/cond_context.h"
#include "muster/graph/control_flow/while_context.h"
#include "muster/graph/proto/control_flow_proto.h"
#include "muster/graph/proto/message_text_proto.h"
#include "muster/tensor/message_proto.h"

namespace muster {
namespace {

nb::bytes ContextToProto(ControlFlowContext& context, const std::string& export_scope) {
  std::string bytes;
  if (WhileContext* loop = context.AsWhile()) {
    tensorflow::WhileContextDef proto;
    WhileContextToProto(*loop, export_scope, proto);
    bytes = proto.SerializeAsString();
  } else {
    tensorflow::CondContextDef proto;
    CondContextToProto(*context.AsCond(), export_scope, proto);
    bytes = proto.SerializeAsString();
  }
  return nb::bytes(bytes.data(), bytes.size());
}

template <typename Proto>
Proto Parsed(const nb::bytes& bytes) {
  Proto proto;
  if (!MessageFromBytes({bytes.c_str(), bytes.size()}, proto))
    throw nb::value_error("these bytes are not a control-flow context");
  return proto;
}

ControlFlowContext* ContextFromProto(Graph& graph, const std::string& import_scope,
                                     const nb::bytes& bytes, bool is_loop) {
  if (is_loop) {
    return BuildValue(
        WhileContextFromProto(graph, import_scope, Parsed<tensorflow::WhileContextDef>(bytes)));
  }
  return BuildValue(
      CondContextFromProto(graph, import_scope, Parsed<tensorflow::CondContextDef>(bytes)));
}

}  // namespace

void BindMetaGraph(nb::module_& m) {
  nb::class_<ControlFlowContext>(m, "ControlFlowContext")
      .def_prop_ro("name", &ControlFlowContext::name)
      .def_prop_ro("is_loop", [](ControlFlowContext& c) { return c.AsWhile() != nullptr; });
  m.def("root_contexts", &RootContexts, nb::rv_policy::reference);
  m.def("context_to_proto", &ContextToProto);
  m.def("context_from_proto", &ContextFromProto, nb::rv_policy::reference);
  m.def("check_contexts", [](Graph& graph, const std::vector<ControlFlowContext*>& roots) {
    ThrowIfBuildError(CheckRestoredContexts(graph, roots));
  });
  m.def("message_text", [](const std::string& full_name, const nb::bytes& bytes) {
    return BuildValue(MessageText(full_name, absl::string_view(bytes.c_str(), bytes.size())));
  });
}

}  // namespace muster
