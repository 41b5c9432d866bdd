// Gamma and Poisson samples by rejection. Every output has a stretch of 256 blocks of its own.
#include <cmath>

#include "absl/strings/str_cat.h"

#include "muster/ops/gpu_kernel.h"
#include "muster/ops/op.h"
#include "muster/ops/random/distributions.h"

namespace muster {
namespace {

constexpr uint64_t kBlocksPerValue = 256;

// Uniform doubles of a generator, each block's second value first, as TensorFlow takes them.
class UniformDraws {
 public:
  double Next(Philox& generator) {
    if (left_ == 0) {
      UniformDistribution<double>()(generator, values_);
      left_ = 2;
    }
    return values_[--left_];
  }

 private:
  double values_[2];
  int left_ = 0;
};

class NormalDraws {
 public:
  double Next(Philox& generator) {
    if (left_ == 0) {
      NormalDistribution<double>()(generator, values_);
      left_ = 2;
    }
    return values_[--left_];
  }

 private:
  double values_[2];
  int left_ = 0;
};

// Marsaglia and Tsang: the cube of a normal value, accepted with the help of a uniform one. Shapes
// below one are drawn one higher and brought back with a power of a uniform value.
double DrawGamma(double alpha, Philox generator) {
  UniformDraws uniform;
  if (alpha == 1.0) return -std::log1p(-uniform.Next(generator));
  NormalDraws normal;
  const bool small = alpha < 1;
  const double d = alpha + (small ? 2.0 / 3 : -1.0 / 3);
  const double c = 1.0 / 3 / std::sqrt(d);
  // A NaN or negative alpha would never be accepted.
  if (!(alpha > 0)) return std::numeric_limits<double>::quiet_NaN();
  while (true) {
    const double x = normal.Next(generator);
    double v = 1 + c * x;
    if (v <= 0) continue;
    v = v * v * v;
    const double u = uniform.Next(generator);
    if (u < 1 - 0.0331 * (x * x) * (x * x) ||
        std::log(u) < 0.5 * x * x + d * (1 - v + std::log(v))) {
      const double result = d * v;
      return small ? result * std::pow(uniform.Next(generator), 1 / alpha) : result;
    }
  }
}

constexpr int kMostRedraws = 1000;

// Knuth's product of uniform values for small rates, Hormann's transformed rejection for others.
// Values above `highest` are drawn again, but not for ever: a rate far above it has no others.
double DrawPoisson(double rate, double highest, Philox generator) {
  UniformDraws uniform;
  if (rate < 10) {
    const double limit = std::exp(-rate);
    double product = 1;
    for (double x = 0;; x += 1) {
      product *= uniform.Next(generator);
      if (product <= limit && x <= highest) return x;
    }
  }
  const double log_rate = std::log(rate);
  const double b = 0.931 + 2.53 * std::sqrt(rate);
  const double a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
  int too_high = 0;
  while (true) {
    const double u = uniform.Next(generator) - 0.5;
    const double v = uniform.Next(generator);
    const double shifted = 0.5 - std::abs(u);
    const double k = std::floor((2 * a / shifted + b) * u + rate + 0.43);
    if (k > highest) {
      if (++too_high < kMostRedraws) continue;
      return highest;
    }
    if (shifted >= 0.07 && v <= 0.9277 - 3.6224 / (b - 2)) return k;
    if (k < 0 || (shifted < 0.013 && v > shifted)) continue;
    const double s = std::log(v * inverse_alpha / (a / (shifted * shifted) + b));
    const double t = -rate + k * log_rate - std::lgamma(k + 1);
    if (s <= t) return k;
  }
}

// Output shape: the requested one followed by the parameter's.
absl::Status AppendedShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape shape, c.InputAsShape(0));
  c.SetOutput(0, ShapeContext::Concatenate(shape, c.input(1)));
  return absl::OkStatus();
}

// Shared by both: checks, the order of the outputs (samples of one parameter are neighbours in the
// random sequence, parameters are neighbours in memory) and the loop.
class PerParameterKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override { return generator_.Init(setup); }

 protected:
  template <typename Parameter, typename Result, typename Draw>
  absl::Status Run(KernelContext& c, Draw draw) {
    const Tensor& parameters = c.input(1);
    ASSIGN_OR_RETURN(Shape shape, RequestedShape(c.input(0)));
    const int64_t samples = shape.num_elements();
    Dims dims = shape.dims();
    dims.insert(dims.end(), parameters.shape().dims().begin(), parameters.shape().dims().end());
    ASSIGN_OR_RETURN(shape, Shape::Make(dims));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    const int64_t count = shape.num_elements();
    if (count == 0) return absl::OkStatus();
    const int64_t num_parameters = parameters.num_elements();
    const Philox start = generator_.Reserve(static_cast<uint64_t>(count) * kBlocksPerValue);
    const Parameter* in = parameters.data<Parameter>();
    Result* out = output->data<Result>();
    c.ParallelFor(count, 150, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t parameter = i / samples;
        Philox generator = start;
        generator.Skip(kBlocksPerValue * static_cast<uint64_t>(i));
        const double value =
            static_cast<double>(static_cast<muster::Compute<Parameter>>(in[parameter]));
        out[(i % samples) * num_parameters + parameter] = draw(value, generator);
      }
    });
    return absl::OkStatus();
  }

 private:
  KernelGenerator generator_;
};

