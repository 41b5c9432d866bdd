// Where new nodes go: a name prefix, devices, control dependencies, colocation and control-flow
// context over one graph. A value; deriving a scope never changes the original. Both front ends
// build all their nodes through it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/types/span.h"

#include "muster/graph/graph.h"

namespace muster {

class ControlFlowContext;

// Given a node that is being made, the device it gets: this replaces the one it has so far, unlike
// a string.
using DeviceFunction = std::function<absl::StatusOr<std::string>(const Node&)>;

class Scope {
 public:
  explicit Scope(Graph& graph);

  Graph& graph() const;
  // "" or "a/b/": what a name of this scope starts with.
  const std::string& prefix() const;

  // --- Derived scopes
  // ------------------------------------------------------------------------------------------- A
  // scope below this one; the name is made unique. A name ending in "/" is entered as it stands; ""
  // is the root.
  absl::StatusOr<Scope> TryNameScope(absl::string_view name) const;
  Scope NameScope(absl::string_view name) const;  // records an error, see status()
  // Names follow `prefix` ("" or ending in "/") exactly.
  Scope WithPrefix(std::string prefix) const;
  // Adds a device string or function. Inner ones override parts of outer ones; clearing starts
  // afresh.
  Scope WithDevice(absl::string_view device) const;
  Scope WithDeviceFunction(DeviceFunction function) const;
  Scope WithoutDevices() const;
  // Nodes made in the result run after `nodes`, unless one of their inputs was made in it already.
  Scope WithControlDependencies(absl::Span<Node* const> nodes) const;
  // Neither control dependencies nor a control-flow context.
  Scope WithoutControlDependencies() const;
  // Nodes made in the result are colocated with `node`; devices are ignored, other colocations kept
  // or not.
  Scope ColocatedWith(Node& node, bool ignore_existing = false) const;
  // Neither devices nor colocation.
  Scope WithoutColocation() const;
  Scope WithContainer(std::string container) const;
  // Every node gets this attribute (e.g. _XlaCompile, gradient overrides).
  Scope WithAttr(std::string name, AttrValue value) const;
  Scope WithControlFlowContext(ControlFlowContext* context) const;
  ControlFlowContext* control_flow_context() const;

  // --- Making nodes
  // ---------------------------------------------------------------------------------------------
  // `name` is relative to the scope, "" means the op's own name; it is made unique unless it ends
  // in "/". A node that takes a reference is colocated with where it comes from.
  absl::StatusOr<Node*> TryAdd(absl::string_view op, std::vector<NodeInput> inputs,
                               AttrMap attrs = {}, absl::string_view name = "") const;
  // The first error of this scope and of all derived from it; after one, Add and Op make nothing.
  Node* Add(absl::string_view op, std::vector<NodeInput> inputs, AttrMap attrs = {},
            absl::string_view name = "") const;
  // Output 0 of Add.
  Output Op(absl::string_view op, std::vector<NodeInput> inputs, AttrMap attrs = {},
            absl::string_view name = "") const;
  Output Const(Tensor value, absl::string_view name = "Const") const;
  template <typename T>
  Output ConstScalar(T value, absl::string_view name = "Const") const {
    return Const(Tensor::Scalar<T>(value), name);
  }
  Output ConstVector(absl::Span<const int32_t> values, absl::string_view name = "Const") const {
    return Const(Tensor::Vector<int32_t>(values), name);
  }

  const absl::Status& status() const;
  void UpdateStatus(absl::Status status) const;
  // Nodes that one with these inputs would have to run after.
  std::vector<Node*> ControlInputsFor(absl::Span<const NodeInput> inputs) const;
  // Takes `node` for one that was made in this scope, when deciding about control dependencies.
  void NoteMade(Node& node) const;

  // A scope that starts without errors of its own, for callers that must see each one.
  Scope WithFreshStatus() const;

 private:
  struct State;
  explicit Scope(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> Copy() const;
  absl::StatusOr<Node*> AddHere(absl::string_view op, std::vector<NodeInput> inputs, AttrMap attrs,
                                absl::string_view name) const;
  std::shared_ptr<const State> state_;
};

}  // namespace muster
