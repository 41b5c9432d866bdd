// Determinants, inverses and solutions by LU decomposition with row exchanges.
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>

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
absl::Status RunLogDeterminant(KernelContext& c) {
  const Tensor& input = c.input(0);
  RETURN_IF_ERROR(CheckSquare(input));
  const int64_t n = input.dim(input.rank() - 1);
  const Shape batch(absl::Span<const int64_t>(input.shape().dims()).first(input.rank() - 2));
  ASSIGN_OR_RETURN(Tensor* const signs, c.AllocateOutput(0, batch));
  ASSIGN_OR_RETURN(Tensor* const logs, c.AllocateOutput(1, batch));
  const double cost = static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  c.ParallelFor(batch.num_elements(), cost, [&](int64_t begin, int64_t end) {
    std::vector<T> diagonal(static_cast<size_t>(n));
    for (int64_t b = begin; b < end; ++b) {
      T sign = LuDiagonal(input.data<T>() + b * n * n, n, diagonal.data()) ? T(-1) : T(1);
      auto log = std::abs(T(0));
      for (const T& element : diagonal) {
        const auto size = std::abs(element);
        sign *= element / size;
        log += std::log(size);
      }
      // A singular matrix has neither.
      if (!std::isfinite(log)) {
        sign = T(0);
        log = log > 0 ? std::numeric_limits<decltype(log)>::infinity()
                      : -std::numeric_limits<decltype(log)>::infinity();
      }
      signs->data<T>()[b] = sign;
      logs->data<T>()[b] = T(log);
    }
  });
  return absl::OkStatus();
}

template <typename T>
absl::Status RunDeterminant(KernelContext& c) {
  const Tensor& input = c.input(0);
  RETURN_IF_ERROR(CheckSquare(input));
  const int64_t n = input.dim(input.rank() - 1);
  const Shape batch(absl::Span<const int64_t>(input.shape().dims()).first(input.rank() - 2));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, batch));
  std::vector<T> diagonal(static_cast<size_t>(n));
  for (int64_t b = 0; b < batch.num_elements(); ++b) {
    T product = LuDiagonal(input.data<T>() + b * n * n, n, diagonal.data()) ? T(-1) : T(1);
    for (const T& element : diagonal) product *= element;
    output->data<T>()[b] = product;
  }
  return absl::OkStatus();
}

template <typename T>
class SolveKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(adjoint_, s.Attr<bool>("adjoint"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& matrix = c.input(0);
    const Tensor& right = c.input(1);
    RETURN_IF_ERROR(CheckEquations(matrix, right));
    const int rank = matrix.rank();
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, right.shape()));
    if (output->num_elements() == 0) return absl::OkStatus();
    const int64_t n = matrix.dim(rank - 1), columns = right.dim(rank - 1);
    for (int64_t b = 0; b < matrix.num_elements() / (n * n); ++b) {
      if (!SolveLinear(matrix.data<T>() + b * n * n, adjoint_, n, right.data<T>() + b * n * columns,
                       columns, output->data<T>() + b * n * columns))
        return InvalidArgument("Input matrix is not invertible.");
    }
    return absl::OkStatus();
  }

 private:
  bool adjoint_ = false;
};

template <typename T>
class InverseKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(adjoint_, s.Attr<bool>("adjoint"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    RETURN_IF_ERROR(CheckSquare(input));
    const int64_t n = input.dim(input.rank() - 1);
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, input.shape()));
    if (input.num_elements() == 0) return absl::OkStatus();
    for (int64_t b = 0; b < input.num_elements() / (n * n); ++b) {
      if (!Invert(input.data<T>() + b * n * n, adjoint_, n, output->data<T>() + b * n * n))
        return InvalidArgument("Input is not invertible.");
    }
    return absl::OkStatus();
  }

 private:
  bool adjoint_ = false;
};

// 16 bits are too few to compute in.
class HalfInverseKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(adjoint_, s.Attr<bool>("adjoint"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    RETURN_IF_ERROR(CheckSquare(input));
    const int64_t n = input.dim(input.rank() - 1);
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, input.shape()));
    if (input.num_elements() == 0) return absl::OkStatus();
    std::vector<float> matrix(static_cast<size_t>(n * n));
    for (int64_t b = 0; b < input.num_elements() / (n * n); ++b) {
      const Half* const from = input.data<Half>() + b * n * n;
      std::transform(from, from + n * n, matrix.begin(),
                     [](Half value) { return static_cast<float>(value); });
      if (!Invert(matrix.data(), adjoint_, n, matrix.data()))
        return InvalidArgument("Input is not invertible.");
      std::transform(matrix.begin(), matrix.end(), output->data<Half>() + b * n * n,
                     [](float value) { return static_cast<Half>(value); });
    }
    return absl::OkStatus();
  }

 private:
  bool adjoint_ = false;
};

absl::StatusOr<PartialShape> SquareShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape input, c.WithRankAtLeast(c.input(0), 2));
  if (!input.known_rank()) return input;
  const int rank = input.rank();
  ASSIGN_OR_RETURN(const int64_t n,
                   ShapeContext::MergeDims(input.dim(rank - 2), input.dim(rank - 1)));
  input.Set(rank - 2, n);
  input.Set(rank - 1, n);
  return input;
}

absl::Status LogDeterminantShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape input, SquareShape(c));
  const PartialShape batch = ShapeContext::Subshape(input, 0, -2);
  c.SetOutput(0, batch);
  c.SetOutput(1, batch);
  return absl::OkStatus();
}