template <typename T>
class RandomGammaKernel : public PerParameterKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    return Run<T, T>(c, [](double alpha, const Philox& generator) {
      return T(static_cast<muster::Compute<T>>(DrawGamma(alpha, generator)));
    });
  }
};

template <typename Result>
double Highest() {
  if constexpr (std::is_same_v<Result, Half>) {
    return 65504;
  } else {
    return static_cast<double>(std::numeric_limits<Result>::max());
  }
}

template <typename Rate, typename Result>
class RandomPoissonKernel : public PerParameterKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    return Run<Rate, Result>(c, [](double rate, const Philox& generator) {
      using Wide = muster::Compute<Result>;
      if (!std::isfinite(rate) || rate < 0) {
        if constexpr (std::numeric_limits<Wide>::has_quiet_NaN) {
          if (!(rate < 0)) return Result(static_cast<Wide>(rate));
        }
        return Result(Wide{0});
      }
      return Result(static_cast<Wide>(DrawPoisson(rate, Highest<Result>(), generator)));
    });
  }
};

double Digamma(double x) {
  double shift = 0;
  for (; x < 10; x += 1) shift -= 1 / x;
  const double inverse = 1 / (x * x);
  const double series =
      inverse *
      (1.0 / 12 -
       inverse *
           (1.0 / 120 -
            inverse * (1.0 / 252 -
                       inverse * (1.0 / 240 - inverse * (5.0 / 660 - inverse * (691.0 / 32760 -
                                                                                inverse / 12))))));
  return shift + std::log(x) - 0.5 / x - series;
}

constexpr double kEpsilon = 1e-16;
constexpr int kMaxTerms = 2000;

// d sample / d alpha = -(d P(alpha, x) / d alpha) / density(x), from the power series of P and its
// derivative.
double DerivativeBySeries(double alpha, double x) {
  double r = alpha;
  double term = 1, term_derivative = 0;
  double sum = 1, sum_derivative = 0;
  for (int i = 0; i < kMaxTerms; ++i) {
    r += 1;
    const double ratio = x / r;
    term_derivative = ratio * term_derivative - x / (r * r) * term;
    sum_derivative += term_derivative;
    term *= ratio;
    sum += term;
    if (std::abs(term_derivative) <= kEpsilon * std::abs(sum_derivative)) break;
  }
  return -(sum_derivative + sum * (std::log(x) - Digamma(alpha + 1))) * x / alpha;
}

// The same from the continued fraction of 1 - P, for x well above alpha.
double DerivativeByFraction(double alpha, double x) {
  double y = 1 - alpha;
  double z = x + y + 1;
  double p2 = 1, q2 = x, p1 = x + 1, q1 = z * x;
  double dp2 = 0, dq2 = 0, dp1 = 0, dq1 = -x;
  double value = p1 / q1;
  double derivative = (dp1 - value * dq1) / q1;
  for (int c = 1; c < kMaxTerms; ++c) {
    y += 1;
    z += 2;
    const double yc = y * c;
    const double p = p1 * z - p2 * yc;
    const double q = q1 * z - q2 * yc;
    const double dp = dp1 * z - p1 - dp2 * yc + p2 * c;
    const double dq = dq1 * z - q1 - dq2 * yc + q2 * c;
    double change = 1;
    if (q != 0) {
      value = p / q;
      const double next = (dp - value * dq) / q;
      change = std::abs(next - derivative);
      derivative = next;
    }
    p2 = p1, q2 = q1, p1 = p, q1 = q;
    dp2 = dp1, dq2 = dq1, dp1 = dp, dq1 = dq;
    if (std::abs(p) > 1 / kEpsilon) {
      for (double* scaled : {&p2, &q2, &p1, &q1, &dp2, &dq2, &dp1, &dq1}) *scaled *= kEpsilon;
    }
    if (change <= kEpsilon) break;
  }
  return (derivative + value * (std::log(x) - Digamma(alpha))) * x;
}

double GammaDerivative(double alpha, double x) {
  if (x == 0) return 0;
  if (!(x > 0) || !(alpha > 0)) return std::numeric_limits<double>::quiet_NaN();
  return x > 1 && x > alpha ? DerivativeByFraction(alpha, x) : DerivativeBySeries(alpha, x);
}

