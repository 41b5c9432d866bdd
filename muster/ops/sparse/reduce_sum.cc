// SparseReduceSum, dense and sparse.
#include <algorithm>
#include <map>
#include <numeric>

#include "muster/graph/gradients/gradient_context.h"
#include "muster/ops/emit.h"
#include "muster/ops/math/reduction_gradients.h"
#include "muster/ops/sparse/sparse_input.h"

namespace muster {
namespace {

// Which dims of a sparse tensor stay, and the shape of the sums.
struct Reduction {
  std::vector<int> kept;  // dims of the input, ascending
  Dims kept_sizes;
  Dims output;  // with ones for the reduced dims where they are kept
};

absl::StatusOr<Reduction> PlanReduction(KernelContext& c, bool keep_dims) {
  RETURN_IF_ERROR(CheckSparse(c.input(0), c.input(1), c.input(2)));
  const absl::Span<const int64_t> shape = c.input(2).values<int64_t>();
  if (c.input(3).rank() > 1) {
    return InvalidArgument("Expected reduction_axes to be a scalar or a vector; got shape: ",
                           c.input(3).shape().ToString());
  }
  RETURN_IF_ERROR(CheckIndices(c.input(0), shape));
  const int rank = static_cast<int>(shape.size());
  std::vector<bool> reduced(static_cast<size_t>(rank));
  for (const int32_t axis : c.input(3).values<int32_t>()) {
    if (axis < -rank || axis >= rank) {
      return InvalidArgument("Invalid reduction dimension ", axis, ", for input with ", rank,
                             " dimensions.");
    }
    reduced[(axis + rank) % rank] = true;
  }
  Reduction plan;
  for (int d = 0; d < rank; ++d) {
    if (!reduced[d]) {
      plan.kept.push_back(d);
      plan.kept_sizes.push_back(shape[d]);
      plan.output.push_back(shape[d]);
    } else if (keep_dims) {
      plan.output.push_back(1);
    }
  }
  return plan;
}

// The row-major place of entry i among the kept dims.
int64_t PlaceOf(const Reduction& plan, const int64_t* index) {
  int64_t place = 0;
  for (size_t k = 0; k < plan.kept.size(); ++k)
    place = place * plan.kept_sizes[k] + index[plan.kept[k]];
  return place;
}

class ReduceKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(keep_dims_, s.Attr<bool>("keep_dims"));
    return absl::OkStatus();
  }

 protected:
  bool keep_dims_ = false;
};

template <typename T>
class DenseSumKernel : public ReduceKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    using Sum = typename SumType<T>::type;
    ASSIGN_OR_RETURN(const Reduction plan, PlanReduction(c, keep_dims_));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(plan.output));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    ASSIGN_OR_RETURN(Tensor wide, c.AllocateTemporary(kDTypeOf<Sum>, shape));
    Sum* const sums = wide.data<Sum>();
    std::fill_n(sums, shape.num_elements(), Sum{});
    const Tensor& indices = c.input(0);
    for (int64_t i = 0; i < indices.dim(0); ++i) {
      sums[PlaceOf(plan, indices.data<int64_t>() + i * indices.dim(1))] +=
          static_cast<Sum>(c.input(1).data<T>()[i]);
    }
    for (int64_t i = 0; i < shape.num_elements(); ++i)
      output->data<T>()[i] = static_cast<T>(sums[i]);
    return absl::OkStatus();
  }
};

// The groups that have entries, as a sparse tensor.
template <typename T, typename Value>
absl::Status WriteGroups(KernelContext& c, const Reduction& plan,
                         const std::map<int64_t, Value>& sums) {
  const auto count = static_cast<int64_t>(sums.size());
  const auto rank = static_cast<int64_t>(plan.output.size());
  ASSIGN_OR_RETURN(Tensor* const places, c.AllocateOutput(0, Shape({count, rank})));
  ASSIGN_OR_RETURN(Tensor* const values, c.AllocateOutput(1, Shape({count})));
  int64_t* out = places->data<int64_t>();
  int64_t i = 0;
  for (const auto& [place, sum] : sums) {
    int64_t rest = place;
    for (int64_t d = rank - 1; d >= 0; --d) {
      out[d] = rest % plan.output[d];
      rest /= plan.output[d];
    }
    out += rank;
    values->data<T>()[i++] = static_cast<T>(sum);
  }
  c.SetOutput(2, Tensor::Vector<int64_t>(plan.output));
  return absl::OkStatus();
}

template <typename T>
class SparseSumKernel : public ReduceKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    using Sum = typename SumType<T>::type;
    ASSIGN_OR_RETURN(const Reduction plan, PlanReduction(c, keep_dims_));
    const Tensor& indices = c.input(0);
    std::map<int64_t, Sum> sums;
    for (int64_t i = 0; i < indices.dim(0); ++i) {
      sums[PlaceOf(plan, indices.data<int64_t>() + i * indices.dim(1))] +=
          static_cast<Sum>(c.input(1).data<T>()[i]);
    }
    return WriteGroups<T>(c, plan, sums);
  }
};

