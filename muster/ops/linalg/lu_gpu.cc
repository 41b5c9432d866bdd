// Determinants, inverses and solutions on GPUs: launches of solver.cu.
#include "muster/ops/linalg/gpu_solver.h"
#include "muster/ops/linalg/matrices.h"

namespace muster {
namespace {

Shape BatchOf(const Tensor& input) {
  return Shape(absl::Span<const int64_t>(input.shape().dims()).first(input.rank() - 2));
}

class GpuDeterminant : public GpuLuKernel {
 public:
  GpuDeterminant(DType dtype, bool of_logs)
      : GpuLuKernel(dtype),
        of_logs_(of_logs),
        run_(*this, kFile, OfType(of_logs ? "LogDeterminants" : "Determinants", dtype)) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    RETURN_IF_ERROR(CheckSquare(input));
    const Shape batch = BatchOf(input);
    const int64_t n = input.dim(input.rank() - 1), count = batch.num_elements();
    ASSIGN_OR_RETURN(Tensor* const first, c.AllocateOutput(0, batch));
    Tensor* second = nullptr;
    if (of_logs_) {
      ASSIGN_OR_RETURN(second, c.AllocateOutput(1, batch));
    }
    if (count == 0) return absl::OkStatus();
    Lu lu = {input, input};  // without elements there is nothing to decompose
    if (n > 0) {
      ASSIGN_OR_RETURN(lu, Decompose(c, input, /*adjoint=*/false));
    }
    if (of_logs_) {
      return run_.LaunchForEach(count, GpuIn(lu.matrices), GpuIn(lu.pivots), GpuOut(*first),
                                GpuOut(*second), count, n);
    }
    return run_.LaunchForEach(count, GpuIn(lu.matrices), GpuIn(lu.pivots), GpuOut(*first), count,
                              n);
  }

 private:
  const bool of_logs_;
  const GpuFunction run_;
};

// The host has to know whether a matrix is singular: that is an error.
class GpuEquations : public GpuLuKernel {
 public:
  using GpuLuKernel::GpuLuKernel;
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    ASSIGN_OR_RETURN(adjoint_, setup.Attr<bool>("adjoint"));
    return absl::OkStatus();
  }
  bool is_async() const override { return true; }
  absl::Status Compute(KernelContext& c) override {
    return Internal(c.node().op(), " runs asynchronously");
  }
  void ComputeAsync(KernelContext& c, Done done) override {
    absl::StatusOr<Tensor> singular = Run(c);
    if (!singular.ok()) return std::move(done)(singular.status());
    if (!singular->valid()) return std::move(done)(absl::OkStatus());
    c.device().CopyToHost(
        *singular, [this, done = std::move(done)](absl::StatusOr<Tensor> count) mutable {
          if (!count.ok()) return std::move(done)(count.status());
          const bool is_singular = count->scalar<int32_t>() > 0;
          std::move(done)(is_singular ? InvalidArgument(what(), " is not invertible.")
                                      : absl::OkStatus());
        });
  }

 protected:
  // The number of singular matrices; no tensor where there are none to look at.
  virtual absl::StatusOr<Tensor> Run(KernelContext& c) = 0;
  virtual const char* what() const = 0;

  // X with A X = B, or A's adjoint, in the place of B.
  absl::StatusOr<Tensor> SolveIn(KernelContext& c, const Tensor& matrices, Tensor& b) const {
    ASSIGN_OR_RETURN(const Lu lu, Decompose(c, matrices, adjoint_));
    ASSIGN_OR_RETURN(Tensor singular, CountSingular(c, lu));
    RETURN_IF_ERROR(Solve(lu, b));
    return singular;
  }

 private:
  bool adjoint_ = false;
};

class GpuSolve : public GpuEquations {
 public:
  using GpuEquations::GpuEquations;

 protected:
  absl::StatusOr<Tensor> Run(KernelContext& c) override {
    const Tensor& matrices = c.input(0);
    const Tensor& right = c.input(1);
    RETURN_IF_ERROR(CheckEquations(matrices, right));
    ASSIGN_OR_RETURN(Tensor* const x, c.AllocateOutput(0, right.shape()));
    if (x->num_elements() == 0) return Tensor();
    RETURN_IF_ERROR(gpu().CopyWithin(x->raw(), right.raw(), right.size_bytes()));
    return SolveIn(c, matrices, *x);
  }
  const char* what() const override { return "Input matrix"; }
};

class GpuInverse : public GpuEquations {
 public:
  explicit GpuInverse(DType dtype)
      : GpuEquations(dtype), identity_(*this, kFile, OfType("Identity", dtype)) {}

 protected:
  absl::StatusOr<Tensor> Run(KernelContext& c) override {
    const Tensor& input = c.input(0);
    RETURN_IF_ERROR(CheckSquare(input));
    ASSIGN_OR_RETURN(Tensor* const inverse, c.AllocateOutput(0, input.shape()));
    const int64_t count = input.num_elements();
    if (count == 0) return Tensor();
    RETURN_IF_ERROR(identity_.LaunchForEach(count, GpuOut(*inverse), count,
                                            int64_t{input.dim(input.rank() - 1)}));
    return SolveIn(c, input, *inverse);
  }
  const char* what() const override { return "Input"; }

 private:
  const GpuFunction identity_;
};

template <typename K, typename... Args>
void AddSolvers(OpBuilder& op, Args... args) {
  op.GpuTypes("T", GpuSolverTypes(), [args...](DType dtype) -> KernelFactory {
    return [=] { return std::make_unique<K>(dtype, args...); };
  });
}

}  // namespace

void AddGpuDeterminant(OpBuilder& op) {
  AddSolvers<GpuDeterminant>(op, /*of_logs=*/false);
}
void AddGpuLogDeterminant(OpBuilder& op) {
  AddSolvers<GpuDeterminant>(op, /*of_logs=*/true);
}
void AddGpuInverse(OpBuilder& op) {
  AddSolvers<GpuInverse>(op);
}
void AddGpuSolve(OpBuilder& op) {
  AddSolvers<GpuSolve>(op);
}

}  // namespace muster
