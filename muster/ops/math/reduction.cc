// Sum, Mean, Prod, Max, Min, All, Any, EuclideanNorm.
#include <cmath>

#include "absl/strings/str_cat.h"

#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/math/reduce.h"
#include "muster/ops/math/reduce_gpu.h"
#include "muster/ops/math/reduction_gradients.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

template <typename T>
constexpr bool kIsShortFloat = std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>;
template <typename T>
constexpr bool kIsComplex = std::is_same_v<T, Complex64> || std::is_same_v<T, Complex128>;

// Sums of T without undefined overflow: integers in the unsigned type of their size, short floats
// in float.
template <typename T>
struct SumType {
  using type = Compute<T>;
};
template <typename T>
requires std::is_integral_v<T>
struct SumType<T> {
  using type = std::make_unsigned_t<T>;
};

template <typename T, typename A>
void ConvertElements(const T* from, int64_t count, A* to) {
  if constexpr (kIsShortFloat<T>) {
    ConvertArray(from, count, to);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<A>(from[i]);
  }
}

template <typename T, typename A>
T Rounded(A value) {
  return static_cast<T>(value);
}

template <typename Element>
struct SumOp {
  using T = Element;
  using R = Element;
  using A = typename SumType<Element>::type;
  static constexpr bool kDirect = sizeof(A) == sizeof(T);
  static A Identity() { return A(0); }
  template <typename V>
  static V Combine(V a, V b) {
    return static_cast<V>(a + b);
  }
  static void Convert(const T* from, int64_t count, A* to) { ConvertElements(from, count, to); }
  static R Finish(A value, int64_t /*terms*/) { return Rounded<R>(value); }
};

template <typename Element>
struct ProdOp : SumOp<Element> {
  using typename SumOp<Element>::A;
  static A Identity() { return A(1); }
  template <typename V>
  static V Combine(V a, V b) {
    if constexpr (std::is_same_v<V, Complex64> || std::is_same_v<V, Complex128>) {
      return V(a.real() * b.real() - a.imag() * b.imag(),
               a.real() * b.imag() + a.imag() * b.real());
    } else if constexpr (std::is_integral_v<V> && sizeof(V) < 4) {
      return static_cast<V>(uint32_t{a} * uint32_t{b});
    } else {
      return static_cast<V>(a * b);
    }
  }
};

// Means of integers are summed in 64 bits and truncated.
template <typename Element>
struct MeanOp {
  using T = Element;
  using R = Element;
  using A = std::conditional_t<std::is_integral_v<T>, uint64_t, Compute<T>>;
  static constexpr bool kDirect = sizeof(A) == sizeof(T);
  static A Identity() { return A(0); }
  template <typename V>
  static V Combine(V a, V b) {
    return static_cast<V>(a + b);
  }
  static void Convert(const T* from, int64_t count, A* to) { ConvertElements(from, count, to); }
  static R Finish(A sum, int64_t terms) {
    if constexpr (std::is_integral_v<T>) {
      if (terms == 0) return 0;
      if constexpr (std::is_signed_v<T>) return static_cast<R>(static_cast<int64_t>(sum) / terms);
      return static_cast<R>(sum / static_cast<uint64_t>(terms));
    } else if constexpr (kIsComplex<T>) {
      return terms == 0 ? R(0) : sum / static_cast<typename T::value_type>(terms);
    } else {
      return Rounded<R>(sum / static_cast<A>(terms));
    }
  }
};

// NaN wins, whichever side it is on.
template <typename Element, bool kMax>
struct ExtremeOp {
  using T = Element;
  using R = Element;
  using A = Compute<Element>;
  static constexpr bool kDirect = std::is_same_v<T, A>;
  static A Identity() {
    if constexpr (std::numeric_limits<A>::has_infinity) {
      return kMax ? -std::numeric_limits<A>::infinity() : std::numeric_limits<A>::infinity();
    } else {
      return kMax ? std::numeric_limits<A>::lowest() : std::numeric_limits<A>::max();
    }
  }
  template <typename V>
  static V Combine(V a, V b) {
    if constexpr (std::is_same_v<V, A>) {
      const bool keep = kMax ? a > b : a < b;
      return (keep | (a != a)) ? a : b;
    } else if constexpr (std::is_floating_point_v<A>) {
      return kMax ? ((a > b) | (a != a)) ? a : b : ((a < b) | (a != a)) ? a : b;
    } else {
      return kMax ? (a > b) ? a : b : (a < b) ? a : b;
    }
  }
  static void Convert(const T* from, int64_t count, A* to) { ConvertElements(from, count, to); }
  static R Finish(A value, int64_t /*terms*/) { return Rounded<R>(value); }
};
template <typename T>
using MaxOp = ExtremeOp<T, true>;
template <typename T>
using MinOp = ExtremeOp<T, false>;

