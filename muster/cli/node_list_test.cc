#include "muster/cli/node_list.h"

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string NodesError(absl::string_view text) {
  return std::string(ExpandNodeList(text).status().message());
}

std::string CountsError(absl::string_view text) {
  return std::string(ExpandTaskCounts(text).status().message());
}

TEST(NodeListTest, RangesAreExpandedInOrder) {
  EXPECT_THAT(ExpandNodeList("login").value(), ElementsAre("login"));
  EXPECT_THAT(ExpandNodeList("a,b-1,c.example.org").value(),
              ElementsAre("a", "b-1", "c.example.org"));
  EXPECT_THAT(ExpandNodeList("node[01-03,07]").value(),
              ElementsAre("node01", "node02", "node03", "node07"));
  EXPECT_THAT(ExpandNodeList("n[9-11],x").value(), ElementsAre("n9", "n10", "n11", "x"));
  EXPECT_THAT(ExpandNodeList("gpu[1-2]n[0-1]").value(),
              ElementsAre("gpu1n0", "gpu1n1", "gpu2n0", "gpu2n1"));
  EXPECT_THAT(ExpandNodeList("r[1,3]-east").value(), ElementsAre("r1-east", "r3-east"));
}

TEST(NodeListTest, ErrorsNameTheListAndThePart) {
  EXPECT_THAT(NodesError("n[2-1]"),
              AllOf(HasSubstr("'n[2-1]'"), HasSubstr("'2-1' is not a range of numbers")));
  for (const char* const range : {"", "a", "1-", "-1", "1-2-3", "1-4000000000", "1,,2"})
    EXPECT_THAT(NodesError(absl::StrCat("n[", range, "]")), HasSubstr("is not a range")) << range;
  EXPECT_THAT(NodesError("n[1-2"), HasSubstr("']' is missing"));
  for (const char* const list : {"", "a,", ",a", "a,,b", "a]b"})
    EXPECT_THAT(NodesError(list), HasSubstr("a name is expected")) << list;
}

TEST(NodeListTest, ListsAreBounded) {
  EXPECT_EQ(ExpandNodeList("n[1-100000]").value().size(), 100000u);
  for (const char* const list : {"n[1-400]m[1-400]", "n[1-100000],n0"})
    EXPECT_THAT(NodesError(list), HasSubstr("more than 100000 nodes")) << list;
}

TEST(TaskCountsTest, RepetitionsAreExpanded) {
  EXPECT_THAT(ExpandTaskCounts("4").value(), ElementsAre(4));
  EXPECT_THAT(ExpandTaskCounts("2(x3),1").value(), ElementsAre(2, 2, 2, 1));
}

TEST(TaskCountsTest, ErrorsNameThePart) {
  EXPECT_THAT(CountsError("1,2(x"), AllOf(HasSubstr("'1,2(x'"), HasSubstr("'2(x' is neither")));
  for (const char* const counts :
       {"", "x", "-1", "2(x0)", "2(xy)", "2(x3", "1(x100001)", "100001", "1(x99999),1(x2)"})
    EXPECT_THAT(CountsError(counts), HasSubstr("is neither N nor N(xTIMES)")) << counts;
}

}  // namespace
}  // namespace muster
