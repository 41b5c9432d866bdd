// What an op's shape rule sees: partial shapes of the inputs, constant inputs as far as known, the
// node's attributes.
#pragma once

#include <optional>
#include <vector>

#include "muster/base/status.h"
#include "muster/graph/graph.h"

namespace muster {

class ShapeContext {
 public:
  explicit ShapeContext(Node& node);

  const Node& node() const { return node_; }
  int num_inputs() const { return node_.num_inputs(); }
  int num_outputs() const { return node_.num_outputs(); }
  const PartialShape& input(int i) const { return node_.input(i).shape(); }
  DType input_type(int i) const { return BaseType(node_.input_types()[i]); }
  DType output_type(int i) const { return BaseType(node_.output_types()[i]); }
  const std::vector<DTypeAndShape>& input_handle(int i) const;
  template <typename T>
  absl::StatusOr<T> Attr(absl::string_view name) const {
    return node_.Attr<T>(name);
  }

  // The value of input i where it can be computed while the graph is built (constants, and small
  // ops over them).
  std::optional<Tensor> ConstantInput(int i);
  // Input i, an integer vector, read as a shape; dims that are not known stay -1, an unknown vector
  // length gives an unknown rank. Follows Shape, Pack, ConcatV2, StridedSlice and casts over
  // partial shapes. -1 elements are unknown.
  absl::StatusOr<PartialShape> InputAsShape(int i);
  // A scalar integer input where known.
  absl::StatusOr<std::optional<int64_t>> ScalarInput(int i);

  void SetOutput(int i, PartialShape shape) { node_.set_output_shape(i, std::move(shape)); }
  void SetOutputHandle(int i, std::vector<DTypeAndShape> handle) {
    node_.set_output_handle(i, std::move(handle));
  }

  // Rules: each returns the shape with what was learnt merged in, or InvalidArgument in
  // TensorFlow's words.
  absl::StatusOr<PartialShape> WithRank(const PartialShape& shape, int rank) const;
  absl::StatusOr<PartialShape> WithRankAtLeast(const PartialShape& shape, int rank) const;
  absl::StatusOr<PartialShape> WithRankAtMost(const PartialShape& shape, int rank) const;
  // "Dimensions must be equal, but are 3 and 4".
  static absl::StatusOr<int64_t> MergeDims(int64_t a, int64_t b);
  static absl::StatusOr<PartialShape> Merge(const PartialShape& a, const PartialShape& b) {
    return a.Merge(b);
  }
  // Dims [begin, end) of `shape`; negative counts from the end. Unknown rank stays unknown.
  static PartialShape Subshape(const PartialShape& shape, int begin, int end);
  static PartialShape Subshape(const PartialShape& shape, int begin);
  static PartialShape Concatenate(const PartialShape& a, const PartialShape& b);
  static int64_t AddDims(int64_t a, int64_t b) { return a < 0 || b < 0 ? -1 : a + b; }
  static int64_t MultiplyDims(int64_t a, int64_t b);  // 0 wins over unknown

  // Constant inputs that the rule asked for, by input index.
  const std::vector<std::pair<int, Tensor>>& constants_used() const { return constants_used_; }

 private:
  Node& node_;
  std::vector<std::pair<int, Tensor>> constants_used_;
};

using ShapeFunction = absl::Status (*)(ShapeContext&);

// Ready-made rules.
absl::Status UnknownShape(ShapeContext& c);          // every output unknown
absl::Status UnchangedShape(ShapeContext& c);        // output 0 = input 0
absl::Status ScalarShape(ShapeContext& c);           // every output a scalar
absl::Status NoOutputs(ShapeContext& c);             // for ops without outputs
absl::Status BroadcastBinaryShape(ShapeContext& c);  // inputs 0 and 1 broadcast to output 0
absl::Status MergedShape(ShapeContext& c);           // all inputs and output 0 alike
absl::Status ReductionShape(ShapeContext& c);        // input 1 = axes, attr keep_dims
// Numpy broadcasting of partial shapes; `incompatible_ok` gives an unknown shape instead of an
// error.
absl::StatusOr<PartialShape> BroadcastShapes(const PartialShape& a, const PartialShape& b);

// Output size of a sliding window. padding is "SAME", "VALID" or "EXPLICIT"; unknown (-1) input
// stays unknown.
struct WindowSize {
  int64_t output = -1;
  int64_t padding_before = 0;
  int64_t padding_after = 0;
};
absl::StatusOr<WindowSize> WindowedOutputSize(int64_t input, int64_t filter, int64_t dilation,
                                              int64_t stride, absl::string_view padding,
                                              int64_t explicit_before = 0,
                                              int64_t explicit_after = 0);

// The value of an output where building the graph can know it: constants, shapes that are fully
// known, and what follows from them. This is the front end's constant_value (a few ops only, see
// the .cc), not constant folding.
std::optional<Tensor> ConstantValue(Output output);
// ConstantValue, or a shape with unknown dims, for a tensor that holds a shape.
PartialShape ConstantValueAsShape(Output output);

}  // namespace muster
