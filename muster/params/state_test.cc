#include "muster/params/state.h"

#include <atomic>
#include <thread>

#include <gmock/gmock.h>

#include "muster/params/accumulator.h"
#include "muster/params/random_state.h"
#include "muster/params/state_test.h"
#include "muster/params/variable.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kRows = 400;

RefPtr<Variable> NewVariable() {
  return MakeRef<Variable>("w", DType::kFloat, PartialShape({kRows, 3}));
}

Tensor Filled(float value) {
  Tensor tensor(DType::kFloat, Shape({kRows, 3}));
  std::fill_n(tensor.data<float>(), tensor.num_elements(), value);
  return tensor;
}

std::vector<int64_t> SomeRows(std::mt19937& random) {
  std::vector<int64_t> rows(random() % 6);
  for (int64_t& row : rows) row = random() % kRows;
  return rows;
}

void AddTo(Tensor& value, absl::Span<const int64_t> rows, float by) {
  for (const int64_t row : rows) {
    for (int i = 0; i < 3; ++i) value.data<float>()[row * 3 + i] += by;
  }
}

TEST(StateTest, AVariableIsFollowedRowByRow) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    const RefPtr<Variable> variable = NewVariable();
    const RefPtr<Variable> slot = NewVariable();
    slot->Assign(Filled(1));
    const int of_rows = FollowAtRandom(
        variable, [] { return NewVariable(); },
        [&](std::mt19937& random) {
          const auto by = static_cast<float>(random());
          if (!variable->initialized() || random() % 100 == 0) return variable->Assign(Filled(by));
          const std::vector<int64_t> rows = SomeRows(random);
          if (random() % 100 == 0) {
            absl::StatusOr<VariableUpdate> update =
                VariableUpdate::Begin({variable.get(), slot.get()});
            ASSERT_TRUE(update.ok());
            update->value(0).data<float>()[9] = by;
          } else if (random() % 100 == 0) {
            ASSERT_TRUE(variable
                            ->Update([&](Tensor& value) {
                              value.data<float>()[5] = by;
                              return absl::OkStatus();
                            })
                            .ok());
          } else if (random() % 2 == 0) {
            ASSERT_TRUE(variable
                            ->UpdateRows([&](Tensor& value, TouchedRows& touched) {
                              touched.Note(rows);
                              AddTo(value, rows, by);
                              return absl::OkStatus();
                            })
                            .ok());
          } else {
            absl::StatusOr<VariableUpdate> update =
                VariableUpdate::Begin({variable.get(), slot.get()}, VariableUpdate::Changes::kRows);
            ASSERT_TRUE(update.ok());
            update->TouchRows(rows);
            AddTo(update->value(0), rows, by);
          }
        },
        seed);
    EXPECT_GT(of_rows, 10);
  }
}

TEST(StateTest, AFailedChangeOfRowsMayHaveChangedAll) {
  const RefPtr<Variable> variable = NewVariable();
  variable->Assign(Filled(0));
  StateWatch watch(variable);
  const int64_t before = variable->epoch();
  EXPECT_FALSE(variable
                   ->UpdateRows([](Tensor& value, TouchedRows&) {
                     value.data<float>()[7] = 1;
                     return InvalidArgument("half way");
                   })
                   .ok());
  EXPECT_TRUE(watch.ChangesSince(before)->whole);
}

TEST(StateTest, WithoutAWatchTheWholeIsKnown) {
  const RefPtr<Variable> variable = NewVariable();
  variable->Assign(Filled(0));
  const auto touch = [&] {
    ASSERT_TRUE(variable
                    ->UpdateRows([](Tensor&, TouchedRows& touched) {
                      EXPECT_FALSE(touched.wanted());
                      touched.Note({1});
                      return absl::OkStatus();
                    })
                    .ok());
  };
  touch();
  { StateWatch watch(variable); }
  touch();
  StateWatch watch(variable);
  EXPECT_TRUE(watch.ChangesSince(1)->whole);
  EXPECT_FALSE(watch.ChangesSince(variable->epoch())->whole);
}

TEST(StateTest, ASnapshotSharesMemoryUntilTheNextChange) {
  const RefPtr<Variable> variable = NewVariable();
  variable->Assign(Filled(2));
  const StateSnapshot snapshot = variable->TakeSnapshot().value();
  EXPECT_EQ(snapshot.parts[0].tensors[0].raw(), variable->Snapshot().raw());
  variable
      ->Update([](Tensor& value) {
        value.data<float>()[0] = 3;
        return absl::OkStatus();
      })
      .IgnoreError();
  EXPECT_EQ(snapshot.parts[0].tensors[0].data<float>()[0], 2);
  EXPECT_EQ(variable->memory_kind(), MemoryKind::kHost);
}

