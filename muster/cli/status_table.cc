#include "muster/cli/status_table.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "muster/base/settings.h"

namespace muster {
namespace {

constexpr size_t kColumns = 11;
using Row = std::array<std::string, kColumns>;
constexpr size_t kHealthColumn = 1;

std::string Time(absl::Duration time) {
  const int64_t seconds = absl::ToInt64Seconds(time);
  if (seconds < 120) return absl::StrCat(seconds, "s");
  if (seconds < 7200) return absl::StrCat(seconds / 60, "m");
  if (seconds < 48 * 3600) return absl::StrCat(seconds / 3600, "h");
  return absl::StrCat(seconds / 86400, "d");
}

std::string Bytes(int64_t bytes) {
  static constexpr std::array kUnits = {"B", "KB", "MB", "GB", "TB", "PB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? absl::StrCat(bytes, " B") : absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

Row RowOf(const TaskView& view) {
  const TaskStatus& s = view.status;
  Row row;
  row.fill("-");
  row[0] = absl::StrCat(s.task.job, " ", s.task.task);
  row[kHealthColumn] = std::string(HealthName(view.health));
  row[2] = Time(view.since);
  if (!view.heard) return row;
  if (!s.is_muster) {
    row[3] = absl::StrCat("TensorFlow, ", s.devices, s.devices == 1 ? " device" : " devices");
    return row;
  }
  row[3] = absl::StrCat(s.sessions);
  row[4] = absl::StrCat(s.steps);
  const bool answers = view.health == TaskHealth::kHealthy || view.health == TaskHealth::kSlow;
  if (answers && s.steps_per_second) row[5] = absl::StrFormat("%.1f", *s.steps_per_second);
  row[6] = Bytes(s.bytes_sent + s.collective_bytes_sent);
  row[7] = Bytes(s.bytes_received + s.collective_bytes_received);
  row[8] = Bytes(s.resident_bytes);
  row[9] = absl::StrCat(s.variables);
  row[10] = Bytes(s.variable_bytes);
  return row;
}

int ColourOf(TaskHealth health) {
  switch (health) {
    case TaskHealth::kHealthy:
      return 32;
    case TaskHealth::kLost:
      return 31;
    case TaskHealth::kStarting:
    case TaskHealth::kSlow:
      return 33;
    case TaskHealth::kLeft:
      return 2;
  }
  return 0;
}

std::string LineOf(const JobRates& job) {
  std::string line = absl::StrCat(job.job, ": ", job.healthy, " of ", job.tasks, " healthy");
  if (job.running > 0) {
    absl::StrAppendFormat(&line, ", %.1f steps/s", job.sum);
    if (job.running > 1) {
      absl::StrAppendFormat(&line, " (each %.1f to %.1f, median %.1f)", job.min, job.max,
                            job.median);
    }
  }
  return line;
}

std::string LineOf(const TaskName& task, const TaskGpu& gpu) {
  std::string line = absl::StrCat(task.job, " ", task.task, ", GPU ", gpu.number, ": ", gpu.name,
                                  ", ", Bytes(gpu.used_bytes), " of ", Bytes(gpu.memory_bytes));
  if (gpu.calls > 0) {
    absl::StrAppendFormat(
        &line, ", %.0f %% of calls replayed",
        100.0 * static_cast<double>(gpu.replayed_calls) / static_cast<double>(gpu.calls));
  }
  return line;
}

// The more urgent a task's state, the lower the number.
int Urgency(TaskHealth health) {
  switch (health) {
    case TaskHealth::kLost:
      return 0;
    case TaskHealth::kSlow:
      return 1;
    case TaskHealth::kStarting:
      return 2;
    case TaskHealth::kHealthy:
      return 3;
    case TaskHealth::kLeft:
      return 4;
  }
  return 5;
}

// Leaves out columns, the least telling ones first, until lines are short enough.
std::vector<size_t> ShownColumns(const std::array<size_t, kColumns>& widths, size_t columns) {
  static constexpr std::array<size_t, 9> kLeastTelling = {9, 3, 10, 7, 6, 2, 4, 8, 5};
  std::vector<size_t> shown(kColumns);
  std::iota(shown.begin(), shown.end(), size_t{0});
  const auto width = [&] {
    size_t sum = 2 * (shown.size() - 1);
    for (const size_t column : shown) sum += widths[column];
    return sum;
  };
  for (size_t i = 0; columns > 0 && i < kLeastTelling.size() && width() > columns; ++i)
    shown.erase(std::find(shown.begin(), shown.end(), kLeastTelling[i]));
  return shown;
}

// How many lines of each part are shown.
struct Shares {
  size_t tasks, jobs, explanations;
};

Shares Share(size_t rows, Shares wanted) {
  constexpr size_t kHead = 2;  // the cluster, and the names of the columns
  if (rows == 0 || kHead + wanted.tasks + wanted.jobs + wanted.explanations < rows) return wanted;
  const size_t free = std::max<size_t>(rows, kHead + 4) - kHead - 1;
  Shares shares;
  shares.jobs = std::min(wanted.jobs, free / 3);
  shares.explanations = std::min(wanted.explanations, free / 3);
  shares.tasks = std::min(wanted.tasks, free - shares.jobs - shares.explanations);
  shares.explanations =
      std::min(wanted.explanations, free - shares.jobs - shares.tasks);  // what tasks have left
  return shares;
}

// The first `share` of `lines`; the last one tells how many are left out.
void AddPart(std::vector<std::string> lines, size_t share, size_t columns, std::string& text) {
  if (share == 0) return;
  if (lines.size() > share) {
    const size_t left_out = lines.size() - share + 1;
    lines.resize(share - 1);
    lines.push_back(FittedLine(absl::StrCat("... and ", left_out, " more"), columns));
  }
  for (const std::string& line : lines) absl::StrAppend(&text, line, "\n");
}

// The lines of the table proper: the names of the columns, then the tasks.
std::vector<std::string> TableLines(const std::vector<const TaskView*>& tasks,
                                    const TableSpace& space) {
  std::vector<Row> rows = {{"TASK", "HEALTH", "SINCE", "SESSIONS", "STEPS", "STEPS/S", "SENT",
                            "RECEIVED", "MEMORY", "VARIABLES", "THEIR SIZE"}};
  for (const TaskView* view : tasks) rows.push_back(RowOf(*view));
  std::array<size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  const bool colours = space.colours && EnvironmentVariable("NO_COLOR").empty();
  const std::vector<size_t> shown = ShownColumns(widths, space.columns);
  std::vector<std::string> lines;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    size_t room = space.columns == 0 ? std::string::npos : space.columns;
    for (const size_t i : shown) {
      const size_t gap = i > 0 ? 2 : 0;
      if (room <= gap) break;
      const std::string cell = FittedLine(rows[r][i], room - gap);
      const std::string pad(std::min(widths[i], room - gap) - cell.size(), ' ');
      line.append(gap, ' ');
      if (i > kHealthColumn + 1) {
        absl::StrAppend(&line, pad, cell);
      } else if (i == kHealthColumn && r > 0 && colours) {
        absl::StrAppend(&line, "\033[", ColourOf(tasks[r - 1]->health), "m", cell, "\033[0m", pad);
      } else {
        absl::StrAppend(&line, cell, pad);
      }
      room -= gap + cell.size() + pad.size();
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

std::string FittedLine(absl::string_view line, size_t columns) {
  constexpr absl::string_view kCut = "...";
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
  const size_t letters = static_cast<size_t>(std::count_if(line.begin(), line.end(), begins));
  const bool cut = columns > 0 && letters > columns;
  const size_t kept = !cut ? letters : columns - std::min(columns, kCut.size());
  std::string fitted;
  size_t seen = 0;
  for (const char c : line) {
    if (begins(c) && seen++ == kept) break;
    fitted += absl::ascii_iscntrl(static_cast<unsigned char>(c)) ? ' ' : c;
  }
  if (cut) absl::StrAppend(&fitted, kCut.substr(0, std::min(columns, kCut.size())));
  return fitted;
}

std::string StatusTable(const ClusterStatus& cluster, const std::string& target,
                        const TableSpace& space) {
  std::vector<const TaskView*> tasks;
  for (const TaskView& view : cluster.tasks) tasks.push_back(&view);
  std::vector<std::string> jobs;
  for (const JobRates& job : RatesOfJobs(cluster))
    jobs.push_back(FittedLine(LineOf(job), space.columns));
  for (const TaskView& view : cluster.tasks) {
    for (const TaskGpu& gpu : view.status.gpus)
      jobs.push_back(FittedLine(LineOf(view.status.task, gpu), space.columns));
  }
  const auto is_explained = [](const TaskView* view) {
    return !view->explanation.empty() && view->health != TaskHealth::kLeft;
  };
  const auto explained = std::count_if(tasks.begin(), tasks.end(), is_explained);
  const Shares wanted = {tasks.size(), jobs.size(), static_cast<size_t>(explained)};
  const Shares shares = Share(space.rows, wanted);
  if (shares.tasks < wanted.tasks) {
    std::stable_sort(tasks.begin(), tasks.end(), [](const TaskView* a, const TaskView* b) {
      return Urgency(a->health) < Urgency(b->health);
    });
  }
  std::vector<std::string> explanations;
  for (const TaskView* view : tasks) {
    if (!is_explained(view)) continue;
    const TaskName& task = view->status.task;
    explanations.push_back(
        FittedLine(absl::StrCat(task.job, " ", task.task, ": ", view->explanation), space.columns));
  }
  std::string title =
      absl::StrCat(cluster.tasks.size(), cluster.tasks.size() == 1 ? " task" : " tasks", ", asked ",
                   cluster.asked.ToString(), " at ", target);
  if (const std::optional<int64_t> step = cluster.global_step())
    absl::StrAppend(&title, ", global step ", *step);
  std::string text = FittedLine(title, space.columns) + "\n";
  AddPart(TableLines(tasks, space), shares.tasks + 1, space.columns, text);
  AddPart(std::move(jobs), shares.jobs, space.columns, text);
  AddPart(std::move(explanations), shares.explanations, space.columns, text);
  return text;
}

}  // namespace muster
