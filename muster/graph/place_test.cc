#include "muster/graph/place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/graph/graph_test_util.h"

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

}  // namespace
}  // namespace muster
