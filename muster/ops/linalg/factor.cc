// Qr, Cholesky and MatrixTriangularSolve.
#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "muster/graph/gradients/gradient_context.h"
#include "muster/ops/emit.h"
#include "muster/ops/linalg/decompositions.h"
#include "muster/ops/linalg/gpu_solver.h"
#include "muster/ops/linalg/matrices.h"
#include "muster/ops/math/gradient_helpers.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

template <typename T>
using RealOf = decltype(std::abs(T()));

// `batch` with two more dimensions.
absl::StatusOr<Shape> Matrices(const Tensor& input, int64_t rows, int64_t columns) {
  Dims dims(input.shape().dims().begin(), input.shape().dims().end() - 2);
  dims.push_back(rows);
  dims.push_back(columns);
  return Shape::Make(dims);
}

template <typename T>
class QrKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(full_, s.Attr<bool>("full_matrices"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    RETURN_IF_ERROR(CheckMatrices(input));
    const int64_t rows = input.dim(input.rank() - 2), columns = input.dim(input.rank() - 1);
    const int64_t middle = full_ ? rows : std::min(rows, columns);
    ASSIGN_OR_RETURN(const Shape q_shape, Matrices(input, rows, middle));
    ASSIGN_OR_RETURN(const Shape r_shape, Matrices(input, middle, columns));
    ASSIGN_OR_RETURN(Tensor* const q, c.AllocateOutput(0, q_shape));
    ASSIGN_OR_RETURN(Tensor* const r, c.AllocateOutput(1, r_shape));
    if (input.num_elements() == 0) {
      std::fill_n(q->data<T>(), q->num_elements(), T(0));
      return absl::OkStatus();
    }
    const double cost = static_cast<double>(rows) * static_cast<double>(columns * middle);
    c.ParallelFor(input.num_elements() / (rows * columns), cost, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        DecomposeQr(input.data<T>() + b * rows * columns, rows, columns, middle,
                    q->data<T>() + b * rows * middle, r->data<T>() + b * middle * columns);
      }
    });
    return absl::OkStatus();
  }

 private:
  bool full_ = false;
};

template <typename T>
absl::Status RunCholesky(KernelContext& c) {
  const Tensor& input = c.input(0);
  RETURN_IF_ERROR(CheckSquare(input));
  const int64_t n = input.dim(input.rank() - 1);
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, input.shape()));
  if (input.num_elements() == 0) return absl::OkStatus();
  for (int64_t b = 0; b < input.num_elements() / (n * n); ++b) {
    T* const l = output->data<T>() + b * n * n;
    if (DecomposeCholesky(input.data<T>() + b * n * n, n, l)) continue;
    // TensorFlow 2 says it with NaN, 1.15 failed the step.
    std::fill_n(l, n * n, T(0));
    for (int64_t i = 0; i < n; ++i)
      std::fill_n(l + i * n, i + 1, T(std::numeric_limits<RealOf<T>>::quiet_NaN()));
  }
  return absl::OkStatus();
}

template <typename T>
class TriangularSolveKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(lower_, s.Attr<bool>("lower"));
    ASSIGN_OR_RETURN(adjoint_, s.Attr<bool>("adjoint"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& matrix = c.input(0);
    const Tensor& right = c.input(1);
    ASSIGN_OR_RETURN(const BatchedEquations equations, MeasureEquations(matrix, right));
    const int64_t n = equations.n, columns = equations.columns;
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, equations.output));
    if (output->num_elements() == 0) return absl::OkStatus();
    for (int64_t b = 0; b < output->num_elements() / (n * columns); ++b) {
      const T* const a = matrix.data<T>() + equations.SourceOf(b, matrix.shape()) * n * n;
      const int64_t from = equations.SourceOf(b, right.shape());
      SolveTriangular(a, lower_, adjoint_, n, right.data<T>() + from * n * columns, columns,
                      output->data<T>() + b * n * columns);
    }
    return absl::OkStatus();
  }

 private:
  bool lower_ = true;
  bool adjoint_ = false;
};

absl::Status QrShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape input, c.WithRankAtLeast(c.input(0), 2));
  if (!input.known_rank()) {
    c.SetOutput(0, PartialShape());
    c.SetOutput(1, PartialShape());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const bool full, c.Attr<bool>("full_matrices"));
  const int rank = input.rank();
  const int64_t rows = input.dim(rank - 2), columns = input.dim(rank - 1);
  const int64_t smaller = rows < 0 || columns < 0 ? -1 : std::min(rows, columns);
  PartialShape q = input, r = input;
  q.Set(rank - 1, full ? rows : smaller);
  r.Set(rank - 2, full ? rows : smaller);
  c.SetOutput(0, std::move(q));
  c.SetOutput(1, std::move(r));
  return absl::OkStatus();
}

