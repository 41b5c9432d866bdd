// What a client may ask of a session: the part of TensorFlow's ConfigProto that means something
// here.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"

#include "muster/device/device_kinds.h"
#include "muster/transport/api/cluster.h"

namespace muster {

struct SessionConfig {
  std::vector<std::string> device_filters;
  bool allow_soft_placement = false;
  bool log_device_placement = false;
  absl::Duration operation_timeout = absl::ZeroDuration();  // zero: none
  ClusterSpec cluster;  // not empty: the session has a cluster of its own
  bool isolate_session_state = false;
  bool share_session_state_in_clusterspec_propagation = false;
  bool use_per_session_threads = false;       // refused
  bool has_session_inter_op_threads = false;  // refused
  bool optimize_graph = true;
  bool bfloat16_sendrecv = false;
  // Contact only the tasks that the graph needs: "muster.lazy_tasks" in experimental.executor_type.
  bool lazy_tasks = false;
  std::string executor_type;  // experimental.executor_type, but for that value
  std::string collective_group_leader;
  bool use_rpc_for_inprocess_master = false;  // no shortcut to a server of the same process
  DeviceOptions devices;  // for local sessions and servers
  std::string serialized;  // the ConfigProto itself, for peers that understand more of it
};

}  // namespace muster
