// Counts of the numbers that occur, as a sparse tensor: DenseCountSparseOutput,
// SparseCountSparseOutput, RaggedCountSparseOutput.
#include <algorithm>
#include <limits>
#include <map>

#include "absl/strings/str_join.h"

#include "muster/ops/sparse/sparse_input.h"

namespace muster {
namespace {

template <typename W>
using Counts = std::map<std::pair<int64_t, int64_t>, W>;  // by row and value

// A row per group of values; the kinds of input differ in how they find it.
template <typename W>
class CountKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(min_length_, setup.Attr<int64_t>("minlength"));
    ASSIGN_OR_RETURN(max_length_, setup.Attr<int64_t>("maxlength"));
    ASSIGN_OR_RETURN(binary_, setup.Attr<bool>("binary_output"));
    return absl::OkStatus();
  }

 protected:
  void Count(Counts<W>& counts, int64_t row, int64_t value, const Tensor& weights, int64_t i) {
    if (max_length_ > 0 && value >= max_length_) return;
    W& count = counts[{row, value}];
    if (binary_) {
      count = W(1);
      return;
    }
    using Sum = typename SumType<W>::type;
    const W weight = weights.num_elements() > 0 ? weights.data<W>()[i] : W(1);
    count = static_cast<W>(static_cast<Sum>(count) + static_cast<Sum>(weight));
  }

  // `largest`: of all values, counted or not.
  absl::Status SetOutputs(KernelContext& c, const Counts<W>& counts, int64_t rows, int64_t largest,
                          bool is_vector) {
    const int64_t columns = max_length_ > 0 ? max_length_ : std::max(largest + 1, min_length_);
    const auto count = static_cast<int64_t>(counts.size());
    const int64_t rank = is_vector ? 1 : 2;
    ASSIGN_OR_RETURN(Tensor* const indices, c.AllocateOutput(0, Shape({count, rank})));
    ASSIGN_OR_RETURN(Tensor* const values, c.AllocateOutput(1, Shape({count})));
    ASSIGN_OR_RETURN(Tensor* const shape, c.AllocateOutput(2, Shape({rank})));
    int64_t* index = indices->data<int64_t>();
    W* value = values->data<W>();
    for (const auto& [place, weight] : counts) {
      if (!is_vector) *index++ = place.first;
      *index++ = place.second;
      *value++ = weight;
    }
    if (!is_vector) shape->data<int64_t>()[0] = rows;
    shape->data<int64_t>()[rank - 1] = columns;
    return absl::OkStatus();
  }

  static absl::StatusOr<int64_t> Largest(const Dims& values) {
    int64_t largest = 0;
    for (const int64_t value : values) {
      if (value < 0) return InvalidArgument("Input values must all be non-negative");
      if (value == std::numeric_limits<int64_t>::max()) {
        return InvalidArgument("Input values must be below ", value);
      }
      largest = std::max(largest, value);
    }
    return largest;
  }

  static absl::Status CheckWeights(const Tensor& values, const Tensor& weights, const char* what) {
    if (weights.num_elements() == 0 || weights.shape() == values.shape()) return absl::OkStatus();
    return InvalidArgument("Weights and ", what,
                           " must have the same shape. Weight shape: ", weights.shape().ToString(),
                           "; ", what, " shape: ", values.shape().ToString());
  }

 private:
  int64_t min_length_ = -1;
  int64_t max_length_ = -1;
  bool binary_ = false;
};

template <typename W>
class DenseCount : public CountKernel<W> {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& data = c.input(0);
    const Tensor& weights = c.input(1);
    if (data.rank() != 1 && data.rank() != 2) {
      return InvalidArgument("Input must be a 1 or 2-dimensional tensor. Got: ",
                             data.shape().ToString());
    }
    RETURN_IF_ERROR(this->CheckWeights(data, weights, "data"));
    ASSIGN_OR_RETURN(const Dims values, IntegerValues(data));
    ASSIGN_OR_RETURN(const int64_t largest, this->Largest(values));
    const bool is_vector = data.rank() == 1;
    Counts<W> counts;
    const int64_t columns = is_vector ? data.dim(0) : data.dim(1);
    for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
      this->Count(counts, i / columns, values[i], weights, i);
    }
    return this->SetOutputs(c, counts, data.dim(0), largest, is_vector);
  }
};

