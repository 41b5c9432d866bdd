// Sparse tensors with others: SparseAdd, SparseAddGrad, SparseTensorDenseAdd, SparseDenseCwise*,
// SparseSparseMaximum, SparseSparseMinimum; and SparseSoftmax.
#include <algorithm>
#include <cmath>
#include <vector>

#include "muster/graph/gradients/gradient_context.h"
#include "muster/ops/math/gradient_helpers.h"
#include "muster/ops/sparse/sparse_input.h"

namespace muster {
namespace {

// -1, 0, 1 as index i of a comes before, is, or comes after index j of b.
int Compare(const Tensor& a, int64_t i, const Tensor& b, int64_t j) {
  const int64_t rank = a.dim(1);
  const int64_t* x = a.data<int64_t>() + i * rank;
  const int64_t* y = b.data<int64_t>() + j * rank;
  for (int64_t d = 0; d < rank; ++d) {
    if (x[d] != y[d]) return x[d] < y[d] ? -1 : 1;
  }
  return 0;
}

// Walks through both lists of entries, which are in row-major order, as one: `visit(i, j)` gets -1
// for the one that has no entry.
template <typename Visit>
void Merge(const Tensor& a, const Tensor& b, const Visit& visit) {
  int64_t i = 0, j = 0;
  while (i < a.dim(0) || j < b.dim(0)) {
    const int order = i == a.dim(0) ? 1 : j == b.dim(0) ? -1 : Compare(a, i, b, j);
    visit(order <= 0 ? i : -1, order >= 0 ? j : -1);
    if (order <= 0) ++i;
    if (order >= 0) ++j;
  }
}

// Inputs 0 to 2 and 3 to 5: two sparse tensors of the same shape.
absl::Status CheckPair(KernelContext& c) {
  RETURN_IF_ERROR(CheckSparse(c.input(0), c.input(1), c.input(2)));
  RETURN_IF_ERROR(CheckSparse(c.input(3), c.input(4), c.input(5)));
  const absl::Span<const int64_t> a = c.input(2).values<int64_t>();
  const absl::Span<const int64_t> b = c.input(5).values<int64_t>();
  if (a.size() != b.size()) {
    return InvalidArgument("Operands do not have the same ranks; got shapes: ",
                           PartialShape(Dims(a.begin(), a.end())).ToString(), " and ",
                           PartialShape(Dims(b.begin(), b.end())).ToString());
  }
  for (size_t d = 0; d < a.size(); ++d) {
    if (a[d] != b[d]) {
      return InvalidArgument("Operands' shapes do not match: got ", a[d], " and ", b[d],
                             " for dimension ", d);
    }
  }
  RETURN_IF_ERROR(CheckIndices(c.input(0), a));
  return CheckIndices(c.input(3), b);
}

// Entries of a result: which of a and b, and the value.
template <typename T>
struct Merged {
  std::vector<std::pair<int64_t, int64_t>> from;
  std::vector<T> values;

