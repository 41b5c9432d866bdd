// Whether the target class is among the k most probable: InTopK, InTopKV2.
#include <cmath>

#include "muster/ops/nn/rows.h"

namespace muster {
namespace {

absl::Status CheckIsScalar(const Tensor& k) {
  if (k.shape().is_scalar()) return absl::OkStatus();
  return InvalidArgument("k must be 0-D, got shape ", k.shape().ToString());
}

absl::Status CheckShapes(const Tensor& predictions, const Tensor& targets) {
  if (predictions.rank() != 2) return InvalidArgument("predictions must be 2-dimensional");
  if (targets.rank() != 1) return InvalidArgument("targets must be 1-dimensional");
  if (predictions.dim(0) != targets.dim(0)) {
    return InvalidArgument("First dimension of predictions ", predictions.dim(0),
                           " must match length of targets ", targets.dim(0));
  }
  return absl::OkStatus();
}

template <typename Index>
class InTopKKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    if (s.node().FindAttr("k") != nullptr) {
      ASSIGN_OR_RETURN(k_, s.Attr<int64_t>("k"));
    }
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& predictions = c.input(0);
    const Tensor& targets = c.input(1);
    int64_t k = k_;
    if (c.num_inputs() == 3) {
      RETURN_IF_ERROR(CheckIsScalar(c.input(2)));
      k = c.input(2).scalar<Index>();
    }
    RETURN_IF_ERROR(CheckShapes(predictions, targets));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, targets.shape()));
    const int64_t classes = predictions.dim(1);
    for (int64_t row = 0; row < targets.dim(0); ++row) {
      output->data<bool>()[row] = IsAmongTop(predictions.data<float>() + row * classes, classes,
                                             targets.data<Index>()[row], k);
    }
    return absl::OkStatus();
  }

 private:
  // Ties count as in; nothing can be said about rows with values that are not finite.
  static bool IsAmongTop(const float* row, int64_t classes, int64_t target, int64_t k) {
    if (target < 0 || target >= classes) return false;
    int64_t larger = 0;
    for (int64_t i = 0; i < classes; ++i) {
      if (!std::isfinite(row[i])) return false;
      larger += row[i] > row[target];
    }
    return larger < k;
  }

  int64_t k_ = 0;
};

class GpuInTopKV2 : public GpuKernel {
 public:
  explicit GpuInTopKV2(DType index)
      : run_(*this, "nn/in_top_k.cu", absl::StrCat("InTopK<", GpuTypeName(index))) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& predictions = c.input(0);
    const Tensor& targets = c.input(1);
    RETURN_IF_ERROR(CheckIsScalar(c.input(2)));
    RETURN_IF_ERROR(CheckShapes(predictions, targets));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, targets.shape()));
    const int64_t rows = targets.dim(0), classes = predictions.dim(1);
    return run_.Launch(rows, classes, GpuIn(predictions), GpuIn(targets), GpuIn(c.input(2)),
                       GpuOut(*output), rows, classes);
  }

 private:
  GpuRowFunction run_;
};

absl::Status InTopKShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape predictions, c.WithRank(c.input(0), 2));
  ASSIGN_OR_RETURN(const PartialShape targets, c.WithRank(c.input(1), 1));
  const int64_t rows = predictions.known_rank() ? predictions[0] : -1;
  const int64_t labels = targets.known_rank() ? targets[0] : -1;
  ASSIGN_OR_RETURN(const int64_t size, ShapeContext::MergeDims(rows, labels));
  c.SetOutput(0, PartialShape::Vector(size));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(InTopK) {
  op.Attr("k: int")
      .Attr("T: {int32, int64} = DT_INT32")
      .Input("predictions: float")
      .Input("targets: T")
      .Output("precision: bool")
      .Doc("Whether fewer than k classes have a larger prediction than the target.")
      .Shape(InTopKShape)
      .CpuTypes<Indices>("T", []<typename T>() { return New<InTopKKernel<T>>(); });
}

DEFINE_OP(InTopKV2) {
  op.Attr("T: {int32, int64} = DT_INT32")
      .Input("predictions: float")
      .Input("targets: T")
      .Input("k: T")
      .Output("precision: bool")
      .Doc("Whether fewer than k classes have a larger prediction than the target.")
      .Shape(InTopKShape)
      .CpuTypes<Indices>("T", []<typename T>() { return New<InTopKKernel<T>>(); })
      .GpuTypes("T", {DType::kInt32, DType::kInt64}, MakeGpu<GpuInTopKV2>);
}

}  // namespace muster
