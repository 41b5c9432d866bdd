// Runs a graph, in this process or through a master. Feeds go in, fetches come out; plans are made
// once per combination and kept.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "muster/base/mutex.h"
#include "muster/base/scheduler.h"
#include "muster/base/status.h"
#include "muster/device/device_kinds.h"
#include "muster/graph/rewrite/prune.h"
#include "muster/tensor/tensor.h"
#include "muster/transport/api/session_config.h"

namespace muster {

class Cancellation;
class Device;
struct DeviceAttributes;
class MasterApi;
struct NodeTrace;

struct SessionOptions {
  Scheduler* scheduler = nullptr;  // null: the process-wide pool
  DeviceOptions devices;
  absl::Duration operation_timeout = absl::ZeroDuration();  // zero: none
  bool optimize_graph = true;
  bool log_device_placement = false;
  bool allow_soft_placement = false;
  std::string executor_type;  // of local sessions; steps are refused where it does not exist
  // Set: the master runs the steps. `target` is how the client calls it, `config` what it asks of
  // it beyond the fields above.
  std::shared_ptr<MasterApi> master;
  std::string target;
  SessionConfig config;
  // Asked now and then by calls that wait for the master; an error ends the call, which returns it.
  std::function<absl::Status()> interrupted;
};

struct RunOptions {
  absl::Duration timeout = absl::ZeroDuration();  // zero: the session's
  bool trace = false;
  bool keep_partition_graphs = false;
  // Names a step with collectives that several masters run together; zero: told by its graph.
  int64_t collective_graph_key = 0;
  // Cancelling it ends the run soon with its reason. Null: only closing the session does.
  std::shared_ptr<Cancellation> cancellation;
};

struct RunMetadata {
  std::vector<NodeTrace> nodes;
  int64_t start_nanos = 0;
  std::vector<std::shared_ptr<const Graph>> partition_graphs;
  std::string serialized;  // instead of the others: a RunMetadata message, from a master
  RunMetadata();
  ~RunMetadata();
};

// A step made ready to run: the "callable". Belongs to its session; thread-safe.
class StepPlan;

// Thread-safe, except that the graph must not change while Prepare or a run with a new signature
// looks at it.
class Session {
 public:
  // `graph` must outlive the session; it may grow between runs.
  static absl::StatusOr<std::unique_ptr<Session>> Create(const Graph& graph,
                                                         SessionOptions options = {});
  virtual ~Session() = default;
  virtual const Graph& graph() const = 0;
  virtual bool allows_soft_placement() const = 0;

  virtual absl::StatusOr<std::shared_ptr<StepPlan>> Prepare(const StepSignature& signature) = 0;
  // `feeds` in the order of the signature; the results in the order of its fetches.
  virtual absl::StatusOr<std::vector<Tensor>> Run(StepPlan& plan, std::vector<Tensor> feeds,
                                                  const RunOptions& options = {},
                                                  RunMetadata* metadata = nullptr) = 0;
  // Prepare and Run in one.
  absl::StatusOr<std::vector<Tensor>> Run(const std::vector<std::pair<Output, Tensor>>& feeds,
                                          const std::vector<Output>& fetches,
                                          const std::vector<Node*>& targets = {},
                                          const RunOptions& options = {});

  // A step to which feeds are given, and from which fetches are taken, piece by piece.
  virtual absl::StatusOr<std::string> PartialRunSetup(const StepSignature& signature) = 0;
  virtual absl::StatusOr<std::vector<Tensor>> PartialRun(
      const std::string& handle, const std::vector<std::pair<Output, Tensor>>& feeds,
      const std::vector<Output>& fetches) = 0;

  // Steps that run `node`, those under way too, end with the reason of `cancellation` once that is
  // cancelled: for callers that know that the steps would wait for ever. A later call for the same
  // node replaces it for steps that begin from then on.
  virtual void EndStepsWith(const Node* node, std::shared_ptr<Cancellation> cancellation) = 0;

  // Cancels steps under way; every later call fails.
  virtual absl::Status Close() = 0;
  virtual bool closed() const = 0;
  virtual absl::StatusOr<std::vector<DeviceAttributes>> ListDevices() const = 0;
  // Why nodes of the graph run where they do (see explain.h); all of them for an empty name.
  absl::StatusOr<std::vector<std::string>> ExplainPlacement(absl::string_view node = "") const;
  // Drops what variables and other nodes keep in these containers; everything where none is named.
  // At a master this closes all of its sessions.
  virtual absl::Status ClearContainers(const std::vector<std::string>& containers) = 0;
};

}  // namespace muster
