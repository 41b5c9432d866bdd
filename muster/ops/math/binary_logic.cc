// Comparisons, truth values and bits, with broadcasting. None of them has a derivative.
#include <cmath>
#include <limits>

#include "muster/ops/math/elementwise.h"
#include "muster/ops/math/elementwise_gpu.h"

namespace muster {
namespace {

constexpr const char* kRealTypes =
    "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}";
constexpr const char* kIntegerTypes =
    "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}";
constexpr const char* kNoDerivative = "truth values have no derivative";

using Comparable = Join<Numbers, Types<bool, std::string>>;
const std::vector<DType> kGpuCompared = {DType::kUint8, DType::kInt8, DType::kInt16, DType::kInt64};

struct Equal {
  static constexpr bool kWraps = true;
  static constexpr double kCost = 0.3;
  template <typename T>
  static bool Apply(const T& x, const T& y) {
    return x == y;
  }
};
struct NotEqual {
  static constexpr bool kWraps = true;
  static constexpr double kCost = 0.3;
  template <typename T>
  static bool Apply(const T& x, const T& y) {
    return x != y;
  }
};
struct Less {
  static constexpr double kCost = 0.3;
  template <typename T>
  static bool Apply(const T& x, const T& y) {
    return x < y;
  }
};
struct LessEqual {
  static constexpr double kCost = 0.3;
  template <typename T>
  static bool Apply(const T& x, const T& y) {
    return x <= y;
  }
};
struct Greater {
  static constexpr double kCost = 0.3;
  template <typename T>
  static bool Apply(const T& x, const T& y) {
    return x > y;
  }
};
struct GreaterEqual {
  static constexpr double kCost = 0.3;
  template <typename T>
  static bool Apply(const T& x, const T& y) {
    return x >= y;
  }
};
struct And {
  static constexpr double kCost = 0.2;
  static bool Apply(bool x, bool y) { return x & y; }
};
struct Or {
  static constexpr double kCost = 0.2;
  static bool Apply(bool x, bool y) { return x | y; }
};
struct BitwiseAnd {
  static constexpr bool kWraps = true;
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    return static_cast<T>(x & y);
  }
};
struct BitwiseOr {
  static constexpr bool kWraps = true;
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    return static_cast<T>(x | y);
  }
};
struct BitwiseXor {
  static constexpr bool kWraps = true;
  static constexpr double kCost = 0.3;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    return static_cast<T>(x ^ y);
  }
};
// Distances are cut to [0, bits - 1].
template <typename T>
int ShiftDistance(T y) {
  constexpr int kLast = std::numeric_limits<std::make_unsigned_t<T>>::digits - 1;
  if (y < T(0)) return 0;
  return y > T(kLast) ? kLast : static_cast<int>(y);
}
struct LeftShift {
  static constexpr double kCost = 0.5;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(x) << ShiftDistance(y));
  }
};
struct RightShift {
  static constexpr double kCost = 0.5;
  template <typename T>
  static T Apply(const T& x, const T& y) {
    return static_cast<T>(x >> ShiftDistance(y));
  }
};

// Quantized integers compare as the integers they are stored in.
void AddQuantized(OpBuilder& op, BinarySpec (*spec)(DType), bool mismatch) {
  for (const DType dtype :
       {DType::kQint8, DType::kQuint8, DType::kQint16, DType::kQuint16, DType::kQint32}) {
    op.Cpu(ComparisonKernel(spec(dtype), mismatch), {{"T", dtype}});
  }
}
template <typename F>
BinarySpec QuantizedSpec(DType dtype) {
  BinarySpec spec = dtype == DType::kQint32 ? BinarySpecOf<F, uint32_t>()
                    : dtype == DType::kQint16 || dtype == DType::kQuint16
                        ? BinarySpecOf<F, uint16_t>()
                        : BinarySpecOf<F, uint8_t>();
  spec.in = dtype;
  return spec;
}

absl::Status EqualityShape(ShapeContext& c) {
  absl::StatusOr<PartialShape> shape = BroadcastShapes(c.input(0), c.input(1));
  ASSIGN_OR_RETURN(const bool shape_error, c.Attr<bool>("incompatible_shape_error"));
  if (!shape.ok()) {
    if (shape_error) return shape.status();
    shape = PartialShape();
  } else if (!shape_error && !(c.input(0).fully_known() && c.input(1).fully_known())) {
    shape = PartialShape();  // may turn out to be a scalar
  }
  c.SetOutput(0, *std::move(shape));
  return absl::OkStatus();
}

template <typename F>
void DefineEquality(OpBuilder& op, const char* function, const char* doc, bool mismatch) {
  op.Attr("T: type")
      .Attr("incompatible_shape_error: bool = true")
      .Input("x: T")
      .Input("y: T")
      .Output("z: bool");
  op.Doc(doc).Commutative().Shape(EqualityShape).NoGradient(kNoDerivative);
  op.CpuTypes<Comparable>(
      "T", [mismatch]<typename T>() { return ComparisonKernel(BinarySpecOf<F, T>(), mismatch); });
  AddQuantized(op, QuantizedSpec<F>, mismatch);
  op.GpuTypes("T", With(With(kGpuFields, kGpuCompared), {DType::kBool}),
              ComparisonOnGpu(function, mismatch))
      .GpuOnHost("T");
}
template <typename F>
void DefineOrder(OpBuilder& op, const char* function, const char* doc) {
  op.Attr(kRealTypes)
      .Input("x: T")
      .Input("y: T")
      .Output("z: bool")
      .Doc(doc)
      .Shape(BroadcastBinaryShape);
  op.NoGradient(kNoDerivative)
      .CpuTypes<Reals>("T", Binary<F>())
      .GpuTypes("T", With(kGpuFloats, kGpuCompared), BinaryOnGpu(function))
      .GpuOnHost("T");
}
template <typename F>
void DefineLogical(OpBuilder& op, const char* function, const char* doc) {
  op.Input("x: bool").Input("y: bool").Output("z: bool").Doc(doc).Commutative().Shape(
      BroadcastBinaryShape);
  op.NoGradient(kNoDerivative)
      .Cpu(ElementwiseKernel(BinarySpecOf<F, bool>()))
      .GpuUntyped(BinaryOnGpu(function)(DType::kBool));
}
template <typename F>
void DefineBits(OpBuilder& op, const char* function, const char* doc) {
  op.Attr(kIntegerTypes)
      .Input("x: T")
      .Input("y: T")
      .Output("z: T")
      .Doc(doc)
      .Shape(BroadcastBinaryShape);
  op.NoGradient("bits have no derivative")
      .CpuTypes<Integers>("T", Binary<F>())
      .GpuTypes("T", kGpuIntegers, BinaryOnGpu(function));
}