// Roots of sums of squares. Squares and sums of integers wrap around in their own type; the root of
// what became negative is 0.
template <typename Element>
struct NormOp {
  using T = Element;
  using R = Element;
  using A = std::conditional_t<
      std::is_same_v<T, Complex64>, float,
      std::conditional_t<std::is_same_v<T, Complex128>, double, typename SumType<T>::type>>;
  static constexpr bool kDirect = false;
  static A Identity() { return A(0); }
  template <typename V>
  static V Combine(V a, V b) {
    return static_cast<V>(a + b);
  }
  static void Convert(const T* from, int64_t count, A* to) {
    if constexpr (kIsComplex<T>) {
      for (int64_t i = 0; i < count; ++i)
        to[i] = from[i].real() * from[i].real() + from[i].imag() * from[i].imag();
    } else if constexpr (std::is_integral_v<T>) {
      for (int64_t i = 0; i < count; ++i)
        to[i] = static_cast<A>(static_cast<uint64_t>(from[i]) * static_cast<uint64_t>(from[i]));
    } else {
      ConvertElements(from, count, to);
      for (int64_t i = 0; i < count; ++i) to[i] *= to[i];
    }
  }
  static R Finish(A value, int64_t /*terms*/) {
    if constexpr (std::is_integral_v<T>) {
      const T sum = static_cast<T>(value);
      return sum > 0 ? static_cast<R>(std::sqrt(static_cast<double>(sum))) : R(0);
    } else {
      return Rounded<R>(std::sqrt(value));
    }
  }
};

template <bool kAll>
struct LogicalOp {
  using T = bool;
  using R = bool;
  using A = uint8_t;
  static constexpr bool kDirect = true;
  static A Identity() { return kAll ? 1 : 0; }
  template <typename V>
  static V Combine(V a, V b) {
    return kAll ? static_cast<V>(a & b) : static_cast<V>(a | b);
  }
  static R Finish(A value, int64_t /*terms*/) { return value != 0; }
};

// `kUnchanged`: one term is its own result, so that nothing need be done where no dim larger than 1
// is reduced.
template <typename Op, bool kUnchanged>
class Reduction : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(keep_dims_, setup.Attr<bool>("keep_dims"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(const ReductionPlan plan,
                     PlanReduction(input.shape(), c.input(1), keep_dims_));
    if (kUnchanged && plan.terms == 1) {
      c.SetOutput(0, input.Reshaped(plan.output));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, plan.output));
    static constexpr Reducer kReducer = Reductions<Op>::Make();
    return RunReduction(c, kReducer, plan, input.raw(), out->raw(), sizeof(typename Op::R));
  }

 private:
  bool keep_dims_ = false;
};

