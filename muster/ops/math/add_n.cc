// AddN: the sum of any number of equally shaped tensors.
#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

#include "muster/ops/control/gpu_sum.h"
#include "muster/ops/control/variant_math.h"
#include "muster/ops/math/elementwise.h"
#include "muster/ops/math/elementwise_gpu.h"

namespace muster {
namespace {

// Elements summed at once: the running sum stays in the first-level cache.
constexpr int64_t kBlock = 2048;

template <typename L>
void AddTo(L* sum, const L* x, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) sum[i] = static_cast<L>(sum[i] + x[i]);
}

absl::Status CheckSameShapes(KernelContext& c) {
  const Shape& shape = c.input(0).shape();
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (!(c.input(i).shape() == shape)) {
      return InvalidArgument("Inputs to operation ", c.node().name(), " of type ", c.node().op(),
                             " must have the same size and shape.  Input 0: ", shape.ToString(),
                             " != input ", i, ": ", c.input(i).shape().ToString());
    }
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status RunAddN(KernelContext& c) {
  using L = typename elementwise::LoopTypeOf<T, true>::type;
  const Shape shape = c.input(0).shape();
  absl::InlinedVector<const T*, 8> inputs;
  RETURN_IF_ERROR(CheckSameShapes(c));
  for (int i = 0; i < c.num_inputs(); ++i) inputs.push_back(c.input(i).data<T>());
  if (inputs.size() == 1) {
    c.SetOutput(0, c.input(0));
    return absl::OkStatus();
  }
  // Only the first input's memory: the others are read after the sum has been begun.
  ASSIGN_OR_RETURN(Tensor * output, c.ForwardOrAllocate({0}, 0, shape));
  T* sum = output->data<T>();
  // Each input is read once; two bytes wide ones are also converted.
  const double nanos = sizeof(T) == 2 ? 0.3 : 0.025 * sizeof(T);
  c.ParallelFor(shape.num_elements(), nanos * static_cast<double>(inputs.size()),
                [&](int64_t begin, int64_t end) {
                  for (int64_t at = begin; at < end; at += kBlock) {
                    const int64_t n = std::min(kBlock, end - at);
                    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>) {
                      std::array<float, kBlock> total;
                      std::array<float, kBlock> term;
                      ToFloat(kDTypeOf<T>, inputs[0] + at, total.data(), n);
                      for (size_t k = 1; k < inputs.size(); ++k) {
                        ToFloat(kDTypeOf<T>, inputs[k] + at, term.data(), n);
                        AddTo(total.data(), term.data(), n);
                      }
                      FromFloat(kDTypeOf<T>, total.data(), sum + at, n);
                    } else {
                      L* total = reinterpret_cast<L*>(sum + at);
                      if (sum != inputs[0]) std::copy_n(inputs[0] + at, n, sum + at);
                      for (size_t k = 1; k < inputs.size(); ++k)
                        AddTo(total, reinterpret_cast<const L*>(inputs[k] + at), n);
                    }
                  }
                });
  return absl::OkStatus();
}

class GpuAddN final : public GpuKernel {
 public:
  explicit GpuAddN(DType dtype)
      : run_(*this, "math/add_n.cu", absl::StrCat("AddN<", GpuTypeName(dtype), ">")) {}

  absl::Status Compute(KernelContext& c) override {
    RETURN_IF_ERROR(CheckSameShapes(c));
    if (c.num_inputs() == 1) {
      c.SetOutput(0, c.input(0));
      return absl::OkStatus();
    }
    const Shape shape = c.input(0).shape();
    const int64_t count = shape.num_elements();
    absl::InlinedVector<const void*, 8> rest;
    for (int i = c.num_inputs() - 1; i >= 0; --i) rest.push_back(GpuIn(c.input(i)));
    ASSIGN_OR_RETURN(Tensor* const output, c.ForwardOrAllocate({0}, 0, shape));
    while (!rest.empty()) {
      GpuAddends inputs;
      if (rest.size() < static_cast<size_t>(c.num_inputs()))
        inputs.at[inputs.count++] = GpuIn(*output);  // the sum so far
      for (; !rest.empty() && inputs.count < GpuAddends::kMost; rest.pop_back())
        inputs.at[inputs.count++] = rest.back();
      RETURN_IF_ERROR(
          run_.LaunchForEach(GpuPacks(count, output->dtype()), inputs, GpuOut(*output), count));
    }
    return absl::OkStatus();
  }

 private:
  GpuFunction run_;
};

absl::Status AddNShape(ShapeContext& c) {
  PartialShape shape = c.input(c.num_inputs() - 1);
  for (int i = c.num_inputs() - 2; i >= 0; --i) {
    absl::StatusOr<PartialShape> merged = c.input(i).Merge(shape);
    if (!merged.ok())
      return Suffixed(merged.status(),
                      absl::StrCat("\n\tFrom merging shape ", i, " with other shapes."));
    shape = *std::move(merged);
  }
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status AccumulateShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.Attr<PartialShape>("shape"));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status CopyGradient(GradientContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) c.SetDx(i, c.gradient(0));
  return absl::OkStatus();
}

DEFINE_OP(AddN) {
  op.Attr("N: int >= 1");
  op.Attr(
      "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
      "bfloat16, qint16, "
      "quint16, uint16, complex128, half, uint32, uint64, variant}");
  op.Input("inputs: N * T")
      .Output("sum: T")
      .Doc("The sum of all inputs.")
      .Commutative()
      .Aggregate()
      .Shape(AddNShape)
      .Gradient(CopyGradient)
      .Cpu(AddVariants, {{"T", DType::kVariant}})
      .CpuTypes<Numbers>("T", []<typename T>() { return Stateless(RunAddN<T>); })
      .GpuTypes("T", {DType::kVariant}, [](DType) { return Stateless(AddVariants); })
      .GpuTypes("T", With(kGpuFields, {DType::kInt64}), KernelOnGpu<GpuAddN>())
      .GpuOnHost("T");
}
DEFINE_OP(AccumulateNV2) {
  op.Attr("N: int >= 1");
  op.Attr(
      "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
      "bfloat16, qint16, "
      "quint16, uint16, complex128, half, uint32, uint64}");
  op.Attr("shape: shape")
      .Input("inputs: N * T")
      .Output("sum: T")
      .Doc("The sum of all inputs, whose shape is declared.")
      .Commutative()
      .Aggregate()
      .Shape(AccumulateShape)
      .Gradient(CopyGradient)
      .CpuTypes<Numbers>("T", []<typename T>() { return Stateless(RunAddN<T>); });
}

}  // namespace
}  // namespace muster
