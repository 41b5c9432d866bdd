#include "muster/graph/place/pack_reads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/status.h"
#include "muster/graph/build/graph_test_util.h"

namespace muster {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPs[] = "/job:ps/replica:0/task:0/device:CPU:0";
constexpr char kWorker[] = "/job:worker/replica:0/task:0/device:CPU:0";
constexpr char kElsewhere[] = "/job:worker/replica:0/task:1/device:CPU:0";

class PackReadsTest : public ::testing::Test {
 protected:
  PackReadsTest()
      : ps_(Scope(graph_).WithDevice(kPs)), worker_(Scope(graph_).WithDevice(kWorker)) {}

  Output Variable(const PartialShape& shape, DType dtype = DType::kFloat) {
    return ps_.Op("VariableV2", {}, {{"dtype", dtype}, {"shape", shape}}, "v");
  }
  // Reads `count` variables and hands them to nodes of the worker.
  void ReadMany(int count, const PartialShape& shape = {4}, DType dtype = DType::kFloat) {
    for (int i = 0; i < count; ++i) {
      reads_.push_back(ps_.Op("Identity", {Variable(shape, dtype)}, {}, "read"));
      worker_.Op("Shape", {reads_.back()}, {}, "use");
    }
  }
  std::vector<std::string> Pack(bool understood = true) {
    EXPECT_EQ(ps_.status(), absl::OkStatus());
    EXPECT_EQ(worker_.status(), absl::OkStatus());
    const absl::Status status = PackReads(
        graph_, [&](absl::string_view) { return understood; }, next_name_);
    EXPECT_EQ(status, absl::OkStatus());
    return NodeList(graph_);
  }

  Graph graph_;
  Scope ps_, worker_;
  std::vector<Output> reads_;
  int64_t next_name_ = 5;
};

TEST_F(PackReadsTest, ManySmallOnesGoTogether) {
  ReadMany(9);
  const std::vector<std::string> nodes = Pack();
  EXPECT_THAT(nodes, Contains("pack_S5 _MusterPack v,v_1,v_2,v_3,v_4,v_5,v_6,v_7,v_8"));
  EXPECT_THAT(nodes, Contains("unpack_S6 _MusterUnpack pack_S5"));
  EXPECT_THAT(nodes, Contains("use Shape unpack_S6"));
  EXPECT_THAT(nodes, Contains("use_8 Shape unpack_S6:8"));
  // The Identity nodes had no other readers.
  EXPECT_THAT(nodes, Each(Not(HasSubstr("Identity"))));
  EXPECT_EQ(next_name_, 7);
  const Node* pack = graph_.FindNode("pack_S5");
  const Node* unpack = graph_.FindNode("unpack_S6");
  EXPECT_EQ(pack->device(), kPs);
  EXPECT_EQ(unpack->device(), kWorker);
  EXPECT_EQ(unpack->output_types(), std::vector<DType>(9, DType::kFloat));
  EXPECT_EQ(unpack->output_shape(3), PartialShape({4}));
}

TEST_F(PackReadsTest, WhatOthersReadTooStays) {
  ReadMany(8);
  ps_.Op("Neg", {reads_[2]}, {}, "at_home");
  graph_.AddControlInput(*graph_.FindNode("at_home"), *reads_[3].node);
  const Scope other = Scope(graph_).WithDevice(kElsewhere);
  other.Op("Neg", {reads_[4]}, {}, "elsewhere");
  const std::vector<std::string> nodes = Pack();
  EXPECT_THAT(nodes, Contains("pack_S5 _MusterPack v,v_1,read_2,read_3,read_4,v_5,v_6,v_7"));
  EXPECT_THAT(nodes, Contains("at_home Neg read_2,^read_3"));
  EXPECT_THAT(nodes, Contains("elsewhere Neg read_4"));
  EXPECT_THAT(nodes, Contains("use_2 Shape unpack_S6:2"));
}

TEST_F(PackReadsTest, ResourcesAreReadAndPackedToo) {
  for (int i = 0; i < 8; ++i) {
    const Output handle = ps_.Op(
        "VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({2})}}, "handle");
    const Output read = ps_.Op("ReadVariableOp", {handle}, {{"dtype", DType::kFloat}}, "read");
    worker_.Op("Neg", {read}, {}, "use");
  }
  EXPECT_THAT(Pack(), Contains(HasSubstr("_MusterPack read,read_1,read_2")));
}

TEST_F(PackReadsTest, AMegabyteIsEnoughForOne) {
  ReadMany(150, {4096});  // 16 KB each
  const std::vector<std::string> nodes = Pack();
  EXPECT_THAT(nodes, Contains(HasSubstr("pack_S5 _MusterPack v,")));
  EXPECT_THAT(nodes, Contains(HasSubstr("pack_S7 _MusterPack v_64,")));
  EXPECT_THAT(nodes, Contains(HasSubstr("pack_S9 _MusterPack v_128,")));
}

TEST_F(PackReadsTest, NothingIsPackedWhereItIsNotWorthItOrNotKnown) {
  ReadMany(7);
  ReadMany(20, {4097});               // large
  ReadMany(20, PartialShape({-1}));   // of unknown size
  ReadMany(20, {4}, DType::kString);  // not plain memory
  ReadMany(20, {4}, DType::kBool);    // validated on arrival
  ReadMany(20, PartialShape({1 << 30, 1 << 30, 1 << 30}));
  EXPECT_THAT(Pack(), Each(Not(HasSubstr("_MusterPack"))));
}

TEST_F(PackReadsTest, WhatHasItsPlaceInTimeIsNotPacked) {
  ps_.Op("NoOp", {}, {}, "before");
  ReadMany(16);
  for (const Output& read : reads_) graph_.AddControlInput(*read.node, *graph_.FindNode("before"));
  EXPECT_THAT(Pack(), Each(Not(HasSubstr("_MusterPack"))));
}

TEST_F(PackReadsTest, StockTasksGetNone) {
  ReadMany(16);
  EXPECT_THAT(Pack(/*understood=*/false), Each(Not(HasSubstr("_MusterPack"))));
}

}  // namespace
}  // namespace muster
