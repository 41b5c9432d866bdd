// Graphs, nodes, tensors and op definitions as serialized TensorFlow messages.
#include "bindings.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/op_def.pb.h"
#include "tensorflow/core/framework/tensor.pb.h"

#include "muster/device/device_name.h"
#include "muster/graph/op_registry.h"
#include "muster/graph/proto/attr_value_proto.h"
#include "muster/graph/proto/graph_proto.h"
#include "muster/tensor/message_proto.h"
#include "muster/tensor/tensor_proto.h"

namespace muster {
namespace {

nb::bytes Serialized(const google::protobuf::MessageLite& message) {
  const std::string bytes = BuildValue(MessageToBytes(message));
  return nb::bytes(bytes.data(), bytes.size());
}

template <typename Message>
Message Parsed(const nb::bytes& bytes, const char* what) {
  Message message;
  if (!MessageFromBytes({bytes.c_str(), bytes.size()}, message)) {
    throw nb::value_error((std::string("these bytes are not a ") + what).c_str());
  }
  return message;
}

nb::object ImportIntoGraph(Graph& graph, const nb::bytes& bytes, const std::string& prefix,
                           std::vector<std::pair<std::string, Output>> input_map,
                           std::vector<std::string> return_outputs,
                           std::vector<std::string> return_nodes,
                           std::vector<Node*> control_dependencies,
                           const std::string& default_device, const nb::bytes& producer_op_list) {
  ImportOptions options;
  const auto producer_ops = Parsed<tensorflow::OpList>(producer_op_list, "OpList");
  if (producer_ops.op_size() > 0) options.producer_ops = &producer_ops;
  options.prefix = prefix;
  options.input_map = std::move(input_map);
  options.return_outputs = std::move(return_outputs);
  options.return_nodes = std::move(return_nodes);
  options.control_dependencies = std::move(control_dependencies);
  options.default_device = default_device;
  options.uniquify_names = true;
  ImportResults results =
      BuildValue(ImportGraph(graph, Parsed<tensorflow::GraphDef>(bytes, "GraphDef"), options));
  nb::list nodes;
  for (Node* node : results.return_nodes) nodes.append(nb::cast(node, nb::rv_policy::reference));
  nb::list all;
  for (Node* node : results.nodes) all.append(nb::cast(node, nb::rv_policy::reference));
  return nb::make_tuple(results.outputs, nodes, all);
}

}  // namespace

void BindProtos(nb::module_& m) {
  m.def("graph_def", [](const Graph& graph, int from_version, bool add_shapes) {
    ExportOptions options;
    options.from_version = from_version;
    options.add_shapes = add_shapes;
    tensorflow::GraphDef proto;
    ThrowIfBuildError(GraphToProto(graph, options, proto));
    return Serialized(proto);
  });
  m.def("node_def", [](const Node& node) {
    tensorflow::NodeDef proto;
    ThrowIfBuildError(NodeToProto(node, {}, proto));
    return Serialized(proto);
  });
  m.def("tensor_proto", [](const Tensor& tensor) {
    tensorflow::TensorProto proto;
    ThrowIfBuildError(TensorToProto(tensor, TensorEncoding::kTyped, proto));
    return Serialized(proto);
  });
  m.def("tensor_from_proto", [](const nb::bytes& bytes) {
    return BuildValue(TensorFromProto(Parsed<tensorflow::TensorProto>(bytes, "TensorProto")));
  });
  m.def("import_graph_def", &ImportIntoGraph, nb::arg("graph"), nb::arg("graph_def"),
        nb::arg("prefix"), nb::arg("input_map"), nb::arg("return_outputs"), nb::arg("return_nodes"),
        nb::arg("control_dependencies"), nb::arg("default_device"), nb::arg("producer_op_list"));
  m.def("op_list", [] {
    tensorflow::OpList list;
    for (const OpRegistration* op : OpRegistry::Global().All())
      ThrowIfBuildError(OpDefToProto(op->def, *list.add_op()));
    return Serialized(list);
  });
  m.def("op_def_proto", [](const std::string& op) {
    tensorflow::OpDef proto;
    ThrowIfBuildError(OpDefToProto(BuildValue(OpRegistry::Global().Lookup(op))->def, proto));
    return Serialized(proto);
  });
  m.def("parse_device", [](const std::string& text) {
    const DeviceName name = BuildValue(DeviceName::Parse(text));
    return nb::make_tuple(name.job, name.replica, name.task, name.type, name.index);
  });
}

}  // namespace muster
