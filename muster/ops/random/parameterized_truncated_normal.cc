// Normal values between given bounds, by whichever rejection method suits the bounds.
#include <cmath>
#include <compare>
#include <type_traits>

#include "muster/ops/op.h"
#include "muster/ops/random/distributions.h"

namespace muster {
namespace {

constexpr int kMaxIterations = 1000;
// Batches of this size where all values share their parameters: fixes how much of the random
// sequence is set aside.
constexpr int64_t kBatchSize = 100;
// With bounds at least this many standard deviations from the mean, plain normal values are
// accepted often enough.
constexpr double kFarBound = 1.3;

// TensorFlow draws and computes half values in half: every operation rounds.
class RoundedHalf {
 public:
  RoundedHalf() = default;
  explicit RoundedHalf(double value)
      : value_(static_cast<float>(Half(static_cast<float>(value)))) {}
  explicit RoundedHalf(Half value) : value_(static_cast<float>(value)) {}
  explicit operator float() const { return value_; }
  friend RoundedHalf operator+(RoundedHalf a, RoundedHalf b) {
    return RoundedHalf(a.value_ + b.value_);
  }
  friend RoundedHalf operator-(RoundedHalf a, RoundedHalf b) {
    return RoundedHalf(a.value_ - b.value_);
  }
  friend RoundedHalf operator*(RoundedHalf a, RoundedHalf b) {
    return RoundedHalf(a.value_ * b.value_);
  }
  friend RoundedHalf operator/(RoundedHalf a, RoundedHalf b) {
    return RoundedHalf(a.value_ / b.value_);
  }
  RoundedHalf operator-() const { return RoundedHalf(-value_); }
  auto operator<=>(const RoundedHalf&) const = default;

 private:
  float value_ = 0;
};

template <typename T>
using Arithmetic = std::conditional_t<std::is_same_v<T, Half>, RoundedHalf, T>;
template <typename C>
using Drawn = std::conditional_t<std::is_same_v<C, RoundedHalf>, Half, C>;
// What the standard library computes with.
template <typename C>
using Native = std::conditional_t<std::is_same_v<C, RoundedHalf>, float, C>;

template <typename C>
C Sqrt(C x) {
  return C(std::sqrt(static_cast<Native<C>>(x)));
}
template <typename C>
C Exp(C x) {
  return C(std::exp(static_cast<Native<C>>(x)));
}
template <typename C>
C Log(C x) {
  return C(std::log(static_cast<Native<C>>(x)));
}
template <typename C>
bool IsFinite(C x) {
  return std::isfinite(static_cast<Native<C>>(x));
}

// One batch: `count` values with the same parameters, in units of standard deviations before they
// are scaled.
template <typename C>
struct Batch {
  C mean, deviation, low, high;  // low and high normalised

  static absl::StatusOr<Batch> Make(C mean, C deviation, C min, C max) {
    if (!(deviation > C(0)) || !(min < max) || (!IsFinite(min) && !IsFinite(max))) {
      return InvalidArgument("Invalid parameters: stddev ", static_cast<Native<C>>(deviation),
                             " must be positive, minval ", static_cast<Native<C>>(min),
                             " less than maxval ", static_cast<Native<C>>(max),
                             ", and one of them finite");
    }
    // Mirrored so that a one-sided bound is the lower one, or both bounds are above the mean.
    if ((!IsFinite(min) && min < C(0)) || max < mean) {
      std::swap(min, max);
      deviation = -deviation;
    }
    return Batch{mean, deviation, (min - mean) / deviation, (max - mean) / deviation};
  }

  // Calls `accept(z)` with normalised values until it returns false.
  template <typename Accept>
  absl::Status Draw(Philox& generator, Accept accept) const {
    const C root = Sqrt(low * low + C(4));
    const C cutoff = C(2) * Exp(C(0.5) + low * (low - root) / C(4)) / (low + root);
    if ((low < C(-kFarBound) && high >= C(0)) || (high > C(kFarBound) && low <= C(0))) {
      return FromNormal(generator, accept);
    }
    if (high - low < cutoff) return FromUniform(generator, accept);
    return FromExponential(generator, accept);
  }

 private:
  static constexpr int kGroup = UniformDistribution<Drawn<C>>::kGroup;

  template <typename Accept>
  absl::Status FromNormal(Philox& generator, Accept accept) const {
    for (int rejected = 0; rejected <= kMaxIterations;) {
      Drawn<C> drawn[kGroup];
      NormalDistribution<Drawn<C>>()(generator, drawn);
      for (int i = 0; i < kGroup; ++i) {
        const C z(drawn[i]);
        if (z >= low && z <= high) {
          if (!accept(z)) return absl::OkStatus();
          rejected = 0;
        } else {
          ++rejected;
        }
      }
    }
    return Internal(
        "TruncatedNormal randn rejection sampler exceeded maximum iterations for bounds ",
        static_cast<Native<C>>(low), " and ", static_cast<Native<C>>(high));
  }

