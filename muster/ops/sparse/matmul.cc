// SparseTensorDenseMatMul.
#include <algorithm>
#include <complex>

#include "absl/strings/str_cat.h"

#include "muster/graph/gradients/gradient_context.h"
#include "muster/ops/emit.h"
#include "muster/ops/gpu_kernel.h"
#include "muster/ops/sparse/sparse_input.h"

namespace muster {
namespace {

template <typename T>
T Conjugated(T value, bool conjugate) {
  if constexpr (std::is_same_v<T, Complex64> || std::is_same_v<T, Complex128>) {
    return conjugate ? std::conj(value) : value;
  } else {
    return value;
  }
}

struct Sizes {
  int64_t outer = 0;  // rows of the product
  int64_t inner = 0;
  int64_t columns = 0;
};

absl::StatusOr<Sizes> CheckInputs(KernelContext& c, bool adjoint_a, bool adjoint_b) {
  const Tensor& indices = c.input(0);
  const Tensor& values = c.input(1);
  const Tensor& shape = c.input(2);
  const Tensor& b = c.input(3);
  if (b.rank() != 2) return InvalidArgument("Tensor 'b' is not a matrix");
  if (shape.rank() != 1) return InvalidArgument("Tensor 'a_shape' is not a vector");
  if (shape.num_elements() != 2) return InvalidArgument("Tensor 'a_shape' must have 2 elements");
  if (values.rank() != 1) return InvalidArgument("Tensor 'a_values' is not a vector");
  if (indices.rank() != 2) return InvalidArgument("Tensor 'a_indices' is not a matrix");
  if (indices.dim(0) != values.num_elements()) {
    return InvalidArgument(
        "Number of rows of a_indices does not match number of entries in "
        "a_values");
  }
  if (indices.dim(1) != shape.num_elements()) {
    return InvalidArgument(
        "Number of columns of a_indices does not match number of entries in "
        "a_shape");
  }
  const int64_t* a = shape.data<int64_t>();
  if (a[0] < 0 || a[1] < 0) {
    return InvalidArgument("a_shape must not be negative: [", a[0], ",", a[1], "]");
  }
  Sizes sizes{adjoint_a ? a[1] : a[0], adjoint_a ? a[0] : a[1], b.dim(adjoint_b ? 0 : 1)};
  if (b.dim(adjoint_b ? 1 : 0) != sizes.inner) {
    return InvalidArgument(
        "Cannot multiply A and B because inner dimension does not match: ", sizes.inner, " vs. ",
        b.dim(adjoint_b ? 1 : 0), ".  Did you forget a transpose?  Dimensions of A: [", a[0], ", ",
        a[1], ").  Dimensions of B: ", b.shape().ToString());
  }
  return sizes;
}

template <typename T, typename I>
class MatMulKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(adjoint_a_, s.Attr<bool>("adjoint_a"));
    ASSIGN_OR_RETURN(adjoint_b_, s.Attr<bool>("adjoint_b"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    using Sum = typename SumType<T>::type;
    ASSIGN_OR_RETURN(const Sizes sizes, CheckInputs(c, adjoint_a_, adjoint_b_));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make({sizes.outer, sizes.columns}));
    ASSIGN_OR_RETURN(Tensor* const product, c.AllocateOutput(0, shape));
    ASSIGN_OR_RETURN(Tensor wide, c.AllocateTemporary(kDTypeOf<Sum>, shape));
    Sum* const sums = wide.data<Sum>();
    std::fill_n(sums, shape.num_elements(), Sum{});
    const I* at = c.input(0).data<I>();
    const T* const values = c.input(1).data<T>();
    const T* const b = c.input(3).data<T>();
    const int64_t b_row = adjoint_b_ ? 1 : sizes.columns;
    const int64_t b_column = adjoint_b_ ? sizes.inner : 1;
    for (int64_t i = 0; i < c.input(1).dim(0); ++i, at += 2) {
      const int64_t row = at[adjoint_a_ ? 1 : 0];
      const int64_t inner = at[adjoint_a_ ? 0 : 1];
      if (inner < 0 || inner >= sizes.inner)
        return OutOfBounds("k", inner, i, adjoint_a_ ? 0 : 1, sizes.inner);
      if (row < 0 || row >= sizes.outer)
        return OutOfBounds("m", row, i, adjoint_a_ ? 1 : 0, sizes.outer);
      const auto a = static_cast<Sum>(Conjugated(values[i], adjoint_a_));
      Sum* const to = sums + row * sizes.columns;
      const T* const from = b + inner * b_row;
      for (int64_t j = 0; j < sizes.columns; ++j)
        to[j] += a * static_cast<Sum>(Conjugated(from[j * b_column], adjoint_b_));
    }
    for (int64_t i = 0; i < shape.num_elements(); ++i)
      product->data<T>()[i] = static_cast<T>(sums[i]);
    return absl::OkStatus();
  }

