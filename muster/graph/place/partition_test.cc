#include "muster/graph/place/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/status.h"
#include "muster/graph/build/graph_test_util.h"
#include "muster/graph/control_flow/while_context.h"

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

TEST_F(PartitionTest, WhatIsReadAnywayIsWaitedForByItsValue) {
  const Output x = X(first_, "x");
  const Output y = X(second_, "y");
  const std::vector<Node*> before = {x.node};
  second_.WithControlDependencies(before).Op("Neg", {y}, {}, "a");
  second_.Op("Exp", {x}, {}, "b");
  Cut();
  EXPECT_THAT(NodeList(*parts_[0].graph), ElementsAre("x Placeholder", "x_G0 _Send x"));
  EXPECT_THAT(NodeList(*parts_[1].graph),
              ElementsAre("y Placeholder", "x_G1 _Recv", "a Neg y,^x_G1", "b Exp x_G1"));
}

TEST_F(PartitionTest, SmallConstantsAreCopied) {
  const Output x = X(second_, "x");
  const Output small = first_.ConstScalar<float>(2);
  const Output large = first_.Const(Tensor(DType::kFloat, Shape({1000})));
  const Output late = first_.WithControlDependencies({X(first_, "y").node}).ConstScalar<float>(3);
  second_.Op("Mul", {x, small}, {}, "a");
  second_.Op("Add", {x, small}, {}, "b");
  second_.Op("Mul", {large, late}, {}, "c");
  Cut();
  EXPECT_THAT(NodeList(*parts_[0].graph),
              ElementsAre("Const Const", "Const_1 Const", "y Placeholder", "Const_2 Const ^y",
                          "Const_1_G1 _Send Const_1", "Const_2_G3 _Send Const_2"));
  EXPECT_THAT(NodeList(*parts_[1].graph),
              ElementsAre("x Placeholder", "Const_G0 Const", "a Mul x,Const_G0", "b Add x,Const_G0",
                          "Const_1_G2 _Recv", "Const_2_G4 _Recv", "c Mul Const_1_G2,Const_2_G4"));
  const Node* copy = parts_[1].graph->FindNode("Const_G0");
  EXPECT_EQ(copy->device(), kSecond);
  EXPECT_EQ(copy->Attr<Tensor>("value")->data<float>()[0], 2);
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

class PartitionOptionsTest : public PartitionTest {
 protected:
  absl::Status CutWith(const PartitionOptions& options) {
    RETURN_IF_ERROR(first_.status());
    RETURN_IF_ERROR(second_.status());
    ASSIGN_OR_RETURN(parts_, PartitionGraph(graph_, devices_, options));
    return absl::OkStatus();
  }
};

TEST_F(PartitionOptionsTest, TasksKeepTheirDevicesTogether) {
  constexpr char kOther[] = "/job:ps/replica:0/task:0/device:CPU:0";
  devices_.emplace_back();
  devices_[2].name = kOther;
  devices_[2].incarnation = 3;
  const Output x = X(Scope(graph_).WithDevice(kOther), "x");
  first_.Op("Neg", {x}, {}, "a");
  second_.Op("Exp", {x}, {}, "b");
  int64_t counter = 7;
  PartitionOptions options;
  options.by = PartitionOptions::By::kTask;
  options.counter = &counter;
  ASSERT_EQ(CutWith(options), absl::OkStatus());
  ASSERT_EQ(parts_.size(), 2u);
  EXPECT_EQ(parts_[0].task, "/job:localhost/replica:0/task:0");
  EXPECT_EQ(parts_[0].device, "");
  EXPECT_EQ(parts_[1].task, "/job:ps/replica:0/task:0");
  EXPECT_THAT(NodeList(*parts_[0].graph), ElementsAre("x_S8 _Recv", "a Neg x_S8", "b Exp x_S8"));
  EXPECT_THAT(NodeList(*parts_[1].graph), ElementsAre("x Placeholder", "x_S7 _Send x"));
  EXPECT_EQ(parts_[0].graph->FindNode("x_S8")->device(), kFirst);
  EXPECT_EQ(counter, 9);
  ASSERT_EQ(CutWith(options), absl::OkStatus());
  EXPECT_NE(parts_[1].graph->FindNode("x_S9"), nullptr);
}

class EarlyValuesTest : public PartitionOptionsTest {
 protected:
  static constexpr char kPs[] = "/job:ps/replica:0/task:0/device:CPU:0";
  static constexpr char kGpu[] = "/job:localhost/replica:0/task:0/device:GPU:0";

  EarlyValuesTest() {
    for (const char* name : {kPs, kGpu}) {
      DeviceAttributes device;
      device.name = name;
      device.device_type = name == kGpu ? "GPU" : "CPU";
      device.incarnation = devices_.size() + 1;
      devices_.push_back(device);
    }
    for (DeviceAttributes& device : devices_)
      if (device.device_type.empty()) device.device_type = "CPU";
  }
  Output Variable(const std::string& name) {
    return ps_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({2})}}, name);
  }
  // Which nodes receive something that their part can wait for before it begins.
  std::vector<std::string> Early(PartitionOptions::By by) {
    EXPECT_EQ(ps_.status(), absl::OkStatus());
    EXPECT_EQ(gpu_.status(), absl::OkStatus());
    PartitionOptions options;
    options.by = by;
    EXPECT_EQ(CutWith(options), absl::OkStatus());
    std::vector<std::string> names;
    for (const GraphPart& part : parts_) {
      for (const auto& node : part.graph->nodes())
        if (node->FindAttr(kEarlyAttr) != nullptr)
          names.push_back(*node->Attr<std::string>("tensor_name"));
    }
    return names;
  }

  const Scope ps_ = Scope(graph_).WithDevice(kPs);
  const Scope gpu_ = Scope(graph_).WithDevice(kGpu);
};

