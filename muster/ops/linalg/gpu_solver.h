// Decompositions of matrices and equations with them on a card. TensorFlow asks cuSOLVER and cuBLAS
// for these; functions of our own need no more libraries than products do, and are as quick for the
// many small matrices that batches mostly have. Large matrices are taken apart into blocks of
// columns, so that most of the work is products of matrices by cuBLAS.
//
// Matrices are row-major and dense unless a member says how far apart their rows are.
#pragma once

#include "muster/ops/gpu_kernel.h"

namespace muster {

inline std::vector<DType> GpuSolverTypes() {
  return {DType::kFloat, DType::kDouble, DType::kComplex64, DType::kComplex128};
}

// Matrices in device memory.
struct GpuMatrices {
  char* at = nullptr;
  int64_t step = 0;   // elements from one matrix to the next
  int64_t row = 0;    // elements from one row to the next
  int64_t count = 0;  // of matrices
};

// How a triangle is stored, and whether its adjoint is meant and its diagonal counts as ones.
struct GpuTriangle {
  bool lower = true, adjoint = false, unit = false;
};

// What all kernels here have.
class GpuSolverKernel : public GpuKernel {
 public:
  explicit GpuSolverKernel(DType dtype);

 protected:
  static constexpr char kFile[] = "linalg/solver.cu";
  static std::string OfType(const char* function, DType dtype);

  DType dtype() const { return dtype_; }
  // All of a tensor whose last two dims are the matrices.
  static GpuMatrices MatricesOf(const Tensor& tensor);
  GpuMatrices Part(GpuMatrices matrices, int64_t row, int64_t column) const;

  // X with A X = B in the place of B, which has `columns`; A is n by n.
  absl::Status SolveTriangular(const GpuMatrices& a, const GpuTriangle& triangle, int64_t n,
                               const GpuMatrices& b, int64_t columns) const;
  // c -= a b, of an m by k and a k by n matrix. `b_adjoint`: b is given as n by k, and its adjoint
  // is meant; `a_adjoint` likewise.
  absl::Status Subtract(const GpuMatrices& a, bool a_adjoint, const GpuMatrices& b, bool b_adjoint,
                        const GpuMatrices& c, int64_t m, int64_t n, int64_t k) const;
  // A grid of one block of threads for each matrix, as far as the card is large.
  static GpuGrid GridOf(int64_t blocks, unsigned threads);

 private:
  const DType dtype_;
  const GpuFunction solve_;
};

// With P A = L U in the place of A.
class GpuLuKernel : public GpuSolverKernel {
 public:
  explicit GpuLuKernel(DType dtype);

 protected:
  struct Lu {
    Tensor matrices;  // L without its diagonal of ones, and U
    Tensor pivots;    // int32 [count, n]: with which row below it each was exchanged
  };
  // Of `input`, which is square, or of its adjoint.
  absl::StatusOr<Lu> Decompose(KernelContext& c, const Tensor& input, bool adjoint) const;
  // X with A X = B in the place of B.
  absl::Status Solve(const Lu& lu, Tensor& b) const;
  // The number of singular ones, for the host.
  absl::StatusOr<Tensor> CountSingular(KernelContext& c, const Lu& lu) const;

 private:
  const GpuFunction copy_, columns_, exchange_, count_;
};

// Kernels for GPUs, beside those for the CPU.
void AddGpuDeterminant(OpBuilder& op);
void AddGpuLogDeterminant(OpBuilder& op);
void AddGpuInverse(OpBuilder& op);
void AddGpuSolve(OpBuilder& op);
void AddGpuCholesky(OpBuilder& op);
void AddGpuTriangularSolve(OpBuilder& op);

}  // namespace muster