 private:
  static absl::Status OutOfBounds(const char* name, int64_t value, int64_t entry, int column,
                                  int64_t limit) {
    return InvalidArgument(name, " (", value, ") from index[", entry, ",", column,
                           "] out of bounds (>=", limit, ")");
  }

  bool adjoint_a_ = false;
  bool adjoint_b_ = false;
};

// As in matmul.cu.
struct SparseProduct {
  int64_t entries, rows, inner, columns;
  int64_t b_row, b_column;
  int32_t adjoint_a, unused;
};

class GpuMatMul : public GpuKernel {
 public:
  GpuMatMul(DType dtype, DType index)
      : multiply_(
            *this, "sparse/matmul.cu",
            absl::StrCat("MultiplySparse<", GpuTypeName(dtype), ", ", GpuTypeName(index), ">")) {}
  absl::Status Init(KernelSetup& s) override {
    RETURN_IF_ERROR(GpuKernel::Init(s));
    ASSIGN_OR_RETURN(adjoint_a_, s.Attr<bool>("adjoint_a"));
    ASSIGN_OR_RETURN(adjoint_b_, s.Attr<bool>("adjoint_b"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const Sizes sizes, CheckInputs(c, adjoint_a_, adjoint_b_));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make({sizes.outer, sizes.columns}));
    ASSIGN_OR_RETURN(Tensor* const product, c.AllocateOutput(0, shape));
    RETURN_IF_ERROR(gpu().Fill(product->raw(), 0, product->size_bytes()));
    const Tensor& values = c.input(1);
    const SparseProduct arguments = {values.num_elements(),
                                     sizes.outer,
                                     sizes.inner,
                                     sizes.columns,
                                     adjoint_b_ ? 1 : sizes.columns,
                                     adjoint_b_ ? sizes.inner : 1,
                                     adjoint_a_,
                                     0};
    const int64_t count = product->num_elements() == 0 ? 0 : arguments.entries * sizes.columns;
    return multiply_.LaunchForEach(count, GpuIn(c.input(0)), GpuIn(values), GpuIn(c.input(3)),
                                   GpuOut(*product), arguments);
  }

 private:
  const GpuFunction multiply_;
  bool adjoint_a_ = false;
  bool adjoint_b_ = false;
};

absl::Status MatMulShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const SparseDims dims, InferSparse(c));
  RETURN_IF_ERROR(ShapeContext::MergeDims(dims.rank, 2).status());
  ASSIGN_OR_RETURN(PartialShape a, c.InputAsShape(2));
  ASSIGN_OR_RETURN(a, c.WithRank(a, 2));
  ASSIGN_OR_RETURN(const PartialShape b, c.WithRank(c.input(3), 2));
  ASSIGN_OR_RETURN(const bool adjoint_a, c.Attr<bool>("adjoint_a"));
  ASSIGN_OR_RETURN(const bool adjoint_b, c.Attr<bool>("adjoint_b"));
  RETURN_IF_ERROR(
      ShapeContext::MergeDims(a.dim(adjoint_a ? 0 : 1), b.dim(adjoint_b ? 1 : 0)).status());
  c.SetOutput(0, PartialShape::Matrix(a.dim(adjoint_a ? 1 : 0), b.dim(adjoint_b ? 0 : 1)));
  return absl::OkStatus();
}

