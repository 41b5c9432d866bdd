// Cumsum and Cumprod: running sums and products along one axis.
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

// Integers wrap around in the unsigned type of their size; 16-bit floats are rounded at every step,
// as each result is.
template <typename T>
struct Running {
  using type = T;
};
template <typename T>
requires std::is_integral_v<T>
struct Running<T> {
  using type = std::make_unsigned_t<T>;
};

struct Add {
  static constexpr int kStart = 0;
  template <typename A>
  static A Apply(A a, A b) {
    return static_cast<A>(a + b);
  }
};
struct Multiply {
  static constexpr int kStart = 1;
  template <typename A>
  static A Apply(A a, A b) {
    if constexpr (std::is_integral_v<A> && sizeof(A) < 4) {
      return static_cast<A>(uint32_t{a} * uint32_t{b});
    } else if constexpr (std::is_same_v<A, Complex64> || std::is_same_v<A, Complex128>) {
      return A(a.real() * b.real() - a.imag() * b.imag(),
               a.real() * b.imag() + a.imag() * b.real());
    } else {
      return static_cast<A>(a * b);
    }
  }
};

template <typename Op, typename T>
T Step(T a, T b) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>) {
    return T(Op::template Apply<float>(static_cast<float>(a), static_cast<float>(b)));
  } else {
    return Op::template Apply<T>(a, b);
  }
}

absl::StatusOr<int> ScanAxis(KernelContext& c) {
  if (c.input(1).rank() != 0) {
    return InvalidArgument("ScanOp: axis must be a scalar, not ", c.input(1).shape().ToString());
  }
  ASSIGN_OR_RETURN(const int64_t axis, ScalarInteger(c.input(1), "axis"));
  const int rank = c.input(0).rank();
  if (axis < -rank || axis >= rank) {
    return InvalidArgument("ScanOp: Expected scan axis in the range [", -rank, ", ", rank,
                           "), but got ", axis);
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

// [outer, length, inner], along the middle. Columns advance together, so that the inner loop is
// contiguous.
template <typename Op, typename T>
class Scan : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(exclusive_, setup.Attr<bool>("exclusive"));
    ASSIGN_OR_RETURN(reverse_, setup.Attr<bool>("reverse"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(const int at, ScanAxis(c));
    const int rank = input.rank();
    ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, input.shape()));
    if (input.num_elements() == 0) return absl::OkStatus();
    using A = typename Running<T>::type;
    const A* const from = reinterpret_cast<const A*>(input.raw());
    A* const to = reinterpret_cast<A*>(out->raw());
    const int64_t outer = input.shape().ElementsIn(0, at);
    const int64_t length = input.dim(at);
    const int64_t inner = input.shape().ElementsIn(at + 1, rank);
    c.ParallelFor(outer, static_cast<double>(length * inner), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        ScanBlock(from + i * length * inner, to + i * length * inner, length, inner);
    });
    return absl::OkStatus();
  }

 private:
  template <typename A>
  void ScanBlock(const A* from, A* to, int64_t length, int64_t inner) const {
    const int64_t first = reverse_ ? (length - 1) * inner : 0;
    const int64_t step = reverse_ ? -inner : inner;
    for (int64_t j = 0; j < inner; ++j)
      to[first + j] = exclusive_ ? A(static_cast<float>(Op::kStart)) : from[first + j];
    for (int64_t i = 1; i < length; ++i) {
      const A* __restrict previous = to + first + (i - 1) * step;
      const A* __restrict taken = from + first + (exclusive_ ? i - 1 : i) * step;
      A* __restrict result = to + first + i * step;
      for (int64_t j = 0; j < inner; ++j) result[j] = Step<Op, A>(previous[j], taken[j]);
    }
  }

  bool exclusive_ = false;
  bool reverse_ = false;
};

