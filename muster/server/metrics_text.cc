#include "muster/server/metrics_text.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace muster {
namespace {

std::string LabelValue(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}});
}

std::string Value(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return absl::StrFormat("%.17g", value);
}

// Families one after the other, each with all its samples. No label is called "job" or "instance":
// Prometheus gives those to what it scrapes, and would rename ours to "exported_job".
class Page {
 public:
  explicit Page(const TaskName& task)
      : labels_(
            absl::StrCat("muster_job=\"", LabelValue(task.job), "\",task=\"", task.task, "\"")) {}

  void Family(absl::string_view name, absl::string_view type, absl::string_view help) {
    name_ = std::string(name);
    absl::StrAppend(&text_, "# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
  }
  void Sample(absl::string_view more_labels, absl::string_view value) {
    absl::StrAppend(&text_, name_, "{", labels_, more_labels.empty() ? "" : ",", more_labels, "} ",
                    value, "\n");
  }
  void Count(absl::string_view name, int64_t value, absl::string_view help) {
    Family(name, "counter", help);
    Sample("", absl::StrCat(value));
  }
  void Gauge(absl::string_view name, int64_t value, absl::string_view help) {
    Family(name, "gauge", help);
    Sample("", absl::StrCat(value));
  }
  void Gauge(absl::string_view name, double value, absl::string_view help) {
    Family(name, "gauge", help);
    Sample("", Value(value));
  }
  std::string text() && { return std::move(text_); }

 private:
  const std::string labels_;
  std::string name_;
  std::string text_;
};

void AddTask(const TaskStatus& s, Page& page) {
  page.Gauge("muster_uptime_seconds", absl::ToDoubleSeconds(s.uptime),
             "Time since the task was started.");
  page.Gauge("muster_sessions", s.sessions, "Sessions of clients at the master of the task.");
  page.Gauge("muster_worker_sessions", s.worker_sessions,
             "Sessions of masters at the worker of the task.");
  page.Gauge("muster_graphs", s.graphs, "Graphs that are registered at the worker.");
  page.Gauge("muster_steps_under_way", s.steps_under_way, "Steps that the master runs now.");
  page.Count("muster_steps_total", s.steps, "Steps that the master has run.");
  page.Count("muster_step_parts_total", s.parts, "Parts of steps that the worker has run.");
  if (s.steps_per_second) {
    page.Gauge("muster_steps_per_second", *s.steps_per_second,
               "Steps of the master per second, over the last five seconds.");
  }
  page.Count("muster_tensors_sent_total", s.tensors_sent, "Tensors sent to other tasks.");
  page.Count("muster_tensor_bytes_sent_total", s.bytes_sent, "Bytes of these tensors.");
  page.Count("muster_tensors_received_total", s.tensors_received,
             "Tensors received from other tasks.");
  page.Count("muster_tensor_bytes_received_total", s.bytes_received, "Bytes of these tensors.");
  page.Count("muster_collective_bytes_sent_total", s.collective_bytes_sent,
             "Bytes that collectives have sent to other tasks.");
  page.Count("muster_collective_bytes_received_total", s.collective_bytes_received,
             "Bytes that collectives have received from other tasks.");
  page.Gauge("muster_resident_memory_bytes", s.resident_bytes,
             "Memory that the process of the task occupies.");
  page.Gauge("muster_variables", s.variables, "Initialized variables that the task keeps.");
  page.Gauge("muster_variable_bytes", s.variable_bytes, "Bytes of these variables.");
  if (s.global_step) {
    page.Gauge("muster_global_step", *s.global_step,
               "The step of the model, at the task that keeps it.");
  }
}

void AddConnections(const ConnectionCounts& counts, Page& page) {
  page.Gauge("muster_connections", counts.open, "Connections to the port of the task.");
  page.Count("muster_connections_accepted_total", counts.accepted,
             "Connections that the port has taken.");
  page.Count("muster_connections_refused_total", counts.refused,
             "Connections that were closed at once: there were too many.");
  page.Count("muster_connections_dropped_total", counts.dropped,
             "Connections that were closed later, for newer ones or for what they did.");
  page.Count("muster_accept_failures_total", counts.failures,
             "Times that the system gave no connection, for want of file descriptors.");
}

void AddPeers(const ClusterStatus& cluster, Page& page) {
  const auto peer_of = [](const TaskView& view) {
    return absl::StrCat("peer_job=\"", LabelValue(view.status.task.job), "\",peer_task=\"",
                        view.status.task.task, "\"");
  };
  page.Family("muster_peer_state", "gauge",
              "1 for the state of each task of the cluster as this one sees it.");
  for (const TaskView& view : cluster.tasks) {
    for (int state = 0; state < kHealths; ++state) {
      const auto health = static_cast<TaskHealth>(state);
      page.Sample(absl::StrCat(peer_of(view), ",state=\"", HealthName(health), "\""),
                  view.health == health ? "1" : "0");
    }
  }
  page.Family("muster_peer_straggler", "gauge", "1 for a task that falls behind its job.");
  for (const TaskView& view : cluster.tasks) page.Sample(peer_of(view), view.straggler ? "1" : "0");
}

void AddGpus(const std::vector<GpuReport>& gpus, Page& page) {
  if (gpus.empty()) return;
  const auto family = [&](absl::string_view name, absl::string_view type,
                          int64_t GpuReport::*value, absl::string_view help) {
    page.Family(name, type, help);
    for (const GpuReport& gpu : gpus)
      page.Sample(absl::StrCat("gpu=\"", gpu.number, "\""), absl::StrCat(gpu.*value));
  };
  family("muster_gpu_memory_bytes", "gauge", &GpuReport::memory_bytes, "Memory of the GPU.");
  family("muster_gpu_memory_taken_bytes", "gauge", &GpuReport::taken_bytes,
         "Memory of the GPU that the process of the task holds.");
  family("muster_gpu_memory_used_bytes", "gauge", &GpuReport::used_bytes,
         "Memory of the GPU that tensors occupy.");
  family("muster_gpu_memory_used_peak_bytes", "gauge", &GpuReport::peak_used_bytes,
         "The most that tensors have occupied.");
  family("muster_gpu_calls_total", "counter", &GpuReport::calls,
         "Functions, copies and library calls that steps have asked of the GPU.");
  family("muster_gpu_replayed_calls_total", "counter", &GpuReport::replayed_calls,
         "Of these calls, those that ran as parts of graphs.");
  family("muster_gpu_joined_calls_total", "counter", &GpuReport::joined_calls,
         "Of the replayed calls, those whose work other functions did as well.");
}

}  // namespace

std::string MetricsText(const ClusterStatus& cluster, const ConnectionCounts& connections,
                        const std::vector<GpuReport>& gpus) {
  Page page(cluster.asked);
  for (const TaskView& view : cluster.tasks) {
    if (view.status.task == cluster.asked) AddTask(view.status, page);
  }
  AddConnections(connections, page);
  AddGpus(gpus, page);
  if (cluster.watches) AddPeers(cluster, page);
  return std::move(page).text();
}

}  // namespace muster
