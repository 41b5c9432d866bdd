// Softmax and its logarithm over the last axis.
#include "muster/ops/nn/gradient_support.h"
#include "muster/ops/nn/rows.h"
#include "muster/ops/nn/softmax_row.h"

namespace muster {
namespace {

absl::Status CheckLogits(const Shape& shape) {
  if (shape.rank() >= 1) return absl::OkStatus();
  return InvalidArgument("logits must have >= 1 dimension, got ", shape.ToString());
}

template <typename T, bool kLog>
absl::Status Run(KernelContext& c) {
  using V = Compute<T>;
  const Shape shape = c.input(0).shape();
  RETURN_IF_ERROR(CheckLogits(shape));
  const T* const in = c.input(0).data<T>();
  ASSIGN_OR_RETURN(Tensor * output, c.ForwardOrAllocate({0}, 0, shape));
  if (shape.num_elements() == 0) return absl::OkStatus();
  T* const out = output->data<T>();
  const int64_t n = shape.dim(shape.rank() - 1);
  c.ParallelFor(shape.num_elements() / n, 3.0 * static_cast<double>(n),
                [=](int64_t begin, int64_t end) {
                  std::vector<V> scratch(static_cast<size_t>(n));
                  V* const e = scratch.data();
                  for (int64_t row = begin; row < end; ++row) {
                    const T* const from = in + row * n;
                    T* const to = out + row * n;
                    const V maximum = RowMaximum(from, n);
                    const V sum = RowExponentials(from, n, maximum, e);
                    if constexpr (kLog) {
                      const V log_sum = std::log(sum);
                      for (int64_t i = 0; i < n; ++i)
                        to[i] = static_cast<T>((static_cast<V>(from[i]) - maximum) - log_sum);
                    } else {
                      const V scale = V(1) / sum;
                      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(e[i] * scale);
                    }
                  }
                });
  return absl::OkStatus();
}

template <bool kLog>
class GpuSoftmax : public GpuKernel {
 public:
  explicit GpuSoftmax(DType dtype)
      : run_(*this, "nn/softmax.cu",
             absl::StrCat("Softmax<", GpuTypeName(dtype), kLog ? ", true" : ", false")) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    RETURN_IF_ERROR(CheckLogits(x.shape()));
    ASSIGN_OR_RETURN(Tensor* const y, c.ForwardOrAllocate({0}, 0, x.shape()));
    const int64_t size = x.dim(x.rank() - 1);
    const int64_t rows = size == 0 ? 0 : x.num_elements() / size;
    return run_.Launch(rows, size, GpuIn(x), GpuOut(*y), rows, size);
  }

 private:
  GpuRowFunction run_;
};

absl::Status InferShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.WithRankAtLeast(c.input(0), 1));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status DifferentiateSoftmax(GradientContext& c) {
  const Output y = c.output();
  const Output sum = SumOverLastAxis(c, c.Op("Mul", {c.dy(), y}, {}, "mul"));
  const Output centred = c.Op("Sub", {c.dy(), sum}, {}, "sub");
  c.SetDx(0, c.Op("Mul", {centred, y}, {}, "mul"));
  return absl::OkStatus();
}

absl::Status DifferentiateLogSoftmax(GradientContext& c) {
  const Output softmax = c.Op("Exp", {c.output()});
  const Output sum = SumOverLastAxis(c, c.dy());
  const Output product = c.Op("Mul", {sum, softmax}, {}, "mul");
  c.SetDx(0, c.Op("Sub", {c.dy(), product}, {}, "sub"));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(Softmax) {
  op.Attr("T: {half, bfloat16, float, double}")
      .Input("logits: T")
      .Output("softmax: T")
      .Doc("Exponentials of the logits, normalised to sum to one over the last axis.")
      .Shape(InferShape)
      .Gradient(DifferentiateSoftmax)
      .CpuTypes<Floats>("T", []<typename T>() { return Stateless(Run<T, false>); })
      .GpuTypes("T", GpuFloats(), MakeGpu<GpuSoftmax<false>>);
}

DEFINE_OP(LogSoftmax) {
  op.Attr("T: {half, bfloat16, float, double}")
      .Input("logits: T")
      .Output("logsoftmax: T")
      .Doc("The logarithm of Softmax, without overflow.")
      .Shape(InferShape)
      .Gradient(DifferentiateLogSoftmax)
      .CpuTypes<Floats>("T", []<typename T>() { return Stateless(Run<T, true>); })
      .GpuTypes("T", GpuShortFloats(), MakeGpu<GpuSoftmax<true>>);
}

}  // namespace muster