TEST(StateTest, BadRowsOfAVariableAreRefused) {
  const RefPtr<Variable> variable = NewVariable();
  const auto apply = [&](std::vector<int64_t> rows, Tensor values) {
    StateDelta delta;
    delta.from = variable->epoch();
    delta.to = delta.from + 1;
    delta.whole = false;
    delta.rows = std::move(rows);
    delta.parts.push_back({"value", {std::move(values)}});
    return variable->ApplyDelta(delta);
  };
  const Tensor row(DType::kFloat, Shape({1, 3}));
  EXPECT_THAT(apply({0}, row).message(), HasSubstr("Variable 'w' is uninitialized"));
  variable->Assign(Filled(1));
  const Tensor before = variable->Snapshot();
  EXPECT_EQ(apply({kRows}, row).message(), "Variable 'w' has 400 rows; the delta changes row 400");
  EXPECT_EQ(apply({-1}, row).message(), "Variable 'w' has 400 rows; the delta changes row -1");
  EXPECT_THAT(apply({4, 4}, Tensor(DType::kFloat, Shape({2, 3}))).message(),
              HasSubstr("do not ascend: 4 follows 4"));
  EXPECT_THAT(apply({4}, Tensor(DType::kFloat, Shape({1, 4}))).message(),
              HasSubstr("has shape [400,3]; the delta has 1 rows of shape [1,4]"));
  EXPECT_THAT(apply({4}, Tensor(DType::kDouble, Shape({1, 3}))).message(),
              HasSubstr("is of type double, not float"));
  EXPECT_TRUE(SameTensor(variable->Snapshot(), before));
  StateDelta back = StateDelta::Whole(variable->TakeSnapshot().value());
  back.from = variable->epoch();
  back.to = back.from - 1;
  EXPECT_THAT(variable->ApplyDelta(back).message(), HasSubstr("leads back from epoch 1 to 0"));
}

// A checkpoint is a change like any other: the epoch does not go back with it.
TEST(StateTest, ARestoredSnapshotIsAChange) {
  const RefPtr<Variable> variable = NewVariable();
  variable->Assign(Filled(1));
  const StateSnapshot old = variable->TakeSnapshot().value();
  variable->Assign(Filled(2));
  StateWatch watch(variable);
  ASSERT_EQ(variable->RestoreSnapshot(old), absl::OkStatus());
  EXPECT_EQ(variable->epoch(), 3);
  EXPECT_EQ(variable->Snapshot().data<float>()[0], 1);
  EXPECT_TRUE(watch.ChangesSince(2)->whole);
}

// Memory that others may write is not kept.
TEST(StateTest, AppliedMemoryIsOwned) {
  std::vector<float> lent(kRows * 3, 5);
  const RefPtr<Variable> variable = NewVariable();
  StateDelta delta;
  delta.to = 1;
  delta.parts.push_back(
      {"value",
       {Tensor::FromBuffer(DType::kFloat, Shape({kRows, 3}),
                           Buffer::AdoptExternal(lent.data(), lent.size() * sizeof(float), [] {}))
            .value()}});
  ASSERT_EQ(variable->ApplyDelta(delta), absl::OkStatus());
  lent[0] = 6;
  EXPECT_EQ(variable->Snapshot().data<float>()[0], 5);
}

TEST(StateTest, ConcurrentUpdatesAreFollowed) {
  const RefPtr<Variable> variable = NewVariable();
  const RefPtr<Variable> copy = NewVariable();
  variable->Assign(Filled(0));
  StateWatch watch(variable);
  ASSERT_EQ(copy->ApplyDelta(StateDelta::Whole(variable->TakeSnapshot().value())),
            absl::OkStatus());
  std::atomic<int> running{3};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int k = 0; k < 500; ++k) {
        const std::vector<int64_t> rows = SomeRows(random);
        EXPECT_TRUE(variable
                        ->UpdateRows([&](Tensor& value, TouchedRows& touched) {
                          touched.Note(rows);
                          AddTo(value, rows, 1);
                          return absl::OkStatus();
                        })
                        .ok());
        if (k % 50 == 0) StateWatch(variable).ChangesSince(0).status().IgnoreError();
      }
      --running;
    });
  }
  while (running > 0)
    ASSERT_EQ(copy->ApplyDelta(watch.ChangesSince(copy->epoch()).value()), absl::OkStatus());
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(copy->ApplyDelta(watch.ChangesSince(copy->epoch()).value()), absl::OkStatus());
  ExpectSameState(*variable, *copy);
}