  template <typename Accept>
  absl::Status FromUniform(Philox& generator, Accept accept) const {
    const C offset = low < C(0) ? C(0) : low * low;
    int rejected = 0;
    while (true) {
      Drawn<C> z[kGroup], u[kGroup];
      UniformDistribution<Drawn<C>>()(generator, z);
      UniformDistribution<Drawn<C>>()(generator, u);
      for (int i = 0; i < kGroup; ++i) {
        const C value = C(z[i]) * (high - low) + low;
        if (C(u[i]) <= Exp((offset - value * value) / C(2)) || rejected + 1 >= kMaxIterations) {
          if (!accept(value)) return absl::OkStatus();
          rejected = 0;
        } else {
          ++rejected;
        }
      }
    }
  }

  template <typename Accept>
  absl::Status FromExponential(Philox& generator, Accept accept) const {
    const C alpha = (low + Sqrt(low * low + C(4))) / C(2);
    int rejected = 0;
    while (true) {
      Drawn<C> u[kGroup];
      UniformDistribution<Drawn<C>>()(generator, u);
      for (int i = 0; i < kGroup; i += 2) {
        const C value = -Log(C(u[i])) / alpha + low;
        const C x = low < alpha ? alpha - value : low - alpha;
        if ((C(u[i + 1]) <= Exp(-x * x / C(2)) && value < high) || rejected + 1 >= kMaxIterations) {
          if (!accept(value)) return absl::OkStatus();
          rejected = 0;
        } else {
          ++rejected;
        }
      }
    }
  }
};

template <typename T>
class ParameterizedTruncatedNormalKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override { return generator_.Init(setup); }

  absl::Status Compute(KernelContext& c) override {
    using Wide = Arithmetic<T>;
    static constexpr const char* kNames[] = {"means", "stdevs", "minvals", "maxvals"};
    ASSIGN_OR_RETURN(const Shape shape, RequestedShape(c.input(0)));
    if (shape.is_scalar())
      return InvalidArgument("Shape tensor must not be empty, got ", shape.ToString());
    bool shared = true;
    for (int i = 0; i < 4; ++i) {
      const Tensor& parameter = c.input(i + 1);
      if (parameter.rank() > 1) {
        return InvalidArgument("Input ", kNames[i], " should be a scalar or vector, got shape: ",
                               parameter.shape().ToString());
      }
      if (parameter.num_elements() != 1 && parameter.num_elements() != shape[0]) {
        return InvalidArgument(
            "Input ", kNames[i],
            " should have length 1 or shape[0], got shape: ", parameter.shape().ToString());
      }
      shared = shared && parameter.num_elements() == 1;
    }
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    const int64_t count = shape.num_elements();
    if (count == 0) return absl::OkStatus();
    const int64_t batch_size = shared ? kBatchSize : count / shape[0];
    const int64_t batches = shared ? (count + kBatchSize - 1) / kBatchSize : shape[0];
    Philox generator = generator_.Reserve(static_cast<uint64_t>(batches) * 2 * kMaxIterations *
                                          (batch_size + 3) / 4);
    T* out = output->data<T>();
    for (int64_t b = 0; b < batches; ++b) {
      const auto parameter = [&](int i) {
        const Tensor& tensor = c.input(i + 1);
        return Wide(tensor.data<T>()[tensor.num_elements() == 1 ? 0 : b]);
      };
      ASSIGN_OR_RETURN(const Batch<Wide> batch,
                       Batch<Wide>::Make(parameter(0), parameter(1), parameter(2), parameter(3)));
      int64_t at = b * batch_size;
      const int64_t end = std::min(at + batch_size, count);
      RETURN_IF_ERROR(batch.Draw(generator, [&](Wide z) {
        out[at++] = T(static_cast<Native<Wide>>(z * batch.deviation + batch.mean));
        return at < end;
      }));
    }
    return absl::OkStatus();
  }

 private:
  KernelGenerator generator_;
};

absl::Status InferShape(ShapeContext& c) {
  for (int i = 1; i <= 4; ++i) RETURN_IF_ERROR(c.WithRankAtMost(c.input(i), 1).status());
  ASSIGN_OR_RETURN(PartialShape shape, c.InputAsShape(0));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(ParameterizedTruncatedNormal) {
  op.Attr("seed: int = 0")
      .Attr("seed2: int = 0")
      .Attr("dtype: {half, bfloat16, float, double}")
      .Attr("T: {int32, int64}");
  op.Input("shape: T")
      .Input("means: dtype")
      .Input("stdevs: dtype")
      .Input("minvals: dtype")
      .Input("maxvals: dtype");
  op.Output("output: dtype")
      .Stateful()
      .Doc("Normal values between bounds, with parameters per batch of the first dimension.");
  op.Shape(InferShape).NoGradient("random values").HostMemory({"shape"});
  op.CpuTypes<Types<Half, float, double>>(
      "dtype", []<typename T>() { return New<ParameterizedTruncatedNormalKernel<T>>(); });
  // How many numbers a value takes from the sequence depends on those before it: there is nothing
  // that the threads of a card could share out.
  op.GpuOnHost("dtype", {DType::kHalf, DType::kFloat, DType::kDouble});
}

}  // namespace muster
