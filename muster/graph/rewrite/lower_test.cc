#include "muster/graph/rewrite/lower.h"

#include "absl/strings/match.h"
#include "google/protobuf/text_format.h"
#include "tensorflow/core/framework/graph.pb.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/graph/build/scope.h"
#include "muster/graph/proto/graph_proto.h"

namespace muster {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Attr(const std::string& name, const std::string& value) {
  return absl::StrCat(" attr { key: '", name, "' value { ", value, " } }");
}
const std::string kInt = Attr("T", "type: DT_INT32");
const std::string kLower = Attr("_lower_using_switch_merge", "b: true");

std::string Number(const std::string& name, int value, const std::string& device = "") {
  return absl::StrCat(
      "name: '", name, "' op: 'Const' device: '", device, "'", Attr("dtype", "type: DT_INT32"),
      Attr("value",
           absl::StrCat("tensor { dtype: DT_INT32 tensor_shape { } int_val: ", value, " }")));
}
std::string Argument(const std::string& name, const std::string& type = "DT_INT32") {
  return absl::StrCat("{ name: '", name, "' type: ", type, " } ");
}

// A loop that counts to n, its counter on another task, and a branch: as a client of TensorFlow 2
// sends them.
std::string LoopAndBranch() {
  const std::string worker = "device: '/job:worker/task:0'";
  const std::string loop_type =
      "list { type: DT_INT32 type: DT_INT32 type: DT_INT32 type: DT_INT32 }";
  const std::string four =
      absl::StrCat("input_arg ", Argument("counter"), "input_arg ", Argument("limit"), "input_arg ",
                   Argument("i"), "input_arg ", Argument("n"));
  return absl::StrCat(
      "node { name: 'n' op: 'Placeholder' ", worker, Attr("dtype", "type: DT_INT32"), " }",
      "node { name: 'p' op: 'Placeholder' ", worker, Attr("dtype", "type: DT_BOOL"), " }",
      "node { ", Number("Const", 0), " } node { ", Number("loop/maximum_iterations", -1),
      " } node { ", Number("loop/loop_counter", 0), " }",
      "node { name: 'loop' op: 'StatelessWhile' input: 'loop/loop_counter' "
      "input: 'loop/maximum_iterations' input: 'Const' input: 'n' ",
      worker, Attr("T", loop_type), kLower, Attr("cond", "func { name: 'test' }"),
      Attr("body", "func { name: 'count' }"), " }",
      "node { name: 'out' op: 'Identity' input: 'loop:2'", kInt, " }",
      "node { name: 'c' op: 'StatelessIf' input: 'p' input: 'n' ", worker,
      Attr("Tcond", "type: DT_BOOL"), Attr("Tin", "list { type: DT_INT32 }"),
      Attr("Tout", "list { type: DT_INT32 }"), kLower, Attr("then_branch", "func { name: 'yes' }"),
      Attr("else_branch", "func { name: 'no' }"), " }",
      "node { name: 'after' op: 'NoOp' input: '^c' }",
      "library { function { signature { name: 'test' ", four, "output_arg ",
      Argument("go", "DT_BOOL"), "} node_def { name: 'Less' op: 'Less' input: 'i' input: 'n'", kInt,
      " } ret { key: 'go' value: 'Less:z:0' } } ", "function { signature { name: 'count' ", four,
      "output_arg ", Argument("a"), "output_arg ", Argument("b"), "output_arg ", Argument("c"),
      "output_arg ", Argument("d"), "} node_def { ", Number("inc/y", 1, "/job:ps/task:0"),
      " } node_def { name: 'inc' op: 'AddV2' input: 'i' input: 'inc/y:output:0' device: "
      "'/job:ps/task:0'",
      kInt, Attr("_class", "list { s: 'loc:@inc/y' s: 'loc:@elsewhere' }"),
      " } ret { key: 'a' value: 'counter' } ret { key: 'b' value: 'limit' } "
      "ret { key: 'c' value: 'inc:z:0' } ret { key: 'd' value: 'n' } } ",
      "function { signature { name: 'yes' input_arg ", Argument("x"), "output_arg ", Argument("y"),
      "} node_def { name: 'Neg' op: 'Neg' input: 'x'", kInt,
      " } ret { key: 'y' value: 'Neg:y:0' } } ", "function { signature { name: 'no' input_arg ",
      Argument("x"), "output_arg ", Argument("y"), "} node_def { ", Number("one", 1),
      " } ret { key: 'y' value: 'one:output:0' } } }");
}

void Import(const std::string& text, Graph& graph) {
  tensorflow::GraphDef proto;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &proto)) << text;
  proto.mutable_versions()->set_producer(2474);
  const auto imported = ImportGraph(graph, proto);
  ASSERT_TRUE(imported.ok()) << imported.status();
}

std::vector<std::string> InputsOf(const Node& node) {
  std::vector<std::string> names;
  for (const Output& input : node.inputs()) names.push_back(input.name());
  for (const Node* before : node.control_inputs()) names.push_back("^" + before->name());
  return names;
}