template <typename W>
class SparseCount : public CountKernel<W> {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& indices = c.input(0);
    const Tensor& data = c.input(1);
    const Tensor& dense_shape = c.input(2);
    const Tensor& weights = c.input(3);
    if (indices.rank() != 2) {
      return InvalidArgument("Input indices must be a 2-dimensional tensor. Got: ",
                             indices.shape().ToString());
    }
    if (data.rank() != 1) {
      return InvalidArgument("Input values must be a vector. Got: ", data.shape().ToString());
    }
    if (dense_shape.rank() != 1) {
      return InvalidArgument("Input shape must be a vector. Got: ", dense_shape.shape().ToString());
    }
    if (data.dim(0) != indices.dim(0)) {
      return InvalidArgument("Number of values must match first dimension of indices.", "Got ",
                             data.dim(0), " values, indices shape: ", indices.shape().ToString());
    }
    if (dense_shape.dim(0) != indices.dim(1)) {
      return InvalidArgument("Number of dimensions must match second dimension of indices.", "Got ",
                             dense_shape.dim(0),
                             " dimensions, indices shape: ", indices.shape().ToString());
    }
    if (dense_shape.num_elements() == 0) {
      return InvalidArgument("The shape argument requires at least one element.");
    }
    RETURN_IF_ERROR(CheckInside(indices, dense_shape));
    RETURN_IF_ERROR(this->CheckWeights(data, weights, "values"));
    ASSIGN_OR_RETURN(const Dims values, IntegerValues(data));
    ASSIGN_OR_RETURN(const int64_t largest, this->Largest(values));
    const int64_t rank = indices.dim(1);
    const bool is_vector = rank == 1;
    Counts<W> counts;
    for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
      const int64_t row = is_vector ? 0 : indices.data<int64_t>()[i * rank];
      this->Count(counts, row, values[i], weights, i);
    }
    return this->SetOutputs(c, counts, dense_shape.data<int64_t>()[0], largest, is_vector);
  }

 private:
  static absl::Status CheckInside(const Tensor& indices, const Tensor& dense_shape) {
    const int64_t rank = indices.dim(1);
    const absl::Span<const int64_t> dims = dense_shape.values<int64_t>();
    for (int64_t i = 0; i < indices.dim(0); ++i) {
      for (int64_t d = 0; d < rank; ++d) {
        const int64_t index = indices.data<int64_t>()[i * rank + d];
        if (index >= 0 && index < dims[d]) continue;
        return InvalidArgument("Invalid index value at ", i, ": dimension ", d, " has value ",
                               index, " which is not in [0, ", dims[d],
                               ") (as given by dense shape Tensor<type: int64 shape: [", rank,
                               "] values: ", absl::StrJoin(dims, " "), ">");
      }
    }
    return absl::OkStatus();
  }
};

template <typename W>
class RaggedCount : public CountKernel<W> {
 public:
  absl::Status Compute(KernelContext& c) override {
    const absl::Span<const int64_t> splits = c.input(0).values<int64_t>();
    const Tensor& weights = c.input(2);
    RETURN_IF_ERROR(this->CheckWeights(c.input(1), weights, "values"));
    if (splits.size() < 2) {
      return InvalidArgument("Must provide at least 2 elements for the splits argument");
    }
    if (splits[0] != 0) return InvalidArgument("Splits must start with 0, not with ", splits[0]);
    ASSIGN_OR_RETURN(const Dims values, IntegerValues(c.input(1)));
    const auto count = static_cast<int64_t>(values.size());
    if (splits.back() != count) {
      return InvalidArgument("Splits must end with the number of values, got ", splits.back(),
                             " instead of ", count);
    }
    ASSIGN_OR_RETURN(const int64_t largest, this->Largest(values));
    Counts<W> counts;
    const auto rows = static_cast<int64_t>(splits.size()) - 1;
    int64_t row = 0;
    for (int64_t i = 0; i < count; ++i) {
      while (row < rows && i >= splits[row + 1]) ++row;
      if (row >= rows) return InvalidArgument("Splits do not hold value ", i);
      this->Count(counts, row, values[i], weights, i);
    }
    return this->SetOutputs(c, counts, rows, largest, /*is_vector=*/false);
  }
};

// All three outputs by the rank of what is counted; -1 when unknown.
absl::Status SetShapes(ShapeContext& c, int64_t rank) {
  c.SetOutput(0, PartialShape::Matrix(-1, rank));
  c.SetOutput(1, PartialShape::Vector(-1));
  c.SetOutput(2, PartialShape::Vector(rank));
  return absl::OkStatus();
}

absl::Status DenseShape(ShapeContext& c) {
  return SetShapes(c, c.input(0).known_rank() ? c.input(0).rank() : -1);
}
absl::Status SparseShape(ShapeContext& c) {
  const bool known = c.input(2).known_rank() && c.input(2).rank() == 1;
  return SetShapes(c, known ? c.input(2).dim(0) : -1);
}
absl::Status RaggedShape(ShapeContext& c) {
  return SetShapes(c, 2);
}

OpBuilder& CountAttrs(OpBuilder& op) {
  return op.Attr("T: {int32, int64}")
      .Attr("minlength: int >= -1 = -1")
      .Attr("maxlength: int >= -1 = -1")
      .Attr("binary_output: bool")
      .Attr("output_type: {int32, int64, float, double}");
}
OpBuilder& CountOutputs(OpBuilder& op) {
  return op.Output("output_indices: int64")
      .Output("output_values: output_type")
      .Output("output_dense_shape: int64");
}

using WeightTypes = Types<int32_t, int64_t, float, double>;

}  // namespace

DEFINE_OP(DenseCountSparseOutput) {
  CountAttrs(op).Input("values: T").Input("weights: output_type");
  CountOutputs(op)
      .Doc("How often each number occurs in a vector or in the rows of a matrix.")
      .Shape(DenseShape)
      .CpuTypes<WeightTypes>("output_type", []<typename W>() { return New<DenseCount<W>>(); });
}

DEFINE_OP(SparseCountSparseOutput) {
  CountAttrs(op)
      .Input("indices: int64")
      .Input("values: T")
      .Input("dense_shape: int64")
      .Input("weights: output_type");
  CountOutputs(op)
      .Doc("How often each number occurs in a sparse vector or in the rows of a sparse matrix.")
      .Shape(SparseShape)
      .CpuTypes<WeightTypes>("output_type", []<typename W>() { return New<SparseCount<W>>(); });
}

DEFINE_OP(RaggedCountSparseOutput) {
  CountAttrs(op).Input("splits: int64").Input("values: T").Input("weights: output_type");
  CountOutputs(op)
      .Doc("How often each number occurs in the rows of a ragged matrix.")
      .Shape(RaggedShape)
      .CpuTypes<WeightTypes>("output_type", []<typename W>() { return New<RaggedCount<W>>(); });
}

}  // namespace muster
