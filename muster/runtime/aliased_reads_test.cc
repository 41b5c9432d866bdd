#include "muster/runtime/aliased_reads.h"

#include <gtest/gtest.h>

#include "muster/graph/build/graph_test_util.h"

namespace muster {
namespace {

class AliasedReadsTest : public testing::Test {
 protected:
  AliasedReadsTest() : scope_(graph_) {
    variable_ =
        scope_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({})}});
    number_ = Placeholder(scope_, "number", DType::kFloat, PartialShape({}));
  }
  Output Read() { return scope_.Op("Identity", {variable_}); }
  Output Change(const Output& after) { return After(after).Op("AssignAdd", {variable_, number_}); }
  Scope After(const Output& before) { return scope_.WithControlDependencies({before.node}); }

  Graph graph_;
  Scope scope_;
  Output variable_;
  Output number_;
};

TEST_F(AliasedReadsTest, UsersAfterAChangeReadAgain) {
  const Output read = Read();
  const Output before = scope_.Op("Neg", {read});
  const Output after = After(Change(before)).Op("Neg", {read});
  const AliasedReads reads(graph_);
  EXPECT_TRUE(reads.passes(*read.node));
  EXPECT_FALSE(reads.reads_again(*before.node, 0));
  EXPECT_TRUE(reads.reads_again(*after.node, 0));
}

TEST_F(AliasedReadsTest, AReadAfterTheOnlyChangeIsEnough) {
  const Output change = Change(number_);
  const Output read = After(change).Op("Identity", {variable_});
  const Output user = scope_.Op("Neg", {read});
  const AliasedReads reads(graph_);
  EXPECT_FALSE(reads.passes(*read.node));
  EXPECT_FALSE(reads.reads_again(*user.node, 0));
}

TEST_F(AliasedReadsTest, AReadBetweenTwoChangesIsNot) {
  const Output read = After(Change(number_)).Op("Identity", {variable_});
  const Output user = After(Change(read)).Op("Neg", {read});
  const AliasedReads reads(graph_);
  EXPECT_TRUE(reads.passes(*read.node));
  EXPECT_TRUE(reads.reads_again(*user.node, 0));
}

TEST_F(AliasedReadsTest, NodesOnTheWayHandTheReferenceOn) {
  const Output read = Read();
  const Output stopped = scope_.Op("StopGradient", {read});
  const Output other = scope_.Op("StopGradient", {read});
  const Output early = scope_.Op("Neg", {other});
  const Output after = After(Change(early)).Op("Neg", {stopped});
  const AliasedReads reads(graph_);
  EXPECT_TRUE(reads.passes(*stopped.node));
  EXPECT_TRUE(reads.reads_again(*stopped.node, 0));
  EXPECT_TRUE(reads.reads_again(*after.node, 0));
  EXPECT_FALSE(reads.passes(*other.node));
  EXPECT_FALSE(reads.reads_again(*other.node, 0));
}

// As a cond whose branches both hand on the same read.
TEST_F(AliasedReadsTest, EveryWayHandsTheReferenceOn) {
  const Output read = Read();
  const Output left = scope_.Op("StopGradient", {read});
  const Output right = scope_.Op("StopGradient", {read});
  const Output merged = scope_.Op("Merge", {NodeInput(std::vector<Output>{left, right})});
  const Output after = After(Change(merged)).Op("Neg", {merged});
  const AliasedReads reads(graph_);
  EXPECT_TRUE(reads.reads_again(*after.node, 0));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(reads.reads_again(*merged.node, i)) << i;
  for (const Output& way : {left, right}) {
    EXPECT_TRUE(reads.passes(*way.node));
    EXPECT_TRUE(reads.reads_again(*way.node, 0));
  }
}

TEST_F(AliasedReadsTest, OutputsOfANodeThatReadsSeveralVariablesAreToldApart) {
  const Output other =
      scope_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({})}});
  const Output both = scope_.Op("IdentityN", {NodeInput(std::vector<Output>{other, variable_})});
  const Scope later = After(Change(both));
  const Output first = later.Op("Neg", {Output(both.node, 0)});
  const Output second = later.Op("Neg", {Output(both.node, 1)});
  const AliasedReads reads(graph_);
  EXPECT_FALSE(reads.reads_again(*first.node, 0));
  EXPECT_TRUE(reads.reads_again(*second.node, 0));
}

TEST_F(AliasedReadsTest, WhatIsComputedFromAReadIsAValue) {
  const Output computed = scope_.Op("Neg", {Read()});
  const Output after = After(Change(computed)).Op("Neg", {computed});
  const AliasedReads reads(graph_);
  EXPECT_FALSE(reads.passes(*computed.node));
  EXPECT_FALSE(reads.reads_again(*after.node, 0));
}

}  // namespace
}  // namespace muster
