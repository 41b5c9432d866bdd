#include "muster/ops/linalg/gpu_solver.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "muster/ops/linalg/cublas.h"

namespace muster {
namespace {

// Of solver.cu.
constexpr int64_t kSolved = 64, kSolvedColumns = 16;
struct Triangle {
  int32_t lower, adjoint, unit;
  int32_t size;
};
constexpr unsigned kSolveRows = 16;
// Columns that are decomposed before the product.
constexpr int64_t kBlock = 64;
constexpr unsigned kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 16;

}  // namespace

GpuSolverKernel::GpuSolverKernel(DType dtype)
    : dtype_(dtype), solve_(*this, kFile, OfType("SolveTriangle", dtype)) {}

std::string GpuSolverKernel::OfType(const char* function, DType dtype) {
  return absl::StrCat(function, "<", GpuTypeName(dtype), ">");
}

GpuMatrices GpuSolverKernel::MatricesOf(const Tensor& tensor) {
  const int rank = tensor.rank();
  const int64_t row = tensor.dim(rank - 1), step = tensor.dim(rank - 2) * row;
  return {const_cast<char*>(tensor.raw()), step, row, step == 0 ? 0 : tensor.num_elements() / step};
}

GpuMatrices GpuSolverKernel::Part(GpuMatrices matrices, int64_t row, int64_t column) const {
  matrices.at += (row * matrices.row + column) * static_cast<int64_t>(DTypeSize(dtype_));
  return matrices;
}

GpuGrid GpuSolverKernel::GridOf(int64_t blocks, unsigned threads) {
  GpuGrid grid;
  grid.blocks_x = static_cast<unsigned>(std::min(blocks, kMostBlocks));
  grid.threads_x = threads;
  return grid;
}

absl::Status GpuSolverKernel::Subtract(const GpuMatrices& a, bool a_adjoint, const GpuMatrices& b,
                                       bool b_adjoint, const GpuMatrices& c, int64_t m, int64_t n,
                                       int64_t k) const {
  RETURN_IF_ERROR(PrepareGpuProducts(gpu()));
  GpuProducts products;
  products.shape.m = m;
  products.shape.n = n;
  products.shape.k = k;
  products.shape.transpose_a = products.shape.conjugate_a = a_adjoint;
  products.shape.transpose_b = products.shape.conjugate_b = b_adjoint;
  products.shape.lda = a.row;
  products.shape.ldb = b.row;
  products.shape.ldc = c.row;
  products.count = c.count;
  products.a = a.at;
  products.b = b.at;
  products.c = c.at;
  products.stride_a = a.step;
  products.stride_b = b.step;
  products.stride_c = c.step;
  products.subtracts = true;
  products.is_exact = true;
  return MultiplyOnGpu(gpu(), dtype_, products);
}

// A block of rows is solved, and what it adds to the others is taken from their right sides.
absl::Status GpuSolverKernel::SolveTriangular(const GpuMatrices& a, const GpuTriangle& triangle,
                                              int64_t n, const GpuMatrices& b,
                                              int64_t columns) const {
  const bool forward = triangle.lower != triangle.adjoint;
  const int64_t blocks = (n + kSolved - 1) / kSolved;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t first = (forward ? i : blocks - 1 - i) * kSolved;
    const int64_t size = std::min(kSolved, n - first);
    const Triangle how = {triangle.lower, triangle.adjoint, triangle.unit,
                          static_cast<int32_t>(size)};
    const int64_t sets = (columns + kSolvedColumns - 1) / kSolvedColumns;
    GpuGrid grid = GridOf(b.count * sets, kSolvedColumns);
    grid.threads_y = kSolveRows;
    RETURN_IF_ERROR(solve_.Launch(grid, Part(a, first, first), Part(b, first, 0), columns, how));
    const int64_t begin = forward ? first + size : 0, end = forward ? n : first;
    if (begin == end) continue;
    const GpuMatrices factors = triangle.adjoint ? Part(a, first, begin) : Part(a, begin, first);
    RETURN_IF_ERROR(Subtract(factors, triangle.adjoint, Part(b, first, 0), false, Part(b, begin, 0),
                             end - begin, columns, size));
  }
  return absl::OkStatus();
}

GpuLuKernel::GpuLuKernel(DType dtype)
    : GpuSolverKernel(dtype),
      copy_(*this, kFile, OfType("CopySquare", dtype)),
      columns_(*this, kFile, OfType("LuColumns", dtype)),
      exchange_(*this, kFile, OfType("ExchangeRows", dtype)),
      count_(*this, kFile, OfType("CountSingular", dtype)) {}

absl::StatusOr<GpuLuKernel::Lu> GpuLuKernel::Decompose(KernelContext& c, const Tensor& input,
                                                       bool adjoint) const {
  Lu lu;
  const int64_t n = input.dim(input.rank() - 1), count = input.num_elements();
  if (n > std::numeric_limits<int32_t>::max())
    return Unimplemented("a matrix of ", n, " rows has no kernel for GPUs");
  ASSIGN_OR_RETURN(lu.matrices, c.AllocateTemporary(dtype(), input.shape()));
  const GpuMatrices a = MatricesOf(lu.matrices);
  ASSIGN_OR_RETURN(lu.pivots, c.AllocateTemporary(DType::kInt32, Shape({a.count, n})));
  RETURN_IF_ERROR(copy_.LaunchForEach(count, GpuIn(input), GpuOut(lu.matrices), count, n,
                                      int32_t{adjoint ? 1 : 0}));
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t end = std::min(first + kBlock, n), rest = n - end;
    RETURN_IF_ERROR(
        columns_.Launch(GridOf(a.count, kThreads), a, n, first, end, GpuOut(lu.pivots)));
    if (rest == 0) break;
    RETURN_IF_ERROR(SolveTriangular(Part(a, first, first), {true, false, true}, end - first,
                                    Part(a, first, end), rest));
    RETURN_IF_ERROR(Subtract(Part(a, end, first), false, Part(a, first, end), false,
                             Part(a, end, end), rest, rest, end - first));
  }
  return lu;
}

absl::Status GpuLuKernel::Solve(const Lu& lu, Tensor& b) const {
  const int64_t n = lu.matrices.dim(lu.matrices.rank() - 1), columns = b.dim(b.rank() - 1);
  const GpuMatrices a = MatricesOf(lu.matrices), x = MatricesOf(b);
  RETURN_IF_ERROR(
      exchange_.LaunchForEach(x.count * columns, GpuOut(b), GpuIn(lu.pivots), x.count, n, columns));
  RETURN_IF_ERROR(SolveTriangular(a, {true, false, true}, n, x, columns));
  return SolveTriangular(a, {false, false, false}, n, x, columns);
}

absl::StatusOr<Tensor> GpuLuKernel::CountSingular(KernelContext& c, const Lu& lu) const {
  const int64_t n = lu.matrices.dim(lu.matrices.rank() - 1);
  ASSIGN_OR_RETURN(Tensor singular, c.AllocateTemporary(DType::kInt32, Shape()));
  RETURN_IF_ERROR(gpu().Fill(singular.raw(), 0, singular.size_bytes()));
  const int64_t count = MatricesOf(lu.matrices).count;
  RETURN_IF_ERROR(count_.LaunchForEach(count, GpuIn(lu.matrices), GpuOut(singular), count, n));
  return singular;
}

}  // namespace muster
