#include "muster/ops/math/special_functions.h"

#include <array>
#include <cmath>
#include <limits>
#include <numbers>

namespace muster {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr int kMaxTerms = 100000;

// log(x^a * exp(-x) / Gamma(a)).
double LogGammaWeight(double a, double x) {
  return a * std::log(x) - x - LogGamma(a);
}

// Lower function by its power series: all terms are positive.
double LowerSeries(double a, double x) {
  double sum = 1;
  double term = 1;
  for (int n = 1; n < kMaxTerms; ++n) {
    term *= x / (a + n);
    sum += term;
    if (term < sum * kEpsilon) break;
  }
  return sum * std::exp(LogGammaWeight(a, x)) / a;
}

// Upper function by its continued fraction, evaluated forwards.
double UpperFraction(double a, double x) {
  constexpr double kTiny = 1e-300;
  double b = x + 1 - a;
  double c = 1 / kTiny;
  double d = 1 / b;
  double h = d;
  for (int n = 1; n < kMaxTerms; ++n) {
    const double an = -n * (n - a);
    b += 2;
    d = an * d + b;
    if (std::fabs(d) < kTiny) d = kTiny;
    c = b + an / c;
    if (std::fabs(c) < kTiny) c = kTiny;
    d = 1 / d;
    const double factor = d * c;
    h *= factor;
    if (std::fabs(factor - 1) < kEpsilon) break;
  }
  return h * std::exp(LogGammaWeight(a, x));
}

// exp(-x) * I_order(x) for x >= 0.
double ScaledBessel(double x, int order) {
  if (x != x) return x;
  if (x == kInfinity) return 0;
  if (x <= 30) {
    const double quarter = x * x / 4;
    double term = order == 0 ? 1 : x / 2;
    double sum = term;
    for (int k = 1; k < 200; ++k) {
      term *= quarter / (static_cast<double>(k) * (k + order));
      sum += term;
      if (term < sum * kEpsilon) break;
    }
    return sum * std::exp(-x);
  }
  const double mu = 4.0 * order * order;
  double term = 1;
  double sum = 1;
  for (int k = 1; k < 60; ++k) {
    const double odd = 2 * k - 1;
    const double next = -term * (mu - odd * odd) / (8 * k) / x;
    if (std::fabs(next) > std::fabs(term)) break;  // the series starts to diverge
    term = next;
    sum += term;
    if (std::fabs(term) < kEpsilon * std::fabs(sum)) break;
  }
  return sum / (std::sqrt(2 * std::numbers::pi) * std::sqrt(x));
}

}  // namespace

double LogGamma(double x) {
  int sign = 0;
  return lgamma_r(x, &sign);
}

double Digamma(double x) {
  if (x != x || x == -kInfinity) return kNan;
  if (x == kInfinity) return kInfinity;
  if (x <= 0) {
    if (x == std::floor(x)) return kNan;
    return Digamma(1 - x) - std::numbers::pi / std::tan(std::numbers::pi * x);
  }
  double result = 0;
  for (; x < 10; x += 1) result -= 1 / x;
  const double z = 1 / (x * x);
  // Coefficients B(2k) / (2k).
  double tail = 1.0 / 12;
  tail = -691.0 / 32760 + z * tail;
  tail = 1.0 / 132 + z * tail;
  tail = -1.0 / 240 + z * tail;
  tail = 1.0 / 252 + z * tail;
  tail = -1.0 / 120 + z * tail;
  tail = 1.0 / 12 + z * tail;
  return result + std::log(x) - 0.5 / x - z * tail;
}

double Zeta(double x, double q) {
  if (x == 1) return kInfinity;
  if (!(x > 1) || q != q) return kNan;
  if (q <= 0) {
    if (q == std::floor(q)) return x == std::floor(x) && std::fmod(x, 2) == 0 ? kInfinity : kNan;
    if (x != std::floor(x)) return kNan;
  }
  if (q == kInfinity || (x == kInfinity && q > 1)) return 0;
  // Euler-Maclaurin: the first terms one by one, then an integral with corrections (2k)! / B(2k).
  constexpr std::array<double, 12> kCorrections = {12.0,
                                                   -720.0,
                                                   30240.0,
                                                   -1209600.0,
                                                   47900160.0,
                                                   -1892437580.3183792,
                                                   74724249600.,
                                                   -2950130727918.1642,
                                                   116467828143500.67,
                                                   -4597978722407472.6,
                                                   181521054019435467.7,
                                                   -7166165256175667011.3};
  double sum = std::pow(q, -x);
  double a = q;
  double b = 0;
  for (int i = 0; i < 9 || a <= 9; ++i) {
    a += 1;
    b = std::pow(a, -x);
    sum += b;
    if (std::fabs(b) < std::fabs(sum) * kEpsilon) return sum;
  }
  const double w = a;
  sum += b * w / (x - 1) - 0.5 * b;
  double factor = 1;
  double k = 0;
  for (const double correction : kCorrections) {
    factor *= x + k;
    b /= w;
    const double term = factor * b / correction;
    sum += term;
    if (std::fabs(term) < std::fabs(sum) * kEpsilon) break;
    k += 1;
    factor *= x + k;
    b /= w;
    k += 1;
  }
  return sum;
}