TEST_F(EarlyValuesTest, VariablesAreAndWhatComesBackIsNot) {
  const Output w = ps_.Op("Identity", {Variable("v")}, {}, "w");
  const Output a = gpu_.Op("Neg", {w}, {}, "a");
  const Output back = ps_.Op("Exp", {a}, {}, "back");
  gpu_.Op("Neg", {back}, {}, "b");
  EXPECT_THAT(Early(PartitionOptions::By::kTask), ElementsAre("edge_1_w"));
  EXPECT_THAT(Early(PartitionOptions::By::kDevice), ElementsAre("edge_1_w"));
}

TEST_F(EarlyValuesTest, WhatAnotherStepMustBringIsNot) {
  const Output queue =
      ps_.Op("FIFOQueueV2", {}, {{"component_types", std::vector<DType>{DType::kFloat}}});
  const Output taken = ps_.Op("QueueDequeueV2", {queue},
                              {{"component_types", std::vector<DType>{DType::kFloat}}}, "taken");
  gpu_.Op("Neg", {ps_.Op("Neg", {taken}, {}, "after")}, {}, "a");
  EXPECT_THAT(Early(PartitionOptions::By::kTask), ElementsAre());
}

TEST_F(EarlyValuesTest, WhatIsFedBeforeTheStepIs) {
  const Output fed = first_.Op("_Recv", {},
                               {{"tensor_name", std::string("fed")},
                                {"send_device", std::string(kFirst)},
                                {"send_device_incarnation", int64_t{1}},
                                {"recv_device", std::string(kFirst)},
                                {"client_terminated", true},
                                {"tensor_type", DType::kFloat}});
  gpu_.Op("Neg", {ps_.Op("Neg", {fed}, {}, "from_ps")}, {}, "a");
  EXPECT_THAT(Early(PartitionOptions::By::kTask), ElementsAre("fed"))
      << "but not what comes back from another task";
  gpu_.Op("Neg", {first_.Op("Neg", {fed}, {}, "next_to_it")}, {}, "b");
  EXPECT_THAT(Early(PartitionOptions::By::kDevice), ElementsAre())
      << "the master knows, not the task";
}

