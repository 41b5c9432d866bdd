// Counting numbers in rows of which not all elements are there: SparseBincount, RaggedBincount.
#include <algorithm>

#include "absl/strings/str_join.h"

#include "muster/ops/sparse/sparse_input.h"

namespace muster {
namespace {

using CountTypes = Types<int32_t, int64_t, float, double>;

// ValidateSparseTensor of TensorFlow: the first index that is out of bounds is named.
absl::Status CheckInside(const Tensor& indices, const Tensor& dense_shape) {
  const int64_t rank = indices.dim(1);
  const int64_t* const at = indices.data<int64_t>();
  const int64_t* const dims = dense_shape.data<int64_t>();
  for (int64_t i = 0; i < indices.dim(0); ++i) {
    for (int64_t d = 0; d < rank; ++d) {
      if (at[i * rank + d] >= 0 && at[i * rank + d] < dims[d]) continue;
      return InvalidArgument("Sparse index tuple indices[", i, ", :] = [",
                             absl::StrJoin(absl::MakeSpan(at + i * rank, rank), ", "),
                             "] is out of bounds");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSparseInput(const Tensor& indices, const Tensor& values,
                              const Tensor& dense_shape) {
  if (indices.rank() != 2) {
    return InvalidArgument("Sparse indices must be rank 2 but is rank ", indices.rank());
  }
  if (values.rank() != 1) {
    return InvalidArgument("Sparse values must be rank 1 but is rank ", values.rank());
  }
  if (dense_shape.rank() != 1) {
    return InvalidArgument("Sparse shape must be rank 1 but is rank ", dense_shape.rank());
  }
  if (indices.dim(0) != values.dim(0)) {
    return InvalidArgument("Number of elements in indices (", indices.dim(0), ") and values (",
                           values.dim(0), ") do not match");
  }
  if (indices.dim(1) != dense_shape.dim(0)) {
    return InvalidArgument("Index rank (", indices.dim(1), ") and shape rank (", dense_shape.dim(0),
                           ") do not match");
  }
  return CheckInside(indices, dense_shape);
}

absl::StatusOr<int64_t> BinCount(const Tensor& size) {
  if (!size.shape().is_scalar()) {
    return InvalidArgument("Shape must be rank 0 but is rank ", size.rank());
  }
  ASSIGN_OR_RETURN(const int64_t bins, ScalarInteger(size, "size"));
  if (bins < 0) return InvalidArgument("size (", bins, ") must be non-negative");
  return bins;
}

// Adds what element i weighs to a bin.
template <typename T>
class Bins {
 public:
  Bins(const Tensor& weights, bool binary) : weights_(weights.values<T>()), binary_(binary) {}

  void Add(T& bin, int64_t i) const {
    if (binary_) {
      bin = T(1);
      return;
    }
    using Sum = typename SumType<T>::type;
    const T weight = weights_.empty() ? T(1) : weights_[i];
    bin = static_cast<T>(static_cast<Sum>(bin) + static_cast<Sum>(weight));
  }

 private:
  const absl::Span<const T> weights_;
  const bool binary_;
};

absl::Status CheckWeights(const Tensor& values, const Tensor& weights) {
  if (weights.num_elements() == 0 || weights.num_elements() == values.num_elements()) {
    return absl::OkStatus();
  }
  return InvalidArgument("Input indices and weights must have the same size.");
}

template <typename T>
class SparseBincount : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(binary_, setup.Attr<bool>("binary_output"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& indices = c.input(0);
    const Tensor& dense_shape = c.input(2);
    ASSIGN_OR_RETURN(const int64_t size, BinCount(c.input(3)));
    RETURN_IF_ERROR(CheckSparseInput(indices, c.input(1), dense_shape));
    RETURN_IF_ERROR(CheckWeights(c.input(1), c.input(4)));
    ASSIGN_OR_RETURN(const Dims values, IntegerValues(c.input(1)));
    if (dense_shape.num_elements() == 0) {
      return InvalidArgument("Sparse shape must have at least one element");
    }
    const bool rows = dense_shape.num_elements() > 1;
    if (!rows && std::any_of(values.begin(), values.end(), [](int64_t v) { return v < 0; })) {
      return InvalidArgument("Input arr must be non-negative!");
    }
    ASSIGN_OR_RETURN(const Shape shape, rows ? Shape::Make({dense_shape.data<int64_t>()[0], size})
                                             : Shape::Make({size}));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    T* const out = output->data<T>();
    std::fill_n(out, output->num_elements(), T(0));
    const Bins<T> bins(c.input(4), binary_);
    const int64_t rank = dense_shape.num_elements();
    for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
      if (values[i] < 0 || values[i] >= size) continue;
      const int64_t row = rows ? indices.data<int64_t>()[i * rank] : 0;
      bins.Add(out[row * size + values[i]], i);
    }
    return absl::OkStatus();
  }

 private:
  bool binary_ = false;
};

template <typename T>
class RaggedBincount : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(binary_, setup.Attr<bool>("binary_output"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const int64_t size, BinCount(c.input(2)));
    const absl::Span<const int64_t> splits = c.input(0).values<int64_t>();
    ASSIGN_OR_RETURN(const Dims values, IntegerValues(c.input(1)));
    const auto count = static_cast<int64_t>(values.size());
    if (splits.empty()) return InvalidArgument("Splits must be non-empty");
    if (splits[0] != 0) return InvalidArgument("Splits must start with 0, not with ", splits[0]);
    if (splits.back() != count) {
      return InvalidArgument("Splits must end with the number of values, got ", splits.back(),
                             " instead of ", count);
    }
    RETURN_IF_ERROR(CheckWeights(c.input(1), c.input(3)));
    const auto rows = static_cast<int64_t>(splits.size()) - 1;
    for (const int64_t value : values) {
      if (value < 0) return InvalidArgument("Input must be non-negative");
    }
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make({rows, size}));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    T* const out = output->data<T>();
    std::fill_n(out, output->num_elements(), T(0));
    const Bins<T> bins(c.input(3), binary_);
    int64_t row = 0;
    for (int64_t i = 0; i < count; ++i) {
      while (row < rows && i >= splits[row + 1]) ++row;
      if (row < rows && values[i] < size) bins.Add(out[row * size + values[i]], i);
    }
    return absl::OkStatus();
  }

 private:
  bool binary_ = false;
};

absl::StatusOr<int64_t> InferSize(ShapeContext& c, int input) {
  RETURN_IF_ERROR(c.WithRank(c.input(input), 0).status());
  ASSIGN_OR_RETURN(const std::optional<int64_t> size, c.ScalarInput(input));
  if (size.has_value() && *size < 0) {
    return InvalidArgument("size (", *size, ") must be non-negative");
  }
  return size.value_or(-1);
}

absl::Status SparseShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const int64_t size, InferSize(c, 3));
  const PartialShape& dense_shape = c.input(2);
  if (!dense_shape.known_rank() || dense_shape.rank() != 1 || dense_shape.dim(0) < 0) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  if (dense_shape.dim(0) == 1) {
    c.SetOutput(0, PartialShape::Vector(size));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const PartialShape shape, c.InputAsShape(2));
  const bool known = shape.known_rank() && shape.rank() > 0;
  c.SetOutput(0, PartialShape::Matrix(known ? shape.dim(0) : -1, size));
  return absl::OkStatus();
}

