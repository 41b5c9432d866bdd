#include "muster/cli/launch_screen.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include <sys/ioctl.h>
#include <unistd.h>

#include "muster/base/json.h"

namespace muster {
namespace {

constexpr absl::Duration kPlainInterval = absl::Seconds(10);

// The number that follows `key` in a line, past blanks, '=', ':' and quotes.
std::optional<double> NumberAfter(absl::string_view line, absl::string_view key) {
  const std::string lower = absl::AsciiStrToLower(line);
  for (size_t at = lower.find(key.data(), 0, key.size()); at != std::string::npos;
       at = lower.find(key.data(), at + 1, key.size())) {
    if (at > 0 && absl::ascii_isalpha(static_cast<unsigned char>(lower[at - 1]))) continue;
    size_t start = at + key.size();
    while (start < lower.size() && absl::StrContains(" =:'\"(", lower[start])) ++start;
    size_t end = start;
    while (end < lower.size() && absl::StrContains("0123456789.e+-naif", lower[end])) ++end;
    double value;
    if (start > at + key.size() && end > start &&
        absl::SimpleAtod(absl::StripSuffix(lower.substr(start, end - start), "."), &value)) {
      return value;
    }
  }
  return std::nullopt;
}

std::string Seconds(absl::Duration left) {
  const int64_t seconds = absl::ToInt64Seconds(absl::Ceil(left, absl::Seconds(1)));
  if (seconds < 120) return absl::StrCat(seconds, " s");
  if (seconds < 7200) return absl::StrCat(seconds / 60, " min");
  return absl::StrCat(seconds / 3600, " h ", seconds % 3600 / 60, " min");
}

}  // namespace

void TaskProgress::NoteLine(absl::string_view line) {
  for (const absl::string_view key : {"loss", "cross entropy", "cross_entropy", "xent"}) {
    if (const std::optional<double> value = NumberAfter(line, key)) {
      loss = value;
      break;
    }
  }
  for (const absl::string_view key : {"global step", "global_step", "globalstep"}) {
    const std::optional<double> value = NumberAfter(line, key);
    if (value && *value >= 0 && *value < 1e15 && *value == std::floor(*value)) {
      global_step = static_cast<int64_t>(*value);
      break;
    }
  }
}

void TaskProgress::NoteReport(absl::string_view json, absl::Time now) {
  const absl::StatusOr<Json> report = Json::Parse(json);
  if (!report.ok()) return;
  const auto number = [&](absl::string_view member_name) -> std::optional<double> {
    const Json* member = report->Find(member_name);
    if (member == nullptr || member->number() == nullptr) return std::nullopt;
    return *member->number();
  };
  if (const std::optional<double> count = number("steps")) {
    const int64_t now_run = static_cast<int64_t>(*count);
    const double passed = absl::ToDoubleSeconds(now - last_report_);
    if (last_report_ != absl::InfinitePast() && passed > 0.05) {
      const double rate = static_cast<double>(now_run - steps) / passed;
      steps_per_second = steps_per_second == 0 ? rate : 0.6 * steps_per_second + 0.4 * rate;
      last_report_ = now;
      steps = now_run;
    } else if (last_report_ == absl::InfinitePast()) {
      last_report_ = now;
      steps = now_run;
    }
  }
  if (const std::optional<double> step = number("global_step"))
    global_step = static_cast<int64_t>(*step);
  if (const Json* member = report->Find("joined");
      member != nullptr && member->boolean() != nullptr)
    joined = joined || *member->boolean();
}

void TaskProgress::NoteRestart() {
  steps = 0;
  steps_per_second = 0;
  joined = ended = false;
  last_report_ = absl::InfinitePast();
}

std::optional<int64_t> StepsAskedFor(const std::vector<std::string>& arguments) {
  constexpr std::array kNames = {"train_steps", "training_steps", "last_step", "max_steps",
                                 "num_steps",   "steps",          "max_step",  "train_step"};
  std::optional<int64_t> found;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const absl::string_view word = absl::StripPrefix(absl::StripPrefix(arguments[i], "-"), "-");
    if (word.size() == arguments[i].size()) continue;
    for (const char* name : kNames) {
      int64_t steps;
      const bool fits =
          word == name
              ? i + 1 < arguments.size() && absl::SimpleAtoi(arguments[i + 1], &steps)
              : absl::StartsWith(word, absl::StrCat(name, "=")) &&
                    absl::SimpleAtoi(word.substr(absl::string_view(name).size() + 1), &steps);
      if (fits) found = steps;
    }
  }
  return found;
}

