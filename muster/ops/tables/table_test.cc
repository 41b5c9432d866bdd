// Tables as states, and as checkpoints have them.
#include "muster/ops/tables/table.h"

#include <gmock/gmock.h>

#include "muster/params/state_test.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

RefPtr<LookupTable> Make(LookupTable::Kind kind) {
  TableOptions options;
  options.kind = kind;
  options.key_type = DType::kInt64;
  options.value_type = DType::kFloat;
  if (kind != LookupTable::Kind::kStatic) options.value_shape = Shape({2});
  if (kind == LookupTable::Kind::kDense) {
    options.empty_key = Tensor::Scalar<int64_t>(-1);
    options.deleted_key = Tensor::Scalar<int64_t>(-2);
    options.num_buckets = 4;
    options.max_load = 0.8;
  }
  return MakeTable("t", options).value();
}

int FollowTable(LookupTable::Kind kind, uint32_t seed, int64_t num_keys) {
  const RefPtr<LookupTable> table = Make(kind);
  return FollowAtRandom(
      table, [&]() -> RefPtr<State> { return Make(kind); },
      [&](std::mt19937& random) {
        std::vector<int64_t> keys(1 + random() % 3);
        for (int64_t& key : keys) key = static_cast<int64_t>(random()) % num_keys;
        if (random() % 6 == 0) {
          return table->Remove(Tensor::Vector<int64_t>(keys)).IgnoreError();
        }
        Tensor values(DType::kFloat, Shape({static_cast<int64_t>(keys.size()), 2}));
        for (int64_t i = 0; i < values.num_elements(); ++i)
          values.data<float>()[i] = static_cast<float>(random());
        if (random() % 60 == 0) {
          const LookupTable::Entries entries = ExportTable(*table).value();
          return ImportTable(*table, entries.keys, entries.values).IgnoreError();
        }
        ASSERT_EQ(table->Insert(Tensor::Vector<int64_t>(keys), values), absl::OkStatus());
      },
      seed, 400);
}

TEST(TableStateTest, ATableIsFollowedEntryByEntry) {
  int of_rows = 0;
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    for (const int64_t num_keys : {10, 300}) {
      of_rows += FollowTable(LookupTable::Kind::kOfTensors, seed, num_keys);
      of_rows += FollowTable(LookupTable::Kind::kDense, seed, num_keys);
    }
  }
  EXPECT_GT(of_rows, 500);
}

TEST(TableStateTest, AStaticTableIsFollowed) {
  const RefPtr<LookupTable> table = Make(LookupTable::Kind::kStatic);
  const RefPtr<LookupTable> copy = Make(LookupTable::Kind::kStatic);
  StateWatch watch(table);
  const auto follow = [&] {
    ASSERT_EQ(copy->ApplyDelta(watch.ChangesSince(copy->epoch()).value()), absl::OkStatus());
    ExpectSameState(*table, *copy);
  };
  follow();
  EXPECT_EQ(ExportTable(*copy).status().message(), "Table not initialized.");
  ASSERT_EQ(table->Initialize(Tensor::Vector<int64_t>({1, 2}), Tensor::Vector<float>({3, 4})),
            absl::OkStatus());
  follow();
  EXPECT_THAT(ExportTable(*copy)->values.values<float>(), ElementsAre(3, 4));
}

TEST(TableStateTest, OfEqualKeysThatAreImportedTheLastCounts) {
  const RefPtr<LookupTable> table = Make(LookupTable::Kind::kOfTensors);
  ASSERT_EQ(ImportTable(*table, Tensor::Vector<int64_t>({7, 8, 7}),
                        Tensor::Of<float>(Shape({3, 2}), {1, 1, 2, 2, 3, 3})),
            absl::OkStatus());
  const LookupTable::Entries entries = ExportTable(*table).value();
  EXPECT_THAT(entries.keys.values<int64_t>(), ElementsAre(7, 8));
  EXPECT_THAT(entries.values.values<float>(), ElementsAre(3, 3, 2, 2));
}

TEST(TableStateTest, ADenseTableShowsItsBuckets) {
  const RefPtr<LookupTable> table = Make(LookupTable::Kind::kDense);
  ASSERT_EQ(table->Insert(Tensor::Vector<int64_t>({5, 6}),
                          Tensor::Of<float>(Shape({2, 2}), {1, 2, 3, 4})),
            absl::OkStatus());
  ASSERT_EQ(table->Remove(Tensor::Vector<int64_t>({5})), absl::OkStatus());
  const LookupTable::Entries entries = ExportTable(*table).value();
  EXPECT_EQ(entries.keys.shape(), Shape({4, 1}));
  EXPECT_THAT(entries.keys.values<int64_t>(), ElementsAre(6, -2, -1, -1));
  EXPECT_THAT(entries.values.values<float>(), ElementsAre(3, 4, 1, 2, 0, 0, 0, 0));
}

TEST(TableStateTest, RowsThatDoNotFitAreRefused) {
  const RefPtr<LookupTable> table = Make(LookupTable::Kind::kDense);
  ASSERT_EQ(table->Insert(Tensor::Vector<int64_t>({5, 6}),
                          Tensor::Of<float>(Shape({2, 2}), {1, 2, 3, 4})),
            absl::OkStatus());
  const StateSnapshot before = table->TakeSnapshot().value();
  const auto refused = [&](std::vector<int64_t> rows, std::vector<int64_t> keys, int64_t size,
                           int64_t buckets = 4) {
    StateDelta delta;
    delta.whole = false;
    delta.from = table->epoch();
    delta.to = delta.from + 1;
    delta.rows = std::move(rows);
    const Shape values({static_cast<int64_t>(keys.size()), 2});
    delta.parts = {{"keys", {Tensor::Vector<int64_t>(keys)}},
                   {"values", {Tensor::Zeros(DType::kFloat, values)}},
                   {"size", {Tensor::Scalar<int64_t>(size)}},
                   {"buckets", {Tensor::Scalar<int64_t>(buckets)}}};
    const absl::Status status = table->ApplyDelta(delta);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    const StateSnapshot after = table->TakeSnapshot().value();
    EXPECT_EQ(after.epoch, before.epoch);
    EXPECT_TRUE(SameTensor(after.parts[0].tensors[0], before.parts[0].tensors[0]));
    return std::string(status.message());
  };
  EXPECT_THAT(refused({2}, {6}, 3), HasSubstr("row 2 has the key of another"));
  EXPECT_THAT(refused({2, 3}, {7, 7}, 4), HasSubstr("row 3 has the key of another"));
  EXPECT_THAT(refused({2}, {7}, 2), HasSubstr("Table 't' has 2 rows; the delta changes row 2"));
  EXPECT_THAT(refused({2}, {7}, 1000000), HasSubstr("cannot make 1000000"));
  EXPECT_THAT(refused({}, {}, -1), HasSubstr("cannot make -1"));
  EXPECT_THAT(refused({1}, {7, 8}, 2), HasSubstr("1 rows and 2 keys"));
  EXPECT_THAT(refused({1}, {-1}, 2), HasSubstr("empty_key"));
  EXPECT_THAT(refused({1}, {7}, 2, 3), HasSubstr("cannot have 3 buckets"));
}

}  // namespace
}  // namespace muster
