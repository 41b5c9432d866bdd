#include "muster/cli/launch_screen.h"

#include <cmath>

#include "absl/time/clock.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

std::optional<double> LossIn(absl::string_view line) {
  TaskProgress progress;
  progress.NoteLine(line);
  return progress.loss;
}

std::optional<int64_t> StepIn(absl::string_view line) {
  TaskProgress progress;
  progress.NoteLine(line);
  return progress.global_step;
}

TEST(TaskProgressTest, FindsLossAndStepInLines) {
  EXPECT_EQ(LossIn("step 100, loss = 0.25, 3 s"), 0.25);
  EXPECT_EQ(LossIn("Loss: 1.5."), 1.5);
  EXPECT_EQ(LossIn("{'loss': 2e-3}"), 2e-3);
  EXPECT_EQ(LossIn("cross entropy 7"), 7);
  EXPECT_EQ(LossIn("cross_entropy=8"), 8);
  EXPECT_EQ(LossIn("xent=9 loss (3)"), 3);
  EXPECT_TRUE(std::isnan(LossIn("loss nan").value()));
  for (const char* const line : {"glossary 3", "lossless 5", "loss", "loss of data", ""})
    EXPECT_EQ(LossIn(line), std::nullopt) << line;
  EXPECT_EQ(StepIn("global_step: 42"), 42);
  EXPECT_EQ(StepIn("Global step 7 (loss 2)"), 7);
  EXPECT_EQ(StepIn("globalstep=3"), 3);
  for (const char* const line :
       {"global_step/sec: 42", "global step 1.5", "global step -1", "global step 1e20", "step 5"})
    EXPECT_EQ(StepIn(line), std::nullopt) << line;
}

TEST(TaskProgressTest, RatesAreSmoothed) {
  TaskProgress progress;
  const absl::Time start = absl::FromUnixSeconds(1000);
  progress.NoteReport(R"({"steps": 100, "global_step": 40})", start);
  EXPECT_EQ(progress.steps, 100);
  EXPECT_EQ(progress.steps_per_second, 0);
  EXPECT_EQ(progress.global_step, 40);
  progress.NoteReport(R"({"steps": 150})", start + absl::Seconds(1));
  EXPECT_DOUBLE_EQ(progress.steps_per_second, 50);
  // Too soon to tell a rate.
  progress.NoteReport(R"({"steps": 160})", start + absl::Milliseconds(1010));
  EXPECT_DOUBLE_EQ(progress.steps_per_second, 50);
  progress.NoteReport(R"({"steps": 350})", start + absl::Seconds(3));
  EXPECT_DOUBLE_EQ(progress.steps_per_second, 0.6 * 50 + 0.4 * 100);
  EXPECT_FALSE(progress.joined);
  progress.NoteReport(R"({"joined": true})", start + absl::Seconds(4));
  progress.NoteReport(R"({"joined": false, "steps": "many", "global_step": null})",
                      start + absl::Seconds(5));
  progress.NoteReport("not a report", start + absl::Seconds(6));
  EXPECT_TRUE(progress.joined);
  EXPECT_EQ(progress.steps, 350);
  EXPECT_EQ(progress.global_step, 40);
}

TEST(TaskProgressTest, ARestartBeginsAgain) {
  TaskProgress progress;
  const absl::Time start = absl::FromUnixSeconds(1000);
  progress.NoteReport(R"({"steps": 100, "joined": true})", start);
  progress.NoteReport(R"({"steps": 200})", start + absl::Seconds(1));
  progress.NoteRestart();
  EXPECT_EQ(progress.steps_per_second, 0);
  EXPECT_FALSE(progress.joined);
  // Fewer steps than before are not a negative rate.
  progress.NoteReport(R"({"steps": 5})", start + absl::Seconds(2));
  EXPECT_EQ(progress.steps_per_second, 0);
  EXPECT_EQ(progress.steps, 5);
}

TEST(StepsAskedForTest, TakesTheLastArgumentThatSaysIt) {
  EXPECT_EQ(StepsAskedFor({"--train_steps=300", "--batch_size=5"}), 300);
  EXPECT_EQ(StepsAskedFor({"-max_steps", "20"}), 20);
  EXPECT_EQ(StepsAskedFor({"--steps", "10", "--last_step=30"}), 30);
  EXPECT_EQ(StepsAskedFor({"--train_steps", "many"}), std::nullopt);
  EXPECT_EQ(StepsAskedFor({"train_steps=300", "--warm_steps=4", "--steps"}), std::nullopt);
  EXPECT_EQ(StepsAskedFor({}), std::nullopt);
}

