// Functions that are called while a step runs, and what becomes of steps that do not end.
#include "google/protobuf/text_format.h"
#include "tensorflow/core/framework/graph.pb.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/client/session.h"
#include "muster/graph/proto/graph_proto.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

std::string Attr(const std::string& name, const std::string& value) {
  return absl::StrCat(" attr { key: '", name, "' value { ", value, " } }");
}
const std::string kInt = Attr("T", "type: DT_INT32");

std::string Number(const std::string& name, int value) {
  return absl::StrCat(
      "name: '", name, "' op: 'Const'", Attr("dtype", "type: DT_INT32"),
      Attr("value",
           absl::StrCat("tensor { dtype: DT_INT32 tensor_shape { } int_val: ", value, " }")));
}

// A function of one number that gives one.
std::string Function(const std::string& name, const std::string& nodes, const std::string& result,
                     const std::string& result_type = "DT_INT32") {
  return absl::StrCat("function { signature { name: '", name,
                      "' input_arg { name: 'x' type: DT_INT32 } output_arg { name: 'y' type: ",
                      result_type, " } } ", nodes, " ret { key: 'y' value: '", result, "' } } ");
}

class SessionFunctionsTest : public testing::Test {
 protected:
  // `node` reads the placeholder "x".
  void Make(const std::string& node, const std::string& library, SessionOptions options = {}) {
    tensorflow::GraphDef proto;
    const std::string text =
        absl::StrCat("node { name: 'x' op: 'Placeholder'", Attr("dtype", "type: DT_INT32"), " } ",
                     "node { ", node, " } library { ", library, " }");
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &proto)) << text;
    proto.mutable_versions()->set_producer(2474);
    const auto imported = ImportGraph(graph_, proto);
    ASSERT_TRUE(imported.ok()) << imported.status();
    session_ = Session::Create(graph_, options).value();
  }

  absl::StatusOr<int32_t> Run(int32_t x) {
    auto result = session_->Run({{Output(graph_.FindNode("x"), 0), Tensor::Scalar<int32_t>(x)}},
                                {Output(graph_.FindNode("y"), 0)});
    if (!result.ok()) return result.status();
    return (*result)[0].scalar<int32_t>();
  }

  // "sum": zero for zero, otherwise what the branch gives. "more" is x + sum(x - 1), "same" sum(x).
  static std::string Recursive(const std::string& then_branch) {
    const std::string branch = absl::StrCat(
        "node_def { name: 'if' op: 'If' input: 'x' input: 'x'", Attr("Tcond", "type: DT_INT32"),
        Attr("Tin", "list { type: DT_INT32 }"), Attr("Tout", "list { type: DT_INT32 }"),
        Attr("then_branch", absl::StrCat("func { name: '", then_branch, "' }")),
        Attr("else_branch", "func { name: 'zero' }"), " }");
    return absl::StrCat(
        Function("sum", branch, "if:output:0"),
        Function("more",
                 absl::StrCat("node_def { ", Number("one", 1), " } ",
                              "node_def { name: 'less' op: 'Sub' input: 'x' input: 'one:output:0'",
                              kInt, " } node_def { name: 'rest' op: 'sum' input: 'less:z:0' } ",
                              "node_def { name: 'add' op: 'AddV2' input: 'rest:y:0' input: 'x'",
                              kInt, " }"),
                 "add:z:0"),
        Function("same", "node_def { name: 'rest' op: 'sum' input: 'x' }", "rest:y:0"),
        Function("zero", absl::StrCat("node_def { ", Number("none", 0), " }"), "none:output:0"));
  }

  static std::string Loop(const std::string& more) {
    return absl::StrCat("name: 'y' op: 'While' input: 'x'", Attr("T", "list { type: DT_INT32 }"),
                        Attr("cond", "func { name: 'always' }"),
                        Attr("body", "func { name: 'identity' }"), more);
  }
  static std::string LoopFunctions() {
    return absl::StrCat(
        Function(
            "always",
            absl::StrCat("node_def { name: 'equal' op: 'Equal' input: 'x' input: 'x'", kInt, " }"),
            "equal:z:0", "DT_BOOL"),
        Function("identity",
                 absl::StrCat("node_def { name: 'i' op: 'Identity' input: 'x'", kInt, " }"),
                 "i:output:0"));
  }

  Graph graph_;
  std::unique_ptr<Session> session_;
};

TEST_F(SessionFunctionsTest, Recursion) {
  Make("name: 'y' op: 'sum' input: 'x'", Recursive("more"));
  EXPECT_EQ(Run(0).value(), 0);
  EXPECT_EQ(Run(4).value(), 10);
  EXPECT_EQ(Run(100).value(), 5050);
}

TEST_F(SessionFunctionsTest, RecursionWithoutEndIsAnError) {
  Make("name: 'y' op: 'sum' input: 'x'", Recursive("same"));
  const absl::Status status = Run(1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("calls may be nested"));
  EXPECT_EQ(Run(0).value(), 0);
}

TEST_F(SessionFunctionsTest, CalledLoopsEndWithTheirDeadline) {
  SessionOptions options;
  options.operation_timeout = absl::Milliseconds(50);
  Make(Loop(""), LoopFunctions(), options);
  EXPECT_EQ(Run(1).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(SessionFunctionsTest, WrittenOutLoopsEndWithTheirDeadline) {
  SessionOptions options;
  options.operation_timeout = absl::Milliseconds(50);
  Make(Loop(Attr("_lower_using_switch_merge", "b: true")), LoopFunctions(), options);
  EXPECT_EQ(Run(1).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(SessionFunctionsTest, FunctionsUseSeveralDevices) {
  SessionOptions options;
  options.devices.cpu_devices = 2;
  Make("name: 'y' op: 'double' input: 'x'",
       absl::StrCat("function { signature { name: 'double' input_arg { name: 'x' type: DT_INT32 } "
                    "output_arg { name: 'y' type: DT_INT32 } } ",
                    Attr("_noinline", "b: true"),
                    " node_def { name: 'neg' op: 'Neg' input: 'x' device: '/device:CPU:1'", kInt,
                    " } node_def { name: 'sub' op: 'Sub' input: 'x' input: 'neg:y:0' device: "
                    "'/device:CPU:0'",
                    kInt, " } ret { key: 'y' value: 'sub:z:0' } }"),
       options);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Run(i).value(), 2 * i);
}

}  // namespace
}  // namespace muster
