#include "muster/graph/proto/graph_proto.h"

#include <random>

#include "gmock/gmock.h"
#include "google/protobuf/stubs/logging.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/op_def.pb.h"

#include "muster/graph/op_registry.h"
#include "muster/graph/proto/attr_value_proto.h"
#include "muster/graph/proto/function_proto.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

tensorflow::GraphDef Parse(const std::string& text) {
  tensorflow::GraphDef graph;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &graph)) << text;
  if (!graph.has_versions()) graph.mutable_versions()->set_producer(134);
  return graph;
}

std::string Constant(const std::string& name) {
  return absl::StrCat(
      "node { name: '", name,
      "' op: 'Const' attr { key: 'dtype' value { type: DT_FLOAT } } attr { key: "
      "'value' value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: 1 } } } }");
}

// A node of one float type attribute T.
std::string Float(const std::string& name, const std::string& op,
                  const std::vector<std::string>& inputs, const std::string& more = "") {
  std::string text = absl::StrCat("node { name: '", name, "' op: '", op, "' ");
  for (const std::string& input : inputs) absl::StrAppend(&text, "input: '", input, "' ");
  return absl::StrCat(text, "attr { key: 'T' value { type: DT_FLOAT } } ", more, "}");
}
std::string Neg(const std::string& name, const std::vector<std::string>& inputs,
                const std::string& more = "") {
  return Float(name, "Neg", inputs, more);
}
const char kTwo[] = "attr { key: 'N' value { i: 2 } }";
const char kFrame[] = "attr { key: 'frame_name' value { s: 'f' } }";

std::vector<std::string> Names(const Graph& graph) {
  std::vector<std::string> names;
  for (const auto& node : graph.nodes()) names.push_back(node->name());
  return names;
}

// The message with which importing fails; the graph must stay as it was.
std::string ImportError(const std::string& text, const ImportOptions& options = {}) {
  Graph graph;
  const auto results = ImportGraph(graph, Parse(text), options);
  EXPECT_FALSE(results.ok()) << text;
  EXPECT_EQ(graph.num_nodes(), 0);
  return std::string(results.status().message());
}