// `op` is a struct of scan.cu.
class GpuScan final : public GpuKernel {
 public:
  GpuScan(const char* op, DType dtype)
      : by_threads_(*this, "math/scan.cu",
                    absl::StrCat("ScanByThreads<", op, ", ", GpuTypeName(dtype), ">")),
        by_blocks_(*this, "math/scan.cu",
                   absl::StrCat("ScanByBlocks<", op, ", ", GpuTypeName(dtype), ">")) {}
  absl::Status Init(KernelSetup& setup) override {
    RETURN_IF_ERROR(GpuKernel::Init(setup));
    ASSIGN_OR_RETURN(exclusive_, setup.Attr<bool>("exclusive"));
    ASSIGN_OR_RETURN(reverse_, setup.Attr<bool>("reverse"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(const int at, ScanAxis(c));
    ASSIGN_OR_RETURN(Tensor* const out, c.AllocateOutput(0, input.shape()));
    if (input.num_elements() == 0) return absl::OkStatus();
    const int64_t inner = input.shape().ElementsIn(at + 1, input.rank());
    ScanShape shape;
    shape.length = input.dim(at);
    shape.series = input.num_elements() / shape.length;
    shape.inner = GpuDivisor(inner);
    shape.exclusive = exclusive_ ? 1 : 0;
    shape.reverse = reverse_ ? 1 : 0;
    const bool many = inner >= kCoalesced && shape.series >= gpu().multiprocessors() * kThreads;
    if (shape.length <= kShort || many)
      return by_threads_.LaunchForEach(shape.series, GpuIn(input), GpuOut(*out), shape);
    GpuGrid grid;
    grid.threads_x = kThreads;
    grid.blocks_x = static_cast<unsigned>(std::min(shape.series, kMostBlocks));
    return by_blocks_.Launch(grid, GpuIn(input), GpuOut(*out), shape);
  }

 private:
  static constexpr int64_t kShort = 64;
  static constexpr int64_t kCoalesced = 16;  // neighbours that make accesses of threads efficient
  static constexpr int64_t kThreads = 256;
  static constexpr int64_t kMostBlocks = 1 << 20;
  // The layout of the struct in scan.cu.
  struct ScanShape {
    int64_t series, length;
    GpuDivisor inner;
    int32_t exclusive, reverse;
  };
  GpuFunction by_threads_;
  GpuFunction by_blocks_;
  bool exclusive_ = false;
  bool reverse_ = false;
};
GpuKernels ScanOnGpu(const char* op) {
  return [=](DType dtype) -> KernelFactory {
    return [=] { return std::make_unique<GpuScan>(op, dtype); };
  };
}
const std::vector<DType> kGpuScanned = With(kGpuFloats, {DType::kInt32, DType::kInt64});

absl::Status DifferentiateCumsum(GradientContext& g) {
  g.SetDx(0,
          g.Op("Cumsum", {g.dy(), g.input(1)},
               {{"exclusive", g.Attr<bool>("exclusive")}, {"reverse", !g.Attr<bool>("reverse")}}));
  return absl::OkStatus();
}

absl::Status DifferentiateCumprod(GradientContext& g) {
  const bool exclusive = g.Attr<bool>("exclusive");
  const bool reverse = g.Attr<bool>("reverse");
  const Output x = g.input(0);
  const Output axis = g.input(1);
  const Output dy = g.dy();
  const Output product =
      g.Op("Cumprod", {x, axis}, {{"exclusive", exclusive}, {"reverse", reverse}});
  const Output scaled = g.Op("Mul", {product, dy}, {}, "mul");
  const Output sum =
      g.Op("Cumsum", {scaled, axis}, {{"exclusive", exclusive}, {"reverse", !reverse}});
  g.SetDx(0, g.Op("RealDiv", {sum, x}, {}, "truediv"));
  return absl::OkStatus();
}

void DefineScan(OpBuilder& op, const char* doc) {
  op.Attr("exclusive: bool = false")
      .Attr("reverse: bool = false")
      .Attr(
          "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
          "bfloat16, qint16, quint16, "
          "uint16, complex128, half, uint32, uint64}")
      .Attr("Tidx: {int32, int64} = DT_INT32")
      .Input("x: T")
      .Input("axis: Tidx")
      .Output("out: T")
      .Doc(doc)
      .Shape(UnchangedShape)
      .HostMemory({"axis"});
}

DEFINE_OP(Cumsum) {
  DefineScan(op, "Running sums along an axis.");
  op.Gradient(DifferentiateCumsum)
      .CpuTypes<Numbers>("T", []<typename T>() { return New<Scan<Add, T>>(); })
      .GpuTypes("T", kGpuScanned, ScanOnGpu("Add"));
}

DEFINE_OP(Cumprod) {
  DefineScan(op, "Running products along an axis.");
  op.Gradient(DifferentiateCumprod)
      .CpuTypes<Numbers>("T", []<typename T>() { return New<Scan<Multiply, T>>(); })
      .GpuTypes("T", kGpuScanned, ScanOnGpu("Multiply"));
}

}  // namespace
}  // namespace muster
