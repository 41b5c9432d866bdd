// What tests of all states share: a copy that follows a state through deltas is equal to it.
#pragma once

#include <random>
#include <vector>

#include "absl/functional/function_ref.h"
#include <gtest/gtest.h>

#include "muster/params/state.h"

namespace muster {

inline void ExpectSameState(const State& a, const State& b) {
  const absl::StatusOr<StateSnapshot> of_a = a.TakeSnapshot();
  const absl::StatusOr<StateSnapshot> of_b = b.TakeSnapshot();
  ASSERT_TRUE(of_a.ok() && of_b.ok()) << of_a.status() << of_b.status();
  EXPECT_EQ(of_a->epoch, of_b->epoch);
  ASSERT_EQ(of_a->parts.size(), of_b->parts.size());
  for (size_t i = 0; i < of_a->parts.size(); ++i) {
    const StatePart& part = of_a->parts[i];
    EXPECT_EQ(part.name, of_b->parts[i].name);
    ASSERT_EQ(part.tensors.size(), of_b->parts[i].tensors.size()) << part.name;
    for (size_t k = 0; k < part.tensors.size(); ++k) {
      EXPECT_TRUE(SameTensor(part.tensors[k], of_b->parts[i].tensors[k]))
          << part.name << " " << k << ": " << part.tensors[k].ToString() << " and "
          << of_b->parts[i].tensors[k].ToString();
    }
  }
}

// Changes `original` at random; two copies, of which one begins later and asks seldom, follow it.
// Deltas that are doubled, too early, of another state or torn are refused. Returns how many deltas
// were of rows.
inline int FollowAtRandom(const RefPtr<State>& original,
                          absl::FunctionRef<RefPtr<State>()> make_copy,
                          absl::FunctionRef<void(std::mt19937&)> change, uint32_t seed,
                          int steps = 200) {
  std::mt19937 random(seed);
  int of_rows = 0;
  StateWatch watch(original);
  const RefPtr<State> copy = make_copy();
  EXPECT_EQ(copy->ApplyDelta(StateDelta::Whole(original->TakeSnapshot().value())),
            absl::OkStatus());
  RefPtr<State> late;
  for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
    change(random);
    if (step == steps / 4) {
      late = make_copy();
      EXPECT_EQ(late->ApplyDelta(StateDelta::Whole(original->TakeSnapshot().value())),
                absl::OkStatus());
    }
    if (random() % 3 != 0) continue;
    const int64_t from = copy->epoch();
    const absl::StatusOr<StateDelta> delta = watch.ChangesSince(from);
    EXPECT_TRUE(delta.ok()) << delta.status();
    if (!delta.ok()) return of_rows;
    EXPECT_EQ(delta->from, from);
    of_rows += !delta->whole && !delta->rows.empty();
    StateDelta early = *delta;
    early.from = delta->to + 1;
    early.to = delta->to + 2;
    EXPECT_EQ(copy->ApplyDelta(early).code(), absl::StatusCode::kFailedPrecondition);
    if (!delta->parts.empty()) {
      StateDelta torn = *delta;
      torn.parts[0].name += "?";
      EXPECT_EQ(copy->ApplyDelta(torn).code(), absl::StatusCode::kInvalidArgument);
      torn = *delta;
      torn.parts.push_back({"more", {}});
      EXPECT_EQ(copy->ApplyDelta(torn).code(), absl::StatusCode::kInvalidArgument);
      torn = *delta;
      torn.parts[0].tensors.assign(1, Tensor::Zeros(DType::kComplex128, Shape()));
      EXPECT_EQ(copy->ApplyDelta(torn).code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(copy->epoch(), from);
    }
    EXPECT_EQ(copy->ApplyDelta(*delta), absl::OkStatus());
    ExpectSameState(*original, *copy);
    if (delta->to != from) {
      EXPECT_EQ(copy->ApplyDelta(*delta).code(), absl::StatusCode::kFailedPrecondition);
    }
    if (late && random() % 4 == 0) {
      EXPECT_EQ(late->ApplyDelta(watch.ChangesSince(late->epoch()).value()), absl::OkStatus());
      ExpectSameState(*original, *late);
    }
  }
  EXPECT_EQ(watch.ChangesSince(original->epoch() + 1).status().code(),
            absl::StatusCode::kFailedPrecondition);
  return of_rows;
}

}  // namespace muster
