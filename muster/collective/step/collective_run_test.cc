#include "muster/collective/step/collective_run.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "muster/collective/step/collective_buffers.h"
#include "muster/collective/step/collective_groups.h"
#include "muster/runtime/lack_of_memory.h"

namespace muster {
namespace {

std::shared_ptr<const CollectiveGroup> GroupOf(std::vector<std::string> names) {
  std::vector<DeviceAttributes> devices;
  for (std::string& name : names) {
    DeviceAttributes device;
    device.name = std::move(name);
    device.device_type = "CPU";
    device.incarnation = 1;
    devices.push_back(std::move(device));
  }
  return MakeCollectiveGroup(1, "CPU", std::move(devices)).value();
}

std::string Cpu(int task, int index) {
  return absl::StrCat("/job:w/replica:0/task:", task, "/device:CPU:", index);
}

TEST(CollectiveRunTest, EveryRankOfATreeIsFedOnceByWhoeverFeedsIt) {
  for (int size = 1; size < 40; ++size) {
    for (int source = 0; source < size; ++source) {
      std::vector<int> fed(size, 0);
      for (int rank = 0; rank < size; ++rank) {
        for (const int to : TreePlace::Of(size, source, rank).to) {
          ++fed[to];
          EXPECT_EQ(TreePlace::Of(size, source, to).from, rank);
        }
      }
      for (int rank = 0; rank < size; ++rank) EXPECT_EQ(fed[rank], rank == source ? 0 : 1);
    }
  }
}

TEST(CollectiveRunTest, SectionsAreAlignedAsTensorFlowAlignsThem) {
  // Seen on the wire: 40 floats in 4 sections of 64, 64, 32 and 0 bytes, in 2 of 128 and 32.
  EXPECT_EQ(AlignedSectionElements(4, 40, 4), 16);
  EXPECT_EQ(AlignedSectionElements(4, 40, 2), 32);
  EXPECT_EQ(AlignedSectionElements(4, 32, 2), 32);  // a full 64 bytes more where it fits already
  EXPECT_EQ(AlignedSectionElements(8, 0, 3), 8);
}

TEST(CollectiveRunTest, MembersAreSortedByTaskAndNumber) {
  const auto group = GroupOf({Cpu(2, 0), Cpu(10, 0), Cpu(1, 10), Cpu(1, 2)});
  const std::vector<std::string> expected = {Cpu(1, 2), Cpu(1, 10), Cpu(10, 0), Cpu(2, 0)};
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(group->members[i].device.name, expected[i]);
  EXPECT_EQ(group->devices_per_task, (std::vector<int>{2, 1, 1}));
}

TEST(CollectiveRunTest, RingsAreTurnedInsideOfTasks) {
  const auto group = GroupOf({Cpu(0, 0), Cpu(0, 1), Cpu(0, 2), Cpu(1, 0)});
  CollectiveParams params;
  params.dtype = DType::kFloat;
  params.shape = Shape({100});
  params.subdiv_offsets = {0, 1, -1};
  const RingPlan plan = RingPlan::Make(params, *group, 1).value();
  EXPECT_EQ(plan.orders[0], (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(plan.orders[1], (std::vector<int>{1, 2, 0, 3}));
  EXPECT_EQ(plan.orders[2], (std::vector<int>{1, 0, 2, 3}));
  EXPECT_EQ(plan.ranks, (std::vector<int>{1, 0, 0}));
  params.subdiv_offsets.clear();
  EXPECT_EQ(RingPlan::Make(params, *group, 1)->orders.size(), 1);
  params.max_subdivs_per_device = 0;
  params.shape = Shape({int64_t{16} << 20});
  EXPECT_EQ(RingPlan::Make(params, *group, 1)->orders.size(), 4);
}

TEST(CollectiveRunTest, BuffersMeetInEitherOrderAndEndWithTheStep) {
  CollectiveBuffers buffers;
  const Buffer bytes = HostAllocator().Allocate(8);
  int consumed = 0;
  int taken = 0;
  const auto count = [&](absl::Status status) { consumed += status.ok() ? 1 : 100; };
  const auto take = [&](absl::StatusOr<Buffer> got) { taken += got.ok() ? 1 : 100; };
  buffers.Provide("a", bytes, count);
  buffers.Consume("a", take);
  buffers.Consume("b", take);
  buffers.Provide("b", bytes, count);
  EXPECT_EQ(consumed, 2);
  EXPECT_EQ(taken, 2);
  const auto token = buffers.Consume("c", take);
  EXPECT_TRUE(buffers.StopWaiting(token));
  EXPECT_FALSE(buffers.StopWaiting(token));
  buffers.Consume("d", take);
  buffers.Provide("e", bytes, count);
  buffers.Abort(absl::AbortedError("over"));
  EXPECT_EQ(consumed, 102);
  EXPECT_EQ(taken, 102);
  buffers.Consume("f", take);
  EXPECT_EQ(taken, 202);
}

class GroupsTest : public testing::Test {
 protected:
  CollectiveJoin Join(int task, int size, int key = 1) {
    CollectiveJoin join;
    join.group_key = key;
    join.group_size = size;
    join.device_type = "CPU";
    join.device.name = Cpu(task, 0);
    join.device.device_type = "CPU";
    join.device.incarnation = 1;
    return join;
  }
  absl::Status& Ask(CollectiveJoin join, std::shared_ptr<Cancellation> caller = nullptr) {
    answers_.push_back(std::make_unique<absl::Status>(absl::UnknownError("waits")));
    absl::Status& answer = *answers_.back();
    groups_->Join(std::move(join), std::move(caller),
                  [&answer](absl::StatusOr<std::shared_ptr<const CollectiveGroup>> group) {
                    answer = group.status();
                  });
    return answer;
  }

  std::unique_ptr<SimulatedScheduler> scheduler_ = SimulatedScheduler::Create(1);
  std::shared_ptr<CollectiveGroups> groups_ = std::make_shared<CollectiveGroups>(*scheduler_);
  std::vector<std::unique_ptr<absl::Status>> answers_;
};

TEST_F(GroupsTest, AreCompleteWithTheLastMember) {
  const absl::Status& first = Ask(Join(0, 2));
  EXPECT_EQ(first.message(), "waits");
  EXPECT_TRUE(Ask(Join(1, 2)).ok());
  EXPECT_TRUE(first.ok());
  EXPECT_TRUE(Ask(Join(0, 2)).ok());
  EXPECT_EQ(Ask(Join(2, 2)).code(), absl::StatusCode::kInternal);  // full
  // Another size, or a member that has been restarted: a new group.
  const absl::Status& smaller = Ask(Join(0, 1));
  EXPECT_TRUE(smaller.ok());
}

TEST_F(GroupsTest, WhoLeavesBeforeTakesTheGroupAlong) {
  const auto caller = std::make_shared<Cancellation>();
  const absl::Status& first = Ask(Join(0, 3));
  const absl::Status& second = Ask(Join(1, 3), caller);
  caller->Cancel(absl::CancelledError("gone"));
  scheduler_->RunUntil([] { return false; });
  EXPECT_EQ(second.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(first.code(), absl::StatusCode::kAborted);
  EXPECT_NE(first.message().find(Cpu(1, 0)), std::string::npos) << first;
  Ask(Join(0, 2));
  EXPECT_TRUE(Ask(Join(2, 2)).ok());
}

TEST_F(GroupsTest, ThatDoNotAgreeEndForAll) {
  const absl::Status& first = Ask(Join(0, 2));
  EXPECT_EQ(Ask(Join(1, 3)).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(first.code(), absl::StatusCode::kInternal);
}

TEST_F(GroupsTest, FormedAnewEndTheBroadcastsOfTheOldOne) {
  Ask(Join(0, 2));
  Ask(Join(1, 2));
  CollectiveInstance instance;
  instance.group_key = 1;
  instance.group_size = 2;
  instance.instance_key = 4;
  instance.type = CollectiveType::kBroadcast;
  instance.dtype = DType::kFloat;
  instance.device = Cpu(0, 0);
  absl::StatusOr<int> answer = absl::UnknownError("waits");
  groups_->Complete(instance, nullptr, [&](absl::StatusOr<int> rank) { answer = rank; });
  EXPECT_EQ(answer.status().message(), "waits");
  EXPECT_EQ(Ask(Join(1, 3)).message(), "waits");
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kAborted);
}

TEST_F(GroupsTest, WhoIsCancelledBeforeItJoinsLeavesToo) {
  const auto caller = std::make_shared<Cancellation>();
  caller->Cancel(absl::CancelledError("gone"));
  const absl::Status& first = Ask(Join(0, 3));
  const absl::Status& second = Ask(Join(1, 3), caller);
  scheduler_->RunUntil([] { return false; });
  EXPECT_EQ(second.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(first.code(), absl::StatusCode::kAborted);
}

TEST_F(GroupsTest, InstancesKnowTheirSource) {
  Ask(Join(0, 2));
  Ask(Join(1, 2));
  CollectiveInstance instance;
  instance.group_key = 1;
  instance.group_size = 2;
  instance.instance_key = 4;
  instance.type = CollectiveType::kBroadcast;
  instance.dtype = DType::kFloat;
  std::vector<absl::StatusOr<int>> answers;
  const auto ask = [&](int task, bool is_source) {
    CollectiveInstance one = instance;
    one.device = Cpu(task, 0);
    one.is_source = is_source;
    groups_->Complete(one, nullptr,
                      [&](absl::StatusOr<int> answer) { answers.push_back(std::move(answer)); });
  };
  ask(0, false);
  EXPECT_TRUE(answers.empty());
  ask(1, true);
  ASSERT_EQ(answers.size(), 2);
  EXPECT_EQ(*answers[0], 1);
  EXPECT_EQ(*answers[1], 1);
  ask(0, false);
  EXPECT_EQ(*answers.back(), 1);
  instance.instance_key = 5;
  ask(0, true);
  ask(1, true);
  EXPECT_EQ(answers.back().status().code(), absl::StatusCode::kInternal);
  instance.instance_key = 6;
  ask(0, false);
  ask(1, false);
  EXPECT_EQ(answers.back().status().code(), absl::StatusCode::kInternal);
  instance.group_key = 9;
  ask(0, false);
  EXPECT_EQ(answers.back().status().code(), absl::StatusCode::kFailedPrecondition);
}

// A kernel may answer a RecvBuf of another task, or tell another rank that its bytes were taken.
TEST(CollectiveBuffersTest, AKernelDoesNotCatchWhatTheOtherSideLacks) {
  CollectiveBuffers buffers;
  int answered = 0;
  const auto answer = [&](const auto&) {
    const Tensor reply(DType::kUint8, Shape({2000}));
    ++answered;
  };
  buffers.Consume("early", answer);
  buffers.Provide("late", Buffer(), answer);
  const auto account = MakeRef<MemoryAccount>("this test", 1000);
  const MemoryAccount::Scope scope(account.get());
  EXPECT_EQ(EndedByLackOfMemory([&] {
              buffers.Provide("early", Buffer(), [](const absl::Status&) {});
              buffers.Consume("late", [](const absl::StatusOr<Buffer>&) {});
              return absl::OkStatus();
            }),
            absl::OkStatus());
  EXPECT_EQ(answered, 2);
}

}  // namespace
}  // namespace muster
