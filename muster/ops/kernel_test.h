// Runs one op's kernel without a session, for tests of ops.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "muster/graph/build/scope.h"
#include "muster/runtime/kernel.h"

namespace muster {

// An op with its inputs; the kernel keeps its state from one Run to the next, as it does in a
// session.
class KernelRun {
 public:
  KernelRun()
      : device_(NewCpuDevice("/job:localhost/replica:0/task:0/device:CPU:0", DefaultScheduler())) {}

  // Inputs are added in the order of the op's arguments. The shape of a value is not known
  // statically, so that the kernel and not the shape rule sees it.
  void AddValue(Tensor value) {
    Source(value.dtype(), PartialShape());
    entries_.push_back(Entry{std::move(value), nullptr, Entry::State::kValue});
  }
  // A reference to a new variable; an invalid tensor leaves it uninitialised.
  RefPtr<Variable> AddReference(DType dtype, const Shape& shape, Tensor value) {
    Source(dtype, shape);
    RefPtr<Variable> variable = MakeRef<Variable>(graph_.nodes().back()->name(), dtype, shape);
    if (value.valid()) variable->Assign(std::move(value));
    entries_.push_back(Entry{Tensor(), variable, Entry::State::kReference});
    return variable;
  }
  // A handle of a variable, which is made unless the tensor is invalid.
  void AddResource(DType dtype, const Shape& shape, Tensor value) {
    const Output handle =
        scope_.Op("VarHandleOp", {}, {{"dtype", dtype}, {"shape", shape}}, "handle");
    sources_.push_back(handle);
    if (!scope_.status().ok()) return;
    const std::string& name = handle.node->name();
    if (value.valid()) {
      RefPtr<Variable> variable = MakeRef<Variable>(name, dtype, shape);
      variable->Assign(std::move(value));
      CHECK(resources_.Create("", name, variable).ok());
    }
    ResourceHandle resource;
    resource.container = resources_.default_container();
    resource.name = name;
    entries_.push_back(
        Entry{Tensor::Scalar<ResourceHandle>(std::move(resource)), nullptr, Entry::State::kValue});
  }

  absl::Status Make(absl::string_view op, AttrMap attrs = {}) {
    return MakeOf(op, std::vector<NodeInput>(sources_.begin(), sources_.end()), std::move(attrs));
  }
  // An op whose one argument is the list of all inputs.
  absl::Status MakeWithList(absl::string_view op, AttrMap attrs) {
    return MakeOf(op, {NodeInput(sources_)}, std::move(attrs));
  }

  // List arguments laid out flat, as in a GraphDef; `attrs` has all type attributes.
  absl::Status MakeFlat(absl::string_view op, AttrMap attrs) {
    RETURN_IF_ERROR(scope_.status());
    NodeSpec spec;
    spec.name = "op";
    spec.op = std::string(op);
    spec.flat_inputs = sources_;
    spec.attrs = std::move(attrs);
    ASSIGN_OR_RETURN(node_, graph_.AddNode(std::move(spec)));
    ASSIGN_OR_RETURN(kernel_, MakeKernel(*node_, *device_, resources_));
    return absl::OkStatus();
  }

  // Requires: Make succeeded. A reference output is given as its present value.
  absl::StatusOr<std::vector<Tensor>> Run() {
    Step step;
    step.resources = &resources_;
    step.step_resources = &step_resources_;
    step.scheduler = &DefaultScheduler();
    std::vector<Entry> inputs = entries_;
    std::vector<Entry> outputs(node_->num_outputs());
    KernelContext context(step, *device_, *node_, absl::MakeSpan(inputs), absl::MakeSpan(outputs));
    RETURN_IF_ERROR(kernel_->Compute(context));
    std::vector<Tensor> results;
    for (Entry& output : outputs) {
      results.push_back(output.state == Entry::State::kReference ? output.reference->Snapshot()
                                                                 : std::move(output.tensor));
    }
    return results;
  }

  Node& node() const { return *node_; }
  ResourceManager& resources() { return resources_; }
  // The value behind input i, a reference or a resource.
  absl::StatusOr<Tensor> VariableValue(int i) const {
    if (entries_[i].reference) return entries_[i].reference->Snapshot();
    const ResourceHandle& handle = entries_[i].tensor.scalar<ResourceHandle>();
    ASSIGN_OR_RETURN(const RefPtr<Variable> variable,
                     resources_.LookupAs<Variable>(handle.container, handle.name));
    return variable->Snapshot();
  }

 private:
  absl::Status MakeOf(absl::string_view op, std::vector<NodeInput> inputs, AttrMap attrs) {
    RETURN_IF_ERROR(scope_.status());
    ASSIGN_OR_RETURN(node_, scope_.TryAdd(op, std::move(inputs), std::move(attrs)));
    ASSIGN_OR_RETURN(kernel_, MakeKernel(*node_, *device_, resources_));
    return absl::OkStatus();
  }
  void Source(DType dtype, const PartialShape& shape) {
    sources_.push_back(scope_.Op("VariableV2", {}, {{"dtype", dtype}, {"shape", shape}}, "v"));
  }

  Graph graph_;
  Scope scope_{graph_};
  std::unique_ptr<Device> device_;
  ResourceManager resources_;
  ResourceManager step_resources_;
  std::vector<Output> sources_;
  std::vector<Entry> entries_;
  Node* node_ = nullptr;
  std::unique_ptr<Kernel> kernel_;
};

}  // namespace muster
