// SparseConcat, SparseSplit, SparseSlice and SparseSliceGrad.
#include <algorithm>
#include <limits>
#include <vector>

#include "muster/graph/gradients/gradient_context.h"
#include "muster/ops/sparse/sparse_input.h"

namespace muster {
namespace {

// Entries gathered from several sparse tensors, and put out in row-major order.
class Entries {
 public:
  explicit Entries(int64_t rank) : rank_(rank) {}

  // `shift` is added to the index along `axis`.
  void Add(const int64_t* index, const Tensor* values, int64_t at, int64_t axis, int64_t shift) {
    entries_.push_back({std::vector<int64_t>(index, index + rank_), values, at});
    if (axis >= 0) entries_.back().index[axis] += shift;
  }
  void Sort() {
    std::stable_sort(entries_.begin(), entries_.end(),
                     [](const Entry& a, const Entry& b) { return a.index < b.index; });
  }
  absl::Status Write(KernelContext& c, int indices_output, int values_output) const {
    const auto count = static_cast<int64_t>(entries_.size());
    ASSIGN_OR_RETURN(Tensor* const indices,
                     c.AllocateOutput(indices_output, Shape({count, rank_})));
    ASSIGN_OR_RETURN(Tensor* const values, c.AllocateOutput(values_output, Shape({count})));
    const auto size = static_cast<int64_t>(DTypeSize(values->dtype()));
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(entries_[i].index.data(), rank_, indices->data<int64_t>() + i * rank_);
      CopyElements(values->dtype(), entries_[i].values->raw() + entries_[i].at * size,
                   values->raw() + i * size, 1);
    }
    return absl::OkStatus();
  }