// The largest entry of each group. In the dense form a group without entries is zero.
template <typename T>
class MaxKernel : public ReduceKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const Reduction plan, PlanReduction(c, keep_dims_));
    const Tensor& indices = c.input(0);
    std::map<int64_t, T> largest;
    for (int64_t i = 0; i < indices.dim(0); ++i) {
      const T value = c.input(1).data<T>()[i];
      const auto [found, added] =
          largest.try_emplace(PlaceOf(plan, indices.data<int64_t>() + i * indices.dim(1)), value);
      if (!added &&
          static_cast<muster::Compute<T>>(found->second) < static_cast<muster::Compute<T>>(value))
        found->second = value;
    }
    return c.num_outputs() == 1 ? WriteDense(c, plan, largest) : WriteSparse(c, plan, largest);
  }

 private:
  static absl::Status WriteDense(KernelContext& c, const Reduction& plan,
                                 const std::map<int64_t, T>& largest) {
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(plan.output));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    std::fill_n(output->data<T>(), shape.num_elements(), T(0));
    for (const auto& [place, value] : largest) output->data<T>()[place] = value;
    return absl::OkStatus();
  }
  static absl::Status WriteSparse(KernelContext& c, const Reduction& plan,
                                  const std::map<int64_t, T>& largest) {
    return WriteGroups<T>(c, plan, largest);
  }
};

absl::Status DenseShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape shape, c.InputAsShape(2));
  const std::optional<Tensor> axes = c.ConstantInput(3);
  ASSIGN_OR_RETURN(const bool keep_dims, c.Attr<bool>("keep_dims"));
  c.SetOutput(0, PartialShape());
  if (!shape.known_rank() || !axes) return absl::OkStatus();
  const int rank = shape.rank();
  std::vector<bool> reduced(static_cast<size_t>(rank));
  for (const int32_t axis : axes->values<int32_t>()) {
    if (axis < -rank || axis >= rank)
      return InvalidArgument("Invalid reduction dimension ", axis, " for input with ", rank,
                             " dimensions");
    reduced[(axis + rank) % rank] = true;
  }
  Dims dims;
  for (int d = 0; d < rank; ++d) {
    if (!reduced[d]) dims.push_back(shape.dim(d));
    if (reduced[d] && keep_dims) dims.push_back(1);
  }
  c.SetOutput(0, PartialShape(dims));
  return absl::OkStatus();
}

absl::Status SparseOutputShape(ShapeContext& c) {
  c.SetOutput(0, PartialShape::Matrix(-1, -1));
  c.SetOutput(1, PartialShape::Vector(-1));
  c.SetOutput(2, PartialShape::Vector(-1));
  return absl::OkStatus();
}

absl::Status SumGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output shape = c.input(2);
  const Output kept = EmitReducedShape(s, EmitCast(s, shape, DType::kInt32), c.input(3));
  const Output gradient = c.Op("Reshape", {c.dy(), kept});
  const Output scale = s.Op("FloorDiv", {shape, EmitCast(s, kept, DType::kInt64)}, {}, "floordiv");
  const Output places = s.Op("FloorDiv", {c.input(0), scale}, {}, "floordiv_1");
  c.SetDx(1, c.Op("GatherNd", {gradient, places}));
  return absl::OkStatus();
}

constexpr char kTypes[] =
    "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
    "bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}";

}  // namespace

DEFINE_OP(SparseReduceSum) {
  op.Attr("keep_dims: bool = false")
      .Attr(kTypes)
      .Input("input_indices: int64")
      .Input("input_values: T")
      .Input("input_shape: int64")
      .Input("reduction_axes: int32")
      .Output("output: T")
      .Doc("Sums of a sparse tensor over some axes, dense.")
      .Shape(DenseShape)
      .Gradient(SumGradient)
      .CpuTypes<Numbers>("T", []<typename T>() { return New<DenseSumKernel<T>>(); });
}

DEFINE_OP(SparseReduceSumSparse) {
  op.Attr("keep_dims: bool = false")
      .Attr(kTypes)
      .Input("input_indices: int64")
      .Input("input_values: T")
      .Input("input_shape: int64")
      .Input("reduction_axes: int32")
      .Output("output_indices: int64")
      .Output("output_values: T")
      .Output("output_shape: int64")
      .Doc("Sums of a sparse tensor over some axes, sparse.")
      .Shape(SparseOutputShape)
      .CpuTypes<Numbers>("T", []<typename T>() { return New<SparseSumKernel<T>>(); });
}

constexpr char kRealTypes[] =
    "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}";

DEFINE_OP(SparseReduceMax) {
  op.Attr("keep_dims: bool = false")
      .Attr(kRealTypes)
      .Input("input_indices: int64")
      .Input("input_values: T")
      .Input("input_shape: int64")
      .Input("reduction_axes: int32")
      .Output("output: T")
      .Doc("Largest entries of a sparse tensor over some axes, dense.")
      .Shape(DenseShape)
      .CpuTypes<Reals>("T", []<typename T>() { return New<MaxKernel<T>>(); });
}

DEFINE_OP(SparseReduceMaxSparse) {
  op.Attr("keep_dims: bool = false")
      .Attr(kRealTypes)
      .Input("input_indices: int64")
      .Input("input_values: T")
      .Input("input_shape: int64")
      .Input("reduction_axes: int32")
      .Output("output_indices: int64")
      .Output("output_values: T")
      .Output("output_shape: int64")
      .Doc("Largest entries of a sparse tensor over some axes, sparse.")
      .Shape(SparseOutputShape)
      .CpuTypes<Reals>("T", []<typename T>() { return New<MaxKernel<T>>(); });
}

}  // namespace muster