  void Add(int64_t i, int64_t j, T value) {
    from.emplace_back(i, j);
    values.push_back(value);
  }
  absl::Status Write(KernelContext& c, const Tensor& a, const Tensor& b) const {
    const auto count = static_cast<int64_t>(values.size());
    const int64_t rank = a.dim(1);
    ASSIGN_OR_RETURN(Tensor* const indices, c.AllocateOutput(0, Shape({count, rank})));
    ASSIGN_OR_RETURN(Tensor* const out, c.AllocateOutput(1, Shape({count})));
    for (int64_t k = 0; k < count; ++k) {
      const auto [i, j] = from[k];
      const int64_t* at = i >= 0 ? a.data<int64_t>() + i * rank : b.data<int64_t>() + j * rank;
      std::copy_n(at, rank, indices->data<int64_t>() + k * rank);
      out->data<T>()[k] = values[k];
    }
    return absl::OkStatus();
  }
};

// least <= |value|, also for the smallest integer, whose negative does not exist.
template <typename T, typename Real>
bool Reaches(T value, Real least) {
  if constexpr (std::is_integral_v<T>) {
    const uint64_t size =
        value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    return least <= 0 || static_cast<uint64_t>(least) <= size;
  } else {
    return least <= std::abs(value);
  }
}

template <typename T>
absl::Status RunAdd(KernelContext& c) {
  using Wide = typename SumType<T>::type;
  RETURN_IF_ERROR(CheckPair(c));
  using Real = decltype(std::abs(T()));
  const Tensor& thresh = c.input(6);
  if (thresh.rank() != 0)
    return InvalidArgument("The magnitude threshold must be a scalar: got shape ",
                           thresh.shape().ToString());
  // Integers are compared as their own type, which std::abs may have widened.
  using Stored = std::conditional_t<std::is_integral_v<T>, T, Real>;
  if (thresh.dtype() != kDTypeOf<Stored>) {
    return InvalidArgument("The threshold must be of type ", DTypeName(kDTypeOf<Stored>), ", not ",
                           DTypeName(thresh.dtype()));
  }
  const auto least = static_cast<Real>(thresh.data<Stored>()[0]);
  const T* const a = c.input(1).data<T>();
  const T* const b = c.input(4).data<T>();
  Merged<T> merged;
  int64_t left_a = c.input(0).dim(0), left_b = c.input(3).dim(0);
  Merge(c.input(0), c.input(3), [&](int64_t i, int64_t j) {
    // As in TensorFlow, entries after the last one of the other tensor are not compared.
    const bool alone = (i < 0 && left_a == 0) || (j < 0 && left_b == 0);
    if (i >= 0) --left_a;
    if (j >= 0) --left_b;
    const Wide x = i < 0 ? Wide(0) : static_cast<Wide>(a[i]);
    const Wide y = j < 0 ? Wide(0) : static_cast<Wide>(b[j]);
    const T sum = static_cast<T>(x + y);
    if (alone || Reaches(sum, least)) merged.Add(i, j, sum);
  });
  RETURN_IF_ERROR(merged.Write(c, c.input(0), c.input(3)));
  c.SetOutput(2, c.input(2));
  return absl::OkStatus();
}

// The gradient of an entry of the sum goes to the entries of a and b that it was made from; entries
// that the threshold has removed get zero.
absl::Status GiveBack(KernelContext& c, const Tensor& gradient, const Tensor& part,
                      const Tensor& sum, int output, std::vector<bool>& given) {
  ASSIGN_OR_RETURN(Tensor* const out, c.AllocateOutput(output, Shape({part.dim(0)})));
  const auto size = static_cast<int64_t>(DTypeSize(gradient.dtype()));
  std::fill_n(out->raw(), part.dim(0) * size, '\0');
  Merge(part, sum, [&](int64_t i, int64_t j) {
    if (i < 0 || j < 0) return;
    CopyElements(gradient.dtype(), gradient.raw() + j * size, out->raw() + i * size, 1);
    given[j] = true;
  });
  return absl::OkStatus();
}

absl::Status RunAddGrad(KernelContext& c) {
  const Tensor& gradient = c.input(0);
  for (int i = 1; i < 4; ++i) {
    if (c.input(i).rank() != 2) {
      return InvalidArgument("Input indices should be matrices but received shape ",
                             c.input(i).shape().ToString());
    }
    if (c.input(i).dim(1) != c.input(1).dim(1))
      return InvalidArgument("The densified operands should have the same ndims");
  }
  if (gradient.rank() != 1 || gradient.num_elements() != c.input(3).dim(0)) {
    return InvalidArgument(
        "# elements in backprop_val_grad and # rows in sum_indices should "
        "match: ",
        gradient.shape().ToString(), " for ", c.input(3).dim(0));
  }
  std::vector<bool> given(static_cast<size_t>(gradient.num_elements()), false);
  RETURN_IF_ERROR(GiveBack(c, gradient, c.input(1), c.input(3), 0, given));
  RETURN_IF_ERROR(GiveBack(c, gradient, c.input(2), c.input(3), 1, given));
  const auto lost = std::find(given.begin(), given.end(), false);
  if (lost == given.end()) return absl::OkStatus();
  return InvalidArgument("sum_indices[", lost - given.begin(),
                         "] is in neither a_indices nor b_indices, or they are not in order");
}

template <typename T>
class ExtremeKernel : public Kernel {
 public:
  explicit ExtremeKernel(bool largest) : largest_(largest) {}
  absl::Status Compute(KernelContext& c) override {
    RETURN_IF_ERROR(CheckPair(c));
    const T* const a = c.input(1).data<T>();
    const T* const b = c.input(4).data<T>();
    Merged<T> merged;
    Merge(c.input(0), c.input(3), [&](int64_t i, int64_t j) {
      const T x = i < 0 ? T(0) : a[i];
      const T y = j < 0 ? T(0) : b[j];
      const bool less = static_cast<muster::Compute<T>>(x) < static_cast<muster::Compute<T>>(y);
      merged.Add(i, j, largest_ == less ? y : x);
    });
    return merged.Write(c, c.input(0), c.input(3));
  }