// alpha broadcast against the samples, as both are in the gradient of RandomGamma.
struct GammaBroadcast {
  Dims dims, alpha_strides, sample_strides;
};
absl::StatusOr<GammaBroadcast> BroadcastGamma(const Tensor& alpha, const Tensor& sample) {
  const int rank = std::max(alpha.rank(), sample.rank());
  Dims dims(rank, 1);
  Dims alpha_strides(rank, 0), sample_strides(rank, 0);
  int64_t alpha_stride = 1, sample_stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    const int alpha_axis = i - (rank - alpha.rank());
    const int sample_axis = i - (rank - sample.rank());
    const int64_t a = alpha_axis >= 0 ? alpha.dim(alpha_axis) : 1;
    const int64_t s = sample_axis >= 0 ? sample.dim(sample_axis) : 1;
    if (a != s && a != 1 && s != 1) {
      return InvalidArgument("Incompatible shapes: ", alpha.shape().ToString(), " vs. ",
                             sample.shape().ToString());
    }
    dims[i] = a == 1 ? s : a;
    alpha_strides[i] = a == 1 ? 0 : alpha_stride;
    sample_strides[i] = s == 1 ? 0 : sample_stride;
    alpha_stride *= a;
    sample_stride *= s;
  }
  return GammaBroadcast{std::move(dims), std::move(alpha_strides), std::move(sample_strides)};
}

template <typename T>
absl::Status RandomGammaGradKernel(KernelContext& c) {
  const Tensor& alpha = c.input(0);
  const Tensor& sample = c.input(1);
  ASSIGN_OR_RETURN(const GammaBroadcast broadcast, BroadcastGamma(alpha, sample));
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make(broadcast.dims));
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
  const T* a = alpha.data<T>();
  const T* s = sample.data<T>();
  T* out = output->data<T>();
  c.ParallelFor(shape.num_elements(), 500, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t rest = i, alpha_at = 0, sample_at = 0;
      for (int axis = shape.rank() - 1; axis >= 0; --axis) {
        const int64_t position = rest % shape.dim(axis);
        rest /= shape.dim(axis);
        alpha_at += position * broadcast.alpha_strides[axis];
        sample_at += position * broadcast.sample_strides[axis];
      }
      out[i] = static_cast<T>(GammaDerivative(a[alpha_at], s[sample_at]));
    }
  });
  return absl::OkStatus();
}

class GpuRandomGammaGrad : public GpuKernel {
 public:
  explicit GpuRandomGammaGrad(DType dtype)
      : run_(*this, "random/gamma.cu", absl::StrCat("RandomGammaGrad<", GpuTypeName(dtype), ">")) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& alpha = c.input(0);
    const Tensor& sample = c.input(1);
    ASSIGN_OR_RETURN(const GammaBroadcast broadcast, BroadcastGamma(alpha, sample));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(broadcast.dims));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    if (shape.rank() > kMostAxes)
      return Unimplemented("RandomGammaGrad of more than ", kMostAxes, " axes on a GPU");
    GammaAxes axes{};
    axes.rank = shape.rank();
    for (int i = 0; i < axes.rank; ++i) {
      axes.sizes[i] = shape.dim(i);
      axes.alpha_strides[i] = broadcast.alpha_strides[i];
      axes.sample_strides[i] = broadcast.sample_strides[i];
    }
    const int64_t count = shape.num_elements();
    return run_.LaunchForEach(count, GpuIn(alpha), GpuIn(sample), GpuOut(*output), axes, count);
  }

 private:
  // The struct of gamma.cu.
  static constexpr int kMostAxes = 8;
  struct GammaAxes {
    int rank;
    int64_t sizes[kMostAxes], alpha_strides[kMostAxes], sample_strides[kMostAxes];
  };

  const GpuFunction run_;
};

