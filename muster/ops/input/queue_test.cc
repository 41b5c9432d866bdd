#include "muster/ops/input/queue.h"

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/ops/input/barrier.h"

namespace muster {
namespace {

using ::testing::ElementsAre;

// An operation on a queue, and how it ended.
struct Operation {
  bool over = false;
  absl::Status status;
  std::vector<int32_t> values;  // of component 0
  uint64_t ticket = 0;          // when it waits

  auto OnWait() {
    return [this](uint64_t waits_as) {
      ticket = waits_as;
      return true;
    };
  }
  Queue::Done Done() {
    return [this](absl::Status result) {
      over = true;
      status = std::move(result);
    };
  }
  Queue::TupleDone TupleDone() {
    return [this](absl::StatusOr<Queue::Tuple> result) {
      over = true;
      status = result.status();
      if (!result.ok()) return;
      const Tensor& tensor = (*result)[0];
      values.assign(tensor.data<int32_t>(), tensor.data<int32_t>() + tensor.num_elements());
    };
  }
};

QueueOptions Options(int64_t capacity) {
  QueueOptions options;
  options.name = "q";
  options.capacity = capacity;
  options.dtypes = {DType::kInt32};
  options.shapes = {PartialShape::Scalar()};
  return options;
}

Tensor Batch(std::vector<int32_t> values) {
  return Tensor::Vector<int32_t>(values);
}

class QueueTest : public testing::Test {
 protected:
  // Started at once; may wait.
  Operation& Put(Queue& queue, std::vector<int32_t> values) {
    Operation& o = operations_.emplace_back();
    queue.EnqueueMany({Batch(std::move(values))}, o.OnWait(), o.Done());
    return o;
  }
  Operation& Get(Queue& queue) {
    Operation& o = operations_.emplace_back();
    queue.Dequeue(o.OnWait(), o.TupleDone());
    return o;
  }
  Operation& GetMany(Queue& queue, int64_t count, bool allow_fewer = false) {
    Operation& o = operations_.emplace_back();
    queue.DequeueMany(count, allow_fewer, o.OnWait(), o.TupleDone());
    return o;
  }
  Operation& Close(Queue& queue, bool cancel = false) {
    Operation& o = operations_.emplace_back();
    queue.Close(cancel, o.OnWait(), o.Done());
    return o;
  }

