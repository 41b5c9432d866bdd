#include "muster/cli/status_table.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

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

void AddJob(const JobRates& job, std::string& text) {
  absl::StrAppend(&text, job.job, ": ", job.healthy, " of ", job.tasks, " healthy");
  if (job.running > 0) {
    absl::StrAppendFormat(&text, ", %.1f steps/s", job.sum);
    if (job.running > 1) {
      absl::StrAppendFormat(&text, " (each %.1f to %.1f, median %.1f)", job.min, job.max,
                            job.median);
    }
  }
  text += "\n";
}

}  // namespace

std::string StatusTable(const ClusterStatus& cluster, const std::string& target, bool colours) {
  colours = colours && std::getenv("NO_COLOR") == nullptr;
  std::vector<Row> rows = {{"TASK", "HEALTH", "SINCE", "SESSIONS", "STEPS", "STEPS/S", "SENT",
                            "RECEIVED", "MEMORY", "VARIABLES", "THEIR SIZE"}};
  for (const TaskView& view : cluster.tasks) rows.push_back(RowOf(view));
  std::array<size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text =
      absl::StrCat(cluster.tasks.size(), cluster.tasks.size() == 1 ? " task" : " tasks", ", asked ",
                   cluster.asked.ToString(), " at ", target);
  if (const std::optional<int64_t> step = cluster.global_step())
    absl::StrAppend(&text, ", global step ", *step);
  text += "\n";
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (size_t i = 0; i < kColumns; ++i) {
      const std::string& cell = rows[r][i];
      const std::string pad(widths[i] - cell.size(), ' ');
      if (i > 0) line += "  ";
      if (i > kHealthColumn + 1) {
        absl::StrAppend(&line, pad, cell);
      } else if (i == kHealthColumn && r > 0 && colours) {
        absl::StrAppend(&line, "\033[", ColourOf(cluster.tasks[r - 1].health), "m", cell, "\033[0m",
                        pad);
      } else {
        absl::StrAppend(&line, cell, pad);
      }
    }
    absl::StrAppend(&text, line, "\n");
  }
  for (const JobRates& job : RatesOfJobs(cluster)) AddJob(job, text);
  for (const TaskView& view : cluster.tasks) {
    if (view.explanation.empty() || view.health == TaskHealth::kLeft) continue;
    absl::StrAppend(&text, view.status.task.job, " ", view.status.task.task, ": ", view.explanation,
                    "\n");
  }
  return text;
}

}  // namespace muster
