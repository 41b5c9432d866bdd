#include "muster/client/session.h"

#include "muster/client/explain.h"
#include "muster/client/local_session.h"
#include "muster/client/remote_session.h"
#include "muster/client/step_plan.h"
#include "muster/device/device.h"
#include "muster/device/device_name.h"
#include "muster/runtime/trace.h"

namespace muster {

RunMetadata::RunMetadata() = default;
RunMetadata::~RunMetadata() = default;

absl::StatusOr<std::unique_ptr<Session>> Session::Create(const Graph& graph,
                                                         SessionOptions options) {
  return options.master != nullptr ? NewRemoteSession(graph, std::move(options))
                                   : NewLocalSession(graph, std::move(options));
}

absl::StatusOr<std::vector<std::string>> Session::ExplainPlacement(absl::string_view node) const {
  ASSIGN_OR_RETURN(const std::vector<DeviceAttributes> all, ListDevices());
  std::vector<std::string> devices;
  for (const DeviceAttributes& device : all) devices.push_back(device.name);
  ExplainOptions options;
  options.allow_soft_placement = allows_soft_placement();
  // Masters name their own devices first.
  if (!devices.empty()) options.local_task = std::string(TaskOf(devices.front()));
  options.node = std::string(node);
  return muster::ExplainPlacement(graph(), devices, options);
}

absl::StatusOr<std::vector<Tensor>> Session::Run(
    const std::vector<std::pair<Output, Tensor>>& feeds, const std::vector<Output>& fetches,
    const std::vector<Node*>& targets, const RunOptions& options) {
  StepSignature signature;
  std::vector<Tensor> values;
  for (const auto& [output, tensor] : feeds) {
    signature.feeds.push_back(output);
    values.push_back(tensor);
  }
  signature.fetches = fetches;
  signature.targets = targets;
  ASSIGN_OR_RETURN(std::shared_ptr<StepPlan> plan, Prepare(signature));
  return Run(*plan, std::move(values), options);
}

}  // namespace muster