absl::Status RaggedShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape splits, c.WithRank(c.input(0), 1));
  ASSIGN_OR_RETURN(const int64_t size, InferSize(c, 2));
  const int64_t rows = splits.dim(0) > 0 ? splits.dim(0) - 1 : -1;
  c.SetOutput(0, PartialShape::Matrix(rows, size));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(SparseBincount) {
  op.Attr("Tidx: {int32, int64}")
      .Attr("T: {int32, int64, float, double}")
      .Attr("binary_output: bool = false")
      .Input("indices: int64")
      .Input("values: Tidx")
      .Input("dense_shape: int64")
      .Input("size: Tidx")
      .Input("weights: T")
      .Output("output: T")
      .Doc("Bincount of a sparse vector, or of every row of a sparse matrix.")
      .Shape(SparseShape)
      .HostMemory({"size"})
      .CpuTypes<CountTypes>("T", []<typename T>() { return New<SparseBincount<T>>(); });
}

DEFINE_OP(RaggedBincount) {
  op.Attr("Tidx: {int32, int64}")
      .Attr("T: {int32, int64, float, double}")
      .Attr("binary_output: bool = false")
      .Input("splits: int64")
      .Input("values: Tidx")
      .Input("size: Tidx")
      .Input("weights: T")
      .Output("output: T")
      .Doc("Bincount of every row of a ragged matrix.")
      .Shape(RaggedShape)
      .HostMemory({"size"})
      .CpuTypes<CountTypes>("T", []<typename T>() { return New<RaggedBincount<T>>(); });
}

}  // namespace muster
