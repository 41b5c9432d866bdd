// _FusedMatMul: a matrix product with a bias and an activation, as TensorFlow's graph optimizer
// makes it of MatMul + BiasAdd + activation. Everything after the product happens in float, while
// its rows are in the cache.
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "muster/ops/linalg/cublas.h"
#include "muster/ops/linalg/cublas_lt.h"
#include "muster/ops/linalg/matmul.h"
#include "muster/ops/linalg/small_product.h"
#include "muster/ops/math/float16.h"
#include "muster/ops/math/float_math.h"
#include "muster/ops/nn/packs.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

enum class Activation : uint8_t {
  kNone,
  kRelu,
  kRelu6,
  kElu,
  kLeakyRelu,
  kTanh,
  kSigmoid,
  kGeluExact,
  kGeluApproximate
};

absl::StatusOr<Activation> ActivationNamed(absl::string_view name) {
  if (name == "Relu") return Activation::kRelu;
  if (name == "Relu6") return Activation::kRelu6;
  if (name == "Elu") return Activation::kElu;
  if (name == "LeakyRelu") return Activation::kLeakyRelu;
  if (name == "Tanh") return Activation::kTanh;
  if (name == "Sigmoid") return Activation::kSigmoid;
  if (name == "GeluExact") return Activation::kGeluExact;
  if (name == "GeluApproximate") return Activation::kGeluApproximate;
  return Unimplemented("Fusion is not implemented: [BiasAdd,", name, "]");
}

template <typename Function>
void Apply(float* __restrict row, const float* __restrict bias, int64_t count, Function function) {
  for (int64_t j = 0; j < count; ++j) row[j] = function(row[j] + bias[j]);
}

void AddBiasAndActivate(Activation activation, float alpha, const float* bias, int64_t count,
                        float* row) {
  // Comparisons are written so that NaN stays NaN.
  switch (activation) {
    case Activation::kNone:
      return Apply(row, bias, count, [](float x) { return x; });
    case Activation::kRelu:
      return Apply(row, bias, count, [](float x) { return x < 0 ? 0.0f : x; });
    case Activation::kRelu6:
      return Apply(row, bias, count, [](float x) { return x < 0 ? 0.0f : (x > 6 ? 6.0f : x); });
    case Activation::kElu:
      return Apply(row, bias, count, [](float x) { return x < 0 ? FastExp(x) - 1.0f : x; });
    case Activation::kLeakyRelu:
      return Apply(row, bias, count, [alpha](float x) { return x < 0 ? alpha * x : x; });
    case Activation::kTanh:
      return Apply(row, bias, count, [](float x) { return FastTanh(x); });
    case Activation::kSigmoid:
      return Apply(row, bias, count, [](float x) { return FastSigmoid(x); });
    case Activation::kGeluExact:
      return Apply(row, bias, count,
                   [](float x) { return 0.5f * x * (1.0f + std::erf(x * 0.70710678118654752f)); });
    case Activation::kGeluApproximate:
      return Apply(row, bias, count, [](float x) {
        return 0.5f * x * (1.0f + FastTanh(0.79788456080286536f * (x + 0.044715f * x * x * x)));
      });
  }
}

struct FusedProduct {
  bool transpose_a = false;
  bool transpose_b = false;
  float alpha = 0.2f;
  Activation activation = Activation::kNone;
};

absl::StatusOr<FusedProduct> ReadFusedProduct(KernelSetup& setup) {
  FusedProduct product;
  ASSIGN_OR_RETURN(product.transpose_a, setup.Attr<bool>("transpose_a"));
  ASSIGN_OR_RETURN(product.transpose_b, setup.Attr<bool>("transpose_b"));
  ASSIGN_OR_RETURN(product.alpha, setup.Attr<float>("leakyrelu_alpha"));
  ASSIGN_OR_RETURN(const std::vector<std::string> fused,
                   setup.Attr<std::vector<std::string>>("fused_ops"));
  if (fused.empty()) return InvalidArgument("Fused MatMul must have at least one fused op.");
  if (fused[0] != "BiasAdd" || fused.size() > 2) {
    return Unimplemented("Fusion is not implemented: [", absl::StrJoin(fused, ","), "]");
  }
  if (fused.size() == 2) {
    ASSIGN_OR_RETURN(product.activation, ActivationNamed(fused[1]));
  }
  ASSIGN_OR_RETURN(const int64_t args, setup.Attr<int64_t>("num_args"));
  if (args != 1)
    return InvalidArgument("Fused MatMul with BiasAdd must have one extra argument: bias.");
  return product;
}

absl::StatusOr<GemmShape> CheckedFusedProduct(const KernelContext& c, const FusedProduct& fused) {
  ASSIGN_OR_RETURN(const GemmShape product, CheckedProduct(c.input(0).shape(), c.input(1).shape(),
                                                           fused.transpose_a, fused.transpose_b));
  const Shape& bias = c.input(2).shape();
  if (!bias.is_vector()) return InvalidArgument("bias must be 1-dimensional ", bias.ToString());
  if (bias[0] != product.n) {
    return InvalidArgument("Must provide as many biases as the channel size: ", bias.ToString(),
                           " vs. ", product.n);
  }
  return product;
}