TEST_F(EarlyValuesTest, CpusAreNotAsked) {
  first_.Op("Neg", {ps_.Op("Identity", {Variable("v")}, {}, "w")}, {}, "a");
  EXPECT_THAT(Early(PartitionOptions::By::kTask), ElementsAre());
}

// Another device of the task hands on what it got from elsewhere.
TEST_F(EarlyValuesTest, OriginsInOtherTasksAreKnownByTheirMarks) {
  for (const bool is_early : {false, true}) {
    AttrMap attrs = {{"tensor_name", std::string(is_early ? "known" : "unknown")},
                     {"send_device", std::string(kPs)},
                     {"send_device_incarnation", int64_t{1}},
                     {"recv_device", std::string(kFirst)},
                     {"tensor_type", DType::kFloat}};
    if (is_early) attrs.emplace(kEarlyAttr, true);
    const Output received =
        first_.Op("_Recv", {}, std::move(attrs), is_early ? "known" : "unknown");
    gpu_.Op("Neg", {first_.Op("Neg", {received}, {}, absl::StrCat("neg", is_early))});
  }
  EXPECT_THAT(Early(PartitionOptions::By::kDevice), ElementsAre("known", "edge_3_neg1"));
}

TEST_F(PartitionOptionsTest, FloatsMayTravelShort) {
  const Output x = X(first_, "x");
  second_.Op("Neg", {x}, {}, "a");
  const Output i = Placeholder(first_, "i", DType::kInt32, PartialShape({2}));
  second_.Op("Neg", {i}, {}, "b");
  PartitionOptions options;
  options.bfloat16 = true;
  ASSERT_EQ(CutWith(options), absl::OkStatus());
  EXPECT_THAT(NodeList(*parts_[0].graph),
              ElementsAre("x Placeholder", "i Placeholder", "x_G0 Cast x", "x_G1 _Send x_G0",
                          "i_G4 _Send i"));
  EXPECT_THAT(NodeList(*parts_[1].graph), ElementsAre("x_G2 _Recv", "x_G3 Cast x_G2", "a Neg x_G3",
                                                      "i_G5 _Recv", "b Neg i_G5"));
  EXPECT_TRUE(*parts_[0].graph->FindNode("x_G0")->Attr<bool>("Truncate"));
  EXPECT_EQ(*parts_[1].graph->FindNode("x_G2")->Attr<DType>("tensor_type"), DType::kBfloat16);
  EXPECT_EQ(parts_[1].graph->FindNode("x_G3")->output_types()[0], DType::kFloat);
}

TEST_F(PartitionOptionsTest, ReferencesAreReadAfterOtherInputs) {
  const Output v =
      first_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({2})}}, "v");
  const Output before = X(second_, "before");
  const Output x = X(second_, "x");
  second_.WithControlDependencies(std::vector<Node*>{before.node}).Op("Mul", {v, x}, {}, "product");
  ASSERT_EQ(CutWith({}), absl::OkStatus());
  EXPECT_THAT(
      NodeList(*parts_[1].graph),
      ElementsAre("before Placeholder", "x Placeholder", "v_G0_G2 _Recv",
                  "product Mul v_G0_G2,x,^before", "before/ctrl_G3 Const ^before",
                  "before_G4 _Send before/ctrl_G3", "x/ctrl_G7 Const ^x", "x_G8 _Send x/ctrl_G7"));
  const Node* read = parts_[0].graph->FindNode("v_G0");
  ASSERT_NE(read, nullptr);
  EXPECT_EQ(read->control_inputs().size(), 2u);
  PartitionOptions options;
  options.is_prepared = true;
  ASSERT_EQ(CutWith(options), absl::OkStatus());
  EXPECT_THAT(NodeList(*parts_[1].graph),
              ElementsAre("before Placeholder", "x Placeholder", "v_G1 _Recv ^x,^before",
                          "product Mul v_G1,x,^before"));
}

