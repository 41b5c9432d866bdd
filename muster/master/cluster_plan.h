// How a step is spread over tasks.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"

#include "muster/graph/place/partition.h"
#include "muster/master/step_graph.h"
#include "muster/transport/api/worker_api.h"

namespace muster {

struct SplitOptions {
  bool optimize = true;
  bool bfloat16 = false;    // floats travel between tasks with less precision
  bool is_partial = false;  // feeds come while the step runs
};

// Cuts a step's graph, whose nodes have whole device names, after rewrites that every worker
// understands, and those for tasks that `is_muster` is true of. `next_name` counts the nodes that
// are added over all graphs of the session.
absl::StatusOr<std::vector<GraphPart>> SplitStep(
    std::unique_ptr<Graph> graph, absl::Span<const DeviceAttributes> devices,
    const SplitOptions& options, absl::FunctionRef<bool(absl::string_view task)> is_muster,
    int64_t& next_name);

// A fed tensor that the step reads.
struct PlannedFeed {
  std::string node;  // "_recv_x_0"
  std::string key;
  DType dtype = DType::kInvalid;
};

struct PlanPart {
  std::string task;
  std::shared_ptr<WorkerApi> worker;
  std::string graph;  // its handle there
};

// A step whose graphs the workers have. Immutable, except for `retired`.
class ClusterPlan {
 public:
  ClusterPlan() = default;
  ClusterPlan(const ClusterPlan&) = delete;
  ClusterPlan& operator=(const ClusterPlan&) = delete;
  // Graphs of a plan that has been retired are dropped by the workers as well.
  ~ClusterPlan();

  void Retire() { retired_.store(true, std::memory_order_relaxed); }

  std::string session;
  std::vector<PlanPart> parts;
  int64_t collective_graph_key = 0;  // zero: no collectives
  bool fills_queues = false;  // and does nothing else: what threads beside a training loop run
  int client_part = -1;       // the one with feeds and fetches; -1: none
  absl::flat_hash_map<std::string, PlannedFeed> feeds;  // by tensor name, those that are read
  absl::flat_hash_map<std::string, std::string> fetch_keys;

 private:
  std::atomic<bool> retired_{false};
};

// The key by which masters that run the same collectives know their common steps; zero without any.
// A hash over the instance keys that are attributes, as TensorFlow computes it, and where there are
// none over those that are constant inputs. All graphs whose keys are computed at run time have
// the same.
int64_t CollectiveGraphKey(absl::Span<const GraphPart> graphs);

// Notes which feeds and fetches the client's part has.
void ReadClientEnds(const Graph& graph, const DeviceAttributes& client, ClusterPlan& plan);

}  // namespace muster