// indices[:, column].
Output EmitColumn(const Scope& s, Output indices, int32_t column, absl::string_view name) {
  const NamedOp slice(s, name);
  const Scope& in = slice.inner();
  const auto constant = [&](absl::string_view part, int32_t first, int32_t second) {
    return in.Const(Tensor::Vector<int32_t>({first, second}), part);
  };
  const Output begin = constant("stack", 0, column);
  const Output end = constant("stack_1", 0, column + 1);
  const Output strides = constant("stack_2", 1, 1);
  return slice.Op("StridedSlice", {indices, begin, end, strides},
                  {{"begin_mask", 1}, {"end_mask", 1}, {"shrink_axis_mask", 2}});
}

// transpose(x) of a matrix: reversed axes, from its rank.
Output EmitTranspose(const Scope& s, Output x) {
  const NamedOp transpose(s, "transpose");
  const Output perm = transpose.inner().Const(Tensor::Vector<int32_t>({1, 0}), "perm");
  return transpose.Op("Transpose", {x, perm});
}

absl::Status MatMulGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const bool adjoint_a = c.Attr<bool>("adjoint_a");
  const bool adjoint_b = c.Attr<bool>("adjoint_b");
  const Output b = c.input(3);
  const Output dy = c.dy();
  Output db = c.Op("SparseTensorDenseMatMul", {c.input(0), c.input(1), c.input(2), dy},
                   {{"adjoint_a", !adjoint_a}, {"adjoint_b", false}});
  if (adjoint_b) db = EmitTranspose(s, db);
  const Output rows = EmitColumn(s, c.input(0), 0, "strided_slice");
  const Output columns = EmitColumn(s, c.input(0), 1, "strided_slice");
  const Output parts_a = EmitGather(s, dy, adjoint_a ? columns : rows);
  const Output of_b = adjoint_b ? EmitTranspose(s, b) : b;
  const Output parts_b = EmitGather(s, of_b, adjoint_a ? rows : columns);
  const Output products = s.Op("Mul", {parts_a, parts_b}, {}, "mul");
  const NamedOp sum(s, "Sum");
  const Output axis = sum.inner().Const(Tensor::Scalar<int32_t>(1), "reduction_indices");
  c.SetDx(1, sum.Op("Sum", {products, axis}));
  c.SetDx(3, db);
  return absl::OkStatus();
}

template <typename I>
void AddKernels(OpBuilder& op) {
  using Values = Types<Half, Bfloat16, float, double, int32_t, Complex64, Complex128>;
  op.CpuTypes<Values>("T", []<typename T>() { return New<MatMulKernel<T, I>>(); },
                      {{"Tindices", kDTypeOf<I>}});
  const auto make = [](DType dtype) -> KernelFactory {
    return [dtype] { return std::make_unique<GpuMatMul>(dtype, kDTypeOf<I>); };
  };
  op.GpuTypes("T", {DType::kFloat, DType::kDouble}, make, {}, {{"Tindices", kDTypeOf<I>}});
}

}  // namespace

DEFINE_OP(SparseTensorDenseMatMul) {
  op.Attr("T: type")
      .Attr("Tindices: {int32, int64} = DT_INT64")
      .Attr("adjoint_a: bool = false")
      .Attr("adjoint_b: bool = false")
      .Input("a_indices: Tindices")
      .Input("a_values: T")
      .Input("a_shape: int64")
      .Input("b: T")
      .Output("product: T")
      .Doc("The product of a sparse and a dense matrix.")
      .Shape(MatMulShape)
      .Gradient(MatMulGradient)
      .HostMemory({"a_shape"});
  AddKernels<int32_t>(op);
  AddKernels<int64_t>(op);
}

}  // namespace muster
