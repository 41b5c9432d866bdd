// Malformed loops: each is an error, and no step waits for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/client/session.h"
#include "muster/graph/build/scope.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

class SessionLoopsTest : public testing::Test {
 protected:
  Output Number(int32_t value) { return scope_.ConstScalar<int32_t>(value); }
  Output Enter(const std::string& frame) {
    return scope_.Op("Enter", {Number(1)}, {{"frame_name", frame}}, "enter");
  }
  // A Merge of `first` and its own back edge.
  Output Merge(Output first, Output* next) {
    NodeSpec spec;
    spec.name = "merge";
    spec.op = "Merge";
    spec.flat_inputs = std::vector<Output>{first, Output()};
    spec.attrs = {{"N", int64_t{2}}, {"T", DType::kInt32}};
    Node* const merge = graph_.AddNode(std::move(spec)).value();
    *next = scope_.Op("NextIteration", {Output(merge, 0)}, {}, "next");
    EXPECT_EQ(graph_.UpdateInput(*merge, 1, *next), absl::OkStatus());
    return Output(merge, 0);
  }

  absl::Status Fetch(Output output) { return Run({output}, {}); }
  absl::Status Target(Output output) { return Run({}, {output.node}); }
  absl::Status Run(std::vector<Output> fetches, std::vector<Node*> targets) {
    EXPECT_EQ(scope_.status(), absl::OkStatus());
    SessionOptions options;
    options.operation_timeout = absl::Seconds(20);
    const auto session = Session::Create(graph_, options);
    if (!session.ok()) return session.status();
    return (*session)->Run({}, fetches, targets).status();
  }
  static void ExpectRefused(const absl::Status& status, const std::string& text) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  Graph graph_;
  Scope scope_{graph_};
};

TEST_F(SessionLoopsTest, NothingInsideOfALoopIsFetched) {
  const Output inside = scope_.Op("Neg", {Enter("f")}, {}, "inside");
  ExpectRefused(Fetch(inside), "Tensor 'inside:0' cannot be fetched: it is inside of the loop 'f'");
  EXPECT_EQ(Target(inside), absl::OkStatus());
  EXPECT_EQ(Fetch(scope_.Op("Exit", {inside})), absl::OkStatus());
}

TEST_F(SessionLoopsTest, NextIterationOutsideOfALoop) {
  const Output next = scope_.Op("NextIteration", {Number(1)}, {}, "next");
  const char kSays[] = "Node 'next' goes on with a loop that was never entered";
  ExpectRefused(Fetch(next), kSays);
  ExpectRefused(Target(next), kSays);
}

TEST_F(SessionLoopsTest, ARoundOutsideOfALoop) {
  Output next;
  const Output merge = Merge(Number(1), &next);
  ExpectRefused(Fetch(merge), "Node 'next' goes on with a loop that was never entered");
}

TEST_F(SessionLoopsTest, ALoopWithoutASwitchCanNeverEnd) {
  Output next;
  Merge(Enter("f"), &next);
  ExpectRefused(Target(next),
                "The loop 'f' can never end: no Switch is between its Merge 'merge' and its "
                "NextIteration 'next'");
}

TEST_F(SessionLoopsTest, ALoopHasAName) {
  ExpectRefused(Target(Enter("")), "The Enter {{node enter}} must have a frame name.");
}

}  // namespace
}  // namespace muster
