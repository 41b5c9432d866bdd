// A function of the graph with the tensors it captured, for datasets that call it while they are
// read.
#pragma once

#include <memory>
#include <vector>

#include "muster/base/caller.h"
#include "muster/ops/data/dataset.h"
#include "muster/runtime/function_runtime.h"

namespace muster {

// Thread-safe. Keeps the functions of the graph alive, so that it can be called when the step that
// made it is over. Devices and resources are the session's and outlive it.
class CapturedFunction : public std::enable_shared_from_this<CapturedFunction> {
 public:
  // `captured`: inputs of the node that follow the arguments of every call.
  static absl::StatusOr<std::shared_ptr<const CapturedFunction>> Make(
      const KernelContext& c, const char* attr, absl::Span<const Tensor> captured);
  CapturedFunction(std::shared_ptr<FunctionRuntime> runtime, FunctionCaller::Handle handle,
                   std::vector<Tensor> captured, ResourceManager& resources, Scheduler& scheduler,
                   std::shared_ptr<const Caller> caller)
      : runtime_(std::move(runtime)),
        handle_(handle),
        captured_(std::move(captured)),
        resources_(resources),
        scheduler_(scheduler),
        caller_(std::move(caller)) {}

  // Waits for the result: not on a scheduler's thread.
  absl::StatusOr<Element> Call(const DataContext& context, Element arguments) const;
  void CallAsync(const DataContext& context, Element arguments,
                 FunctionCaller::CallDone done) const;
  Scheduler& scheduler() const { return scheduler_; }

 private:
  const std::shared_ptr<FunctionRuntime> runtime_;
  const FunctionCaller::Handle handle_;
  const std::vector<Tensor> captured_;
  ResourceManager& resources_;
  Scheduler& scheduler_;
  const std::shared_ptr<const Caller> caller_;  // of the step that made it
};
using CapturedFunctionPtr = std::shared_ptr<const CapturedFunction>;

// Inputs [first, first + n) of the node, n being the length of the attribute.
absl::StatusOr<std::vector<Tensor>> CapturedInputs(const KernelContext& c, int first,
                                                   const char* types_attr);

}  // namespace muster