 private:
  const bool largest_;
};

template <typename T, typename I>
absl::Status RunDenseAdd(KernelContext& c) {
  using Wide = typename SumType<T>::type;
  const Tensor& indices = c.input(0);
  const Tensor& values = c.input(1);
  const Tensor& dense = c.input(3);
  if (indices.rank() == 2 && values.rank() == 1 && indices.dim(0) != values.dim(0)) {
    return InvalidArgument("Dimensions ", indices.dim(0), " and ", values.dim(0),
                           " are not compatible");
  }
  if (indices.rank() == 2 && c.input(2).rank() == 1 && indices.dim(1) != c.input(2).dim(0)) {
    return InvalidArgument("Dimensions ", indices.dim(1), " and ", c.input(2).dim(0),
                           " are not compatible");
  }
  RETURN_IF_ERROR(CheckSparse(indices, values, c.input(2)));
  const int rank = dense.rank();
  if (c.input(2).num_elements() != rank) {
    return InvalidArgument("Two operands have different ndims: ", c.input(2).num_elements(),
                           " and ", rank);
  }
  for (int d = 0; d < rank; ++d) {
    if (static_cast<int64_t>(c.input(2).data<I>()[d]) != dense.dim(d)) {
      return InvalidArgument("Dimension ", d,
                             " does not equal (no broadcasting is supported): sparse "
                             "side ",
                             static_cast<int64_t>(c.input(2).data<I>()[d]), " vs dense side ",
                             dense.dim(d));
    }
  }
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, dense.shape()));
  std::copy_n(dense.data<T>(), dense.num_elements(), output->data<T>());
  const I* at = indices.data<I>();
  for (int64_t i = 0; i < indices.dim(0); ++i) {
    int64_t flat = 0;
    for (int d = 0; d < rank; ++d, ++at) {
      const auto index = static_cast<int64_t>(*at);
      if (index < 0 || index >= dense.dim(d)) {
        return InvalidArgument("Sparse tensor has some invalid index on dimension ", d,
                               ": dense side shape ", dense.shape().ToString(), " but index is ",
                               index);
      }
      flat = flat * dense.dim(d) + index;
    }
    T& cell = output->data<T>()[flat];
    cell = static_cast<T>(static_cast<Wide>(cell) + static_cast<Wide>(values.data<T>()[i]));
  }
  return absl::OkStatus();
}

enum class Cwise { kAdd, kMul, kDiv };

// For each entry of the sparse tensor the dense element over it; the dense side is broadcast.
template <typename T, Cwise kind>
absl::Status RunCwise(KernelContext& c) {
  // Whole numbers wrap around.
  using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, muster::Compute<T>>;
  const Tensor& indices = c.input(0);
  const Tensor& values = c.input(1);
  const Tensor& dense = c.input(3);
  RETURN_IF_ERROR(CheckSparse(indices, values, c.input(2)));
  const absl::Span<const int64_t> shape = c.input(2).values<int64_t>();
  const auto rank = static_cast<int>(shape.size());
  RETURN_IF_ERROR(CheckIndices(indices, shape));
  const int less = rank - dense.rank();
  bool fits = less >= 0;
  for (int d = 0; fits && d < dense.rank(); ++d)
    fits = dense.dim(d) == 1 || dense.dim(d) == shape[d + less];
  if (!fits) {
    return InvalidArgument(
        "SparseDenseBinaryOpShared broadcasts dense to sparse only; got "
        "incompatible shapes: ",
        PartialShape(Dims(shape.begin(), shape.end())).ToString(), " vs. ",
        dense.shape().ToString());
  }
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, values.shape()));
  for (int64_t i = 0; i < indices.dim(0); ++i) {
    const int64_t* at = indices.data<int64_t>() + i * rank + less;
    int64_t flat = 0;
    for (int d = 0; d < dense.rank(); ++d)
      flat = flat * dense.dim(d) + (dense.dim(d) == 1 ? 0 : at[d]);
    const auto x = static_cast<Wide>(values.data<T>()[i]);
    const auto y = static_cast<Wide>(dense.data<T>()[flat]);
    Wide result{};
    if constexpr (kind == Cwise::kAdd) {
      result = static_cast<Wide>(x + y);
    } else if constexpr (kind == Cwise::kMul) {
      result = static_cast<Wide>(x * y);
    } else {
      if (y == Wide(0)) {
        return InvalidArgument(
            "SparseDenseCwiseDiv cannot divide by zero, but the input dense tensor contains zero "
            "at the place of entry ",
            i);
      }
      result = static_cast<Wide>(x / y);
    }
    output->data<T>()[i] = static_cast<T>(result);
  }
  return absl::OkStatus();
}

