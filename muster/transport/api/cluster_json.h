// Clusters as JSON objects: {"ps": ["a:2222"], "worker": {"1": "c:2222"}}.
#pragma once

#include "muster/base/json.h"
#include "muster/transport/api/cluster.h"

namespace muster {

// Checked. InvalidArgument naming the job or task that is wrong.
absl::StatusOr<ClusterSpec> ClusterFromJson(const Json& json);

// What TF_CONFIG says: {"cluster": {...}, "task": {"type": "worker", "index": 0}}.
struct TfConfig {
  ClusterSpec cluster;
  std::string job;  // empty: not given
  int task = -1;    // -1: not given
};
absl::StatusOr<TfConfig> ParseTfConfig(absl::string_view text);

}  // namespace muster
