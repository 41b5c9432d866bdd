#include "muster/master/step_names.h"

#include <gtest/gtest.h>

#include "muster/graph/proto/graph_proto.h"

namespace muster {
namespace {

TEST(StepNamesTest, FullNamesSayTheNumberOfTheOutput) {
  EXPECT_EQ(FullTensorName("y"), "y:0");
  EXPECT_EQ(FullTensorName("y:0"), "y:0");
  EXPECT_EQ(FullTensorName("y:12"), "y:12");
  EXPECT_EQ(FullTensorName("y:012"), "y:12");
  EXPECT_EQ(FullTensorName("^y"), "^y");
  // As the reader of names in graphs has it.
  for (const char* name : {"y", "y:", "y:0", "y:00", "y:012", ":1", "y:1:2", "y:x", "a/b:7",
                           "y:999999999", "y:2147483647", "y:2147483648", "y:99999999999", ""})
    EXPECT_EQ(FullTensorName(name), ParseTensorName(name).ToString()) << name;
}

TEST(StepNamesTest, EqualStepsHaveEqualTexts) {
  StepNames names;
  names.feeds = {"b:0", "a:0"};
  names.fetches = {"y:0", "x:0", "y:0"};
  names.targets = {"t", "s", "t"};
  StepNames same;
  same.feeds = {"a", "b"};
  same.fetches = {"x", "y:00"};
  same.targets = {"s", "t"};
  EXPECT_EQ(names.Canonical().ToString(), "a:0,b:0->x:0,y:0/s,t");
  EXPECT_EQ(same.Canonical().ToString(), names.Canonical().ToString());
  same.is_partial = true;
  EXPECT_NE(same.Canonical().ToString(), names.Canonical().ToString());
}

}  // namespace
}  // namespace muster