class LowerTest : public testing::Test {
 protected:
  void Lower(const std::string& text) {
    Import(text, graph_);
    auto lowered = LowerFunctions(graph_, graph_);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    lowered_ = *std::move(lowered);
  }
  const Node& Get(absl::string_view name) const {
    const Node* const node = lowered_.graph->FindNode(name);
    EXPECT_NE(node, nullptr) << name;
    return node == nullptr ? *lowered_.graph->nodes()[0] : *node;
  }

  Graph graph_;
  LoweredGraph lowered_;
};

TEST_F(LowerTest, NamesAreThoseOfTensorFlowsMasters) {
  Lower(LoopAndBranch());
  EXPECT_THAT(InputsOf(Get("loop/merge/_9")),
              ElementsAre("loop/enter/_5:0", "loop/next_iteration/_24:0"));
  EXPECT_EQ(*Get("loop/enter/_5").Attr<std::string>("frame_name"), "loop");
  EXPECT_THAT(InputsOf(Get("loop/n_switch/_14")),
              ElementsAre("loop/merge/_9:0", "loop/LoopCond/_10:0"));
  EXPECT_THAT(InputsOf(Get("loop/loop_body_control/_15")),
              ElementsAre("loop/loop/loop_counter_switch/_11:1"));
  EXPECT_THAT(InputsOf(Get("loop/exit/_18")), ElementsAre("loop/Const_switch/_13:0"));
  EXPECT_THAT(InputsOf(Get("out")), ElementsAre("loop/exit/_18:0"));
  EXPECT_THAT(InputsOf(Get("loop/body/_1/inc")),
              ElementsAre("Func/loop/body/_1/input/_43:0", "loop/body/_1/inc/y:0"));
  EXPECT_THAT(InputsOf(Get("c/then/_25/Neg")), ElementsAre("Func/c/then/_25/input/_51:0"));
  EXPECT_THAT(InputsOf(Get("Func/c/then/_25/input/_51")),
              ElementsAre("c/n/_30:1", "^Func/c/then/_25/input_control_node/_50"));
  EXPECT_THAT(InputsOf(Get("c/pivot_f/_28")), ElementsAre("c/switch_pred/_27:0"));
  EXPECT_EQ(Get("c/output/_31").op(), "Merge");
  EXPECT_THAT(InputsOf(Get("after")), ElementsAre("^c/branch_executed/_32"));
}

TEST_F(LowerTest, NodesKeepWhatTheyAskFor) {
  Lower(LoopAndBranch());
  EXPECT_EQ(Get("loop/body/_1/inc").device(), "/job:ps/task:0");
  EXPECT_THAT(Get("loop/body/_1/inc").ColocationGroups(), ElementsAre("loop/body/_1/inc/y"));
  // A constant of a branch dies with it.
  EXPECT_THAT(InputsOf(Get("c/else/_26/one")),
              Contains(HasSubstr("^Func/c/else/_26/input_control_node")));
  EXPECT_EQ(Get("c/else/_26/one").device(), "/job:worker/task:0");
}

TEST_F(LowerTest, WrittenOutNodesCanStillBeNamed) {
  Lower(LoopAndBranch());
  EXPECT_EQ(Get("loop").op(), "IdentityN");
  EXPECT_EQ(Get("c").op(), "IdentityN");
  EXPECT_EQ(lowered_.nodes.at(graph_.FindNode("c")), lowered_.graph->FindNode("c"));
  EXPECT_EQ(lowered_.outputs.at(Output(graph_.FindNode("loop"), 2)).name(), "loop/exit/_18:0");
  for (const auto& node : lowered_.graph->nodes()) {
    EXPECT_FALSE(IsFunctional(*node, graph_)) << node->name();
    EXPECT_EQ(lowered_.graph->nodes()[node->id()].get(), node.get());
  }
}

TEST_F(LowerTest, RecursionStaysACall) {
  Lower(absl::StrCat("node { ", Number("x", 1), " } node { name: 'y' op: 'down' input: 'x' } ",
                     "library { function { signature { name: 'down' input_arg ", Argument("x"),
                     "output_arg ", Argument("y"),
                     "} node_def { name: 'again' op: 'down' input: 'x' } ",
                     "ret { key: 'y' value: 'again:y:0' } } }"));
  std::vector<std::string> calls;
  for (const auto& node : lowered_.graph->nodes()) {
    if (node->op() == "PartitionedCall") calls.push_back(node->name());
  }
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ((*Get(calls[0]).Attr<FunctionRef>("f")).name, "down");
}

