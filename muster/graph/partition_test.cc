#include "muster/graph/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/graph/graph_test_util.h"
#include "muster/graph/while_context.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kFirst[] = "/job:localhost/replica:0/task:0/device:CPU:0";
constexpr char kSecond[] = "/job:localhost/replica:0/task:0/device:CPU:1";

class PartitionTest : public ::testing::Test {
 protected:
  PartitionTest()
      : first_(Scope(graph_).WithDevice(kFirst)), second_(Scope(graph_).WithDevice(kSecond)) {
    devices_.resize(2);
    devices_[0].name = kFirst;
    devices_[0].incarnation = 0xC000000000000001;
    devices_[1].name = kSecond;
    devices_[1].incarnation = 2;
  }
  void Cut() {
    ASSERT_EQ(first_.status(), absl::OkStatus());
    ASSERT_EQ(second_.status(), absl::OkStatus());
    auto parts = PartitionGraph(graph_, devices_);
    ASSERT_EQ(parts.status(), absl::OkStatus());
    parts_ = *std::move(parts);
  }
  Output X(const Scope& scope, absl::string_view name) {
    return Placeholder(scope, name, DType::kFloat, PartialShape({2}));
  }

  Graph graph_;
  Scope first_, second_;
  std::vector<DeviceAttributes> devices_;
  std::vector<GraphPart> parts_;
};

TEST_F(PartitionTest, OnePairPerTensorAndDestination) {
  const Output x = X(first_, "x");
  const Output a = second_.Op("Neg", {x}, {}, "a");
  const Output b = second_.Op("Mul", {x, a}, {}, "b");
  first_.Op("Exp", {b}, {}, "c");
  Cut();
  ASSERT_EQ(parts_.size(), 2u);
  EXPECT_EQ(parts_[0].device, kFirst);
  EXPECT_THAT(NodeList(*parts_[0].graph),
              ElementsAre("x Placeholder", "b_G3 _Recv", "c Exp b_G3", "x_G0 _Send x"));
  EXPECT_THAT(NodeList(*parts_[1].graph),
              ElementsAre("x_G1 _Recv", "a Neg x_G1", "b Mul x_G1,a", "b_G2 _Send b"));
  const Node* send = parts_[0].graph->FindNode("x_G0");
  const Node* recv = parts_[1].graph->FindNode("x_G1");
  for (const Node* node : {send, recv}) {
    EXPECT_EQ(*node->Attr<std::string>("tensor_name"), "edge_0_x");
    EXPECT_EQ(*node->Attr<std::string>("send_device"), kFirst);
    EXPECT_EQ(*node->Attr<std::string>("recv_device"), kSecond);
    EXPECT_EQ(static_cast<uint64_t>(*node->Attr<int64_t>("send_device_incarnation")),
              0xC000000000000001);
    EXPECT_FALSE(*node->Attr<bool>("client_terminated"));
  }
  EXPECT_EQ(*send->Attr<DType>("T"), DType::kFloat);
  EXPECT_EQ(*recv->Attr<DType>("tensor_type"), DType::kFloat);
  EXPECT_EQ(recv->device(), kSecond);
  EXPECT_EQ(recv->output_shape(0), PartialShape({2}));
}

TEST_F(PartitionTest, WaitingCrossesAsAnEmptyTensor) {
  const Output x = X(first_, "x");
  const Output y = X(second_, "y");
  const std::vector<Node*> before = {x.node};
  second_.WithControlDependencies(before).Op("Neg", {y}, {}, "a");
  second_.WithControlDependencies(before).Op("Exp", {y}, {}, "b");
  Cut();
  EXPECT_THAT(NodeList(*parts_[0].graph),
              ElementsAre("x Placeholder", "x/ctrl_G0 Const ^x", "x_G1 _Send x/ctrl_G0"));
  EXPECT_THAT(NodeList(*parts_[1].graph),
              ElementsAre("y Placeholder", "x_G2 _Recv", "x_G3 Identity x_G2", "a Neg y,^x_G3",
                          "b Exp y,^x_G3"));
  const Tensor value = *parts_[0].graph->FindNode("x/ctrl_G0")->Attr<Tensor>("value");
  EXPECT_EQ(value.dtype(), DType::kFloat);
  EXPECT_EQ(value.shape(), Shape({0}));
}

TEST_F(PartitionTest, ReferencesAreSentAsValuesToEachReader) {
  const Output v =
      first_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({2})}}, "v");
  second_.Op("Neg", {v}, {}, "a");
  second_.Op("Exp", {v}, {}, "b");
  Cut();
  EXPECT_THAT(NodeList(*parts_[1].graph),
              ElementsAre("v_G1 _Recv", "a Neg v_G1", "v_G3 _Recv", "b Exp v_G3"));
  EXPECT_EQ(parts_[1].graph->FindNode("v_G1")->output_types()[0], DType::kFloat);
}

TEST_F(PartitionTest, ReferencesCannotBeChangedFromElsewhere) {
  const Output v =
      first_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({2})}}, "v");
  const Output assign = second_.Op("Assign", {v, X(second_, "x")}, {}, "assign");
  // Scopes colocate it with the variable; a graph from elsewhere need not.
  assign.node->set_device(X(second_, "elsewhere").node->device());
  EXPECT_THAT(PartitionGraph(graph_, devices_).status().message(),
              HasSubstr("'assign' changes what 'v' refers to"));
}

TEST_F(PartitionTest, ALoopAcrossDevicesGetsControlLoops) {
  const auto loop = [&](const Scope& where) {
    return WhileLoop(
        where, {where.ConstScalar<float>(0)},
        [&](const Scope& s, const std::vector<Output>& v) -> absl::StatusOr<Output> {
          return s.Op("Less", {v[0], s.ConstScalar<float>(5)});
        },
        [&](const Scope& s, const std::vector<Output>& v) -> absl::StatusOr<std::vector<Output>> {
          return std::vector<Output>{s.WithDevice(kSecond).Op("AddV2", {v[0], v[0]}, {}, "twice")};
        });
  };
  ASSERT_EQ(loop(second_).status(), absl::OkStatus());
  Cut();
  EXPECT_EQ(parts_.size(), 1u);
}

TEST_F(PartitionTest, EveryNodeNeedsAKnownDevice) {
  X(Scope(graph_), "x");
  EXPECT_EQ(PartitionGraph(graph_, devices_).status().message(),
            "Node 'x' is missing a device specification");
  graph_.FindNode("x")->set_device("/device:CPU:9");
  EXPECT_EQ(PartitionGraph(graph_, devices_).status().message(), "/device:CPU:9 unknown device.");
}

}  // namespace
}  // namespace muster
