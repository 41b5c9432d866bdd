// A session whose steps are a function of the test.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "muster/client/step_plan.h"
#include "muster/client/session.h"
#include "muster/device/device.h"

namespace muster {

class FakeSession : public Session {
 public:
  using Steps =
      std::function<absl::StatusOr<std::vector<Tensor>>(const StepSignature&, const RunOptions&)>;
  FakeSession(const Graph& graph, Steps steps) : graph_(graph), steps_(std::move(steps)) {}

  const Graph& graph() const override { return graph_; }
  bool allows_soft_placement() const override { return false; }
  absl::StatusOr<std::shared_ptr<StepPlan>> Prepare(const StepSignature& signature) override {
    return std::make_shared<StepPlan>(signature);
  }
  absl::StatusOr<std::vector<Tensor>> Run(StepPlan& plan, std::vector<Tensor>,
                                          const RunOptions& options, RunMetadata*) override {
    return steps_(plan.signature, options);
  }
  absl::StatusOr<std::string> PartialRunSetup(const StepSignature&) override {
    return Unimplemented("partial runs");
  }
  absl::StatusOr<std::vector<Tensor>> PartialRun(const std::string&,
                                                 const std::vector<std::pair<Output, Tensor>>&,
                                                 const std::vector<Output>&) override {
    return Unimplemented("partial runs");
  }
  void EndStepsWith(const Node* node, std::shared_ptr<Cancellation> cancellation) override {
    ends[node] = std::move(cancellation);
  }
  std::map<const Node*, std::shared_ptr<Cancellation>> ends;
  absl::Status Close() override {
    closed_ = true;
    return absl::OkStatus();
  }
  bool closed() const override { return closed_; }
  absl::StatusOr<std::vector<DeviceAttributes>> ListDevices() const override {
    return std::vector<DeviceAttributes>();
  }
  absl::Status ClearContainers(const std::vector<std::string>&) override {
    return absl::OkStatus();
  }

 private:
  const Graph& graph_;
  const Steps steps_;
  std::atomic<bool> closed_{false};
};

}  // namespace muster
