// Cholesky and MatrixTriangularSolve on GPUs: launches of solver.cu.
#include <algorithm>

#include "muster/ops/indexing/gpu_mover.h"
#include "muster/ops/linalg/gpu_solver.h"
#include "muster/ops/linalg/matrices.h"

namespace muster {
namespace {

constexpr int64_t kColumns = 64;  // of a block

class GpuCholesky : public GpuSolverKernel {
 public:
  explicit GpuCholesky(DType dtype)
      : GpuSolverKernel(dtype),
        triangle_(*this, kFile, OfType("CholeskyTriangle", dtype)),
        rows_(*this, kFile, OfType("CholeskyRows", dtype)),
        finish_(*this, kFile, OfType("FinishCholesky", dtype)) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    RETURN_IF_ERROR(CheckSquare(input));
    const int64_t n = input.dim(input.rank() - 1), count = input.num_elements();
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, input.shape()));
    if (count == 0) return absl::OkStatus();
    RETURN_IF_ERROR(gpu().CopyWithin(output->raw(), input.raw(), input.size_bytes()));
    const GpuMatrices a = MatricesOf(*output);
    ASSIGN_OR_RETURN(Tensor failed, c.AllocateTemporary(DType::kInt32, Shape({a.count})));
    RETURN_IF_ERROR(gpu().Fill(failed.raw(), 0, failed.size_bytes()));
    for (int64_t first = 0; first < n; first += kColumns) {
      const int64_t end = std::min(first + kColumns, n), rest = n - end;
      const auto size = static_cast<int32_t>(end - first);
      const GpuMatrices diagonal = Part(a, first, first), below = Part(a, end, first);
      RETURN_IF_ERROR(triangle_.Launch(GridOf(a.count, 256), diagonal, size, GpuOut(failed)));
      if (rest == 0) break;
      RETURN_IF_ERROR(rows_.LaunchForEach(a.count * rest, diagonal, below, rest, size));
      RETURN_IF_ERROR(
          Subtract(below, false, below, true, Part(a, end, end), rest, rest, end - first));
    }
    return finish_.LaunchForEach(count, GpuOut(*output), GpuIn(failed), count, n);
  }

 private:
  const GpuFunction triangle_, rows_, finish_;
};

class GpuTriangularSolve : public GpuSolverKernel {
 public:
  explicit GpuTriangularSolve(DType dtype) : GpuSolverKernel(dtype), mover_(*this, dtype) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    ASSIGN_OR_RETURN(triangle_.lower, setup.Attr<bool>("lower"));
    ASSIGN_OR_RETURN(triangle_.adjoint, setup.Attr<bool>("adjoint"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& matrix = c.input(0);
    const Tensor& right = c.input(1);
    ASSIGN_OR_RETURN(const BatchedEquations equations, MeasureEquations(matrix, right));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, equations.output));
    if (output->num_elements() == 0) return absl::OkStatus();
    RETURN_IF_ERROR(Spread(c, equations, right, *output));
    Tensor all = matrix;
    const int64_t n = equations.n;
    Dims dims = equations.batch;
    dims.push_back(n);
    dims.push_back(n);
    if (matrix.num_elements() != output->num_elements() / equations.columns * n) {
      ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
      ASSIGN_OR_RETURN(all, c.AllocateTemporary(dtype(), shape));
      RETURN_IF_ERROR(Spread(c, equations, matrix, all));
    }
    return SolveTriangular(MatricesOf(all), triangle_, n, MatricesOf(*output), equations.columns);
  }

 private:
  // `from` once for each matrix of the batch that it belongs to.
  absl::Status Spread(KernelContext& c, const BatchedEquations& equations, const Tensor& from,
                      Tensor& to) const {
    const int rank = static_cast<int>(equations.batch.size());
    const Dims to_strides = RowMajorStrides(to.shape().dims());
    const int64_t block = from.dim(from.rank() - 2) * from.dim(from.rank() - 1);
    Dims from_strides(rank, 0);
    int64_t stride = block;
    for (int d = rank - 1; d >= 0; --d) {
      const int64_t size = equations.DimOf(from.shape(), d);
      from_strides[d] = size == 1 ? 0 : stride;
      stride *= size;
    }
    StridedBox box;
    for (int d = 0; d < rank; ++d) box.Add(equations.batch[d], from_strides[d], to_strides[d]);
    box.Add(block, 1, 1);
    return mover_.Copy(c, std::move(box), from, to);
  }

  GpuTriangle triangle_;
  const GpuMover mover_;
};

}  // namespace

void AddGpuCholesky(OpBuilder& op) {
  op.GpuTypes("T", GpuSolverTypes(), [](DType dtype) -> KernelFactory {
    return [=] { return std::make_unique<GpuCholesky>(dtype); };
  });
}
void AddGpuTriangularSolve(OpBuilder& op) {
  op.GpuTypes("T", GpuSolverTypes(), [](DType dtype) -> KernelFactory {
    return [=] { return std::make_unique<GpuTriangularSolve>(dtype); };
  });
}

}  // namespace muster
