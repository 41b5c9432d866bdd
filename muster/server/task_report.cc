#include "muster/server/task_report.h"

#include <cmath>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include <unistd.h>

#include "muster/base/json.h"
#include "muster/device/device.h"
#include "muster/device/gpu/gpu_report.h"
#include "muster/master/master.h"
#include "muster/params/variable.h"
#include "muster/runtime/resource_manager.h"
#include "muster/worker/worker.h"

namespace muster {
namespace {

// The step of the model when this task holds it: TensorFlow's hooks and supervisors find it by the
// same name.
std::optional<int64_t> GlobalStep(const ResourceManager& resources) {
  const absl::StatusOr<RefPtr<Variable>> variable = resources.LookupAs<Variable>("", "global_step");
  if (!variable.ok()) return std::nullopt;
  const Tensor value = (*variable)->Snapshot();
  if (!value.valid() || value.num_elements() != 1) return std::nullopt;
  if (value.dtype() == DType::kInt64) return *value.data<int64_t>();
  if (value.dtype() == DType::kInt32) return *value.data<int32_t>();
  return std::nullopt;
}

// Zero where the system does not say.
int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  if (!(file >> size >> resident)) return 0;
  return resident * sysconf(_SC_PAGESIZE);
}

// Numbers with all that matters of them; not a number is nothing to JSON.
std::string Number(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.6g", value) : "null";
}

std::string Truth(bool value) {
  return value ? "true" : "false";
}

struct Member {
  absl::string_view name;
  std::string value;
  bool is_known_of_stock = false;
};

std::string GpusJson(const std::vector<TaskGpu>& gpus) {
  std::vector<std::string> list;
  for (const TaskGpu& gpu : gpus) {
    list.push_back(absl::StrCat("{\"number\": ", gpu.number, ", \"name\": ", JsonQuoted(gpu.name),
                                ", \"memory_bytes\": ", gpu.memory_bytes,
                                ", \"used_bytes\": ", gpu.used_bytes, ", \"calls\": ", gpu.calls,
                                ", \"replayed_calls\": ", gpu.replayed_calls, "}"));
  }
  return absl::StrCat("[", absl::StrJoin(list, ", "), "]");
}

std::vector<Member> Members(const TaskStatus& s) {
  return {
      {"job", JsonQuoted(s.task.job), true},
      {"task", absl::StrCat(s.task.task), true},
      {"kind", s.is_muster ? "\"muster\"" : "\"tensorflow\"", true},
      {"incarnation", JsonQuoted(absl::StrCat(absl::Hex(s.incarnation, absl::kZeroPad16))), true},
      {"devices", absl::StrCat(s.devices), true},
      {"stopping", Truth(s.stopping)},
      {"joined", Truth(s.joined)},
      {"uptime_seconds", Number(absl::ToDoubleSeconds(s.uptime))},
      {"sessions", absl::StrCat(s.sessions)},
      {"worker_sessions", absl::StrCat(s.worker_sessions)},
      {"graphs", absl::StrCat(s.graphs)},
      {"steps_under_way", absl::StrCat(s.steps_under_way)},
      {"steps", absl::StrCat(s.steps)},
      {"parts", absl::StrCat(s.parts)},
      {"steps_per_second", s.steps_per_second ? Number(*s.steps_per_second) : "null"},
      {"tensors_sent", absl::StrCat(s.tensors_sent)},
      {"bytes_sent", absl::StrCat(s.bytes_sent)},
      {"tensors_received", absl::StrCat(s.tensors_received)},
      {"bytes_received", absl::StrCat(s.bytes_received)},
      {"collective_bytes_sent", absl::StrCat(s.collective_bytes_sent)},
      {"collective_bytes_received", absl::StrCat(s.collective_bytes_received)},
      {"resident_bytes", absl::StrCat(s.resident_bytes)},
      {"variables", absl::StrCat(s.variables)},
      {"variable_bytes", absl::StrCat(s.variable_bytes)},
      {"gpus", GpusJson(s.gpus)},
      {"global_step", s.global_step ? absl::StrCat(*s.global_step) : "null"},
  };
}

// Always the same members; those that are not known are null.
std::string MembersText(const TaskStatus& status, bool heard) {
  std::string text;
  for (const Member& member : Members(status)) {
    const bool is_name = member.name == "job" || member.name == "task";
    const bool is_known = is_name || (heard && (status.is_muster || member.is_known_of_stock));
    absl::StrAppend(&text, text.empty() ? "\"" : ", \"", member.name,
                    "\": ", is_known ? member.value : "null");
  }
  return text;
}

std::string JobJson(const JobRates& job) {
  const std::string text =
      absl::StrCat("{\"job\": ", JsonQuoted(job.job), ", \"tasks\": ", job.tasks,
                   ", \"healthy\": ", job.healthy, ", \"running\": ", job.running);
  if (job.running == 0) return absl::StrCat(text, ", \"steps_per_second\": null}");
  return absl::StrCat(text, ", \"steps_per_second\": {\"min\": ", Number(job.min),
                      ", \"median\": ", Number(job.median), ", \"max\": ", Number(job.max),
                      ", \"sum\": ", Number(job.sum), "}}");
}

}  // namespace

