// GraphDefs whose parts contradict each other: the errors of import and export.
#include "google/protobuf/text_format.h"
#include "tensorflow/core/framework/graph.pb.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/graph/proto/graph_proto.h"
#include "muster/graph/rewrite/lower.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

std::string Attr(const std::string& name, const std::string& value) {
  return absl::StrCat(" attr { key: '", name, "' value { ", value, " } }");
}
const std::string kInt = Attr("T", "type: DT_INT32");
const std::string kInts = "list { type: DT_INT32 }";

std::string Constant(const std::string& dtype) {
  return absl::StrCat("node { name: 'x' op: 'Const'", Attr("dtype", absl::StrCat("type: ", dtype)),
                      Attr("value", "tensor { dtype: DT_INT32 tensor_shape { } int_val: 1 }"),
                      " } ");
}
std::string Colocated(const std::string& name, const std::string& with) {
  return absl::StrCat("node { name: '", name, "' op: 'Identity' input: 'x'", kInt,
                      Attr("_class", absl::StrCat("list { s: 'loc:@", with, "' }")), " } ");
}
// The function F gives back its argument; `more` is added to its signature.
std::string Library(const std::string& more, const std::string& gradients = "") {
  return absl::StrCat(
      "library { function { signature { name: 'F' input_arg { name: 'a' type: DT_INT32 } "
      "output_arg { name: 'y' type: DT_INT32 } ",
      more, " } node_def { name: 'id' op: 'Identity' input: 'a'", kInt,
      " } ret { key: 'y' value: 'id:output:0' } } ", gradients, "} ");
}
std::string Call(const std::string& inputs, const std::string& arguments,
                 const std::string& results) {
  return absl::StrCat("node { name: 'c' op: 'PartitionedCall' ", inputs, Attr("Tin", arguments),
                      Attr("Tout", results), Attr("f", "func { name: 'F' }"), " } ");
}

tensorflow::GraphDef Parse(const std::string& text) {
  tensorflow::GraphDef graph;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &graph)) << text;
  graph.mutable_versions()->set_producer(134);
  return graph;
}

struct Malformed {
  std::string graph;
  std::string says;
};

TEST(MalformedGraphTest, IsNotImported) {
  const std::string x = Constant("DT_INT32");
  const std::vector<Malformed> cases = {
      {Constant("DT_FLOAT"), "Type mismatch between value (int32) and dtype (float) for 'x'"},
      {Constant("DT_STRING"), "Type mismatch between value (int32) and dtype (string) for 'x'"},
      {x + Colocated("y", "nowhere"),
       "Node 'y' expects to be colocated with unknown node 'nowhere'"},
      {x + Library("attr { name: 'T' type: 'int' default_value { i: 1 } } "
                   "attr { name: 'T' type: 'int' default_value { i: 2 } }"),
       "Function 'F': Duplicate name: attr 'T' is there twice"},
      {x + Library("input_arg { name: 'a' type: DT_INT32 }"),
       "Function 'F': Duplicate name: input 'a' is there twice"},
      {x + Library("output_arg { name: 'y' type: DT_INT32 }"),
       "Function 'F': Duplicate name: output 'y' is there twice"},
      {x + Library("",
                   "gradient { function_name: 'F' gradient_func: 'G' } "
                   "gradient { function_name: 'F' gradient_func: 'H' } "),
       "Cannot assign gradient function 'H' to 'F' because it already has gradient function 'G'"},
  };
  for (const Malformed& malformed : cases) {
    Graph graph;
    const absl::Status status = ImportGraph(graph, Parse(malformed.graph)).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status << "\n" << malformed.graph;
    EXPECT_THAT(std::string(status.message()), HasSubstr(malformed.says));
    EXPECT_EQ(graph.num_nodes(), 0);
  }
}

TEST(MalformedGraphTest, ColocationMayNameANodeThatCameBefore) {
  Graph graph;
  ImportOptions options;
  options.colocate_with_existing = true;
  ASSERT_EQ(ImportGraph(graph, Parse(Constant("DT_INT32")), options).status(), absl::OkStatus());
  options.input_map = {{"x", Output(graph.FindNode("x"), 0)}};
  EXPECT_EQ(ImportGraph(graph, Parse(Colocated("y", "x")), options).status(), absl::OkStatus());
  EXPECT_THAT(
      std::string(ImportGraph(graph, Parse(Colocated("z", "gone")), options).status().message()),
      HasSubstr("Node 'z' expects to be colocated with unknown node 'gone'"));
}

TEST(MalformedGraphTest, CallsThatDoNotFitTheirFunction) {
  const std::string x = Constant("DT_INT32");
  const std::vector<Malformed> cases = {
      {Call("input: 'x'", kInts, "list { type: DT_STRING }"),
       "Output 0 of type int32 does not match declared output type string for node {{node c}}"},
      {Call("input: 'x' input: 'x'", "list { type: DT_INT32 type: DT_INT32 }", kInts),
       "Call 'c' has 2 arguments where the function takes 1"},
      {Call("", "list { }", kInts), "Call 'c' has no fitting argument 0"},
      {Call("input: 'x'", kInts, "list { type: DT_INT32 type: DT_INT32 }"), "has no result 1"},
      {Call("input: 'x'", kInts, "list { }"), "Call 'c' takes no result 0"},
  };
  for (const Malformed& malformed : cases) {
    Graph graph;
    ASSERT_EQ(ImportGraph(graph, Parse(x + malformed.graph + Library(""))).status(),
              absl::OkStatus());
    const absl::Status status = LowerFunctions(graph, graph).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(malformed.says));
  }
}

}  // namespace
}  // namespace muster