 private:
  struct Entry {
    std::vector<int64_t> index;
    const Tensor* values;
    int64_t at;
  };
  const int64_t rank_;
  std::vector<Entry> entries_;
};

class ConcatKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(dim_, s.Attr<int64_t>("concat_dim"));
    ASSIGN_OR_RETURN(n_, s.Attr<int64_t>("N"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const auto n = static_cast<int>(n_);
    const int64_t rank = c.input(2 * n).num_elements();
    const int64_t dim = dim_ < 0 ? dim_ + rank : dim_;
    if (dim < 0 || dim >= rank) {
      return InvalidArgument("Concat dimension must be in range [", -rank, ", ", rank, "), got ",
                             dim_);
    }
    std::vector<int64_t> shape;
    Entries entries(rank);
    for (int p = 0; p < n; ++p) {
      const Tensor& indices = c.input(p);
      const Tensor& values = c.input(n + p);
      RETURN_IF_ERROR(CheckSparse(indices, values, c.input(2 * n + p)));
      const absl::Span<const int64_t> part = c.input(2 * n + p).values<int64_t>();
      if (static_cast<int64_t>(part.size()) != rank) {
        return InvalidArgument("Ranks of all input tensors must match: expected ", rank,
                               " but got ", part.size(), " at position ", p);
      }
      RETURN_IF_ERROR(CheckIndices(indices, part));
      const int64_t shift = shape.empty() ? 0 : shape[dim];
      for (int64_t i = 0; i < indices.dim(0); ++i)
        entries.Add(indices.data<int64_t>() + i * rank, &values, i, dim, shift);
      if (shape.empty()) {
        shape.assign(part.begin(), part.end());
        continue;
      }
      for (int64_t d = 0; d < rank; ++d) {
        if (d != dim && part[d] != shape[d]) {
          return InvalidArgument("Input shapes must match: expected ", shape[d], " for dimension ",
                                 d, " but got ", part[d], " at position ", p);
        }
      }
      if (part[dim] > std::numeric_limits<int64_t>::max() - shape[dim])
        return InvalidArgument("The concatenated dimension ", dim, " is too large");
      shape[dim] += part[dim];
    }
    RETURN_IF_ERROR(Shape::Make(shape).status());
    entries.Sort();
    RETURN_IF_ERROR(entries.Write(c, 0, 1));
    c.SetOutput(2, Tensor::Vector<int64_t>(shape));
    return absl::OkStatus();
  }

 private:
  int64_t dim_ = 0;
  int64_t n_ = 0;
};

class SplitKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(n_, s.Attr<int64_t>("num_split"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    if (c.input(0).rank() != 0) {
      return InvalidArgument("axis should be a scalar, got shape ", c.input(0).shape().ToString());
    }
    const int64_t axis = c.input(0).scalar<int64_t>();
    const Tensor& indices = c.input(1);
    const Tensor& values = c.input(2);
    RETURN_IF_ERROR(CheckSparse(indices, values, c.input(3)));
    const absl::Span<const int64_t> shape = c.input(3).values<int64_t>();
    const auto rank = static_cast<int64_t>(shape.size());
    if (axis < -rank || axis >= rank) {
      return InvalidArgument("axis should be in range [", -rank, ", ", rank, "), got ", axis);
    }
    const int64_t dim = axis < 0 ? axis + rank : axis;
    RETURN_IF_ERROR(CheckIndices(indices, shape));
    if (n_ < 1 || n_ > shape[dim]) {
      return InvalidArgument(
          "Input num_split should be between 1 and the splitting dimension size (", shape[dim],
          "), got ", n_);
    }
    // The first ones are one larger where it does not come out even.
    const int64_t each = shape[dim] / n_, larger = shape[dim] % n_;
    const auto begin = [&](int64_t part) { return part * each + std::min(part, larger); };
    const auto n = static_cast<int>(n_);
    for (int p = 0; p < n; ++p) {
      Entries entries(rank);
      for (int64_t i = 0; i < indices.dim(0); ++i) {
        const int64_t* at = indices.data<int64_t>() + i * rank;
        if (at[dim] >= begin(p) && at[dim] < begin(p + 1))
          entries.Add(at, &values, i, dim, -begin(p));
      }
      RETURN_IF_ERROR(entries.Write(c, p, n + p));
      std::vector<int64_t> part(shape.begin(), shape.end());
      part[dim] = begin(p + 1) - begin(p);
      c.SetOutput(2 * n + p, Tensor::Vector<int64_t>(part));
    }
    return absl::OkStatus();
  }

 private:
  int64_t n_ = 1;
};

absl::Status RunSlice(KernelContext& c) {
  const Tensor& indices = c.input(0);
  const Tensor& values = c.input(1);
  RETURN_IF_ERROR(CheckSparse(indices, values, c.input(2)));
  const absl::Span<const int64_t> shape = c.input(2).values<int64_t>();
  const auto rank = static_cast<int64_t>(shape.size());
  for (const int i : {3, 4}) {
    if (c.input(i).rank() != 1 || c.input(i).num_elements() != rank) {
      return InvalidArgument("Expected ", i == 3 ? "start" : "size", " to be a vector of length ",
                             rank, " but got shape ", c.input(i).shape().ToString());
    }
  }
  RETURN_IF_ERROR(CheckIndices(indices, shape));
  const absl::Span<const int64_t> start = c.input(3).values<int64_t>();
  const absl::Span<const int64_t> size = c.input(4).values<int64_t>();
  std::vector<int64_t> result(static_cast<size_t>(rank));
  for (int64_t d = 0; d < rank; ++d) {
    if (size[d] < 0) {
      return InvalidArgument("size must not be negative, but is ", size[d], " for dimension ", d);
    }
    // A start before the first cell is counted too. No sum may overflow.
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    const int64_t rest = start[d] >= shape[d]          ? 0
                         : start[d] < shape[d] - kMost ? kMost
                                                       : shape[d] - start[d];
    result[d] = std::min(size[d], rest);
  }
  Entries entries(rank);
  std::vector<int64_t> moved(static_cast<size_t>(rank));
  for (int64_t i = 0; i < indices.dim(0); ++i) {
    const int64_t* at = indices.data<int64_t>() + i * rank;
    bool inside = true;
    for (int64_t d = 0; d < rank && inside; ++d) {
      constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
      inside = at[d] >= start[d] && start[d] >= at[d] - kMost && at[d] - start[d] < result[d];
      if (inside) moved[d] = at[d] - start[d];
    }
    if (inside) entries.Add(moved.data(), &values, i, -1, 0);
  }
  RETURN_IF_ERROR(entries.Write(c, 0, 1));
  c.SetOutput(2, Tensor::Vector<int64_t>(result));
  return absl::OkStatus();
}

// Both lists of indices are in order: the slice's entries are found in one pass.
absl::Status RunSliceGrad(KernelContext& c) {
  const Tensor& gradient = c.input(0);
  const Tensor& from = c.input(1);
  const Tensor& start = c.input(2);
  const Tensor& slice = c.input(3);
  if (gradient.rank() != 1 || from.rank() != 2 || start.rank() != 1 || slice.rank() != 2) {
    return InvalidArgument(
        "Inputs should be a vector, a matrix, a vector and a matrix, but have "
        "shapes ",
        gradient.shape().ToString(), ", ", from.shape().ToString(), ", ", start.shape().ToString(),
        ", ", slice.shape().ToString());
  }
  const int64_t rank = from.dim(1);
  if (slice.dim(1) != rank || start.num_elements() != rank ||
      slice.dim(0) != gradient.num_elements()) {
    return InvalidArgument(
        "The input and sliced SparseTensor must have the same rank and as many "
        "gradients as entries, got ",
        rank, ", ", slice.dim(1), " and ", gradient.num_elements(), " for ", slice.dim(0));
  }
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, Shape({from.dim(0)})));
  const auto size = static_cast<int64_t>(DTypeSize(gradient.dtype()));
  std::fill_n(output->raw(), from.dim(0) * size, '\0');
  int64_t next = 0;
  for (int64_t i = 0; i < from.dim(0) && next < slice.dim(0); ++i) {
    bool same = true;
    for (int64_t d = 0; d < rank && same; ++d) {
      // Unsigned: what is nonsense wraps around.
      const auto number = [](int64_t value) { return static_cast<uint64_t>(value); };
      same = number(from.data<int64_t>()[i * rank + d]) - number(start.data<int64_t>()[d]) ==
             number(slice.data<int64_t>()[next * rank + d]);
    }
    if (!same) continue;
    CopyElements(gradient.dtype(), gradient.raw() + next * size, output->raw() + i * size, 1);
    ++next;
  }
  if (next == slice.dim(0)) return absl::OkStatus();
  return InvalidArgument("Elements of backprop_val_grad aren't all propagated. Num elements: ",
                         slice.dim(0), ", used: ", next);
}

