// What an op's gradient function sees: the node, the gradients that arrived at its outputs, and a
// scope in which to build the gradients of its inputs. Gradients are graph nodes only; there is no
// other gradient code.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "muster/base/status.h"
#include "muster/graph/build/scope.h"

namespace muster {

// A sparse gradient: rows `values` at `indices` of a tensor with shape `dense_shape` (may be
// absent).
struct IndexedSlices {
  Output values;
  Output indices;
  Output dense_shape;
};

// None, dense or sparse.
using Gradient = std::variant<std::monostate, Output, IndexedSlices>;
inline bool HasValue(const Gradient& gradient) {
  return !std::holds_alternative<std::monostate>(gradient);
}

class GradientContext {
 public:
  GradientContext(Node& node, std::vector<Gradient> output_gradients, Scope scope)
      : node_(node),
        output_gradients_(std::move(output_gradients)),
        input_gradients_(node.num_inputs()),
        scope_(std::move(scope)) {}

  Node& node() const { return node_; }
  Output input(int i) const { return node_.input(i); }
  Output output(int i = 0) const { return Output(&node_, i); }
  int num_inputs() const { return node_.num_inputs(); }
  int num_outputs() const { return node_.num_outputs(); }
  template <typename T>
  T Attr(absl::string_view name) const {  // records an error in the scope and gives T() when absent
    absl::StatusOr<T> value = node_.Attr<T>(name);
    if (value.ok()) return *std::move(value);
    scope_.UpdateStatus(value.status());
    return T();
  }

  bool has_dy(int i = 0) const { return HasValue(output_gradients_[i]); }
  const Gradient& gradient(int i) const { return output_gradients_[i]; }
  // The dense gradient of output i; a sparse one is turned dense with nodes in this scope.
  // Requires: has_dy(i).
  Output dy(int i = 0);

  // Builds nodes in "<gradients>/<node>_grad/". `name` defaults to the op's own name.
  Output Op(absl::string_view op, std::vector<NodeInput> inputs, AttrMap attrs = {},
            absl::string_view name = "") const {
    return scope_.Op(op, std::move(inputs), std::move(attrs), name);
  }
  Scope& scope() { return scope_; }

  void SetDx(int i, Gradient gradient) { input_gradients_[i] = std::move(gradient); }
  const std::vector<Gradient>& input_gradients() const { return input_gradients_; }
  std::vector<Gradient>& input_gradients() { return input_gradients_; }

  // Shape(x) as the front end builds it in gradients: a Const when the static shape is fully known
  // (and optimize).
  Output ShapeOf(Output x, absl::string_view name = "Shape", DType out_type = DType::kInt32) const;

  // For z = f(x, y) with broadcasting: sums dx over the broadcast axes and reshapes it to x's
  // shape, and the same for dy. Which nodes that takes depends on the op, as in TensorFlow: Add,
  // Sub, Mul, Pow and SquaredDifference look at static shapes (no reduction where they equal the
  // gradient's), the others always reduce. Node order is TensorFlow's: `make_dx`/`make_dy` build
  // the unreduced gradients at the moment TensorFlow would.
  void SetBroadcastDx(const std::function<Output()>& make_dx,
                      const std::function<Output()>& make_dy);

  // The halves of SetBroadcastDx, for gradients that build something in between.
  struct Reduction {
    bool needed = true;
    Output shape;  // of the argument, and the axes to sum over: nodes, or where `is_static` the
                   // numbers
    Output axes;
    bool is_static = false;
    Dims static_shape;
    Dims static_axes;
  };
  // All three static shapes (x, y, dy) known and equal.
  bool ShapesEqual() const;
  // "Shape", "Shape_1", "BroadcastGradientArgs": constants where known, every argument is reduced.
  std::pair<Reduction, Reduction> BroadcastArgs() const;
  // The same with the short cuts for static shapes.
  std::pair<Reduction, Reduction> SmartBroadcastArgs() const;
  Output Reduce(Output gradient, const Reduction& reduction) const;

 private:
  Node& node_;
  std::vector<Gradient> output_gradients_;
  std::vector<Gradient> input_gradients_;
  Scope scope_;
};

using GradientFunction = std::function<absl::Status(GradientContext&)>;

}  // namespace muster
