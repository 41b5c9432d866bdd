#include "muster/train/model/device_setter.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"

#include "muster/device/device_name.h"

namespace muster {

PlacementStrategy RoundRobin(int tasks) {
  return [tasks, next = std::make_shared<int>(0)](const Node&) -> absl::StatusOr<int> {
    const int task = *next;
    *next = (task + 1) % tasks;
    return task;
  };
}

int GreedyLoads::Place(double load) {
  const auto least = std::min_element(loads_.begin(), loads_.end());
  *least += load;
  return static_cast<int>(least - loads_.begin());
}

absl::StatusOr<double> ByteSizeLoad(const Node& node) {
  PartialShape shape;
  DType dtype = DType::kInvalid;
  if (node.op() == "VarHandleOp") {
    ASSIGN_OR_RETURN(shape, node.Attr<PartialShape>("shape"));
    ASSIGN_OR_RETURN(dtype, node.Attr<DType>("dtype"));
  } else {
    if (node.num_outputs() == 0) return InvalidArgument(node.name(), " is not a variable");
    shape = node.output_shape(0);
    dtype = node.output_types()[0];
  }
  if (!shape.fully_known()) {
    return InvalidArgument("Shape ", shape.ToString(), " is not fully defined");
  }
  return static_cast<double>(shape.num_elements()) *
         static_cast<double>(DTypeSize(BaseType(dtype)));
}

PlacementStrategy GreedyLoadBalancing(int tasks, LoadFunction load) {
  return [loads = std::make_shared<GreedyLoads>(tasks),
          load = std::move(load)](const Node& node) -> absl::StatusOr<int> {
    ASSIGN_OR_RETURN(const double added, load(node));
    return loads->Place(added);
  };
}

const std::vector<std::string>& ParameterServerOps() {
  static const auto* const kOps =
      new std::vector<std::string>{"Variable",
                                   "VariableV2",
                                   "AutoReloadVariable",
                                   "MutableHashTable",
                                   "MutableHashTableV2",
                                   "MutableHashTableOfTensors",
                                   "MutableHashTableOfTensorsV2",
                                   "MutableDenseHashTable",
                                   "MutableDenseHashTableV2",
                                   "VarHandleOp",
                                   "BoostedTreesEnsembleResourceHandleOp",
                                   "BoostedTreesQuantileStreamResourceHandleOp",
                                   "ResourceConditionalAccumulator",
                                   "DecisionTreeResource",
                                   "MusterShardQueue"};
  return *kOps;
}

DeviceFunction ReplicaDeviceSetter(int ps_tasks, ReplicaDeviceOptions options) {
  if (!options.strategy) options.strategy = RoundRobin(ps_tasks);
  const absl::flat_hash_set<std::string> ps_ops(options.ps_ops.begin(), options.ps_ops.end());
  return [options = std::move(options), ps_ops](const Node& node) -> absl::StatusOr<std::string> {
    if (!options.merge_devices && !node.device().empty()) return node.device();
    ASSIGN_OR_RETURN(const DeviceName current, DeviceName::Parse(node.device()));
    if (options.ps_device.empty() || !ps_ops.contains(node.op())) {
      ASSIGN_OR_RETURN(const DeviceName worker, DeviceName::Parse(options.worker_device));
      return worker.Override(current).ToString();
    }
    ASSIGN_OR_RETURN(DeviceName chosen, DeviceName::Parse(options.ps_device));
    if (chosen.job.has_value() && (!current.job.has_value() || current.job == chosen.job)) {
      ASSIGN_OR_RETURN(chosen.task, options.strategy(node));
    }
    return chosen.Override(current).ToString();
  };
}

}  // namespace muster
