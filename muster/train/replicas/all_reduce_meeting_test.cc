#include "muster/train/replicas/all_reduce_meeting.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include <gtest/gtest.h>

namespace muster {
namespace {

std::vector<AllReduceMember> Members(int count) {
  std::vector<AllReduceMember> members;
  for (int i = 0; i < count; ++i) members.push_back({absl::StrCat("task", i), ""});
  return members;
}

SeenMember Alive(std::string leader, int64_t step = -1) {
  return {.asked = true, .lives = true, .leader = std::move(leader), .step = step};
}

SeenMember Dead() {
  return {.asked = true, .lives = false, .leader = "", .step = -1};
}

TEST(ChooseHost, TheFirstThatIsAliveForAllOfThem) {
  const std::vector<AllReduceMember> members = Members(3);
  for (int self = 0; self < 3; ++self)
    EXPECT_EQ(ChooseHost(members, {Alive(""), Alive(""), Alive("")}, self), 0);
  for (int self = 1; self < 3; ++self)
    EXPECT_EQ(ChooseHost(members, {Dead(), Alive(""), Alive("")}, self), 1);
  // A task that knows nothing of the others yet hosts itself; one that has ended is not a host.
  EXPECT_EQ(ChooseHost(members, {{}, {}, {}}, 2), 2);
  EXPECT_EQ(ChooseHost(members, {Alive(kLeftAllReduce), Alive(""), Alive("")}, 2), 1);
}

TEST(ChooseHost, AGroupAtWorkIsJoinedWhereItsLeaderStillIs) {
  const std::vector<AllReduceMember> members = Members(3);
  EXPECT_EQ(ChooseHost(members, {Alive(""), Alive("task2"), Alive("task2")}, 0), 2);
  // The group has lost its leader, or the leader its group: they meet again.
  EXPECT_EQ(ChooseHost(members, {Alive(""), Alive("task2"), Dead()}, 0), 0);
  EXPECT_EQ(ChooseHost(members, {Alive(""), Alive("task2"), Alive("")}, 1), 0);
  // What the others remember is an earlier process of this task.
  EXPECT_EQ(ChooseHost(members, {Alive(""), Alive("task0"), Alive("task0")}, 0), 0);
}

TEST(NewestStep, OfTheLivingOnceAllWereAsked) {
  EXPECT_EQ(NewestStep({Alive("", 3), Alive("", 9), Alive("", 5)}, 0), 9);
  EXPECT_EQ(NewestStep({Alive("", 3), Alive("", 9), Alive("", 5)}, 1), 5);
  EXPECT_EQ(NewestStep({Alive("", 3), Dead(), Alive(kLeftAllReduce, 9)}, 0), -1);
  EXPECT_EQ(NewestStep({Alive("", 3), {}, Alive("", 5)}, 0), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(NewestStep({{}}, 0), -1);
}

}  // namespace
}  // namespace muster