absl::Status InverseShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape input, SquareShape(c));
  c.SetOutput(0, input);
  return absl::OkStatus();
}

absl::Status DeterminantShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape input, SquareShape(c));
  c.SetOutput(0, ShapeContext::Subshape(input, 0, -2));
  return absl::OkStatus();
}

absl::Status SolveShape(ShapeContext& c) {
  RETURN_IF_ERROR(SquareShape(c).status());
  ASSIGN_OR_RETURN(PartialShape right, c.WithRankAtLeast(c.input(1), 2));
  c.SetOutput(0, std::move(right));
  return absl::OkStatus();
}

absl::Status DeterminantGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output inverse = c.Op("MatrixInverse", {c.input(0)}, {{"adjoint", true}});
  const Output shape =
      EmitConcatOf(s, {ConcatPart::Of(c.ShapeOf(c.output(0))), ConcatPart::Numbers({1, 1})});
  const Output factors = c.Op("Reshape", {Times(s, c.dy(), c.output(0)), shape});
  c.SetDx(0, Times(s, factors, inverse));
  return absl::OkStatus();
}

absl::Status LogDeterminantGradient(GradientContext& c) {
  if (!c.has_dy(1)) return absl::OkStatus();
  const Scope& s = c.scope();
  const Output inverse = c.Op("MatrixInverse", {c.input(0)}, {{"adjoint", true}});
  const Output shape =
      EmitConcatOf(s, {ConcatPart::Of(c.ShapeOf(c.output(1))), ConcatPart::Numbers({1, 1})});
  c.SetDx(0, Times(s, c.Op("Reshape", {c.dy(1), shape}), inverse));
  return absl::OkStatus();
}

// tf.matmul: plain matrices of real numbers have an op of their own.
Output EmitMatMul(const Scope& s, Output a, Output b, bool adjoint_a, bool adjoint_b) {
  const bool is_real = a.base_dtype() != DType::kComplex64 && a.base_dtype() != DType::kComplex128;
  if (is_real && a.shape().rank() == 2 && b.shape().rank() == 2) {
    return s.Op("MatMul", {a, b}, {{"transpose_a", adjoint_a}, {"transpose_b", adjoint_b}});
  }
  return s.Op("BatchMatMulV2", {a, b}, {{"adj_x", adjoint_a}, {"adj_y", adjoint_b}}, "MatMul");
}

absl::Status InverseGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const bool adjoint = c.Attr<bool>("adjoint");
  const Output inverse = c.output(0);
  const Output right = EmitMatMul(s, c.dy(), inverse, adjoint, !adjoint);
  c.SetDx(0, c.Op("Neg", {EmitMatMul(s, inverse, right, !adjoint, false)}));
  return absl::OkStatus();
}

absl::Status SolveGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const bool adjoint = c.Attr<bool>("adjoint");
  const Output right = c.Op("MatrixSolve", {c.input(0), c.dy()}, {{"adjoint", !adjoint}});
  const Output outer = adjoint ? EmitMatMul(s, c.output(0), right, false, true)
                               : EmitMatMul(s, right, c.output(0), false, true);
  c.SetDx(0, c.Op("Neg", {outer}));
  c.SetDx(1, right);
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(MatrixDeterminant) {
  op.Attr("T: {half, float, double, complex64, complex128}")
      .Input("input: T")
      .Output("output: T")
      .Doc("The determinants of square matrices.")
      .Shape(DeterminantShape)
      .Gradient(DeterminantGradient)
      .CpuTypes<Types<float, double, Complex64, Complex128>>(
          "T", []<typename T>() { return Stateless(RunDeterminant<T>); });
  AddGpuDeterminant(op);
}

DEFINE_OP(MatrixSolve) {
  op.Attr("adjoint: bool = false")
      .Attr("T: {double, float, half, complex64, complex128}")
      .Input("matrix: T")
      .Input("rhs: T")
      .Output("output: T")
      .Doc("The solutions of systems of linear equations.")
      .Shape(SolveShape)
      .Gradient(SolveGradient)
      .CpuTypes<Types<float, double, Complex64, Complex128>>(
          "T", []<typename T>() { return New<SolveKernel<T>>(); });
  AddGpuSolve(op);
}

DEFINE_OP(LogMatrixDeterminant) {
  op.Attr("T: {half, float, double, complex64, complex128}")
      .Input("input: T")
      .Output("sign: T")
      .Output("log_abs_determinant: T")
      .Doc("Sign and logarithm of the determinants of square matrices.")
      .Shape(LogDeterminantShape)
      .Gradient(LogDeterminantGradient)
      .CpuTypes<Types<float, double, Complex64, Complex128>>(
          "T", []<typename T>() { return Stateless(RunLogDeterminant<T>); });
  AddGpuLogDeterminant(op);
}

DEFINE_OP(MatrixInverse) {
  op.Attr("adjoint: bool = false")
      .Attr("T: {double, float, half, complex64, complex128}")
      .Input("input: T")
      .Output("output: T")
      .Doc("The inverses of square matrices, or the adjoints of those.")
      .Shape(InverseShape)
      .Gradient(InverseGradient)
      .Cpu(New<HalfInverseKernel>(), {{"T", DType::kHalf}})
      .CpuTypes<Types<float, double, Complex64, Complex128>>(
          "T", []<typename T>() { return New<InverseKernel<T>>(); });
  AddGpuInverse(op);
}

}  // namespace muster