absl::Status RandomGammaGradient(GradientContext& c) {
  const Output dy = c.dy();
  const Scope scope = c.scope().WithControlDependencies({dy.node});
  const Output shape = c.input(0);
  const Output alpha = c.input(1);
  const auto strided_first = [&](Output vector) {
    const int32_t zero = 0, one = 1;
    const Output begin = scope.ConstVector({&zero, 1}, "strided_slice/stack");
    const Output end = scope.ConstVector({&one, 1}, "strided_slice/stack_1");
    const Output step = scope.ConstVector({&one, 1}, "strided_slice/stack_2");
    return scope.Op("StridedSlice", {vector, begin, end, step}, {{"shrink_axis_mask", 1}},
                    "strided_slice");
  };
  const Output dimensions = strided_first(scope.Op("Shape", {shape}, {}, "Shape"));
  const Output packed =
      scope.Op("Pack", {std::vector<Output>{dimensions}}, {{"axis", 0}}, "ones/packed");
  const Output ones =
      scope.Op("Fill", {packed, scope.ConstScalar<int32_t>(1, "ones/Const")}, {}, "ones");
  const Output alpha_shape = scope.Op("Shape", {alpha}, {}, "Shape_1");
  const Output axis = scope.ConstScalar<int32_t>(0, "concat/axis");
  const Output wide_shape =
      scope.Op("ConcatV2", {std::vector<Output>{ones, alpha_shape}, axis}, {}, "concat");
  const Output wide_alpha = scope.Op("Reshape", {alpha, wide_shape}, {}, "Reshape");
  const Output partial =
      scope.Op("RandomGammaGrad", {wide_alpha, c.output()}, {}, "RandomGammaGrad");
  const Output product = scope.Op("Mul", {dy, partial}, {}, "mul");
  const Output range_start = scope.ConstScalar<int32_t>(0, "range/start");
  const Output range_delta = scope.ConstScalar<int32_t>(1, "range/delta");
  const Output axes = scope.Op("Range", {range_start, dimensions, range_delta}, {}, "range");
  c.SetDx(1, scope.Op("Sum", {product, axes}, {{"keep_dims", false}}, "Sum"));
  return scope.status();
}

}  // namespace

DEFINE_OP(RandomGamma) {
  op.Attr("seed: int = 0")
      .Attr("seed2: int = 0")
      .Attr("S: {int32, int64}")
      .Attr("T: {half, float, double}");
  op.Input("shape: S").Input("alpha: T").Output("output: T").Stateful();
  op.Doc("Samples of gamma distributions with scale one, `shape` of them per element of alpha.");
  op.Shape(AppendedShape).Gradient(RandomGammaGradient).HostMemory({"shape"});
  op.CpuTypes<Types<Half, float, double>>("T",
                                          []<typename T>() { return New<RandomGammaKernel<T>>(); });
}

DEFINE_OP(RandomGammaGrad) {
  op.Attr("T: {float, double}").Input("alpha: T").Input("sample: T").Output("output: T");
  op.Doc("Derivative of a gamma sample by the distribution's shape parameter.")
      .Shape(BroadcastBinaryShape);
  op.CpuTypes<Types<float, double>>(
      "T", []<typename T>() { return Stateless(RandomGammaGradKernel<T>); });
  op.GpuTypes("T", {DType::kFloat, DType::kDouble}, [](DType dtype) {
    return [=] { return std::make_unique<GpuRandomGammaGrad>(dtype); };
  });
}

DEFINE_OP(RandomPoisson) {
  op.Attr("seed: int = 0")
      .Attr("seed2: int = 0")
      .Attr("S: {int32, int64}")
      .Attr("dtype: {half, float, double}");
  op.Input("shape: S").Input("rate: dtype").Output("output: dtype").Stateful();
  op.Deprecated(25, "Replaced by RandomPoissonV2");
  op.Doc("Samples of Poisson distributions, `shape` of them per rate.")
      .Shape(AppendedShape)
      .HostMemory({"shape"});
  op.CpuTypes<Types<Half, float, double>>(
      "dtype", []<typename T>() { return New<RandomPoissonKernel<T, T>>(); });
}

DEFINE_OP(RandomPoissonV2) {
  op.Attr("seed: int = 0").Attr("seed2: int = 0").Attr("S: {int32, int64}");
  op.Attr("R: {half, float, double, int32, int64} = DT_DOUBLE")
      .Attr("dtype: {half, float, double, int32, int64} = DT_INT64");
  op.Input("shape: S").Input("rate: R").Output("output: dtype").Stateful();
  op.Doc("Samples of Poisson distributions, `shape` of them per rate.")
      .Shape(AppendedShape)
      .HostMemory({"shape"});
  using All = Types<Half, float, double, int32_t, int64_t>;
  op.CpuTypes<All>("dtype", []<typename T>() { return New<RandomPoissonKernel<Half, T>>(); },
                   {{"R", DType::kHalf}});
  op.CpuTypes<All>("dtype", []<typename T>() { return New<RandomPoissonKernel<float, T>>(); },
                   {{"R", DType::kFloat}});
  op.CpuTypes<All>("dtype", []<typename T>() { return New<RandomPoissonKernel<double, T>>(); },
                   {{"R", DType::kDouble}});
  op.CpuTypes<All>("dtype", []<typename T>() { return New<RandomPoissonKernel<int32_t, T>>(); },
                   {{"R", DType::kInt32}});
  op.CpuTypes<All>("dtype", []<typename T>() { return New<RandomPoissonKernel<int64_t, T>>(); },
                   {{"R", DType::kInt64}});
}

}  // namespace muster