template <typename T>
class FusedMatMul : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(fused_, ReadFusedProduct(setup));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const GemmShape product, CheckedFusedProduct(c, fused_));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make({product.m, product.n}));
    ASSIGN_OR_RETURN(const Tensor a, AsFloat(c, c.input(0)));
    ASSIGN_OR_RETURN(const Tensor b, AsFloat(c, c.input(1)));
    ASSIGN_OR_RETURN(const Tensor bias, AsFloat(c, c.input(2)));
    ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    Tensor rounded_later;
    float* rows = nullptr;
    if constexpr (std::is_same_v<T, float>) {
      rows = out->data<float>();
    } else {
      ASSIGN_OR_RETURN(rounded_later, c.AllocateTemporary(DType::kFloat, shape));
      rows = rounded_later.data<float>();
    }
    RETURN_IF_ERROR(Gemm(product, a.data<float>(), b.data<float>(), rows, Threads(c)));
    c.ParallelFor(product.m, static_cast<double>(product.n) * 0.5, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        AddBiasAndActivate(fused_.activation, fused_.alpha, bias.data<float>(), product.n,
                           rows + i * product.n);
        if constexpr (!std::is_same_v<T, float>) {
          ConvertArray(rows + i * product.n, product.n, out->data<T>() + i * product.n);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  FusedProduct fused_;
};

// With a bias alone in one call of cublasLt where that is faster than the product by itself and the
// calls that the nodes would have made, which may become part of what comes behind them
// (ops/fusion). Relu is always a call of its own: that of some algorithms of cublasLt makes zeros
// of NaNs, which a program would then never see.
class GpuFusedMatMul : public GpuKernel {
 public:
  explicit GpuFusedMatMul(DType dtype)
      : add_(*this, "nn/bias.cu", absl::StrCat("BiasAdd<", GpuTypeName(dtype), ">")),
        relu_(*this, "nn/activations.cu",
              absl::StrCat("Activate<Relu, ", GpuTypeName(dtype), ">")) {
    if (dtype == DType::kFloat) small_.emplace(*this);
  }

  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    ASSIGN_OR_RETURN(fused_, ReadFusedProduct(setup));
    if (fused_.activation != Activation::kNone && fused_.activation != Activation::kRelu)
      return Unimplemented("Fused MatMul on a GPU has no activation but Relu");
    return PrepareGpuProducts(gpu());
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& a = c.input(0);
    const Tensor& b = c.input(1);
    const Tensor& bias = c.input(2);
    ASSIGN_OR_RETURN(const GemmShape size, CheckedFusedProduct(c, fused_));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make({size.m, size.n}));
    ASSIGN_OR_RETURN(Tensor* const out, c.AllocateOutput(0, shape));
    const bool has_relu = fused_.activation == Activation::kRelu;
    if (small_ && GpuSmallProduct::Takes(size))
      return small_->Multiply(size, a.raw(), b.raw(), bias.raw(), out->raw(), has_relu);
    if (!has_relu) {
      ASSIGN_OR_RETURN(const bool is_done,
                       MultiplyWithBiasOnGpu(gpu(), a.dtype(),
                                             {size, a.raw(), b.raw(), bias.raw(), out->raw()}));
      if (is_done) return absl::OkStatus();
    }
    GpuProducts product;
    product.shape = size;
    product.a = a.raw();
    product.b = b.raw();
    product.c = out->raw();
    RETURN_IF_ERROR(MultiplyOnGpu(gpu(), a.dtype(), product));
    const int64_t count = out->num_elements();
    RETURN_IF_ERROR(add_.LaunchForEach(PacksIn(*out), GpuIn(*out), GpuIn(bias), GpuOut(*out), count,
                                       size.n, int64_t{1}));
    if (!has_relu) return absl::OkStatus();
    return relu_.LaunchForEach(PacksIn(*out), GpuIn(*out), GpuOut(*out), count, 0.0f);
  }

 private:
  std::optional<GpuSmallProduct> small_;
  const GpuFunction add_, relu_;
  FusedProduct fused_;
};

DEFINE_OP(_FusedMatMul) {
  op.Attr("transpose_a: bool = false")
      .Attr("transpose_b: bool = false")
      .Attr("T: {bfloat16, half, float}")
      .Attr("num_args: int >= 0")
      .Attr("fused_ops: list(string) = []")
      .Attr("epsilon: float = 9.999999747378752e-05")
      .Attr("leakyrelu_alpha: float = 0.20000000298023224")
      .Input("a: T")
      .Input("b: T")
      .Input("args: num_args * T")
      .Output("product: T")
      .Doc("A matrix product with the ops that follow it: a bias, then an activation.")
      .Shape(MatMulShape)
      .CpuTypes<Types<Bfloat16, Half, float>>("T",
                                              []<typename T>() { return New<FusedMatMul<T>>(); })
      .GpuTypes("T", GpuShortFloats(), MakeGpu<GpuFusedMatMul>);
}

}  // namespace
}  // namespace muster