class GpuReduction final : public GpuKernel {
 public:
  GpuReduction(const std::string& op, bool unchanged)
      : unchanged_(unchanged), reducer_(*this, op) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    ASSIGN_OR_RETURN(keep_dims_, setup.Attr<bool>("keep_dims"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(const ReductionPlan plan,
                     PlanReduction(input.shape(), c.input(1), keep_dims_));
    if (unchanged_ && plan.terms == 1) {
      c.SetOutput(0, input.Reshaped(plan.output));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(Tensor* const out, c.AllocateOutput(0, plan.output));
    return reducer_.Run(c, plan, input, *out);
  }

 private:
  const bool unchanged_;
  const GpuReducer reducer_;
  bool keep_dims_ = false;
};
// `function` is a struct of reduction.cu.
GpuKernels ReductionOnGpu(const char* function, bool unchanged = true) {
  return [=](DType dtype) -> KernelFactory {
    const std::string op = absl::StrCat(function, "<", GpuTypeName(dtype), ">");
    return [=] { return std::make_unique<GpuReduction>(op, unchanged); };
  };
}

void DefineReduction(OpBuilder& op, const char* type_attr, const char* doc) {
  op.Attr("keep_dims: bool = false");
  if (type_attr != nullptr) op.Attr(type_attr);
  op.Attr("Tidx: {int32, int64} = DT_INT32")
      .Input(type_attr != nullptr ? "input: T" : "input: bool")
      .Input("reduction_indices: Tidx")
      .Output(type_attr != nullptr ? "output: T" : "output: bool")
      .Doc(doc)
      .Shape(ReductionShape)
      .HostMemory({"reduction_indices"});
}

constexpr char kNumbers[] =
    "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
    "bfloat16, qint16, quint16, "
    "uint16, complex128, half, uint32, uint64}";
constexpr char kOrdered[] =
    "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, "
    "qint8, quint8, qint32, "
    "qint16, quint16}";

// Adding and multiplying need no signs: integers of one size share their code.
template <typename T>
struct Unsigned {
  using type = T;
};
template <typename T>
requires std::is_integral_v<T>
struct Unsigned<T> {
  using type = std::make_unsigned_t<T>;
};
template <typename T>
using UnsignedOf = typename Unsigned<T>::type;

DEFINE_OP(Sum) {
  DefineReduction(op, kNumbers, "Sums over the given axes.");
  op.Gradient(DifferentiateSum)
      .CpuTypes<Numbers>("T",
                         []<typename T>() { return New<Reduction<SumOp<UnsignedOf<T>>, true>>(); })
      .GpuTypes("T", With(kGpuFields, {DType::kInt64}), ReductionOnGpu("Sum"))
      .GpuOnHost("T");
}

DEFINE_OP(Mean) {
  DefineReduction(op, kNumbers, "Means over the given axes; those of integers are truncated.");
  op.Gradient(DifferentiateMean)
      .CpuTypes<Numbers>("T", []<typename T>() { return New<Reduction<MeanOp<T>, true>>(); })
      .GpuTypes("T", kGpuFields, ReductionOnGpu("Mean"));
}

DEFINE_OP(Prod) {
  DefineReduction(op, kNumbers, "Products over the given axes.");
  op.Gradient(DifferentiateProd)
      .CpuTypes<Numbers>("T",
                         []<typename T>() { return New<Reduction<ProdOp<UnsignedOf<T>>, true>>(); })
      .GpuTypes("T", With(kGpuFields, {DType::kInt32}), ReductionOnGpu("Prod"));
}

DEFINE_OP(Max) {
  DefineReduction(op, kOrdered, "Largest elements over the given axes.");
  op.Gradient(DifferentiateExtreme)
      .CpuTypes<Reals>("T", []<typename T>() { return New<Reduction<MaxOp<T>, true>>(); })
      .GpuTypes("T", With(kGpuFloats, {DType::kInt64}), ReductionOnGpu("Max"))
      .GpuOnHost("T");
}

DEFINE_OP(Min) {
  DefineReduction(op, kOrdered, "Smallest elements over the given axes.");
  op.Gradient(DifferentiateExtreme)
      .CpuTypes<Reals>("T", []<typename T>() { return New<Reduction<MinOp<T>, true>>(); })
      .GpuTypes("T", kGpuFloats, ReductionOnGpu("Min"))
      .GpuOnHost("T");
}

DEFINE_OP(EuclideanNorm) {
  DefineReduction(op, kNumbers, "Euclidean norms over the given axes.");
  op.Gradient(DifferentiateNorm)
      .CpuTypes<Numbers>("T", []<typename T>() { return New<Reduction<NormOp<T>, false>>(); })
      .GpuTypes("T", kGpuFields, ReductionOnGpu("EuclideanNorm", false));
}

DEFINE_OP(All) {
  DefineReduction(op, nullptr, "Whether all elements are true, over the given axes.");
  op.Cpu(New<Reduction<LogicalOp<true>, true>>()).GpuUntyped([] {
    return std::make_unique<GpuReduction>("All", true);
  });
}

DEFINE_OP(Any) {
  DefineReduction(op, nullptr, "Whether an element is true, over the given axes.");
  op.Cpu(New<Reduction<LogicalOp<false>, true>>()).GpuUntyped([] {
    return std::make_unique<GpuReduction>("Any", true);
  });
}

}  // namespace
}  // namespace muster
