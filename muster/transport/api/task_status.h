// What a task reports about itself, and the health that another task derives from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "muster/transport/api/call.h"
#include "muster/transport/api/cluster.h"

namespace muster {

class WorkerApi;

// A card that the process of a task uses.
struct TaskGpu {
  int number = 0;
  std::string name;
  int64_t memory_bytes = 0;    // of the card
  int64_t used_bytes = 0;      // of it, in tensors of the process
  int64_t calls = 0;           // that steps have asked of it
  int64_t replayed_calls = 0;  // of them, as parts of graphs
};

// Counts since the task was started, and what it holds now. A value.
struct TaskStatus {
  TaskName task;
  bool is_muster = true;     // false: stock TensorFlow, of which only devices are known
  uint64_t incarnation = 0;  // of its devices: another one after a restart
  bool stopping = false;
  bool joined = false;  // the process does nothing but serve
  int devices = 0;
  absl::Duration uptime;
  int64_t sessions = 0;         // of clients at its master
  int64_t worker_sessions = 0;  // of all masters at its worker
  int64_t graphs = 0;
  int64_t steps_under_way = 0;
  int64_t steps = 0;                       // that its master has run
  int64_t parts = 0;                       // of steps, that its worker has run
  std::optional<double> steps_per_second;  // of its master; none before it is known
  // Between its worker and those of other tasks, along edges of graphs.
  int64_t tensors_sent = 0;
  int64_t bytes_sent = 0;
  int64_t tensors_received = 0;
  int64_t bytes_received = 0;
  int64_t collective_bytes_sent = 0;  // what collectives exchange is not among the tensors
  int64_t collective_bytes_received = 0;
  int64_t resident_bytes = 0;
  int64_t variables = 0;
  int64_t variable_bytes = 0;
  std::optional<int64_t> global_step;  // where the task keeps it
  std::vector<TaskGpu> gpus;
};

enum class TaskHealth : uint8_t {
  kStarting,  // no answer yet
  kHealthy,   // has answered the last question
  kSlow,      // has not answered in time, or is a straggler
  kLost,      // refuses connections, or has been silent for too long
  kLeft,      // has said that it stops
};
inline constexpr int kHealths = 5;
absl::string_view HealthName(TaskHealth health);

// A task as another one sees it.
struct TaskView {
  TaskStatus status;  // the last report; only the name where there was none
  bool heard = false;
  TaskHealth health = TaskHealth::kStarting;
  absl::Duration since;     // how long it has been so
  bool straggler = false;   // see master/cluster_watch.h
  std::string explanation;  // of what is not healthy, in words
};

struct ClusterStatus {
  TaskName asked;               // whose view it is
  bool watches = false;         // it polls the others now; else the views may be old
  std::vector<TaskView> tasks;  // sorted by job and number
  // The largest that any task has told.
  std::optional<int64_t> global_step() const;
};

// How fast the tasks of a job are that run steps for clients now.
struct JobRates {
  std::string job;
  int tasks = 0;    // of the job
  int healthy = 0;  // of these
  int running = 0;  // have a session, answer, and a rate that is known
  double min = 0;
  double median = 0;
  double max = 0;
  double sum = 0;
};
std::vector<JobRates> RatesOfJobs(const ClusterStatus& cluster);
// Whether its rate counts among those of its job.
bool RunsSteps(const TaskView& view);

// The task that says it stops: the one it tells expects no more of it.
struct Goodbye {
  TaskName task;
  uint64_t incarnation = 0;
};

struct StatusRequest {
  bool whole_cluster = false;     // else the task that is asked speaks of itself
  std::optional<TaskName> asker;  // to be notified when the task stops
  std::optional<Goodbye> goodbye;
};

// Thread-safe. What a task offers beside its worker and its master, if it is Muster.
class StatusApi {
 public:
  virtual ~StatusApi() = default;
  // One view of the task itself, or of all tasks of its cluster, which it asks first: that takes
  // a little more than a second at most.
  virtual void Status(CallOptions options, StatusRequest request, CallDone<ClusterStatus> done) = 0;
};

// The status API of the task of `worker`; null where it has none.
StatusApi* StatusOf(WorkerApi& worker);

}  // namespace muster
