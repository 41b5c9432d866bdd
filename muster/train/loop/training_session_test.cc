#include "muster/train/loop/training_session.h"

#include <algorithm>
#include <filesystem>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/checkpoint/checkpoint_state.h"
#include "muster/optimizers.h"
#include "muster/train/events/event_writer.h"

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

// Notes what it is called for; loses the session once, or stops the loop, when the weight is there.
class Watcher : public SessionRunHook {
 public:
  explicit Watcher(Output weight) : weight_(weight) {}
  std::optional<float> lose_at, stop_at;
  std::vector<std::string> calls;
  std::vector<float> weights;

  absl::Status Begin() override { return Note("begin"); }
  absl::Status AfterCreateSession(const std::shared_ptr<Session>&,
                                  const std::shared_ptr<Coordinator>&) override {
    return Note("created");
  }
  absl::StatusOr<std::optional<RunArgs>> BeforeRun(RunContext&) override {
    return RunArgs{.fetches = {weight_}};
  }
  absl::Status AfterRun(RunContext& context, const RunValues& values) override {
    const float weight = values.results[0].scalar<float>();
    weights.push_back(weight);
    if (stop_at.has_value() && weight >= *stop_at) context.RequestStop();
    if (!lose_at.has_value() || weight < *lose_at) return absl::OkStatus();
    lose_at.reset();
    return absl::UnavailableError("the task is gone");
  }
  absl::Status End(Session&) override { return Note("end"); }

 private:
  absl::Status Note(std::string call) {
    calls.push_back(std::move(call));
    return absl::OkStatus();
  }
  const Output weight_;
};

// A program that trains `w` towards 4 by gradient descent, with a hook of its own.
class HookedTraining {
 public:
  explicit HookedTraining(std::string folder) {
    model_.AddGlobalStep(scope_);
    const TrainVariable weight = model_.AddVariable(scope_, "w", Constant(0, Shape({})));
    const Output distance = scope_.Op("Sub", {Value(scope_, weight), scope_.ConstScalar<float>(4)});
    const Output loss = scope_.Op("Square", {distance});
    model_.AddScalarSummary(scope_, "loss", loss);
    GradientDescentOptimizer descent(0.05);
    train_ = model_.Minimize(scope_, loss, descent).value();
    // Read before the update of its step.
    hook = std::make_shared<Watcher>(weight.snapshot);
    options.graph = &graph_;
    options.model = model_;
    options.checkpoint_dir = std::move(folder);
    options.save_checkpoint = Interval::Steps(5);
    options.hooks = {hook};
  }
  absl::Status Run() {
    ASSIGN_OR_RETURN(const std::unique_ptr<MonitoredSession> session,
                     MonitoredTrainingSession(std::move(options)));
    absl::Status status;
    while (status.ok() && !session->ShouldStop()) status = session->Run({}, {}, {train_}).status();
    return session->CloseAfter(status);
  }

  MonitoredTrainingSessionOptions options;
  std::shared_ptr<Watcher> hook;

 private:
  Graph graph_;
  const Scope scope_{graph_};
  Model model_;
  Node* train_ = nullptr;
};

TEST_F(TrainingSessionTest, AHookOfTheUserStopsTheLoop) {
  HookedTraining training(folder_);
  training.hook->stop_at = 3;
  ASSERT_TRUE(training.Run().ok());
  EXPECT_THAT(training.hook->calls, testing::ElementsAre("begin", "created", "end"));
  EXPECT_GE(training.hook->weights.back(), 3);
  EXPECT_EQ(LatestCheckpoint(folder_),
            absl::StrCat(folder_, "/model.ckpt-", training.hook->weights.size()));
}

TEST_F(TrainingSessionTest, ALostSessionGoesOnFromTheLastCheckpoint) {
  HookedTraining training(folder_);
  training.options.last_step = 20;
  training.hook->lose_at = 2.9;  // step 14, four after a checkpoint
  ASSERT_TRUE(training.Run().ok());
  EXPECT_THAT(training.hook->calls, testing::ElementsAre("begin", "created", "created", "end"));
  // The weights of the second session follow one that the first had saved.
  const std::vector<float>& weights = training.hook->weights;
  const auto back = std::adjacent_find(weights.begin(), weights.end(), std::greater<>());
  ASSERT_NE(back, weights.end());
  const auto again = std::find(weights.begin(), back, *(back + 1));
  EXPECT_NE(again, back);
  EXPECT_GT(*(back + 1), 0);  // not the initial value
  EXPECT_EQ(LatestCheckpoint(folder_), folder_ + "/model.ckpt-20");
}

TEST_F(TrainingSessionTest, ErrorsOfTheModelComeOutOfMinimize) {
  Graph graph;
  const Scope scope(graph);
  Model model;
  const TrainVariable weight = model.AddVariable(scope, "w", Constant(0, Shape({})));
  const Output loss = scope.Op("Square", {Value(scope, weight)});
  GradientDescentOptimizer descent(0.1);
  MinimizeOptions options;
  options.sync = SyncReplicasOptions{.replicas_to_aggregate = 2};
  EXPECT_EQ(model.Minimize(scope, loss, descent, options).status().code(),
            absl::StatusCode::kFailedPrecondition);
  model.AddVariable(scope, "v", Output());
  EXPECT_FALSE(scope.status().ok());
  EXPECT_EQ(model.Minimize(scope, loss, descent).status(), scope.status());
  EXPECT_EQ(model.trainable.size(), 1u);
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