TEST(GraphProto, NodesMayComeInAnyOrder) {
  Graph graph;
  const auto proto =
      Parse(Neg("b", {"a"}) + Neg("d", {"c", "^b"}) + Neg("c", {"b"}) + Constant("a"));
  const auto results = ImportGraph(graph, proto);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_THAT(Names(graph), ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(graph.FindNode("d")->input(0).node, graph.FindNode("c"));
  EXPECT_THAT(graph.FindNode("d")->control_inputs(), ElementsAre(graph.FindNode("b")));
  EXPECT_EQ(graph.FindNode("d")->output_shape(0), PartialShape::Scalar());
}

TEST(GraphProto, ExportGivesWhatWasImported) {
  Graph graph;
  tensorflow::GraphDef proto =
      Parse(Constant("a") + Constant("z") +
            Neg("b", {"a", "^a", "^z"},
                "device: '/job:ps' attr { key: '_class' value { list { s: 'loc:@a' } } } "
                "attr { key: 'extra' value { i: 7 } }"));
  ASSERT_TRUE(ImportGraph(graph, proto).ok());
  tensorflow::GraphDef again;
  ASSERT_TRUE(GraphToProto(graph, {}, again).ok());
  google::protobuf::util::MessageDifferencer differencer;
  std::string difference;
  differencer.ReportDifferencesToString(&difference);
  EXPECT_TRUE(differencer.Compare(proto, again)) << difference;

  ExportOptions options;
  options.add_shapes = true;
  options.from_version = 2;
  ASSERT_TRUE(GraphToProto(graph, options, again).ok());
  ASSERT_EQ(again.node_size(), 1);
  EXPECT_EQ(again.node(0).attr().at("_output_shapes").list().shape_size(), 1);
}

TEST(GraphProto, DefaultsAreFilledInAndStripped) {
  Graph graph;
  ASSERT_TRUE(ImportGraph(graph, Parse("node { name: 'p' op: 'Placeholder' attr { key: 'dtype' "
                                       "value { type: DT_INT32 } } }"))
                  .ok());
  EXPECT_TRUE(graph.FindNode("p")->attrs().contains("shape"));
  ExportOptions options;
  options.strip_defaults = true;
  tensorflow::GraphDef proto;
  ASSERT_TRUE(GraphToProto(graph, options, proto).ok());
  EXPECT_EQ(proto.node(0).attr_size(), 1);
}

TEST(GraphProto, LeftoversOfTensorFlowsOptimizerAreDropped) {
  Graph graph;
  const auto proto =
      Parse(Constant("a") +
            Neg("b", {"a"},
                "attr { key: '_input_shapes' value { list { shape { dim { size: -23 } } } } }"));
  ASSERT_TRUE(ImportGraph(graph, proto).ok());
  EXPECT_EQ(graph.FindNode("b")->FindAttr("_input_shapes"), nullptr);
}

TEST(GraphProto, LoopsAreClosed) {
  const std::string loop = Float("m", "Merge", {"en", "ni"}, kTwo) +
                           Float("ni", "NextIteration", {"m"}) +
                           Float("en", "Enter", {"a"}, kFrame) + Constant("a");
  Graph graph;
  const auto results = ImportGraph(graph, Parse(loop));
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_THAT(Names(graph), ElementsAre("a", "en", "m", "ni"));
  EXPECT_EQ(graph.FindNode("m")->input(1).node, graph.FindNode("ni"));
  EXPECT_EQ(graph.FindNode("ni")->consumers().size(), 1u);
  tensorflow::GraphDef again;
  EXPECT_TRUE(GraphToProto(graph, {}, again).ok());

  EXPECT_EQ(
      ImportError(Float("m", "Merge", {"en", "ni:3"}, kTwo) + Float("ni", "NextIteration", {"m"}) +
                  Float("en", "Enter", {"a"}, kFrame) + Constant("a")),
      "Output 3 of node ni does not exist. Node only has 1 outputs.");
  EXPECT_EQ(
      ImportError(Float("m", "Merge", {"ni", "ni"}, kTwo) + Float("ni", "NextIteration", {"m"})),
      "2 nodes in a cycle");
  EXPECT_EQ(ImportError(Float("m", "Merge", {"ni", "a", "^ni"}, kTwo) +
                        Float("ni", "NextIteration", {"m"}) + Constant("a")),
            "2 nodes in a cycle");
}

TEST(GraphProto, ErrorsAreTensorFlows) {
  const std::string a = Constant("a");
  EXPECT_EQ(ImportError(Neg("b", {"x"})), "Node 'b': Unknown input node 'x'");
  EXPECT_EQ(ImportError(Neg("b", {"a", "^x"}) + a), "Node 'b': Unknown input node '^x'");
  EXPECT_EQ(ImportError(Neg("b", {"a:-1"}) + a), "Node 'b': Unknown input node 'a:-1'");
  EXPECT_EQ(ImportError(Neg("b", {"a:99999999999999999999"}) + a),
            "Node 'b': Unknown input node 'a:99999999999999999999'");
  EXPECT_EQ(ImportError(Neg("b", {"a:1"}) + a),
            "Node 'b': Connecting to invalid output 1 of source node a which has 1 outputs.");
  EXPECT_EQ(ImportError(Neg("b", {"^a", "a"}) + a),
            "Node 'b': Control dependencies must come after regular dependencies");
  EXPECT_EQ(ImportError(a + a), "Node 'a' is not unique");
  EXPECT_EQ(ImportError(Constant("_a")), "Node '_a': Node name contains invalid characters");
  EXPECT_EQ(ImportError(Constant("a b")), "Node 'a b': Node name contains invalid characters");
  EXPECT_EQ(ImportError(Constant("")), "Node '': Node name contains invalid characters");
  EXPECT_EQ(ImportError("node { name: 'a' }"), "Node 'a' does not specify an operation");
  EXPECT_EQ(ImportError(Neg("b", {"c"}) + Neg("c", {"b"})), "2 nodes in a cycle");
  EXPECT_EQ(ImportError(Neg("b", {"a", "^b"}) + a), "1 nodes in a cycle");
  ImportOptions options;
  options.prefix = "import";
  EXPECT_EQ(
      ImportError(
          "node { name: 'b' op: 'Neg' input: 'a' attr { key: 'T' value { type: DT_INT32 } } }" + a,
          options),
      "Input 0 of node import/b was passed float from import/a:0 incompatible with expected "
      "int32.");
  EXPECT_THAT(
      ImportError(Neg("b", {"a", "a"}) + a, options),
      StartsWith("NodeDef expected inputs 'float' do not match 2 inputs specified; Op<name=Neg;"));
  EXPECT_THAT(ImportError("node { name: 'b' op: 'Neg' input: 'a' }" + a),
              StartsWith("NodeDef missing attr 'T' from Op<name=Neg;"));
  EXPECT_THAT(
      ImportError("node { name: 'b' op: 'Neg' input: 'a' attr { key: 'T' value { i: 3 } } }" + a),
      StartsWith("AttrValue had value with type 'int' when 'type' expected\n\t for attr 'T'\n\t; "
                 "NodeDef: {{node b}}"));
  EXPECT_THAT(
      ImportError("node { name: 'b' op: 'Neg' input: 'a' attr { key: 'T' value { type: 99 } } }" +
                  a),
      StartsWith("AttrValue has invalid DataType enum: 99\n\t for attr 'T'"));
  EXPECT_EQ(
      ImportError(Neg("b", {"a"}, "attr { key: '_class' value { list { s: 'loc:@zz' } } }") + a),
      "Node 'b' expects to be colocated with unknown node 'zz'");
  EXPECT_EQ(
      ImportError(
          Neg("b", {"a"},
              "attr { key: '_output_shapes' value { list { shape { dim { size: 7 } } } } }") +
          a),
      "Node 'b' has an _output_shapes attribute inconsistent with the GraphDef for output #0: "
      "Shapes must be equal rank, but are 0 and 1");
  EXPECT_THAT(ImportError("node { name: 'b' op: 'Nope' }"),
              StartsWith("Op type not registered 'Nope'"));
  EXPECT_EQ(ImportError(a + "versions { min_consumer: 99999 }"),
            "GraphDef min consumer version 99999 above current version 2474 for TensorFlow 2.21.0. "
            " Please upgrade "
            "TensorFlow.");
  EXPECT_EQ(ImportError(a + "versions { bad_consumers: 2474 }"),
            "GraphDef disallows consumer version 2474.  Please upgrade TensorFlow: this version is "
            "likely buggy.");
}

TEST(GraphProto, InputsAreMapped) {
  Graph graph;
  ASSERT_TRUE(ImportGraph(graph, Parse(Constant("m") + Constant("n"))).ok());
  ImportOptions options;
  options.prefix = "import";
  options.input_map = {{"x:3", Output(graph.FindNode("m"), 0)},
                       {"^y", Output(graph.FindNode("n"), 0)}};
  options.return_outputs = {"b:0", "x:3"};
  options.return_nodes = {"b"};
  const auto results = ImportGraph(graph, Parse(Neg("b", {"x:3", "^y"})), options);
  ASSERT_TRUE(results.ok()) << results.status();
  Node* b = graph.FindNode("import/b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->input(0).node->name(), "m");
  EXPECT_THAT(b->control_inputs(), ElementsAre(graph.FindNode("n")));
  EXPECT_THAT(results->outputs, ElementsAre(Output(b, 0), Output(graph.FindNode("m"), 0)));
  EXPECT_THAT(results->return_nodes, ElementsAre(b));

  const auto error = [&](std::vector<std::pair<std::string, Output>> map,
                         std::vector<std::string> outputs, std::vector<std::string> nodes) {
    ImportOptions bad;
    bad.prefix = "again";
    bad.input_map = std::move(map);
    bad.return_outputs = std::move(outputs);
    bad.return_nodes = std::move(nodes);
    const auto failed = ImportGraph(graph, Parse(Constant("a")), bad);
    EXPECT_EQ(graph.num_nodes(), 3);
    return std::string(failed.status().message());
  };
  EXPECT_EQ(error({{"zz", Output(b, 0)}}, {}, {}),
            "Attempted to map inputs that were not found in graph_def: [zz:0]");
  EXPECT_EQ(error({}, {"zz"}, {}), "Requested return tensor 'zz:0' not found in graph def");
  EXPECT_EQ(error({}, {"a:5"}, {}), "Invalid return output 5 of node 'a', which has 1 output(s)");
  EXPECT_EQ(error({}, {}, {"zz"}), "Requested return node 'zz' not found in graph def");
}

TEST(GraphProto, NamesThatAreTaken) {
  Graph graph;
  const auto proto = Parse(
      Constant("a") + Neg("b", {"a"}, "attr { key: '_class' value { list { s: 'loc:@a' } } }"));
  ASSERT_TRUE(ImportGraph(graph, proto).ok());
  EXPECT_EQ(ImportGraph(graph, proto).status().message(),
            "Node name 'a' already exists in the Graph");
  ImportOptions options;
  options.uniquify_names = true;
  ASSERT_TRUE(ImportGraph(graph, proto, options).ok());
  EXPECT_THAT(Names(graph), ElementsAre("a", "b", "a_1", "b_1"));
  EXPECT_THAT(graph.FindNode("b_1")->ColocationGroups(), ElementsAre("a_1"));
  EXPECT_EQ(graph.FindNode("b_1")->input(0).node->name(), "a_1");
  options.prefix = "s/";
  options.default_device = "/job:worker";
  options.control_dependencies = {graph.FindNode("b")};
  const auto results = ImportGraph(graph, proto, options);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(results->nodes[0]->name(), "s/a");
  EXPECT_EQ(results->nodes[0]->device(), "/job:worker");
  EXPECT_THAT(results->nodes[0]->control_inputs(), ElementsAre(graph.FindNode("b")));
  EXPECT_TRUE(results->nodes[1]->control_inputs().empty());
  ImportOptions again;
  again.prefix = "s";
  EXPECT_EQ(ImportGraph(graph, proto, again).status().message(),
            "Import node name prefix 's' conflicts with name already used in the graph");
}

const char kFunction[] = R"(
  library { function {
    signature { name: 'f' input_arg { name: 'x' type_attr: 'T' } output_arg { name: 'y' type_attr: 'T' }
                attr { name: 'T' type: 'type' } }
    node_def { name: 'n' op: 'Neg' input: 'x' attr { key: 'T' value { placeholder: 'T' } } }
    node_def { name: 'i' op: 'Identity' input: 'n:y:0' attr { key: 'T' value { placeholder: 'T' } } }
    ret { key: 'y' value: 'i:output:0' } } })";

TEST(GraphProto, FunctionsAreKeptCalledAndInstantiated) {
  Graph graph;
  const auto proto = Parse(Constant("a") + Float("call", "f", {"a"}) + kFunction);
  ASSERT_TRUE(ImportGraph(graph, proto).ok());
  EXPECT_EQ(graph.FindNode("call")->output_types()[0], DType::kFloat);
  tensorflow::GraphDef again;
  ASSERT_TRUE(GraphToProto(graph, {}, again).ok());
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(proto.library(), again.library()));

  const auto body = InstantiateFunction(graph, {"f", {{"T", DType::kDouble}}});
  ASSERT_TRUE(body.ok()) << body.status();
  EXPECT_THAT(Names(**body), ElementsAre("x", "n", "i", "y_RetVal"));
  EXPECT_EQ((*body)->FindNode("n")->output_types()[0], DType::kDouble);
  EXPECT_THAT(std::string(InstantiateFunction(graph, {"f", {}}).status().message()),
              StartsWith("Attr T is not found from Op<name=f;"));
  EXPECT_FALSE(InstantiateFunction(graph, {"g", {}}).ok());

  tensorflow::GraphDef other = proto;
  other.clear_node();
  other.mutable_library()->mutable_function(0)->mutable_node_def(0)->set_op("Identity");
  EXPECT_EQ(
      ImportGraph(graph, other).status().message(),
      "Cannot add function 'f' because a different function with the same name already exists.");
}