double Polygamma(double n, double x) {
  if (n < 0 || n != std::floor(n)) return kNan;
  if (n == 0) return Digamma(x);
  const double sign = std::fmod(n, 2) == 0 ? -1 : 1;
  return sign * std::tgamma(n + 1) * Zeta(n + 1, x);
}

double LowerGamma(double a, double x) {
  if (x == 0) return 0;
  if (!(x > 0) || !(a > 0)) return kNan;
  if (a == kInfinity) return x == kInfinity ? kNan : 0;
  if (x == kInfinity) return 1;
  return x > 1 && x > a ? 1 - UpperFraction(a, x) : LowerSeries(a, x);
}

double UpperGamma(double a, double x) {
  if (!(x >= 0) || !(a > 0)) return kNan;
  if (x == 0) return 1;
  if (a == kInfinity) return x == kInfinity ? kNan : 1;
  if (x == kInfinity) return 0;
  return x > 1 && x > a ? UpperFraction(a, x) : 1 - LowerSeries(a, x);
}

double LowerGammaDerivative(double a, double x) {
  if (x == 0) return 0;
  if (!(x > 0) || !(a > 0)) return kNan;
  const double log_weight = LogGammaWeight(a, x);
  if (x == kInfinity || (x > a && log_weight < -700)) return 0;
  // The series of LowerSeries and its derivative by a, term by term.
  double term = 1;
  double term_derivative = 0;
  double sum = 1;
  double sum_derivative = 0;
  for (int n = 1; n < kMaxTerms; ++n) {
    const double ratio = x / (a + n);
    term_derivative = term_derivative * ratio - term * ratio / (a + n);
    term *= ratio;
    sum += term;
    sum_derivative += term_derivative;
    if (term < sum * kEpsilon && std::fabs(term_derivative) <= std::fabs(sum_derivative) * kEpsilon)
      break;
  }
  return std::exp(log_weight) / a * (sum_derivative + sum * (std::log(x) - Digamma(a + 1)));
}

double ScaledBesselI0(double x) {
  return ScaledBessel(std::fabs(x), 0);
}
double ScaledBesselI1(double x) {
  return std::copysign(ScaledBessel(std::fabs(x), 1), x);
}

// The continued fraction of the incomplete beta function, evaluated forwards; it is quick for
// x < (a + 1) / (a + b + 2).
static double BetaFraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  const auto nonzero = [](double value) { return std::fabs(value) < kTiny ? kTiny : value; };
  double c = 1;
  double d = 1 / nonzero(1 - (a + b) * x / (a + 1));
  double h = d;
  for (int n = 1; n < kMaxTerms; ++n) {
    const double even = n * (b - n) * x / ((a + 2.0 * n - 1) * (a + 2.0 * n));
    d = 1 / nonzero(1 + even * d);
    c = nonzero(1 + even / c);
    h *= d * c;
    const double odd = -(a + n) * (a + b + n) * x / ((a + 2.0 * n) * (a + 2.0 * n + 1));
    d = 1 / nonzero(1 + odd * d);
    c = nonzero(1 + odd / c);
    h *= d * c;
    if (std::fabs(d * c - 1) < kEpsilon) break;
  }
  return h;
}

double IncompleteBeta(double a, double b, double x) {
  if (!(a > 0) || !(b > 0) || !(x >= 0) || !(x <= 1)) return kNan;
  if (x == 0 || x == 1) return x;
  const double weight =
      std::exp(LogGamma(a + b) - LogGamma(a) - LogGamma(b) + a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return weight * BetaFraction(a, b, x) / a;
  return 1 - weight * BetaFraction(b, a, 1 - x) / b;
}

}  // namespace muster
