// What `muster launch` shows: every task's lines with its name, and one line of progress.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace muster {

// How a task is doing, from its reports and its output.
struct TaskProgress {
  std::string name;  // "worker 0"
  bool is_worker = false;
  int64_t steps = 0;
  double steps_per_second = 0;
  std::optional<int64_t> global_step;
  std::optional<double> loss;
  bool joined = false;  // does nothing but serve
  bool ended = false;

  // A line it printed: a loss or a global step in it counts.
  void NoteLine(absl::string_view line);
  // A report of its server (see server/status_report.h); what is not one is ignored.
  void NoteReport(absl::string_view json, absl::Time now);
  // It has been restarted.
  void NoteRestart();

 private:
  absl::Time last_report_ = absl::InfinitePast();
};

// The number of training steps that the arguments of a script ask for, if they do.
std::optional<int64_t> StepsAskedFor(const std::vector<std::string>& arguments);

// "step 1200/5000  worker 0: 310 steps/s  worker 1: 305 steps/s  loss 0.214  6 s left".
std::string ProgressLine(const std::vector<TaskProgress>& tasks, std::optional<int64_t> last_step,
                         absl::Duration elapsed, int64_t first_step);

// Writes to standard output. On a terminal the progress line stays last and is redrawn; elsewhere
// it is printed now and then as a line of its own.
class LaunchScreen {
 public:
  LaunchScreen(bool is_terminal, bool colours);
  void PrintLine(int task, absl::string_view name, absl::string_view line);
  void ShowProgress(const std::string& text, absl::Time now);
  // A line of the launcher itself.
  void Say(absl::string_view text);
  void Finish();  // takes the progress line away

 private:
  void Erase();
  const bool is_terminal_;
  const bool colours_;
  std::string shown_;
  absl::Time last_plain_;
};

}  // namespace muster