TEST(GraphProto, TensorNames) {
  EXPECT_EQ(ParseTensorName("a"), (TensorName{"a", 0}));
  EXPECT_EQ(ParseTensorName("a:12"), (TensorName{"a", 12}));
  EXPECT_EQ(ParseTensorName("^a"), (TensorName{"a", -1}));
  EXPECT_EQ(ParseTensorName("a:"), (TensorName{"a:", 0}));
  EXPECT_EQ(ParseTensorName(":1"), (TensorName{":1", 0}));
}

TEST(AttrValueProto, EveryKindComesBack) {
  const std::vector<AttrValue> values = {"text",
                                         7,
                                         1.5f,
                                         true,
                                         DType::kHalf,
                                         PartialShape({-1, 2}),
                                         Tensor::Vector<int64_t>({1, 2}),
                                         FunctionRef{"f", {{"T", DType::kFloat}}},
                                         AttrPlaceholder{"T"},
                                         EmptyList{},
                                         std::vector<std::string>{"a", "b"},
                                         std::vector<int64_t>{1, 2},
                                         std::vector<float>{1, 2},
                                         std::vector<bool>{true, false},
                                         std::vector<DType>{DType::kFloat},
                                         std::vector<PartialShape>{PartialShape()},
                                         std::vector<Tensor>{Tensor::Scalar(1.0)},
                                         std::vector<FunctionRef>{{"f", {}}}};
  for (const AttrValue& value : values) {
    tensorflow::AttrValue proto;
    ASSERT_TRUE(AttrValueToProto(value, proto).ok());
    const auto again = AttrValueFromProto(proto);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->kind(), value.kind());
    EXPECT_EQ(*again, value) << value.ToString();
  }
  tensorflow::AttrValue mixed;
  mixed.mutable_list()->add_i(1);
  mixed.mutable_list()->add_f(1);
  EXPECT_FALSE(AttrValueFromProto(mixed).ok());
}

