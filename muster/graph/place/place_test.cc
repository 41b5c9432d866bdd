#include "muster/graph/place/place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/graph/build/graph_test_util.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

constexpr char kTask[] = "/job:localhost/replica:0/task:0";

class PlaceTest : public ::testing::Test {
 protected:
  PlaceTest() : scope_(graph_) {}

  absl::StatusOr<Placement> Place(bool soft = false, bool explain = false) {
    EXPECT_EQ(scope_.status(), absl::OkStatus());
    const std::vector<std::string> devices = {absl::StrCat(kTask, "/device:CPU:0"),
                                              absl::StrCat(kTask, "/device:CPU:1")};
    PlaceOptions options;
    options.allow_soft_placement = soft;
    options.explain = explain;
    return PlaceGraph(graph_, devices, options);
  }
  int DeviceOf(Output output, bool soft = false) {
    const auto placement = Place(soft);
    EXPECT_EQ(placement.status(), absl::OkStatus());
    return placement.ok() ? placement->devices[output.node->id()] : -1;
  }
  Output X(const Scope& scope, absl::string_view name = "x") {
    return scope.Op("PlaceholderWithDefault", {scope.WithoutDevices().ConstScalar<float>(1)},
                    {{"shape", PartialShape::Scalar()}}, name);
  }
  Output Variable(const Scope& scope, absl::string_view name) {
    return scope.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape::Scalar()}},
                    name);
  }

  Graph graph_;
  Scope scope_;
};

TEST_F(PlaceTest, PartialNamesAndTheDefault) {
  EXPECT_EQ(DeviceOf(X(scope_)), 0);
  EXPECT_EQ(DeviceOf(X(scope_.WithDevice("/cpu:1"))), 1);
  EXPECT_EQ(DeviceOf(X(scope_.WithDevice("/device:CPU:1"))), 1);
  EXPECT_EQ(DeviceOf(X(scope_.WithDevice("/job:localhost"))), 0);
  EXPECT_EQ(DeviceOf(X(scope_.WithDevice(absl::StrCat(kTask, "/device:CPU:1")))), 1);
}

TEST_F(PlaceTest, ErrorsInTensorFlowsWords) {
  X(scope_.WithDevice("/cpu:7"));
  EXPECT_EQ(Place().status().message(),
            "Cannot assign a device for operation x: {{node x}} was explicitly assigned to "
            "/device:CPU:7 but available "
            "devices are [ /job:localhost/replica:0/task:0/device:CPU:0, "
            "/job:localhost/replica:0/task:0/device:CPU:1 ]. "
            "Make sure the device specification refers to a valid device.\n\t [[x]]");
}

TEST_F(PlaceTest, GpusAreMissed) {
  X(scope_.WithDevice("/gpu:0"));
  EXPECT_THAT(Place().status().message(),
              HasSubstr("refers to a valid device. The requested device appears to be a GPU, but "
                        "CUDA is not enabled.\n\t [[x]]"));
}

TEST_F(PlaceTest, SoftPlacementKeepsTheTask) {
  const Output x = X(scope_.WithDevice("/gpu:0"));
  EXPECT_EQ(DeviceOf(x, /*soft=*/true), 0);
  X(scope_.WithDevice("/job:worker/task:3"), "y");
  EXPECT_THAT(Place(/*soft=*/true).status().message(),
              HasSubstr("{{node y}} was explicitly assigned to /job:worker/task:3"));
}

TEST_F(PlaceTest, ColocationWinsOrComplains) {
  const Output v = Variable(scope_.WithDevice("/cpu:1"), "v");
  const Output y = scope_.ColocatedWith(*v.node).Op("Neg", {X(scope_)}, {}, "y");
  EXPECT_EQ(DeviceOf(y), 1);
  y.node->set_device("/device:CPU:0");
  EXPECT_EQ(Place().status().message(),
            "Cannot colocate nodes {{colocation_node y}} and {{colocation_node v}}: Cannot merge "
            "devices with incompatible "
            "ids: '/device:CPU:1' and '/device:CPU:0'\n\t [[{{node y}}]]");
  EXPECT_EQ(DeviceOf(y, /*soft=*/true), DeviceOf(v, /*soft=*/true));
}