absl::Status CholeskyShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape input, c.WithRankAtLeast(c.input(0), 2));
  c.SetOutput(0, std::move(input));
  return absl::OkStatus();
}

absl::Status TriangularSolveShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape matrix, c.WithRankAtLeast(c.input(0), 2));
  ASSIGN_OR_RETURN(const PartialShape right, c.WithRankAtLeast(c.input(1), 2));
  if (!matrix.known_rank() || !right.known_rank()) {
    c.SetOutput(0, PartialShape());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const PartialShape batch, BroadcastShapes(ShapeContext::Subshape(matrix, 0, -2),
                                                             ShapeContext::Subshape(right, 0, -2)));
  c.SetOutput(0, ShapeContext::Concatenate(batch, ShapeContext::Subshape(right, -2)));
  return absl::OkStatus();
}

Output Product(const Scope& s, Output a, Output b, bool adjoint_a, bool adjoint_b) {
  return s.Op("BatchMatMulV2", {a, b}, {{"adj_x", adjoint_a}, {"adj_y", adjoint_b}}, "MatMul");
}

absl::Status TriangularSolveGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const bool adjoint = c.Attr<bool>("adjoint"), lower = c.Attr<bool>("lower");
  const Output right = c.Op("MatrixTriangularSolve", {c.input(0), c.dy()},
                            {{"lower", lower}, {"adjoint", !adjoint}});
  const Output outer = adjoint ? Product(s, c.output(0), right, false, true)
                               : Product(s, right, c.output(0), false, true);
  const Output all = s.ConstScalar<int64_t>(-1);
  const Output none = s.ConstScalar<int64_t>(0);
  const Output negative = c.Op("Neg", {outer});
  c.SetDx(0, c.Op("MatrixBandPart", {negative, lower ? all : none, lower ? none : all}));
  c.SetDx(1, right);
  return absl::OkStatus();
}

// Murray, "Differentiation of the Cholesky decomposition": L^-H P(L^H dL) L^-1, made symmetric,
// where P takes the lower triangle and half of the diagonal.
absl::Status CholeskyGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output l = c.output(0);
  const Output identity = c.Op("MatrixDiag", {c.Op("OnesLike", {c.Op("MatrixDiagPart", {l})})});
  const Output inverse = c.Op("MatrixTriangularSolve", {l, identity});
  const Output middle = Product(s, l, c.dy(), true, false);
  const Output diagonal = c.Op("MatrixDiagPart", {middle});
  const Output halved = c.Op("MatrixSetDiag", {middle, Times(s, 0.5, diagonal)});
  const Output triangle =
      c.Op("MatrixBandPart", {halved, s.ConstScalar<int64_t>(-1), s.ConstScalar<int64_t>(0)});
  const Output whole =
      Product(s, Product(s, inverse, triangle, true, false), inverse, false, false);
  const Output mirrored = Product(s, whole, identity, true, false);
  c.SetDx(0, Times(s, Plus(s, whole, mirrored), 0.5));
  return absl::OkStatus();
}

using Fields = Types<float, double, Complex64, Complex128>;

}  // namespace

DEFINE_OP(Qr) {
  op.Attr("full_matrices: bool = false")
      .Attr("T: {double, float, half, complex64, complex128}")
      .Input("input: T")
      .Output("q: T")
      .Output("r: T")
      .Doc("Matrices as products of an orthogonal and an upper triangular one.")
      .Shape(QrShape)
      .CpuTypes<Fields>("T", []<typename T>() { return New<QrKernel<T>>(); })
      .GpuOnHost("T", {DType::kFloat, DType::kDouble, DType::kComplex128});
}

DEFINE_OP(Cholesky) {
  op.Attr("T: {double, float, half, complex64, complex128}")
      .Input("input: T")
      .Output("output: T")
      .Doc("Lower triangular L with L L^H the symmetric positive definite input.")
      .Shape(CholeskyShape)
      .Gradient(CholeskyGradient)
      .CpuTypes<Fields>("T", []<typename T>() { return Stateless(RunCholesky<T>); });
  AddGpuCholesky(op);
}

DEFINE_OP(MatrixTriangularSolve) {
  op.Attr("lower: bool = true")
      .Attr("adjoint: bool = false")
      .Attr("T: {bfloat16, double, float, half, complex64, complex128}")
      .Input("matrix: T")
      .Input("rhs: T")
      .Output("output: T")
      .Doc("The solutions of systems of linear equations with triangular matrices.")
      .Shape(TriangularSolveShape)
      .Gradient(TriangularSolveGradient)
      .CpuTypes<Fields>("T", []<typename T>() { return New<TriangularSolveKernel<T>>(); });
  AddGpuTriangularSolve(op);
}

}  // namespace muster
