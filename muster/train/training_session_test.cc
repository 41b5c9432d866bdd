#include "muster/train/training_session.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/checkpoint/checkpoint_state.h"
#include "muster/train/event_writer.h"

namespace muster {
namespace {

// A program that counts, as a C++ user writes it.
class TrainingSessionTest : public testing::Test {
 protected:
  TrainingSessionTest()
      : folder_(std::filesystem::path(testing::TempDir()) /
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(folder_);
  }
  ~TrainingSessionTest() override { EventWriterCache::Clear(); }

  // Trains until `last_step`; the value of the weight in the end.
  absl::StatusOr<float> Train(int64_t last_step, absl::Status body = absl::OkStatus()) {
    Graph graph;
    const Scope scope(graph);
    ASSIGN_OR_RETURN(const TrainVariable step, MakeGlobalStep(scope));
    ASSIGN_OR_RETURN(const TrainVariable weight, MakeVariable(scope, "w", Constant(1, Shape({}))));
    Node* const count = Assign(scope, step, scope.ConstScalar<int64_t>(1), "AssignAdd").node;
    Node* const grow = Assign(scope, weight, scope.ConstScalar<float>(0.5), "AssignAdd").node;
    ASSIGN_OR_RETURN(Node* const train, Group(scope, {count, grow}, "train"));
    RETURN_IF_ERROR(scope.status());

    MonitoredTrainingSessionOptions options;
    options.graph = &graph;
    options.model.variables = {step, weight};
    options.model.global_step = step;
    options.checkpoint_dir = folder_;
    options.save_checkpoint = Interval::Steps(100);
    options.last_step = last_step;
    ASSIGN_OR_RETURN(const std::unique_ptr<MonitoredSession> session,
                     MonitoredTrainingSession(std::move(options)));
    while (!session->ShouldStop()) RETURN_IF_ERROR(session->Run({}, {}, {train}).status());
    ASSIGN_OR_RETURN(const std::vector<Tensor> values,
                     session->raw_session()->Run({}, {weight.snapshot}));
    RETURN_IF_ERROR(session->CloseAfter(body));
    return values[0].scalar<float>();
  }

  const std::string folder_;
};

TEST_F(TrainingSessionTest, TrainsSavesAndGoesOn) {
  const absl::StatusOr<float> first = Train(4);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*first, 3);
  EXPECT_EQ(LatestCheckpoint(folder_), folder_ + "/model.ckpt-4");
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/graph.pbtxt"));
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/model.ckpt-4.meta"));
  const absl::StatusOr<float> second = Train(6);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(*second, 4);
  EXPECT_EQ(LatestCheckpoint(folder_), folder_ + "/model.ckpt-6");
}

TEST_F(TrainingSessionTest, AFailedLoopSavesNothingMore) {
  EXPECT_EQ(Train(4, absl::InternalError("mine")).status(), absl::InternalError("mine"));
  EXPECT_EQ(LatestCheckpoint(folder_), folder_ + "/model.ckpt-0");
}

TEST_F(TrainingSessionTest, NeedsAGraphAndAStep) {
  EXPECT_FALSE(MonitoredTrainingSession({}).ok());
  Graph graph;
  MonitoredTrainingSessionOptions options;
  options.graph = &graph;
  options.checkpoint_dir = folder_;
  EXPECT_EQ(MonitoredTrainingSession(std::move(options)).status().message(),
            "Global step should be created to use StepCounterHook.");
}

}  // namespace
}  // namespace muster
