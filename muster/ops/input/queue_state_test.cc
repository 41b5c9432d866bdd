// Queues as states.
#include <gmock/gmock.h>

#include "muster/ops/input/queue.h"
#include "muster/ops/kernel_test.h"
#include "muster/params/state_test.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

QueueOptions Options(DType first) {
  QueueOptions options;
  options.name = "q";
  options.capacity = 20;
  options.dtypes = {first, DType::kString};
  options.shapes = {PartialShape::Scalar(), PartialShape({2})};
  return options;
}

Queue::Tuple Element(DType first, std::mt19937& random) {
  const auto number = static_cast<int32_t>(random() % 50);
  return {first == DType::kInt64 ? Tensor::Scalar<int64_t>(number) : Tensor::Scalar(number),
          Tensor::Vector<std::string>({std::to_string(number), std::to_string(random())})};
}

// Dequeues wait, some of them with elements in hand.
void Follow(absl::FunctionRef<RefPtr<Queue>(uint32_t)> make, DType first) {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    const RefPtr<Queue> queue = make(seed);
    std::vector<Queue::Ticket> waiting;
    FollowAtRandom(
        queue, [&]() -> RefPtr<State> { return make(seed + 100); },
        [&](std::mt19937& random) {
          const auto on_wait = [&](Queue::Ticket ticket) {
            waiting.push_back(ticket);
            return true;
          };
          switch (random() % 5) {
            case 0:
              return queue->Dequeue(on_wait, [](const absl::StatusOr<Queue::Tuple>&) {});
            case 1:
              return queue->DequeueMany(1 + random() % 4, random() % 2 == 0, on_wait,
                                        [](const absl::StatusOr<Queue::Tuple>&) {});
            case 2:
              for (const Queue::Ticket ticket : waiting) queue->Cancel(ticket);
              waiting.clear();
              queue->Flush();
              if (random() % 10 == 0) queue->Close(true, on_wait, [](const absl::Status&) {});
              return;
            default:
              queue->Enqueue(Element(first, random), on_wait, [](const absl::Status&) {});
          }
        },
        seed, 300);
    for (const Queue::Ticket ticket : waiting) queue->Cancel(ticket);
  }
}

TEST(QueueStateTest, AFifoQueueIsFollowed) {
  Follow([](uint32_t) { return NewFifoQueue(Options(DType::kInt32)); }, DType::kInt32);
}

TEST(QueueStateTest, APaddingQueueIsFollowed) {
  Follow([](uint32_t) { return NewPaddingFifoQueue(Options(DType::kInt32)); }, DType::kInt32);
}

TEST(QueueStateTest, AShuffleQueueIsFollowedWithItsGenerator) {
  Follow(
      [](uint32_t seed) {
        return NewRandomShuffleQueue(Options(DType::kInt32),
                                     {.min_after_dequeue = 3, .seed = seed, .seed2 = 7});
      },
      DType::kInt32);
}

TEST(QueueStateTest, APriorityQueueIsFollowed) {
  Follow([](uint32_t) { return NewPriorityQueue(Options(DType::kInt64)); }, DType::kInt64);
}

std::string Got(Queue& queue) {
  std::string got;
  queue.Dequeue([](Queue::Ticket) { return false; },
                [&](absl::StatusOr<Queue::Tuple> tuple) {
                  got = tuple.ok() ? (*tuple)[1].data<std::string>()[0]
                                   : std::string(tuple.status().message());
                });
  return got;
}