// A function that draws a random number which its result does not need: 'drawn' is an effect.
std::string CallWithEffect(absl::string_view op, absl::string_view attrs) {
  return absl::StrCat(
      "node { ", Number("x", 1), " } node { name: 'y' op: '", op, "' input: 'x'", attrs,
      " } node { name: 'after' op: 'NoOp' input: '^y' } library { function { signature { ",
      "name: 'f' is_stateful: true input_arg ", Argument("x"), "output_arg ", Argument("y"),
      "} node_def { name: 'drawn' op: 'RandomUniformInt' input: 'shape:output:0' input: 'x' ",
      "input: 'x'", Attr("T", "type: DT_INT32"), Attr("Tout", "type: DT_INT32"),
      " } node_def { name: 'shape' op: 'Const'", Attr("dtype", "type: DT_INT32"),
      Attr("value", "tensor { dtype: DT_INT32 tensor_shape { dim { size: 0 } } }"),
      " } ret { key: 'y' value: 'x' } } }");
}

TEST_F(LowerTest, EffectsRunBeforeWhatWaitsForTheCall) {
  Lower(CallWithEffect(
      "StatefulPartitionedCall",
      absl::StrCat(Attr("Tin", "list { type: DT_INT32 }"), Attr("Tout", "list { type: DT_INT32 }"),
                   Attr("f", "func { name: 'f' }"))));
  ASSERT_EQ(Get("after").control_inputs().size(), 1u);
  std::vector<std::string> waited = InputsOf(*Get("after").control_inputs()[0]);
  ASSERT_THAT(waited, Contains(HasSubstr("^Func/y/effects")));
  for (const auto& node : lowered_.graph->nodes()) {
    if (node->op() == "ControlTrigger") {
      EXPECT_THAT(InputsOf(*node), ElementsAre("^y/drawn"));
    }
    // Whoever reads the result does not wait.
    if (absl::StrContains(node->name(), "/output/")) {
      EXPECT_TRUE(node->control_inputs().empty());
    }
  }
}

TEST_F(LowerTest, EffectsOfACallByNameRunBeforeItsResults) {
  Lower(CallWithEffect("f", ""));
  const Node* const output = lowered_.outputs.at(Output(graph_.FindNode("y"), 0)).node;
  ASSERT_EQ(output->control_inputs().size(), 1u);
  EXPECT_THAT(InputsOf(*output->control_inputs()[0]), ElementsAre("^y/drawn"));
}

TEST_F(LowerTest, CallsOfAnotherExecutorAreNotWrittenOut) {
  Lower(CallWithEffect(
      "StatefulPartitionedCall",
      absl::StrCat(Attr("Tin", "list { type: DT_INT32 }"), Attr("Tout", "list { type: DT_INT32 }"),
                   Attr("executor_type", "s: 'NO_SUCH'"), Attr("f", "func { name: 'f' }"))));
  EXPECT_EQ(Get("y").op(), "StatefulPartitionedCall");
}

TEST_F(LowerTest, BodiesThatDoNotFitAreRefused) {
  Graph graph;
  Import(absl::StrCat("node { ", Number("x", 1), " } node { name: 'y' op: 'StatelessWhile' ",
                      "input: 'x'", Attr("T", "list { type: DT_INT32 }"), kLower,
                      Attr("cond", "func { name: 'f' }"), Attr("body", "func { name: 'f' }"),
                      " } library { function { signature { name: 'f' input_arg ", Argument("x"),
                      "output_arg ", Argument("y"), "} ret { key: 'y' value: 'x' } } }"),
         graph);
  const absl::Status status = LowerFunctions(graph, graph).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("must give one value of type bool"));
}

TEST_F(LowerTest, StepsOfTheOriginalAreFoundAgain) {
  Lower(LoopAndBranch());
  const Output loop(graph_.FindNode("loop"), 2);
  const Output exit = lowered_.outputs.at(loop);
  const Output stand_in(lowered_.graph->FindNode("loop"), 2);
  EXPECT_EQ(lowered_.Moved().at(stand_in), exit);
  // A feed replaces the value that readers read; a fetch waits for the node's effects.
  EXPECT_EQ(lowered_.Translate({{loop}, {}, {}}).feeds, std::vector<Output>{exit});
  EXPECT_EQ(lowered_.Translate({{}, {loop}, {}}).fetches, std::vector<Output>{stand_in});
  EXPECT_EQ(lowered_.Translate({{loop}, {loop}, {}}).fetches, std::vector<Output>{exit});
  EXPECT_EQ(lowered_.Translate({{}, {}, {loop.node}}).targets, std::vector<Node*>{stand_in.node});
}

TEST(LowerIfNeededTest, LeavesGraphsWithoutFunctionsAlone) {
  Graph graph;
  Scope(graph).ConstScalar<float>(1);
  EXPECT_EQ(*LowerIfNeeded(graph), nullptr);
  Graph with_loop;
  Import(LoopAndBranch(), with_loop);
  const auto lowered = LowerIfNeeded(with_loop);
  ASSERT_TRUE(lowered.ok() && *lowered != nullptr) << lowered.status();
  EXPECT_EQ((*lowered)->graph->functions().size(), with_loop.functions().size());
}

}  // namespace
}  // namespace muster