std::string ProgressLine(const std::vector<TaskProgress>& tasks, std::optional<int64_t> last_step,
                         absl::Duration elapsed, int64_t first_step) {
  std::optional<int64_t> step;
  std::optional<double> loss;
  std::string rates;
  for (const TaskProgress& task : tasks) {
    if (task.global_step) step = std::max(step.value_or(0), *task.global_step);
    if (!loss && task.is_worker) loss = task.loss;
    if (!task.is_worker || task.joined) continue;
    absl::StrAppend(&rates, "  ", task.name, ": ",
                    task.ended ? "done" : absl::StrFormat("%.0f steps/s", task.steps_per_second));
  }
  std::string line = step ? absl::StrCat("step ", *step) : "starting";
  if (step && last_step) absl::StrAppend(&line, "/", *last_step);
  absl::StrAppend(&line, rates);
  if (loss) absl::StrAppend(&line, "  loss ", absl::StrFormat("%.4g", *loss));
  if (step && last_step && *step > first_step && *step < *last_step) {
    const absl::Duration each = elapsed / static_cast<double>(*step - first_step);
    absl::StrAppend(&line, "  ", Seconds(each * static_cast<double>(*last_step - *step)), " left");
  }
  return line;
}

LaunchScreen::LaunchScreen(bool is_terminal, bool colours)
    : is_terminal_(is_terminal), colours_(colours), last_plain_(absl::Now()) {}

void LaunchScreen::Erase() {
  if (!shown_.empty()) std::fputs("\r\033[K", stdout);
}

void LaunchScreen::PrintLine(int task, absl::string_view name, absl::string_view line) {
  static constexpr std::array kColours = {36, 32, 33, 35, 34, 96, 92, 93, 95, 94};
  Erase();
  if (colours_) {
    std::printf(
        "\033[%dm[%.*s]\033[0m %.*s\n", kColours[static_cast<size_t>(task) % kColours.size()],
        static_cast<int>(name.size()), name.data(), static_cast<int>(line.size()), line.data());
  } else {
    std::printf("[%.*s] %.*s\n", static_cast<int>(name.size()), name.data(),
                static_cast<int>(line.size()), line.data());
  }
  if (is_terminal_) std::fputs(shown_.c_str(), stdout);
  std::fflush(stdout);
}

void LaunchScreen::ShowProgress(const std::string& text, absl::Time now) {
  if (!is_terminal_) {
    if (now - last_plain_ < kPlainInterval) return;
    last_plain_ = now;
    std::printf("muster: %s\n", text.c_str());
    std::fflush(stdout);
    return;
  }
  Erase();
  shown_ = absl::StrCat("muster: ", text);
  winsize size{};
  // A line that wraps could not be erased.
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
    shown_ = shown_.substr(0, size.ws_col - 1u);
  std::fputs(shown_.c_str(), stdout);
  std::fflush(stdout);
}

void LaunchScreen::Say(absl::string_view text) {
  Erase();
  std::printf("muster: %.*s\n", static_cast<int>(text.size()), text.data());
  if (is_terminal_) std::fputs(shown_.c_str(), stdout);
  std::fflush(stdout);
}

void LaunchScreen::Finish() {
  Erase();
  shown_.clear();
  std::fflush(stdout);
}

}  // namespace muster