TEST_F(PlaceTest, ReadersOfAMissingNodeAreTogether) {
  const AttrMap group = {{"_class", std::vector<std::string>{"loc:@gone"}}};
  const Output a = scope_.WithDevice("/cpu:1").Op("Neg", {X(scope_)}, group, "a");
  const Output b = scope_.Op("Exp", {X(scope_)}, group, "b");
  EXPECT_EQ(DeviceOf(a), 1);
  EXPECT_EQ(DeviceOf(b), 1);
}

TEST_F(PlaceTest, HandlesHoldTheirUsers) {
  const Output v = Variable(scope_.WithDevice("/cpu:1"), "v");
  const Output assign = scope_.WithDevice("/cpu:0").Op("Assign", {v, X(scope_)}, {}, "assign");
  const Output read = scope_.Op("Identity", {v}, {}, "read");
  const Output handle = scope_.WithDevice("/cpu:1").Op(
      "VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape::Scalar()}}, "handle");
  const Output value = scope_.Op("ReadVariableOp", {handle}, {{"dtype", DType::kFloat}}, "value");
  EXPECT_EQ(DeviceOf(assign), 1);
  EXPECT_EQ(DeviceOf(read), 0);
  EXPECT_EQ(DeviceOf(value), 1);
}

TEST_F(PlaceTest, ConstantsFollowReadersAndShapesTheirInput) {
  const Scope second = scope_.WithDevice("/cpu:1");
  const Output constant = scope_.ConstScalar<float>(1, "constant");
  const Output y = second.Op("Neg", {constant}, {}, "y");
  const Output shape = scope_.Op("Shape", {y}, {}, "shape");
  EXPECT_EQ(DeviceOf(constant), 1);
  EXPECT_EQ(DeviceOf(shape), 1);
  scope_.Op("Exp", {constant}, {}, "z");
  EXPECT_EQ(DeviceOf(constant), 0);
}

TEST_F(PlaceTest, Explains) {
  const Output x = X(scope_.WithDevice("/cpu:1"));
  const auto placement = Place(false, /*explain=*/true);
  ASSERT_EQ(placement.status(), absl::OkStatus());
  EXPECT_EQ(placement->reasons[x.node->id()],
            "x (PlaceholderWithDefault) is on /job:localhost/replica:0/task:0/device:CPU:1: it "
            "asked for '/device:CPU:1'; candidates: "
            "/job:localhost/replica:0/task:0/device:CPU:1; not "
            "/job:localhost/replica:0/task:0/device:CPU:0: not in '/device:CPU:1'");
}

TEST_F(PlaceTest, MalformedNames) {
  const Output x = X(scope_);
  x.node->set_device("/what:3");
  EXPECT_EQ(Place().status().message(),
            "Malformed device specification '/what:3' in node: {{node x}}");
}

constexpr char kPs[] = "/job:ps/replica:0/task:0/device:CPU:0";
constexpr char kWorker[] = "/job:worker/replica:0/task:0/device:CPU:0";
constexpr char kGpu[] = "/job:worker/replica:0/task:0/device:GPU:0";

class PlaceInClusterTest : public PlaceTest {
 protected:
  absl::StatusOr<Placement> PlaceIn(std::vector<std::string> devices) {
    EXPECT_EQ(scope_.status(), absl::OkStatus());
    names_ = std::move(devices);
    return PlaceGraph(graph_, names_, options_);
  }
  std::string NameOf(Output output, std::vector<std::string> devices) {
    const auto placement = PlaceIn(std::move(devices));
    EXPECT_EQ(placement.status(), absl::OkStatus());
    return placement.ok() ? names_[placement->devices[output.node->id()]] : "";
  }

  std::vector<std::string> names_;
  PlaceOptions options_;
};

TEST_F(PlaceInClusterTest, FirstByNameOrOfTheLocalTask) {
  const Output x = X(scope_);
  EXPECT_EQ(NameOf(x, {kWorker, kPs}), kPs);
  options_.local_task = "/job:worker/replica:0/task:0";
  EXPECT_EQ(NameOf(x, {kPs, kWorker}), kWorker);
  EXPECT_EQ(NameOf(x, {kPs, kWorker, kGpu}), kGpu);
  const Output pinned = X(scope_.WithDevice("/job:ps"), "pinned");
  EXPECT_EQ(NameOf(pinned, {kPs, kWorker, kGpu}), kPs);
}

TEST_F(PlaceInClusterTest, KernelsDecideAboutTypes) {
  options_.supports = [](const Node& node, absl::string_view type) {
    return type == "CPU" || node.op() != "Neg";
  };
  const Output x = X(scope_);
  const Output y = scope_.Op("Neg", {x}, {}, "y");
  EXPECT_EQ(NameOf(x, {kWorker, kGpu}), kGpu);
  EXPECT_EQ(NameOf(y, {kWorker, kGpu}), kWorker);
  y.node->set_device("/job:worker/device:GPU:0");
  EXPECT_EQ(PlaceIn({kWorker, kGpu}).status().message(),
            "Cannot assign a device for operation y: Could not satisfy explicit device "
            "specification '/job:worker/device:GPU:0' because no supported kernel for GPU devices "
            "is available: Neg has kernels for CPU\n\t [[y]]");
  options_.allow_soft_placement = true;
  EXPECT_EQ(NameOf(y, {kWorker, kGpu}), kWorker);
}

TEST_F(PlaceInClusterTest, KernelsMayBeTheLastChoice) {
  options_.supports = [](const Node& node, absl::string_view type) {
    return type == "GPU" && node.op() == "Neg" ? 1 : 2;
  };
  const Output x = X(scope_);
  const Output y = scope_.Op("Neg", {x}, {}, "y");
  EXPECT_EQ(NameOf(x, {kWorker, kGpu}), kGpu);
  EXPECT_EQ(NameOf(y, {kWorker, kGpu}), kWorker);
  y.node->set_device("/job:worker");
  EXPECT_EQ(NameOf(y, {kWorker, kGpu}), kWorker);
  y.node->set_device("/job:worker/device:GPU:0");
  EXPECT_EQ(NameOf(y, {kWorker, kGpu}), kGpu);
  // What must be with it goes where it prefers to be.
  y.node->set_device("");
  const Output with = scope_.ColocatedWith(*y.node).Op("Abs", {x}, {}, "with");
  EXPECT_EQ(NameOf(with, {kWorker, kGpu}), kWorker);
}

TEST_F(PlaceInClusterTest, TheDefaultDeviceIsPreferred) {
  options_.supports = [](const Node& node, absl::string_view type) {
    return type != "GPU" || node.op() != "Neg";
  };
  const Output x = X(scope_);
  const Output y = scope_.Op("Neg", {x}, {}, "y");
  const Output asked = X(scope_.WithDevice("/device:GPU:0"), "asked");
  options_.default_device = kWorker;
  EXPECT_EQ(NameOf(x, {kWorker, kGpu}), kWorker);
  EXPECT_EQ(NameOf(asked, {kWorker, kGpu}), kGpu);
  options_.default_device = kGpu;
  EXPECT_EQ(NameOf(x, {kWorker, kGpu}), kGpu);
  EXPECT_EQ(NameOf(y, {kWorker, kGpu}), kWorker);
}

TEST_F(PlaceInClusterTest, KernelsOfOtherTasksAreTheirMatter) {
  options_.supports = [](const Node& node, absl::string_view) { return node.op() != "Neg"; };
  options_.local_task = "/job:worker/replica:0/task:0";
  const Output y = scope_.WithDevice("/job:ps").Op("Neg", {X(scope_)}, {}, "y");
  EXPECT_EQ(NameOf(y, {kWorker, kPs}), kPs);
  y.node->set_device("");
  EXPECT_THAT(PlaceIn({kWorker, kPs}).status().message(),
              HasSubstr("No OpKernel was registered to support Op 'Neg' used by {{node y}}"));
}

TEST_F(PlaceInClusterTest, NoTypeForBothOfAGroup) {
  options_.supports = [](const Node& node, absl::string_view type) {
    return (type == "CPU") == (node.op() != "Neg");
  };
  const Output x = X(scope_);
  const Output y = scope_.ColocatedWith(*x.node).Op("Neg", {x}, {}, "y");
  EXPECT_EQ(PlaceIn({kWorker, kGpu}).status().message(),
            "Cannot colocate nodes {{colocation_node y}} and {{colocation_node x}} because no "
            "device type supports both of those nodes and the other nodes colocated with them."
            "\n\t [[{{node y}}]]");
  options_.allow_soft_placement = true;
  EXPECT_EQ(NameOf(y, {kWorker, kGpu}), kGpu);
}

TEST_F(PlaceInClusterTest, WhatWasPlacedStays) {
  const Output v = Variable(scope_, "v");
  const Output assign = scope_.Op("Assign", {v, X(scope_)}, {}, "assign");
  options_.fixed[v.node->id()] = 1;
  EXPECT_EQ(NameOf(v, {kPs, kWorker}), kWorker);
  EXPECT_EQ(NameOf(assign, {kPs, kWorker}), kWorker);
  const Output other = Variable(scope_, "other");
  options_.fixed[other.node->id()] = 0;
  other.node->SetAttr("_class", std::vector<std::string>{"loc:@v"});
  EXPECT_EQ(PlaceIn({kPs, kWorker}).status().code(), absl::StatusCode::kInvalidArgument);
  options_.fixed[other.node->id()] = 7;
  EXPECT_EQ(PlaceIn({kPs, kWorker}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PlaceInClusterTest, MissingTasksInTensorFlowsWords) {
  X(scope_.WithDevice("/job:ps/task:7"), "nowhere");
  EXPECT_EQ(PlaceIn({kWorker, kPs}).status().message(),
            "Cannot assign a device for operation nowhere: {{node nowhere}} was explicitly "
            "assigned to /job:ps/task:7 but available devices are [ "
            "/job:ps/replica:0/task:0/device:CPU:0, /job:worker/replica:0/task:0/device:CPU:0 ]. "
            "Make sure the device specification refers to a valid device.\n\t [[nowhere]]");
}

TEST_F(PlaceInClusterTest, EveryNodeHasAReason) {
  const Output v = Variable(scope_.WithDevice("/job:ps"), "v");
  const Output assign = scope_.Op("Assign", {v, scope_.ConstScalar<float>(1, "one")}, {}, "assign");
  const Output shape = scope_.Op("Shape", {assign}, {}, "shape");
  options_.explain = true;
  const auto placement = PlaceIn({kPs, kWorker});
  ASSERT_EQ(placement.status(), absl::OkStatus());
  const auto reason = [&](const Output& output) { return placement->reasons[output.node->id()]; };
  EXPECT_EQ(reason(assign), absl::StrCat("assign (Assign) is on ", kPs,
                                         ": its group of 2 nodes (v, assign) asked for '/job:ps'; "
                                         "candidates: ",
                                         kPs, "; not ", kWorker, ": not in '/job:ps'"));
  EXPECT_THAT(reason(shape), HasSubstr("it follows its input assign"));
  EXPECT_THAT(placement->reasons[graph_.FindNode("one")->id()],
              HasSubstr("all that read it are there"));
  for (const std::string& text : placement->reasons) EXPECT_THAT(text, HasSubstr(" is on "));
}

// Time grows with nodes, not with nodes times devices.
TEST_F(PlaceInClusterTest, ManyNodesOnManyDevices) {
  constexpr int kTasks = 1000;
  std::vector<std::string> devices;
  for (int i = 0; i < kTasks; ++i) {
    devices.push_back(absl::StrCat("/job:worker/replica:0/task:", i, "/device:CPU:0"));
  }
  std::vector<Output> nodes;
  for (int i = 0; i < 10000; ++i) {
    const Scope there = scope_.WithDevice(absl::StrCat("/job:worker/task:", i % kTasks));
    nodes.push_back(i < kTasks ? X(there) : there.Op("Neg", {nodes[i - kTasks + 1]}));
  }
  options_.explain = true;
  const auto placement = PlaceIn(devices);
  ASSERT_EQ(placement.status(), absl::OkStatus());
  for (int i = 0; i < 10000; ++i) {
    ASSERT_EQ(placement->devices[nodes[i].node->id()], i % kTasks);
  }
}

}  // namespace
}  // namespace muster