TEST_F(PartitionOptionsTest, SwitchesOfReferencesStayWithThem) {
  const Output v =
      first_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({2})}}, "v");
  const Output p = Placeholder(second_, "p", DType::kBool, PartialShape::Scalar());
  const Output either = second_.Op("RefSwitch", {v, p}, {}, "switch");
  either.node->set_device(kSecond);
  second_.Op("Neg", {either}, {}, "a");
  ASSERT_EQ(CutWith({}), absl::OkStatus());
  EXPECT_EQ(parts_[0].graph->FindNode("switch")->device(), kFirst);
  EXPECT_THAT(NodeList(*parts_[1].graph),
              ElementsAre("p Placeholder", "switch_G3 _Recv", "a Neg switch_G3", "p_G0 _Send p"));
}

TEST_F(PartitionOptionsTest, PairsOfOthersStayAsTheyAre) {
  const auto pair = [&](const char* name, bool client, int64_t incarnation) {
    NodeSpec spec;
    spec.name = name;
    spec.op = "_HostRecv";
    spec.attrs = {{"tensor_type", DType::kFloat}, {"tensor_name", "edge_1_x"},
                  {"send_device", kSecond},       {"send_device_incarnation", incarnation},
                  {"recv_device", kFirst},        {"client_terminated", client}};
    spec.device = kFirst;
    ASSERT_EQ(graph_.AddNode(std::move(spec)).status(), absl::OkStatus());
  };
  pair("fed", true, 0);
  pair("known", false, 77);
  pair("unknown", false, 0);
  ASSERT_EQ(CutWith({}), absl::OkStatus());
  const auto incarnation = [&](const char* name) {
    return *parts_[0].graph->FindNode(name)->Attr<int64_t>("send_device_incarnation");
  };
  EXPECT_EQ(incarnation("fed"), 0);
  EXPECT_EQ(incarnation("known"), 77);
  EXPECT_EQ(incarnation("unknown"), 2);
}

TEST_F(PartitionOptionsTest, ALoopWithoutConditionCannotSpanDevices) {
  const Output x = X(first_, "x");
  const Output enter = first_.Op("Enter", {x}, {{"frame_name", "F"}}, "enter");
  const Output here = first_.Op("Neg", {enter}, {}, "here");
  second_.Op("Exp", {here}, {}, "there");
  EXPECT_EQ(CutWith({}),
            absl::InvalidArgumentError("A cross-device loop must have a pivot predicate: F"));
  PartitionOptions options;
  options.is_prepared = true;
  EXPECT_THAT(CutWith(options).message(), HasSubstr("The loop 'F' has no control loop on"));
}

// Time grows with nodes and edges, not with the number of devices.
TEST_F(PartitionOptionsTest, ManyNodesOnManyDevices) {
  constexpr int kTasks = 1000;
  devices_.resize(kTasks);
  std::vector<Output> nodes;
  for (int i = 0; i < kTasks; ++i) {
    devices_[i].name = absl::StrCat("/job:worker/replica:0/task:", i, "/device:CPU:0");
    devices_[i].incarnation = i + 1;
    nodes.push_back(X(Scope(graph_).WithDevice(devices_[i].name), absl::StrCat("x", i)));
  }
  for (int i = 0; i < 9000; ++i) {
    const Scope there = Scope(graph_).WithDevice(devices_[i % kTasks].name);
    nodes.push_back(there.Op("Mul", {nodes[i], nodes[i + 1]}, {}, absl::StrCat("y", i)));
  }
  PartitionOptions options;
  options.by = PartitionOptions::By::kTask;
  ASSERT_EQ(CutWith(options), absl::OkStatus());
  EXPECT_EQ(parts_.size(), static_cast<size_t>(kTasks));
}

}  // namespace
}  // namespace muster