absl::Status CheckSameShape(const Shape& x, const Shape& y) {
  if (x == y) return absl::OkStatus();
  return InvalidArgument("x and y must be of the same shape. x shape: ", x.ToString(),
                         ". y shape: ", y.ToString());
}

class ApproximateEqual final : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(tolerance_, setup.Attr<float>("tolerance"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    const Tensor& y = c.input(1);
    RETURN_IF_ERROR(CheckSameShape(x.shape(), y.shape()));
    ASSIGN_OR_RETURN(Tensor * z, c.AllocateOutput(0, x.shape()));
    if (x.dtype() == DType::kFloat) {
      Compare(c, x.data<float>(), y.data<float>(), z->data<bool>(), x.num_elements());
    } else {
      Compare(c, x.data<double>(), y.data<double>(), z->data<bool>(), x.num_elements());
    }
    return absl::OkStatus();
  }

 private:
  template <typename T>
  void Compare(KernelContext& c, const T* x, const T* y, bool* z, int64_t count) const {
    const T tolerance = static_cast<T>(tolerance_);
    c.ParallelFor(count, 0.3, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) z[i] = std::fabs(x[i] - y[i]) < tolerance;
    });
  }
  float tolerance_ = 0;
};

class GpuApproximateEqual final : public GpuKernel {
 public:
  explicit GpuApproximateEqual(DType dtype)
      : run_(*this, "math/binary.cu", absl::StrCat("ApproximateEqual<", GpuTypeName(dtype), ">")) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    ASSIGN_OR_RETURN(tolerance_, setup.Attr<float>("tolerance"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    const Tensor& y = c.input(1);
    RETURN_IF_ERROR(CheckSameShape(x.shape(), y.shape()));
    ASSIGN_OR_RETURN(Tensor* const z, c.AllocateOutput(0, x.shape()));
    return run_.LaunchForEach(x.num_elements(), GpuIn(x), GpuIn(y), GpuOut(*z), x.num_elements(),
                              tolerance_);
  }

 private:
  GpuFunction run_;
  float tolerance_ = 0;
};

DEFINE_OP(Equal) {
  DefineEquality<Equal>(op, "Equal", "Whether x == y.", false);
}
DEFINE_OP(NotEqual) {
  DefineEquality<NotEqual>(op, "NotEqual", "Whether x != y.", true);
}
DEFINE_OP(Less) {
  DefineOrder<Less>(op, "Less", "Whether x < y.");
}
DEFINE_OP(LessEqual) {
  DefineOrder<LessEqual>(op, "LessEqual", "Whether x <= y.");
}
DEFINE_OP(Greater) {
  DefineOrder<Greater>(op, "Greater", "Whether x > y.");
}
DEFINE_OP(GreaterEqual) {
  DefineOrder<GreaterEqual>(op, "GreaterEqual", "Whether x >= y.");
}
DEFINE_OP(LogicalAnd) {
  DefineLogical<And>(op, "And", "Whether both are true.");
}
DEFINE_OP(LogicalOr) {
  DefineLogical<Or>(op, "Or", "Whether at least one is true.");
}
DEFINE_OP(BitwiseAnd) {
  DefineBits<BitwiseAnd>(op.Commutative(), "BitwiseAnd", "Bits set in both.");
}
DEFINE_OP(BitwiseOr) {
  DefineBits<BitwiseOr>(op.Commutative(), "BitwiseOr", "Bits set in at least one.");
}
DEFINE_OP(BitwiseXor) {
  DefineBits<BitwiseXor>(op.Commutative(), "BitwiseXor", "Bits set in exactly one.");
}
DEFINE_OP(LeftShift) {
  DefineBits<LeftShift>(op, "LeftShift", "Bits moved left, with zeros coming in.");
}
DEFINE_OP(RightShift) {
  DefineBits<RightShift>(op, "RightShift",
                         "Bits moved right; copies of the sign come in for signed types.");
}

DEFINE_OP(ApproximateEqual) {
  op.Attr(
      "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
      "bfloat16, qint16, "
      "quint16, uint16, complex128, half, uint32, uint64}");
  op.Attr("tolerance: float = 9.999999747378752e-06")
      .Input("x: T")
      .Input("y: T")
      .Output("z: bool")
      .Commutative();
  op.Doc("Whether values differ by less than the tolerance.")
      .Shape(MergedShape)
      .NoGradient(kNoDerivative)
      .CpuTypes<Types<float, double>>("T", []<typename T>() { return New<ApproximateEqual>(); })
      .GpuTypes("T", kGpuPreciseFloats, KernelOnGpu<GpuApproximateEqual>());
}

}  // namespace
}  // namespace muster