TEST(ProgressLineTest, HasStepRatesLossAndTimeLeft) {
  TaskProgress ps;
  ps.name = "ps 0";
  ps.global_step = 1200;
  TaskProgress first;
  first.name = "worker 0";
  first.is_worker = true;
  first.steps_per_second = 310.4;
  first.loss = 0.21437;
  TaskProgress second = first;
  second.name = "worker 1";
  second.loss = 9;
  second.ended = true;
  TaskProgress serves = first;
  serves.name = "worker 2";
  serves.joined = true;
  const std::vector<TaskProgress> tasks = {ps, first, second, serves};
  EXPECT_EQ(ProgressLine(tasks, 5000, absl::Seconds(12), 0),
            "step 1200/5000  worker 0: 310 steps/s  worker 1: done  loss 0.2144  38 s left");
  EXPECT_EQ(ProgressLine(tasks, std::nullopt, absl::Seconds(12), 0),
            "step 1200  worker 0: 310 steps/s  worker 1: done  loss 0.2144");
  // A run that goes on from a checkpoint has made only the steps since then.
  EXPECT_EQ(ProgressLine({ps}, 1300, absl::Seconds(300), 1100), "step 1200/1300  5 min left");
  EXPECT_EQ(ProgressLine({ps}, 2400, absl::Hours(3), 0), "step 1200/2400  3 h 0 min left");
  EXPECT_EQ(ProgressLine({ps}, 1200, absl::Seconds(12), 0), "step 1200/1200");
  EXPECT_EQ(ProgressLine({first}, 5000, absl::Seconds(1), 0),
            "starting  worker 0: 310 steps/s  loss 0.2144");
}

class LaunchScreenTest : public testing::Test {
 protected:
  LaunchScreenTest() { testing::internal::CaptureStdout(); }
  // What was printed since the last time.
  static std::string Printed() {
    std::string text = testing::internal::GetCapturedStdout();
    testing::internal::CaptureStdout();
    return text;
  }
  ~LaunchScreenTest() override { testing::internal::GetCapturedStdout(); }
};

TEST_F(LaunchScreenTest, LinesHaveTheNameOfTheirTask) {
  LaunchScreen plain(/*is_terminal=*/false, /*colours=*/false);
  plain.PrintLine(3, "worker 0", "hello");
  plain.Say("stopping");
  EXPECT_EQ(Printed(), "[worker 0] hello\nmuster: stopping\n");
  LaunchScreen coloured(/*is_terminal=*/false, /*colours=*/true);
  coloured.PrintLine(0, "ps 0", "hello");
  coloured.PrintLine(10, "ps 10", "again");
  EXPECT_EQ(Printed(), "\033[36m[ps 0]\033[0m hello\n\033[36m[ps 10]\033[0m again\n");
}

TEST_F(LaunchScreenTest, WithoutATerminalProgressIsPrintedNowAndThen) {
  LaunchScreen screen(/*is_terminal=*/false, /*colours=*/false);
  const absl::Time start = absl::Now();
  screen.ShowProgress("step 1", start);
  screen.ShowProgress("step 2", start + absl::Seconds(11));
  screen.ShowProgress("step 3", start + absl::Seconds(12));
  screen.ShowProgress("step 4", start + absl::Seconds(22));
  EXPECT_EQ(Printed(), "muster: step 2\nmuster: step 4\n");
}

TEST_F(LaunchScreenTest, OnATerminalProgressStaysLast) {
  LaunchScreen screen(/*is_terminal=*/true, /*colours=*/false);
  screen.ShowProgress("step 1", absl::Now());
  EXPECT_EQ(Printed(), "muster: step 1");
  screen.PrintLine(0, "ps 0", "hello");
  EXPECT_EQ(Printed(), "\r\033[K[ps 0] hello\nmuster: step 1");
  screen.ShowProgress("step 2", absl::Now());
  EXPECT_EQ(Printed(), "\r\033[Kmuster: step 2");
  screen.Finish();
  EXPECT_EQ(Printed(), "\r\033[K");
  screen.Say("done");
  EXPECT_EQ(Printed(), "muster: done\n");
}

}  // namespace
}  // namespace muster