TEST(OpDefProto, TheRegistryComesBack) {
  tensorflow::OpList ops;
  ASSERT_TRUE(RegistryToProto(ops).ok());
  ASSERT_EQ(ops.op_size(), static_cast<int>(OpRegistry::Global().All().size()));
  for (const tensorflow::OpDef& op : ops.op()) {
    const auto parsed = OpDefFromProto(op);
    ASSERT_TRUE(parsed.ok()) << op.name() << ": " << parsed.status();
    EXPECT_EQ(SummarizeOpDef(*parsed), SummarizeOpDef(OpRegistry::Global().Find(op.name())->def));
  }
}

TEST(GraphProto, DamagedBytesNeverCrash) {
  const std::string whole =
      Parse(Constant("a") + Neg("b", {"a"}) + Float("en", "Enter", {"b"}, kFrame) +
            Float("m", "Merge", {"en", "ni"}, kTwo) + Float("ni", "NextIteration", {"m"}) +
            Float("call", "f", {"a"}) + kFunction)
          .SerializeAsString();
  const uint32_t seed = 20240612;
  std::mt19937 random(seed);
  google::protobuf::LogSilencer silencer;  // it reports every bad string
  int good = 0;
  for (int i = 0; i < 5000; ++i) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, " round ", i));
    std::string bytes = whole;
    for (uint32_t k = 0; k <= random() % 4; ++k) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes.erase(at, 1 + random() % 4);
          break;
        case 1:
          bytes.insert(at, 1, static_cast<char>(random()));
          break;
        case 2:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
          break;
        default:
          bytes[at] = static_cast<char>(random());
      }
      if (bytes.empty()) bytes = "x";
    }
    tensorflow::GraphDef damaged;
    if (!damaged.ParseFromString(bytes)) continue;
    Graph graph;
    if (!ImportGraph(graph, damaged).ok()) {
      EXPECT_EQ(graph.num_nodes(), 0);
      EXPECT_TRUE(graph.functions().empty());
      continue;
    }
    ++good;
    for (const auto& [name, function] : graph.functions()) {
      (void)InstantiateFunction(graph, {name, {{"T", DType::kFloat}}});
    }
    tensorflow::GraphDef exported;
    ASSERT_TRUE(GraphToProto(graph, {}, exported).ok());
    Graph again;
    const auto results = ImportGraph(again, exported);
    EXPECT_TRUE(results.ok()) << results.status();
  }
  EXPECT_GT(good, 0);
}

}  // namespace
}  // namespace muster
