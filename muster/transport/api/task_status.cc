#include "muster/transport/api/task_status.h"

#include <algorithm>
#include <map>

#include "muster/transport/api/worker_api.h"

namespace muster {

absl::string_view HealthName(TaskHealth health) {
  switch (health) {
    case TaskHealth::kStarting:
      return "starting";
    case TaskHealth::kHealthy:
      return "healthy";
    case TaskHealth::kSlow:
      return "slow";
    case TaskHealth::kLost:
      return "lost";
    case TaskHealth::kLeft:
      return "left";
  }
  return "unknown";
}

std::optional<int64_t> ClusterStatus::global_step() const {
  std::optional<int64_t> step;
  for (const TaskView& view : tasks) {
    if (view.status.global_step)
      step = std::max(step.value_or(INT64_MIN), *view.status.global_step);
  }
  return step;
}

bool RunsSteps(const TaskView& view) {
  const bool answers = view.health == TaskHealth::kHealthy || view.straggler;
  return answers && view.status.sessions > 0 && view.status.steps_per_second.has_value();
}

std::vector<JobRates> RatesOfJobs(const ClusterStatus& cluster) {
  std::map<std::string, JobRates> jobs;
  std::map<std::string, std::vector<double>> rates;
  for (const TaskView& view : cluster.tasks) {
    const std::string& name = view.status.task.job;
    JobRates& job = jobs[name];
    job.job = name;
    ++job.tasks;
    if (view.health == TaskHealth::kHealthy) ++job.healthy;
    if (RunsSteps(view)) rates[name].push_back(*view.status.steps_per_second);
  }
  std::vector<JobRates> result;
  for (auto& [name, job] : jobs) {
    std::vector<double>& all = rates[name];
    std::sort(all.begin(), all.end());
    job.running = static_cast<int>(all.size());
    if (!all.empty()) {
      const size_t middle = all.size() / 2;
      job.min = all.front();
      job.max = all.back();
      job.median = all.size() % 2 == 1 ? all[middle] : (all[middle - 1] + all[middle]) / 2;
      for (const double rate : all) job.sum += rate;
    }
    result.push_back(std::move(job));
  }
  return result;
}

StatusApi* StatusOf(WorkerApi& worker) {
  return dynamic_cast<StatusApi*>(&worker);
}

}  // namespace muster
