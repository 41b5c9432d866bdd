#include "muster/ops/collective/membership.h"

#include <map>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class MembershipTest : public ::testing::Test {
 protected:
  void Join(int index, int host, int64_t step = 0, int expected = 3, int least = 2) {
    JoinRequest request;
    request.member = Name(index);
    request.index = index;
    request.host = Name(host);
    request.endpoint = absl::StrCat("endpoint ", index);
    request.step = step;
    request.expected = expected;
    request.least = least;
    request.grace = absl::Seconds(3);
    request.newest = newest_;
    request.wait = wait_;
    at_[host]->Join(
        std::move(request), *scheduler_,
        [&](uint64_t ticket) {
          tickets_[index] = ticket;
          return true;
        },
        [this, index](absl::StatusOr<GroupPlace> place) { places_[index] = std::move(place); });
  }
  static std::string Name(int index) { return absl::StrCat("task", index); }
  void Pass(absl::Duration time) {
    bool is_over = false;
    scheduler_->ScheduleAfter(time, [&] { is_over = true; });
    scheduler_->RunUntil([&] { return is_over; });
  }

  std::unique_ptr<SimulatedScheduler> scheduler_ = SimulatedScheduler::Create(1);
  std::map<int, RefPtr<Membership>> at_ = {
      {0, MakeRef<Membership>()}, {1, MakeRef<Membership>()}, {2, MakeRef<Membership>()}};
  int64_t newest_ = -1;
  absl::Duration wait_ = absl::InfiniteDuration();
  std::map<int, uint64_t> tickets_;
  std::map<int, absl::StatusOr<GroupPlace>> places_;
};

TEST_F(MembershipTest, AllAreRankedByTheirIndexAtOnce) {
  Join(2, 0, 5);
  Join(0, 0, 7);
  EXPECT_TRUE(at_[0]->is_awaited());
  EXPECT_THAT(places_, IsEmpty());
  Join(1, 0, 7);
  ASSERT_EQ(places_.size(), 3);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(places_[i].ok()) << places_[i].status();
    EXPECT_EQ(places_[i]->rank, i);
    EXPECT_EQ(places_[i]->source, 0);  // the first of those that are the furthest
    EXPECT_EQ(places_[i]->leader, "task0");
    EXPECT_EQ(places_[i]->key, places_[0]->key);
    EXPECT_THAT(places_[i]->members, ElementsAre("task0", "task1", "task2"));
    EXPECT_THAT(places_[i]->endpoints, ElementsAre("endpoint 0", "endpoint 1", "endpoint 2"));
  }
  EXPECT_FALSE(at_[0]->is_awaited());
}

TEST_F(MembershipTest, WhoIsLateIsLeftOut) {
  Join(0, 0);
  Pass(absl::Seconds(2));
  Join(2, 0);
  Pass(absl::Seconds(2));
  EXPECT_THAT(places_, IsEmpty());
  Pass(absl::Seconds(2));
  ASSERT_EQ(places_.size(), 2);
  const int32_t first_key = places_[2]->key;
  EXPECT_THAT(places_[2]->members, ElementsAre("task0", "task2"));
  // The third waits until the leader has noticed.
  places_.clear();
  Join(1, 0, 0);
  Pass(absl::Minutes(1));
  EXPECT_TRUE(at_[0]->is_awaited());
  EXPECT_THAT(places_, IsEmpty());
  Join(0, 0, 9);
  Join(2, 0, 9);
  ASSERT_EQ(places_.size(), 3);
  EXPECT_NE(places_[1]->key, first_key);
  EXPECT_EQ(places_[1]->source, 0);
}

TEST_F(MembershipTest, FewerThanTheLeastNeverMeet) {
  Join(0, 0);
  Pass(absl::Minutes(10));
  EXPECT_THAT(places_, IsEmpty());
  Join(1, 0);
  Pass(absl::Seconds(4));
  EXPECT_EQ(places_.size(), 2);
}

