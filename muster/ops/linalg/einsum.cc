// Einsum: sums of products over named axes, of one or two tensors. Operands are brought into the
// form [batch, free, summed], multiplied as matrices, and the product is laid out as asked.
#include "muster/ops/linalg/einsum_plan.h"
#include "muster/ops/linalg/matmul.h"

namespace muster {
namespace {

template <typename T>
struct SumOf {
  using type = T;
};
template <>
struct SumOf<Half> {
  using type = float;
};
template <>
struct SumOf<Bfloat16> {
  using type = float;
};
template <>
struct SumOf<int32_t> {
  using type = uint32_t;
};
template <>
struct SumOf<int64_t> {
  using type = uint64_t;
};

template <typename T>
absl::StatusOr<Tensor> Packed(KernelContext& c, const Tensor& from, const EinsumAxes& kept,
                              const EinsumAxes& summed) {
  ASSIGN_OR_RETURN(Tensor packed, c.AllocateTemporary(from.dtype(), Shape({kept.count()})));
  T* to = packed.data<T>();
  const T* const data = from.data<T>();
  using Sum = typename SumOf<T>::type;
  kept.ForEach([&](int64_t place) {
    if (summed.sizes.empty()) {
      *to++ = data[place];
      return;
    }
    Sum sum = Sum();
    summed.ForEach([&](int64_t more) { sum += static_cast<Sum>(data[place + more]); });
    *to++ = static_cast<T>(sum);
  });
  return packed;
}

template <typename T>
class EinsumKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(equation_, ParseEinsum(setup.node()));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const EinsumPlan plan, PlanEinsum(equation_, c));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, plan.output));
    std::fill_n(output->data<T>(), output->num_elements(), T());
    if (output->num_elements() == 0) return absl::OkStatus();
    std::array<Tensor, 2> packed;
    for (int i = 0; i < c.num_inputs(); ++i) {
      const EinsumPlan::Operand& operand = plan.operands[i];
      ASSIGN_OR_RETURN(packed[i], Packed<T>(c, c.input(i), operand.kept, operand.summed));
    }
    if (c.num_inputs() == 2) {
      ASSIGN_OR_RETURN(packed[0], Multiply(c, packed, plan));
    }
    const T* product = packed[0].data<T>();
    T* const to = output->data<T>();
    plan.places.ForEach([&](int64_t place) { to[place] = *product++; });
    return absl::OkStatus();
  }

 private:
  static absl::StatusOr<Tensor> Multiply(KernelContext& c, const std::array<Tensor, 2>& packed,
                                         const EinsumPlan& plan) {
    GemmShape shape;
    shape.m = plan.m;
    shape.n = plan.n;
    shape.k = plan.k;
    shape.transpose_b = true;
    ASSIGN_OR_RETURN(Tensor product,
                     c.AllocateTemporary(kDTypeOf<T>, Shape({plan.batch, shape.m, shape.n})));
    for (int64_t i = 0; i < plan.batch; ++i) {
      RETURN_IF_ERROR(Gemm<T>(shape, packed[0].data<T>() + i * shape.m * shape.k,
                              packed[1].data<T>() + i * shape.n * shape.k,
                              product.data<T>() + i * shape.m * shape.n, Threads(c)));
    }
    return product;
  }

  EinsumEquation equation_;
};

DEFINE_OP(Einsum) {
  op.Attr("equation: string")
      .Attr("N: int >= 1")
      .Attr("T: type")
      .Input("inputs: N * T")
      .Output("output: T")
      .Doc("Sums of products over named axes.")
      .Shape(EinsumShape);
  op.CpuTypes<ProductTypes>("T", []<typename T>() { return New<EinsumKernel<T>>(); })
      .GpuTypes("T", {DType::kFloat, DType::kDouble, DType::kComplex64, DType::kComplex128},
                MakeGpuEinsum);
}

}  // namespace
}  // namespace muster