  std::list<Operation> operations_;
};

TEST_F(QueueTest, ElementsAndThoseWhoWaitKeepTheirOrder) {
  const RefPtr<Queue> queue = NewFifoQueue(Options(2));
  Operation& first = Get(*queue);
  Operation& second = GetMany(*queue, 2);
  Operation& third = Get(*queue);
  EXPECT_TRUE(Put(*queue, {1, 2}).over);
  EXPECT_THAT(first.values, ElementsAre(1));
  EXPECT_FALSE(second.over || third.over);
  EXPECT_TRUE(Put(*queue, {3, 4}).over);
  EXPECT_THAT(second.values, ElementsAre(2, 3));
  EXPECT_THAT(third.values, ElementsAre(4));
}

TEST_F(QueueTest, BatchesPassThroughASmallQueue) {
  const RefPtr<Queue> queue = NewFifoQueue(Options(2));
  Operation& put = Put(*queue, {1, 2, 3, 4, 5});
  EXPECT_FALSE(put.over);
  EXPECT_EQ(queue->size(), 2);
  EXPECT_THAT(GetMany(*queue, 4).values, ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(put.over);
  EXPECT_THAT(Get(*queue).values, ElementsAre(5));
}

TEST_F(QueueTest, CloseWaitsForEnqueuesBeforeIt) {
  const RefPtr<Queue> queue = NewFifoQueue(Options(1));
  Operation& put = Put(*queue, {1, 2});
  Operation& close = Close(*queue);
  Operation& late = Put(*queue, {3});
  EXPECT_FALSE(put.over || close.over || late.over);
  EXPECT_THAT(Get(*queue).values, ElementsAre(1));
  EXPECT_TRUE(put.over && put.status.ok() && close.over && close.status.ok());
  EXPECT_EQ(late.status.message(), "FIFOQueue 'q' is closed.");
  EXPECT_THAT(Get(*queue).values, ElementsAre(2));
  const Operation& none = Get(*queue);
  EXPECT_TRUE(absl::IsOutOfRange(none.status));
  EXPECT_EQ(none.status.message(),
            "FIFOQueue 'q' is closed and has insufficient elements (requested 1, current size 0)");
  EXPECT_EQ(Close(*queue).status.message(), "Queue 'q' is already closed.");
  EXPECT_TRUE(Close(*queue, true).status.ok());
}

TEST_F(QueueTest, ClosingCanCancelWaitingEnqueues) {
  const RefPtr<Queue> queue = NewFifoQueue(Options(1));
  Operation& put = Put(*queue, {1, 2});
  Operation& behind = Close(*queue);
  EXPECT_TRUE(Close(*queue, true).status.ok());
  EXPECT_TRUE(absl::IsCancelled(put.status) && absl::IsCancelled(behind.status));
  EXPECT_EQ(queue->size(), 1);
  EXPECT_TRUE(queue->closed());
}

TEST_F(QueueTest, AWithdrawnDequeueGivesBackWhatItHad) {
  const RefPtr<Queue> queue = NewFifoQueue(Options(3));
  ASSERT_TRUE(Put(*queue, {1, 2}).over);
  Operation& many = GetMany(*queue, 5);
  Operation& next = Get(*queue);
  EXPECT_EQ(queue->size(), 0);
  ASSERT_TRUE(Put(*queue, {3}).over);
  EXPECT_TRUE(queue->Cancel(many.ticket));
  EXPECT_TRUE(absl::IsCancelled(many.status));
  queue->Flush();
  EXPECT_THAT(next.values, ElementsAre(1));
  EXPECT_THAT(GetMany(*queue, 2).values, ElementsAre(2, 3));
  EXPECT_FALSE(queue->Cancel(many.ticket));
}

TEST_F(QueueTest, AClosedQueueGivesTheRestOnlyToThoseWhoTakeLess) {
  const RefPtr<Queue> queue = NewFifoQueue(Options(-1));
  ASSERT_TRUE(Put(*queue, {1, 2, 3}).over);
  Operation& many = GetMany(*queue, 5);
  Operation& fewer = GetMany(*queue, 5, true);
  Close(*queue);
  EXPECT_EQ(many.status.message(),
            "FIFOQueue 'q' is closed and has insufficient elements (requested 2, current size 0)");
  EXPECT_THAT(fewer.values, ElementsAre(1, 2, 3));
  EXPECT_TRUE(absl::IsOutOfRange(GetMany(*queue, 1, true).status));
  EXPECT_TRUE(GetMany(*queue, 0).status.ok());
}

TEST_F(QueueTest, WhoMayNotWaitEndsAtOnceAndLosesNothing) {
  const RefPtr<Queue> queue = NewFifoQueue(Options(3));
  ASSERT_TRUE(Put(*queue, {1, 2}).over);
  Operation refused;
  queue->DequeueMany(
      3, false, [](uint64_t) { return false; }, refused.TupleDone());
  EXPECT_TRUE(absl::IsCancelled(refused.status));
  EXPECT_EQ(queue->size(), 2);
}

TEST_F(QueueTest, WrongElementsAreRefused) {
  const RefPtr<Queue> queue = NewFifoQueue(Options(3));
  Operation o;
  queue->Enqueue({Batch({1})}, o.OnWait(), o.Done());
  EXPECT_EQ(o.status.message(), "Shape mismatch in tuple component 0. Expected [], got [1]");
  queue->Enqueue({Tensor::Scalar<float>(1)}, o.OnWait(), o.Done());
  EXPECT_TRUE(absl::IsInvalidArgument(o.status));
  queue->Enqueue({}, o.OnWait(), o.Done());
  EXPECT_TRUE(absl::IsInvalidArgument(o.status));
  queue->EnqueueMany({Tensor::Scalar<int32_t>(1)}, o.OnWait(), o.Done());
  EXPECT_TRUE(absl::IsInvalidArgument(o.status));
  EXPECT_EQ(queue->size(), 0);
}

TEST_F(QueueTest, PaddingFillsUpWithZeros) {
  QueueOptions options = Options(-1);
  options.shapes = {PartialShape({-1, 2})};
  const RefPtr<Queue> queue = NewPaddingFifoQueue(options);
  Operation o;
  queue->Enqueue({Tensor::Of<int32_t>(Shape({1, 2}), {1, 2})}, o.OnWait(), o.Done());
  queue->Enqueue({Tensor::Of<int32_t>(Shape({2, 2}), {3, 4, 5, 6})}, o.OnWait(), o.Done());
  EXPECT_THAT(GetMany(*queue, 2).values, ElementsAre(1, 2, 0, 0, 3, 4, 5, 6));
}

TEST_F(QueueTest, ShufflingKeepsSomeElementsBack) {
  ShuffleOptions shuffle;
  shuffle.min_after_dequeue = 2;
  shuffle.seed = 1;
  const RefPtr<Queue> queue = NewRandomShuffleQueue(Options(10), shuffle);
  ASSERT_TRUE(Put(*queue, {1, 2, 3}).over);
  EXPECT_TRUE(Get(*queue).over);
  Operation& waits = Get(*queue);
  EXPECT_FALSE(waits.over);
  Close(*queue);
  EXPECT_TRUE(waits.over && waits.status.ok());
  EXPECT_TRUE(Get(*queue).status.ok());
  EXPECT_TRUE(absl::IsOutOfRange(Get(*queue).status));
}

TEST_F(QueueTest, NothingIsLostOrDoubledAmongThreadsThatCancel) {
  const RefPtr<Queue> queue = NewFifoQueue(Options(3));
  constexpr int kEach = 400;
  std::atomic<int64_t> sum{0};
  std::atomic<int> got{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int i = 1; i <= kEach;) {
        std::atomic<int> over{0};  // 1: entered, 2: refused
        queue->Enqueue(
            {Tensor::Scalar<int32_t>(i)}, [](uint64_t) { return false; },
            [&](const absl::Status& s) { over = s.ok() ? 1 : 2; });
        if (over == 1) ++i;
      }
    });
    threads.emplace_back([&] {
      while (got < 2 * kEach) {
        std::atomic<bool> over{false};
        std::atomic<uint64_t> ticket{0};
        queue->DequeueMany(
            2, false,
            [&](uint64_t waits_as) {
              ticket = waits_as;
              return true;
            },
            [&](absl::StatusOr<Queue::Tuple> tuple) {
              if (tuple.ok()) {
                const Tensor& pair = (*tuple)[0];
                sum += pair.data<int32_t>()[0] + pair.data<int32_t>()[1];
                got += 2;
              }
              over = true;
            });
        if (ticket != 0 && queue->Cancel(ticket)) queue->Flush();
        while (!over) std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, 2 * kEach);
  EXPECT_EQ(sum, int64_t{kEach} * (kEach + 1));
  EXPECT_EQ(queue->size(), 0);
}

TEST_F(QueueTest, ClosedBarriersGiveWhatIsReady) {
  const RefPtr<Barrier> barrier =
      MakeRef<Barrier>("b", std::vector<DType>{DType::kInt32, DType::kInt32},
                       std::vector<PartialShape>{PartialShape::Scalar(), PartialShape::Scalar()});
  const Tensor keys = Tensor::Vector<std::string>({"x", "y", "z"});
  ASSERT_TRUE(barrier->Insert(0, keys, Batch({1, 2, 3})).ok());
  ASSERT_TRUE(barrier->Insert(1, Tensor::Vector<std::string>({"x"}), Batch({10})).ok());
  ASSERT_TRUE(barrier->Close(false).ok());
  const auto on_wait = [](uint64_t) { return false; };
  const auto take = [&](int64_t count, bool allow_fewer) {
    absl::StatusOr<Queue::Tuple> taken = absl::UnknownError("still waiting");
    barrier->Take(count, allow_fewer, on_wait, [&](auto tuple) { taken = std::move(tuple); });
    return taken;
  };
  EXPECT_TRUE(absl::IsOutOfRange(take(4, false).status()));
  const auto first = take(3, true);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ((*first)[1].num_elements(), 1);
  EXPECT_TRUE(absl::IsOutOfRange(take(3, true).status()));
  ASSERT_TRUE(barrier->Insert(1, Tensor::Vector<std::string>({"y"}), Batch({20})).ok());
  const auto second = take(3, true);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)[2].values<int32_t>()[0], 2);
  // Nothing is inserted, though the barrier is closed; keys without elements are refused.
  EXPECT_TRUE(barrier->Insert(0, Tensor::Vector<std::string>({}), Batch({})).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(
      barrier->Insert(0, keys, *Tensor::Make(DType::kInt32, *Shape::Make(Dims{3, 0})))));
  ASSERT_TRUE(barrier->Close(true).ok());
  EXPECT_TRUE(absl::IsCancelled(barrier->Insert(0, Tensor::Vector<std::string>({}), Batch({}))));
}

TEST_F(QueueTest, BarriersJoinComponentsByKey) {
  const RefPtr<Barrier> barrier =
      MakeRef<Barrier>("b", std::vector<DType>{DType::kInt32, DType::kInt32},
                       std::vector<PartialShape>{PartialShape::Scalar(), PartialShape::Scalar()});
  const Tensor keys = Tensor::Vector<std::string>({"x", "y"});
  ASSERT_TRUE(barrier->Insert(0, keys, Batch({1, 2})).ok());
  EXPECT_EQ(barrier->incomplete_size(), 2);
  EXPECT_TRUE(absl::IsInvalidArgument(barrier->Insert(0, keys, Batch({1, 2}))));
  absl::StatusOr<Queue::Tuple> taken = absl::UnknownError("");
  const auto on_wait = [](uint64_t) { return true; };
  barrier->Take(2, false, on_wait, [&](auto tuple) { taken = std::move(tuple); });
  ASSERT_TRUE(barrier->Close(false).ok());
  EXPECT_TRUE(absl::IsUnknown(taken.status()));  // incomplete keys may still be completed
  ASSERT_TRUE(barrier->Insert(1, keys, Batch({10, 20})).ok());
  ASSERT_TRUE(taken.ok());
  EXPECT_THAT((*taken)[3].values<int32_t>(), ElementsAre(10, 20));
  barrier->Take(1, false, on_wait, [&](auto tuple) { taken = std::move(tuple); });
  EXPECT_TRUE(absl::IsOutOfRange(taken.status()));
}

}  // namespace
}  // namespace muster
