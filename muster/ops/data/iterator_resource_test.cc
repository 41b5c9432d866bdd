#include "muster/ops/data/iterator_resource.h"

#include <atomic>
#include <exception>
#include <future>
#include <new>
#include <stdexcept>

#include "gtest/gtest.h"

namespace muster {
namespace {

const ElementSpec kNumbers{{DType::kInt64}, {PartialShape::Scalar()}};

DatasetPtr Make(Dataset::Begin begin) {
  return std::make_shared<const Dataset>(kNumbers, std::move(begin));
}

// 0, 1, 2, ... `count` - 1; each may be held back by `gate`.
NextElement Counting(int64_t count, std::shared_ptr<std::atomic<bool>> gate = nullptr) {
  return [count, gate, next = int64_t{0}](const DataContext& context) mutable -> MaybeElement {
    while (gate != nullptr && !gate->load()) {
      if (context.cancellation->cancelled()) return context.cancellation->reason();
      absl::SleepFor(absl::Milliseconds(1));
    }
    if (next == count) return std::nullopt;
    return Element{Tensor::Scalar(next++)};
  };
}

struct Asked {
  uint64_t ticket = 0;
  std::future<absl::StatusOr<Element>> result;
};

Asked Ask(IteratorResource& iterator) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<Element>>>();
  Asked asked;
  asked.result = promise->get_future();
  iterator.GetNext(
      [&asked](uint64_t ticket) {
        asked.ticket = ticket;
        return true;
      },
      [promise](absl::StatusOr<Element> element) { promise->set_value(std::move(element)); });
  return asked;
}

absl::StatusOr<int64_t> Get(IteratorResource& iterator) {
  ASSIGN_OR_RETURN(const Element element, Ask(iterator).result.get());
  return element[0].scalar<int64_t>();
}

TEST(IteratorResource, EndsAndStartsOver) {
  const auto iterator = MakeRef<IteratorResource>(kNumbers);
  EXPECT_TRUE(absl::IsFailedPrecondition(Get(*iterator).status()));
  const DatasetPtr two = Make([](const DataContext&) { return Counting(2); });
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(iterator->Initialize(two, DefaultScheduler()).ok());
    EXPECT_EQ(Get(*iterator).value(), 0);
    EXPECT_EQ(Get(*iterator).value(), 1);
    EXPECT_EQ(Get(*iterator).status(), OutOfRange("End of sequence"));
    EXPECT_EQ(Get(*iterator).status(), OutOfRange("End of sequence"));
  }
}

// The reading thread is the iterator's own or that of a part which reads ahead.
TEST(IteratorResource, AnElementThatFindsNoMemoryIsAnError) {
  const auto too_large = [](const std::exception_ptr& failure) -> NextElement {
    return [failure, next = int64_t{0}](const DataContext&) mutable -> MaybeElement {
      if (next++ == 0) std::rethrow_exception(failure);
      return Element{Tensor::Scalar(next)};
    };
  };
  for (const std::exception_ptr& failure : {std::make_exception_ptr(std::bad_alloc()),
                                            std::make_exception_ptr(std::length_error("string"))}) {
    for (const bool ahead : {false, true}) {
      const auto iterator = MakeRef<IteratorResource>(kNumbers);
      const DatasetPtr dataset = Make([&, ahead](const DataContext& context) {
        return ahead ? Prefetched(too_large(failure), 2, context) : too_large(failure);
      });
      ASSERT_TRUE(iterator->Initialize(dataset, DefaultScheduler()).ok());
      const absl::Status status = Get(*iterator).status();
      EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
      EXPECT_EQ(Get(*iterator).value(), 2);
    }
  }
}

TEST(IteratorResource, RefusesOtherTypes) {
  const auto iterator =
      MakeRef<IteratorResource>(ElementSpec{{DType::kFloat}, {PartialShape::Scalar()}});
  const DatasetPtr two = Make([](const DataContext&) { return Counting(2); });
  EXPECT_TRUE(absl::IsInvalidArgument(iterator->Initialize(two, DefaultScheduler())));
}

TEST(IteratorResource, AWithdrawnRequestLosesNothing) {
  const auto gate = std::make_shared<std::atomic<bool>>(false);
  const auto iterator = MakeRef<IteratorResource>(kNumbers);
  ASSERT_TRUE(iterator
                  ->Initialize(Make([gate](const DataContext&) { return Counting(3, gate); }),
                               DefaultScheduler())
                  .ok());
  Asked asked = Ask(*iterator);
  EXPECT_TRUE(iterator->Cancel(asked.ticket));
  iterator->Flush();
  EXPECT_TRUE(absl::IsCancelled(asked.result.get().status()));
  EXPECT_FALSE(iterator->Cancel(asked.ticket));
  gate->store(true);
  EXPECT_EQ(Get(*iterator).value(), 0);
  EXPECT_EQ(Get(*iterator).value(), 1);
}

TEST(IteratorResource, GoesWhileItIsRead) {
  const auto gate = std::make_shared<std::atomic<bool>>(false);
  auto iterator = MakeRef<IteratorResource>(kNumbers);
  // Two stages read ahead, and both wait for an element that never arrives.
  const DatasetPtr stuck = Make([gate](const DataContext& context) {
    return Prefetched(Prefetched(Counting(3, gate), 2, context), 2, context);
  });
  ASSERT_TRUE(iterator->Initialize(stuck, DefaultScheduler()).ok());
  Asked first = Ask(*iterator);
  Asked second = Ask(*iterator);
  // A new dataset ends requests that wait for the old one, and so does the destructor.
  ASSERT_TRUE(iterator->Initialize(stuck, DefaultScheduler()).ok());
  EXPECT_FALSE(first.result.get().ok());
  EXPECT_FALSE(second.result.get().ok());
  Asked third = Ask(*iterator);
  iterator.reset();
  EXPECT_FALSE(third.result.get().ok());
}

TEST(IteratorResource, GoesWithElementsReadAhead) {
  const DatasetPtr many =
      Make([](const DataContext& context) { return Prefetched(Counting(1 << 20), 100, context); });
  for (int i = 0; i < 50; ++i) {
    auto iterator = MakeRef<IteratorResource>(kNumbers);
    ASSERT_TRUE(iterator->Initialize(many, DefaultScheduler()).ok());
    EXPECT_EQ(Get(*iterator).value(), 0);
  }
}

}  // namespace
}  // namespace muster
