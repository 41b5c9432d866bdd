// The derivative of gamma samples by the shape parameter, as gamma.cc has it.
#include "muster/ops/gpu.cuh"

constexpr double kEpsilon = 1e-16;
constexpr int kMaxTerms = 2000;

__device__ inline double Digamma(double x) {
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
  return shift + log(x) - 0.5 / x - series;
}

__device__ inline double DerivativeBySeries(double alpha, double x) {
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
    if (fabs(term_derivative) <= kEpsilon * fabs(sum_derivative)) break;
  }
  return -(sum_derivative + sum * (log(x) - Digamma(alpha + 1))) * x / alpha;
}

__device__ inline double DerivativeByFraction(double alpha, double x) {
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
      change = fabs(next - derivative);
      derivative = next;
    }
    const double scale = fabs(p) > 1 / kEpsilon ? kEpsilon : 1;
    p2 = p1 * scale, q2 = q1 * scale, p1 = p * scale, q1 = q * scale;
    dp2 = dp1 * scale, dq2 = dq1 * scale, dp1 = dp * scale, dq1 = dq * scale;
    if (change <= kEpsilon) break;
  }
  return (derivative + value * (log(x) - Digamma(alpha))) * x;
}

__device__ inline double GammaDerivative(double alpha, double x) {
  if (x == 0) return 0;
  if (!(x > 0) || !(alpha > 0)) return BitCast<double>(0x7FF8000000000000ull);
  return x > 1 && x > alpha ? DerivativeByFraction(alpha, x) : DerivativeBySeries(alpha, x);
}

constexpr int kMostGammaAxes = 8;
struct GammaAxes {
  int rank;
  int64 sizes[kMostGammaAxes], alpha_strides[kMostGammaAxes], sample_strides[kMostGammaAxes];
};
template <typename T>
__global__ void RandomGammaGrad(const T* alpha, const T* sample, T* out, GammaAxes axes,
                                int64 count) {
  FOR_EACH_ELEMENT(i, count) {
    int64 rest = i, alpha_at = 0, sample_at = 0;
    for (int k = axes.rank - 1; k >= 0; --k) {
      const int64 at = rest % axes.sizes[k];
      rest /= axes.sizes[k];
      alpha_at += at * axes.alpha_strides[k];
      sample_at += at * axes.sample_strides[k];
    }
    out[i] = T(GammaDerivative(alpha[alpha_at], sample[sample_at]));
  }
}