TaskStatus ReportOf(const TaskName& self, const Master& master, const Worker& worker) {
  TaskStatus status;
  status.task = self;
  status.devices = static_cast<int>(worker.devices().size());
  status.incarnation = worker.devices().front()->attributes().incarnation;
  const Master::Counts sessions = master.counts();
  status.sessions = sessions.sessions;
  status.steps_under_way = sessions.steps;
  status.steps = sessions.steps_run;
  const Worker::Counts work = worker.counts();
  status.worker_sessions = work.sessions;
  status.graphs = work.graphs;
  status.parts = work.steps_run;
  status.tensors_sent = work.tensors_sent;
  status.bytes_sent = work.bytes_sent;
  status.tensors_received = work.tensors_received;
  status.bytes_received = work.bytes_received;
  status.collective_bytes_sent = work.collective_bytes_sent;
  status.collective_bytes_received = work.collective_bytes_received;
  const Worker::Variables variables = worker.variables();
  status.variables = variables.count;
  status.variable_bytes = variables.bytes;
  status.resident_bytes = ResidentBytes();
  status.global_step = GlobalStep(worker.resources());
  for (const GpuReport& gpu : GpuReports()) {
    status.gpus.push_back(
        {gpu.number, gpu.name, gpu.memory_bytes, gpu.used_bytes, gpu.calls, gpu.replayed_calls});
  }
  return status;
}

std::string TaskJson(const TaskStatus& status) {
  return absl::StrCat("{", MembersText(status, true), "}");
}

std::string ClusterJson(const ClusterStatus& cluster, absl::string_view target) {
  const std::optional<int64_t> step = cluster.global_step();
  std::string text = absl::StrCat(
      "{\"target\": ", JsonQuoted(target), ", \"asked\": ", JsonQuoted(cluster.asked.ToString()),
      ", \"global_step\": ", step ? absl::StrCat(*step) : "null", ", \"jobs\": [");
  absl::string_view separator = "";
  for (const JobRates& job : RatesOfJobs(cluster)) {
    absl::StrAppend(&text, separator, JobJson(job));
    separator = ", ";
  }
  absl::StrAppend(&text, "], \"tasks\": [");
  separator = "";
  for (const TaskView& view : cluster.tasks) {
    absl::StrAppend(&text, separator, "{", MembersText(view.status, view.heard),
                    ", \"health\": ", JsonQuoted(HealthName(view.health)),
                    ", \"since_seconds\": ", Number(absl::ToDoubleSeconds(view.since)),
                    ", \"straggler\": ", Truth(view.straggler),
                    ", \"explanation\": ", JsonQuoted(view.explanation), "}");
    separator = ", ";
  }
  return absl::StrCat(text, "]}");
}

}  // namespace muster
