#include "muster/master/finished_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/transport/api/forwarding.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Told : public ForwardingWorker<Told> {
 public:
  bool IsMuster() override { return is_muster; }
  void CleanupGraph(CallOptions, int64_t step_id, CallDone<Empty> done) override {
    steps.push_back(step_id);
    std::move(done)(Empty());
  }
  template <typename Reply, typename Call>
  void Forward(CallOptions, CallDone<Reply> done, Call) {
    std::move(done)(absl::UnimplementedError("not in this test"));
  }
  bool is_muster = true;
  std::vector<int64_t> steps;
};

class FinishedStepsTest : public ::testing::Test {
 protected:
  std::unique_ptr<SimulatedScheduler> scheduler_ = SimulatedScheduler::Create(3);
  std::shared_ptr<FinishedSteps> finished_ = std::make_shared<FinishedSteps>(*scheduler_);
  std::shared_ptr<Told> a_ = std::make_shared<Told>(), b_ = std::make_shared<Told>();
};

TEST_F(FinishedStepsTest, OthersHearAtOnce) {
  a_->is_muster = false;
  finished_->Add(a_, 1);
  EXPECT_THAT(a_->steps, ElementsAre(1));
  EXPECT_THAT(finished_->Take(*a_), IsEmpty());
}

TEST_F(FinishedStepsTest, TheNextStepTakesThemAlong) {
  finished_->Add(a_, 1);
  finished_->Add(b_, 1);
  finished_->Add(a_, 2);
  EXPECT_THAT(finished_->Take(*a_), ElementsAre(1, 2));
  EXPECT_THAT(finished_->Take(*a_), IsEmpty());
  scheduler_->RunUntil([] { return false; });
  EXPECT_THAT(a_->steps, IsEmpty());
  EXPECT_THAT(b_->steps, ElementsAre(1));
}

TEST_F(FinishedStepsTest, WhatNobodyTakesIsToldSoonEvenWhenTheSessionIsGone) {
  finished_->Add(a_, 1);
  finished_ = nullptr;
  EXPECT_THAT(a_->steps, IsEmpty());
  scheduler_->RunUntil([] { return false; });
  EXPECT_THAT(a_->steps, ElementsAre(1));
}

TEST_F(FinishedStepsTest, AClosedSessionTellsNobody) {
  finished_->Add(a_, 1);
  finished_->Forget();
  EXPECT_EQ(finished_.use_count(), 1);  // no timer has it
  EXPECT_THAT(finished_->Take(*a_), IsEmpty());
  finished_->Add(a_, 2);
  scheduler_->RunUntil([] { return false; });
  EXPECT_THAT(a_->steps, ElementsAre(2));
}

TEST_F(FinishedStepsTest, FewAreKept) {
  for (int64_t step = 0; step < 100; ++step) finished_->Add(a_, step);
  EXPECT_EQ(a_->steps.size(), 36u);
  EXPECT_EQ(finished_->Take(*a_).size(), 64u);
}

}  // namespace
}  // namespace muster
