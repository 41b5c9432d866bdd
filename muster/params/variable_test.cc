#include "muster/params/variable.h"

#include <thread>

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(VariableTest, UninitializedSaysItsName) {
  Variable v("w", DType::kFloat, PartialShape({2}));
  EXPECT_FALSE(v.initialized());
  const absl::Status status = v.Update([](Tensor&) { return absl::OkStatus(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "Attempting to use uninitialized value w");
}

TEST(VariableTest, ASnapshotNeverChanges) {
  Variable v("w", DType::kInt32, PartialShape({2}));
  v.Assign(Tensor::Vector<int32_t>({1, 2}));
  const Tensor before = v.Snapshot();
  ASSERT_TRUE(v.Update([](Tensor& t) {
                 t.data<int32_t>()[0] = 10;
                 return absl::OkStatus();
               }).ok());
  EXPECT_EQ(before.data<int32_t>()[0], 1);
  EXPECT_EQ(v.Snapshot().data<int32_t>()[0], 10);
}

TEST(VariableTest, UpdatesInPlaceWhenNobodyLooks) {
  Variable v("w", DType::kInt32, PartialShape({2}));
  v.Assign(Tensor::Vector<int32_t>({1, 2}));
  const char* memory = v.Snapshot().raw();
  ASSERT_TRUE(v.Update([](Tensor&) { return absl::OkStatus(); }).ok());
  EXPECT_EQ(v.Snapshot().raw(), memory);
}

TEST(VariableTest, ElementsAreAssignedInPlaceWhenNobodyLooks) {
  Variable v("w", DType::kInt32, PartialShape());
  const auto assign = [&v](std::vector<int32_t> values) {
    return v.AssignElements(Tensor::Vector<int32_t>(values), [](Tensor& to, const Tensor& from) {
      std::copy_n(from.data<int32_t>(), from.num_elements(), to.data<int32_t>());
      return absl::OkStatus();
    });
  };
  ASSERT_TRUE(assign({1, 2}).ok());
  const char* const memory = v.Snapshot().raw();
  ASSERT_TRUE(assign({3, 4}).ok());
  EXPECT_EQ(v.Snapshot().raw(), memory);
  const Tensor before = v.Snapshot();
  ASSERT_TRUE(assign({5, 6}).ok());
  EXPECT_EQ(before.data<int32_t>()[0], 3);
  EXPECT_EQ(v.Snapshot().data<int32_t>()[0], 5);
  ASSERT_TRUE(assign({7}).ok());
  EXPECT_EQ(v.Snapshot().num_elements(), 1);
}

TEST(VariableTest, NoConcurrentUpdateIsLost) {
  Variable v("n", DType::kInt64, PartialShape::Scalar());
  v.Assign(Tensor::Scalar<int64_t>(0));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 1000; ++k) {
        ASSERT_TRUE(v.Update([](Tensor& t) {
                       ++*t.data<int64_t>();
                       return absl::OkStatus();
                     }).ok());
        v.Snapshot();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(v.Snapshot().scalar<int64_t>(), 4000);
}

TEST(VariableUpdateTest, LocksEachOnceWhateverTheOrder) {
  Variable a("a", DType::kFloat, PartialShape::Scalar()),
      b("b", DType::kFloat, PartialShape::Scalar());
  a.Assign(Tensor::Scalar<float>(1));
  b.Assign(Tensor::Scalar<float>(2));
  const auto run = [&](std::vector<Variable*> order) {
    for (int i = 0; i < 1000; ++i) {
      absl::StatusOr<VariableUpdate> update = VariableUpdate::Begin(order);
      ASSERT_TRUE(update.ok());
      *update->value(0).data<float>() += 1;
    }
  };
  std::thread first([&] { run({&a, &b, &a}); }), second([&] { run({&b, &a}); });
  first.join();
  second.join();
  EXPECT_EQ(a.Snapshot().scalar<float>(), 1001);
  EXPECT_EQ(b.Snapshot().scalar<float>(), 1002);
}

}  // namespace
}  // namespace muster