// Over the entries that differ in the last index only.
template <typename T>
absl::Status RunSoftmax(KernelContext& c) {
  using Wide = muster::Compute<T>;
  const Tensor& indices = c.input(0);
  const Tensor& values = c.input(1);
  RETURN_IF_ERROR(CheckSparse(indices, values, c.input(2)));
  const int64_t rank = indices.dim(1);
  if (rank < 2) return InvalidArgument("Input should have rank >= 2, but received rank ", rank);
  RETURN_IF_ERROR(CheckIndices(indices, c.input(2).values<int64_t>()));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, values.shape()));
  const int64_t* at = indices.data<int64_t>();
  const T* const in = values.data<T>();
  const int64_t count = indices.dim(0);
  for (int64_t begin = 0, end = 0; begin < count; begin = end) {
    Wide largest = static_cast<Wide>(in[begin]);
    for (end = begin; end < count &&
                      std::equal(at + begin * rank, at + begin * rank + rank - 1, at + end * rank);
         ++end)
      largest = std::max(largest, static_cast<Wide>(in[end]));
    Wide sum = 0;
    for (int64_t i = begin; i < end; ++i) sum += std::exp(static_cast<Wide>(in[i]) - largest);
    for (int64_t i = begin; i < end; ++i)
      output->data<T>()[i] = static_cast<T>(std::exp(static_cast<Wide>(in[i]) - largest) / sum);
  }
  return absl::OkStatus();
}

absl::Status AddGradient(GradientContext& c) {
  if (!c.has_dy(1)) return absl::OkStatus();
  const Output both = c.Op("SparseAddGrad", {c.dy(1), c.input(0), c.input(3), c.output(0)});
  c.SetDx(1, Output(both.node, 0));
  c.SetDx(4, Output(both.node, 1));
  return absl::OkStatus();
}

absl::Status DenseAddGradient(GradientContext& c) {
  c.SetDx(1, c.Op("GatherNd", {c.dy(), c.input(0)}));
  c.SetDx(3, c.dy());
  return absl::OkStatus();
}

// The dense side, broadcast to the sparse one, at the sparse indices.
Output DenseAtEntries(GradientContext& c) {
  const Output ones = c.Op("OnesLike", {c.input(1)});
  return c.Op("SparseDenseCwiseMul", {c.input(0), ones, c.input(2), c.input(3)});
}

absl::Status MulGradient(GradientContext& c) {
  c.SetDx(1, Times(c.scope(), c.dy(), DenseAtEntries(c)));
  return absl::OkStatus();
}

absl::Status DivGradient(GradientContext& c) {
  c.SetDx(1, Over(c.scope(), c.dy(), DenseAtEntries(c)));
  return absl::OkStatus();
}

absl::Status SparseTriple(ShapeContext& c) {
  c.SetOutput(0, PartialShape::Matrix(-1, -1));
  c.SetOutput(1, PartialShape::Vector(-1));
  if (c.num_outputs() > 2) c.SetOutput(2, c.input(2));
  return absl::OkStatus();
}

absl::Status LikeValues(ShapeContext& c) {
  ASSIGN_OR_RETURN(const SparseDims dims, InferSparse(c));
  c.SetOutput(0, PartialShape::Vector(dims.count));
  return absl::OkStatus();
}

constexpr char kNumbers[] =
    "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
    "bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}";
constexpr char kReals[] =
    "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}";

OpBuilder& Pair(OpBuilder& op) {
  return op.Input("a_indices: int64")
      .Input("a_values: T")
      .Input("a_shape: int64")
      .Input("b_indices: int64")
      .Input("b_values: T")
      .Input("b_shape: int64");
}

OpBuilder& WithDense(OpBuilder& op) {
  return op.Attr(kNumbers)
      .Input("sp_indices: int64")
      .Input("sp_values: T")
      .Input("sp_shape: int64")
      .Input("dense: T")
      .Output("output: T")
      .Shape(LikeValues);
}

template <typename T>
KernelFactory Extreme(bool largest) {
  return [largest] { return std::make_unique<ExtremeKernel<T>>(largest); };
}

using Summed = Types<float, double, int8_t, int16_t, int32_t, int64_t, Complex64, Complex128>;

}  // namespace