absl::Status SparseOutputs(ShapeContext& c, int n) {
  for (int i = 0; i < n; ++i) {
    c.SetOutput(i, PartialShape::Matrix(-1, -1));
    c.SetOutput(n + i, PartialShape::Vector(-1));
    c.SetOutput(2 * n + i, PartialShape::Vector(-1));
  }
  return absl::OkStatus();
}

absl::Status SliceGradient(GradientContext& c) {
  if (!c.has_dy(1)) return absl::OkStatus();
  c.SetDx(1, c.Op("SparseSliceGrad", {c.dy(1), c.input(0), c.input(3), c.output(0)}));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(SparseConcat) {
  op.Attr("concat_dim: int")
      .Attr("N: int >= 2")
      .Attr("T: type")
      .Input("indices: N * int64")
      .Input("values: N * T")
      .Input("shapes: N * int64")
      .Output("output_indices: int64")
      .Output("output_values: T")
      .Output("output_shape: int64")
      .Doc("Sparse tensors one behind the other.")
      .Shape([](ShapeContext& c) { return SparseOutputs(c, 1); })
      .NoGradient("TensorFlow has none")
      .CpuDTypes("T", AllDTypes(), New<ConcatKernel>());
}

DEFINE_OP(SparseSplit) {
  op.Attr("num_split: int >= 1")
      .Attr("T: type")
      .Input("split_dim: int64")
      .Input("indices: int64")
      .Input("values: T")
      .Input("shape: int64")
      .Output("output_indices: num_split * int64")
      .Output("output_values: num_split * T")
      .Output("output_shape: num_split * int64")
      .Doc("A sparse tensor cut into parts.")
      .Shape([](ShapeContext& c) {
        ASSIGN_OR_RETURN(const int64_t n, c.Attr<int64_t>("num_split"));
        return SparseOutputs(c, static_cast<int>(n));
      })
      .CpuDTypes("T", AllDTypes(), New<SplitKernel>());
}

DEFINE_OP(SparseSlice) {
  op.Attr("T: type")
      .Input("indices: int64")
      .Input("values: T")
      .Input("shape: int64")
      .Input("start: int64")
      .Input("size: int64")
      .Output("output_indices: int64")
      .Output("output_values: T")
      .Output("output_shape: int64")
      .Doc("Part of a sparse tensor.")
      .Shape([](ShapeContext& c) { return SparseOutputs(c, 1); })
      .Gradient(SliceGradient)
      .CpuDTypes("T", AllDTypes(), Stateless(RunSlice));
}

DEFINE_OP(SparseSliceGrad) {
  op.Attr(
        "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
        "bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}")
      .Input("backprop_val_grad: T")
      .Input("input_indices: int64")
      .Input("input_start: int64")
      .Input("output_indices: int64")
      .Output("val_grad: T")
      .Doc("Gradient of SparseSlice.")
      .Shape([](ShapeContext& c) {
        ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(c.input(1), 2));
        c.SetOutput(0, PartialShape::Vector(indices.known_rank() ? indices.dim(0) : -1));
        return absl::OkStatus();
      })
      .CpuTypes<Numbers>("T", []<typename T>() { return Stateless(RunSliceGrad); });
}

}  // namespace muster