void TakeNow(Accumulator& accumulator) {
  accumulator.Take(
      accumulator.num_accumulated(), [](Accumulator::Ticket) { return false; },
      [](const absl::StatusOr<Accumulator::Tuple>&) {});
}

TEST(StateTest, ADenseAccumulatorIsFollowed) {
  const auto make = [] {
    return MakeRef<DenseAccumulator>("a", DType::kFloat, PartialShape({2}),
                                     Accumulator::Reduction::kMean);
  };
  const RefPtr<DenseAccumulator> accumulator = make();
  FollowAtRandom(
      accumulator, make,
      [&](std::mt19937& random) {
        const auto x = static_cast<float>(random());
        if (random() % 8 == 0) return TakeNow(*accumulator);
        if (random() % 16 == 0) return accumulator->SetGlobalStep(random() % 3);
        ASSERT_EQ(accumulator->Apply(random() % 20, Tensor::Vector<float>({x, x + 1})),
                  absl::OkStatus());
      },
      7);
}

TEST(StateTest, ASparseAccumulatorIsFollowed) {
  const auto make = [] {
    return MakeRef<SparseAccumulator>("s", DType::kDouble, PartialShape({50, 1}),
                                      Accumulator::Reduction::kSum);
  };
  const RefPtr<SparseAccumulator> accumulator = make();
  FollowAtRandom(
      accumulator, make,
      [&](std::mt19937& random) {
        if (random() % 8 == 0) return TakeNow(*accumulator);
        SparseGradient gradient;
        const int64_t row = random() % 49;
        gradient.indices = Tensor::Vector<int64_t>({row, row + 1});
        gradient.values = Tensor::Of<double>(Shape({2, 1}), {static_cast<double>(random()), 1});
        ASSERT_EQ(accumulator->Apply(random() % 20, false, gradient), absl::OkStatus());
      },
      8);
}

// The mean is made in place, but not in memory that a snapshot holds.
TEST(StateTest, TheSnapshotOfASumStays) {
  DenseAccumulator accumulator("a", DType::kFloat, PartialShape({1}),
                               Accumulator::Reduction::kMean);
  for (const float x : {1.f, 5.f})
    ASSERT_EQ(accumulator.Apply(0, Tensor::Vector<float>({x})), absl::OkStatus());
  const StateSnapshot snapshot = accumulator.TakeSnapshot().value();
  float mean = 0;
  accumulator.Take(
      2, [](Accumulator::Ticket) { return false; },
      [&](absl::StatusOr<Accumulator::Tuple> taken) { mean = (*taken)[0].data<float>()[0]; });
  EXPECT_EQ(mean, 3);
  EXPECT_EQ(snapshot.parts[2].tensors[0].data<float>()[0], 6);
}

TEST(StateTest, BadGradientsAreRefused) {
  DenseAccumulator accumulator("a", DType::kFloat, PartialShape({2}), Accumulator::Reduction::kSum);
  const auto apply = [&](int64_t count, std::vector<Tensor> sum) {
    StateSnapshot snapshot;
    snapshot.parts = {{"count", {Tensor::Scalar<int64_t>(count)}},
                      {"global_step", {Tensor::Scalar<int64_t>(0)}}};
    if (!sum.empty()) snapshot.parts.push_back({"sum", std::move(sum)});
    return std::string(accumulator.RestoreSnapshot(snapshot).message());
  };
  EXPECT_EQ(apply(-1, {}), "Accumulator 'a' cannot have -1 gradients");
  EXPECT_THAT(apply(1, {}), HasSubstr("has 1 parts; what is to be put into it has 0"));
  EXPECT_THAT(apply(1, {Tensor::Vector<float>({1})}),
              HasSubstr("has shape [2]; the sum of gradients has [1]"));
  EXPECT_EQ(apply(1, {Tensor::Vector<float>({1, 2})}), "");
}

TEST(StateTest, ARandomGeneratorIsFollowed) {
  const RefPtr<RandomState> generator = MakeRef<RandomState>("r", Philox(1, 2));
  FollowAtRandom(
      generator, [] { return MakeRef<RandomState>("r", Philox(3, 4)); },
      [&](std::mt19937& random) { generator->Reserve(uint64_t{random()} << 20); }, 9);
  const RefPtr<RandomState> copy = MakeRef<RandomState>("r", Philox());
  ASSERT_EQ(copy->RestoreSnapshot(generator->TakeSnapshot().value()), absl::OkStatus());
  EXPECT_EQ(copy->Reserve(1)(), generator->Reserve(1)());
}

}  // namespace
}  // namespace muster