DEFINE_OP(SparseAdd) {
  Pair(op.Attr(kNumbers).Attr(
           "Treal: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, "
           "uint32, uint64}"))
      .Input("thresh: Treal")
      .Output("sum_indices: int64")
      .Output("sum_values: T")
      .Output("sum_shape: int64")
      .Doc("The sum of two sparse tensors, without entries nearer to zero than the threshold.")
      .Shape(SparseTriple)
      .Gradient(AddGradient)
      .CpuTypes<Summed>("T", []<typename T>() { return Stateless(RunAdd<T>); });
}

DEFINE_OP(SparseAddGrad) {
  op.Attr(kNumbers)
      .Input("backprop_val_grad: T")
      .Input("a_indices: int64")
      .Input("b_indices: int64")
      .Input("sum_indices: int64")
      .Output("a_val_grad: T")
      .Output("b_val_grad: T")
      .Doc("Gradient of SparseAdd.")
      .Shape([](ShapeContext& c) {
        for (int i = 0; i < 2; ++i) {
          ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(c.input(1 + i), 2));
          c.SetOutput(i, PartialShape::Vector(indices.known_rank() ? indices.dim(0) : -1));
        }
        return absl::OkStatus();
      })
      .CpuTypes<Summed>("T", []<typename T>() { return Stateless(RunAddGrad); });
}

DEFINE_OP(SparseSparseMaximum) {
  Pair(op.Attr(kReals))
      .Output("output_indices: int64")
      .Output("output_values: T")
      .Doc("The larger of two sparse tensors' elements, wherever one of them has an entry.")
      .Shape(SparseTriple)
      .CpuTypes<Reals>("T", []<typename T>() { return Extreme<T>(true); });
}

DEFINE_OP(SparseSparseMinimum) {
  Pair(op.Attr(kNumbers))
      .Output("output_indices: int64")
      .Output("output_values: T")
      .Doc("The smaller of two sparse tensors' elements, wherever one of them has an entry.")
      .Shape(SparseTriple)
      .CpuTypes<Reals>("T", []<typename T>() { return Extreme<T>(false); });
}

DEFINE_OP(SparseTensorDenseAdd) {
  op.Attr(kNumbers)
      .Attr("Tindices: {int32, int64}")
      .Input("a_indices: Tindices")
      .Input("a_values: T")
      .Input("a_shape: Tindices")
      .Input("b: T")
      .Output("output: T")
      .Doc("The sum of a sparse and a dense tensor.")
      .Shape([](ShapeContext& c) {
        c.SetOutput(0, c.input(3));
        return absl::OkStatus();
      })
      .Gradient(DenseAddGradient)
      .CpuTypes<Numbers>("T", []<typename T>() { return Stateless(RunDenseAdd<T, int32_t>); },
                         {{"Tindices", DType::kInt32}})
      .CpuTypes<Numbers>("T", []<typename T>() { return Stateless(RunDenseAdd<T, int64_t>); },
                         {{"Tindices", DType::kInt64}});
}

DEFINE_OP(SparseDenseCwiseAdd) {
  WithDense(op)
      .Doc("The entries of a sparse tensor plus the element of a dense one at the same place.")
      .NoGradient("TensorFlow has none")
      .CpuTypes<Reals>("T", []<typename T>() { return Stateless(RunCwise<T, Cwise::kAdd>); });
}

DEFINE_OP(SparseDenseCwiseMul) {
  WithDense(op)
      .Doc("The entries of a sparse tensor times the element of a dense one at the same place.")
      .Gradient(MulGradient)
      .CpuTypes<Reals>("T", []<typename T>() { return Stateless(RunCwise<T, Cwise::kMul>); });
}

DEFINE_OP(SparseDenseCwiseDiv) {
  WithDense(op)
      .Doc(
          "The entries of a sparse tensor divided by the element of a dense one at the same place.")
      .Gradient(DivGradient)
      .CpuTypes<Floats>("T", []<typename T>() { return Stateless(RunCwise<T, Cwise::kDiv>); });
}

DEFINE_OP(SparseSoftmax) {
  op.Attr("T: {half, float, double}")
      .Input("sp_indices: int64")
      .Input("sp_values: T")
      .Input("sp_shape: int64")
      .Output("output: T")
      .Doc("Softmax over the entries of each row.")
      .Shape(LikeValues)
      .CpuTypes<Types<Half, float, double>>("T",
                                            []<typename T>() { return Stateless(RunSoftmax<T>); });
}

}  // namespace muster