// Tasks ask again now and then; that must not put the end off for ever.
TEST_F(MembershipTest, AskingAgainIsNoNews) {
  Join(0, 0);
  Join(1, 0);
  for (int i = 0; i < 8 && places_.count(1) == 0; ++i) {
    Pass(absl::Seconds(1));
    if (places_.count(1) > 0) break;
    ASSERT_TRUE(at_[0]->Cancel(tickets_[1]));
    at_[0]->Flush();
    EXPECT_TRUE(absl::IsCancelled(places_[1].status()));
    places_.erase(1);
    Join(1, 0);
  }
  ASSERT_EQ(places_.count(1), 1);
  EXPECT_THAT(places_[1]->members, ElementsAre("task0", "task1"));
  Join(2, 0);
  Join(2, 0);
  EXPECT_TRUE(absl::IsAborted(places_[2].status())) << places_[2].status();
}

// A task that has restored a checkpoint waits for one that is known to have a newer model.
TEST_F(MembershipTest, NoGroupIsFormedWithoutTheFurthestModelThatIsAlive) {
  newest_ = 9;
  Join(0, 0, 5);
  Join(2, 0, 5);
  Pass(absl::Minutes(1));
  EXPECT_THAT(places_, IsEmpty());
  // The host has learned that the task has died, and its next request says so.
  newest_ = 5;
  Join(0, 0, 5);
  Pass(absl::Seconds(4));
  EXPECT_THAT(places_[2]->members, ElementsAre("task0", "task2"));
  // One task with the newest model is enough; a group of all tasks does not need it.
  for (const int64_t newest : {7, 100}) {
    places_.clear();
    newest_ = newest;
    Join(0, 0, 5);
    Join(1, 0, 7);
    if (newest == 100) Join(2, 0, 5);
    Pass(absl::Seconds(4));
    ASSERT_EQ(places_.count(1), 1);
    EXPECT_EQ(places_[1]->source, 1);
  }
}

// A task that dies while it waits does not ask again, and is in no group that is formed later.
TEST_F(MembershipTest, WhoStopsAskingIsForgotten) {
  wait_ = absl::Milliseconds(500);
  Join(0, 0);
  Join(2, 0);
  Pass(absl::Seconds(1));
  ASSERT_EQ(places_.size(), 2);
  EXPECT_EQ(places_[0]->leader, "");
  EXPECT_EQ(places_[2]->leader, "");
  places_.clear();
  for (int i = 0; i < 10; ++i) {
    Join(0, 0);
    Pass(absl::Seconds(1));
    ASSERT_EQ(places_[0]->leader, "");
  }
  // The one that comes after that is news: the third has its time again.
  Join(0, 0);
  Join(1, 0);
  Pass(absl::Seconds(1));
  EXPECT_EQ(places_[1]->leader, "");
  for (int i = 0; i < 6 && places_[1]->leader.empty(); ++i) {
    Join(0, 0);
    Join(1, 0);
    Pass(absl::Milliseconds(501));
  }
  EXPECT_THAT(places_[1]->members, ElementsAre("task0", "task1"));
}

TEST_F(MembershipTest, WhoIsAtWorkElsewhereSaysWhere) {
  at_[1]->NoteLeader("task1", "task2");
  EXPECT_EQ(at_[1]->leader(), "task2");
  Join(0, 1);
  ASSERT_EQ(places_.count(0), 1);
  EXPECT_EQ(places_[0]->leader, "task2");
  EXPECT_THAT(places_[0]->members, IsEmpty());
  // Tasks that wait already get the answer too.
  at_[1]->NoteLeader("task1", "");
  places_.clear();
  Join(0, 1);
  Join(2, 1);
  EXPECT_THAT(places_, IsEmpty());
  at_[1]->NoteLeader("task1", "task0");
  ASSERT_EQ(places_.size(), 2);
  EXPECT_EQ(places_[2]->leader, "task0");
}

}  // namespace
}  // namespace muster