// What a waiting dequeue has taken is not lost with its task.
TEST(QueueStateTest, ElementsInHandAreInTheSnapshot) {
  const RefPtr<Queue> queue = NewFifoQueue(Options(DType::kInt32));
  std::mt19937 random(1);
  std::vector<std::string> all;
  const auto on_wait = [](Queue::Ticket) { return true; };
  for (int i = 0; i < 3; ++i) {
    Queue::Tuple element = Element(DType::kInt32, random);
    all.push_back(element[1].data<std::string>()[0]);
    queue->Enqueue(std::move(element), on_wait, [](const absl::Status&) {});
  }
  Queue::Ticket waits = 0;
  queue->DequeueMany(
      5, false,
      [&](Queue::Ticket ticket) {
        waits = ticket;
        return true;
      },
      [](const absl::StatusOr<Queue::Tuple>&) {});
  EXPECT_EQ(queue->size(), 0);
  const RefPtr<Queue> copy = NewFifoQueue(Options(DType::kInt32));
  ASSERT_EQ(copy->RestoreSnapshot(queue->TakeSnapshot().value()), absl::OkStatus());
  for (const std::string& text : all) EXPECT_EQ(Got(*copy), text);
  EXPECT_TRUE(queue->Cancel(waits));
}

TEST(QueueStateTest, ElementsThatDoNotFitAreRefused) {
  const RefPtr<Queue> queue = NewPriorityQueue(Options(DType::kInt64));
  std::mt19937 random(1);
  const StateSnapshot good = queue->TakeSnapshot().value();
  const auto refused = [&](size_t part, std::vector<Tensor> tensors, absl::string_view name = "") {
    StateSnapshot bad = good;
    for (size_t i = 2; i < 4; ++i) {
      for (const int64_t number : {5, 3}) {
        bad.parts[i].tensors.push_back(i == 2 ? Tensor::Scalar<int64_t>(number)
                                              : Tensor::Vector<std::string>({"a", "b"}));
      }
    }
    bad.parts[part].tensors = std::move(tensors);
    if (!name.empty()) bad.parts[part].name = std::string(name);
    const absl::Status status = queue->RestoreSnapshot(bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const Tensor one = Tensor::Scalar<int64_t>(1);
  EXPECT_THAT(refused(2, {one, Tensor::Scalar<int64_t>(0)}), HasSubstr("the order of a heap"));
  EXPECT_THAT(refused(2, {one}), HasSubstr("'component 1' with 2 tensors stands where"));
  EXPECT_THAT(refused(2, {one, one}, "other"), HasSubstr("'other' with 2"));
  EXPECT_THAT(refused(2, {Tensor::Scalar<float>(1), one}), HasSubstr("Expected int64, got float"));
  EXPECT_THAT(refused(2, {Tensor::Vector<int64_t>({1}), one}), HasSubstr("Shape mismatch"));
  EXPECT_THAT(refused(1, {one}), HasSubstr("keeps elements only"));
  EXPECT_THAT(refused(0, {one}), HasSubstr("is of type int64, not bool"));
  EXPECT_EQ(queue->size(), 0);
  const RefPtr<Queue> shuffled = NewRandomShuffleQueue(Options(DType::kInt32), {});
  StateSnapshot bad = shuffled->TakeSnapshot().value();
  bad.parts[1].tensors = {Tensor::Vector<uint32_t>(std::vector<uint32_t>(11, 9))};
  EXPECT_THAT(shuffled->RestoreSnapshot(bad).message(), HasSubstr("position of a generator"));
}

// A queue without a shared name is listed while its kernel lives.
TEST(QueueStateTest, AQueueOfAKernelIsListed) {
  const AttrMap attrs = {{"component_types", std::vector<DType>{DType::kFloat}}};
  KernelRun run;
  ASSERT_EQ(run.Make("FIFOQueueV2", attrs), absl::OkStatus());
  EXPECT_TRUE(run.resources().States().empty());
  ASSERT_TRUE(run.Run().ok());
  const std::vector<ResourceManager::NamedState> states = run.resources().States();
  ASSERT_EQ(states.size(), 1u);
  EXPECT_EQ(states[0].container, "localhost");
  EXPECT_EQ(states[0].name, run.node().name());
  EXPECT_EQ(states[0].state->state_kind(), "FIFOQueue");
}

}  // namespace
}  // namespace muster
