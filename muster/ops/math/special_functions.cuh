// Gamma, zeta, Bessel and beta functions of double, for CPUs and GPUs: included by
// special_functions.cc, where __device__ means nothing, and by special.cu. Both define Infinity and
// LogGamma first.

constexpr double kEpsilon = 2.220446049250313e-16;
constexpr double kPi = 3.14159265358979323846;
constexpr int kMaxTerms = 100000;

// log(x^a * exp(-x) / Gamma(a)).
static __device__ double LogGammaWeight(double a, double x) {
  return a * log(x) - x - LogGamma(a);
}

// Lower function by its power series: all terms are positive.
static __device__ double LowerSeries(double a, double x) {
  double sum = 1;
  double term = 1;
  for (int n = 1; n < kMaxTerms; ++n) {
    term *= x / (a + n);
    sum += term;
    if (term < sum * kEpsilon) break;
  }
  return sum * exp(LogGammaWeight(a, x)) / a;
}

// Upper function by its continued fraction, evaluated forwards.
static __device__ double UpperFraction(double a, double x) {
  constexpr double kTiny = 1e-300;
  double b = x + 1 - a;
  double c = 1 / kTiny;
  double d = 1 / b;
  double h = d;
  for (int n = 1; n < kMaxTerms; ++n) {
    const double an = -n * (n - a);
    b += 2;
    d = an * d + b;
    if (fabs(d) < kTiny) d = kTiny;
    c = b + an / c;
    if (fabs(c) < kTiny) c = kTiny;
    d = 1 / d;
    const double factor = d * c;
    h *= factor;
    if (fabs(factor - 1) < kEpsilon) break;
  }
  return h * exp(LogGammaWeight(a, x));
}

// exp(-x) * I_order(x) for x >= 0.
static __device__ double ScaledBessel(double x, int order) {
  if (x != x) return x;
  if (x == Infinity<double>()) return 0;
  if (x <= 30) {
    const double quarter = x * x / 4;
    double term = order == 0 ? 1 : x / 2;
    double sum = term;
    for (int k = 1; k < 200; ++k) {
      term *= quarter / (static_cast<double>(k) * (k + order));
      sum += term;
      if (term < sum * kEpsilon) break;
    }
    return sum * exp(-x);
  }
  const double mu = 4.0 * order * order;
  double term = 1;
  double sum = 1;
  for (int k = 1; k < 60; ++k) {
    const double odd = 2 * k - 1;
    const double next = -term * (mu - odd * odd) / (8 * k) / x;
    if (fabs(next) > fabs(term)) break;  // the series starts to diverge
    term = next;
    sum += term;
    if (fabs(term) < kEpsilon * fabs(sum)) break;
  }
  return sum / (sqrt(2 * kPi) * sqrt(x));
}

static __device__ double DigammaOfPositive(double x) {
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
  return result + log(x) - 0.5 / x - z * tail;
}

__device__ double Digamma(double x) {
  if (x != x || x == -Infinity<double>()) return nan("");
  if (x == Infinity<double>()) return Infinity<double>();
  if (x > 0) return DigammaOfPositive(x);
  if (x == floor(x)) return nan("");
  return DigammaOfPositive(1 - x) - kPi / tan(kPi * x);
}

__device__ double Zeta(double x, double q) {
  if (x == 1) return Infinity<double>();
  if (!(x > 1) || q != q) return nan("");
  if (q <= 0) {
    if (q == floor(q)) return x == floor(x) && fmod(x, 2) == 0 ? Infinity<double>() : nan("");
    if (x != floor(x)) return nan("");
  }
  if (q == Infinity<double>() || (x == Infinity<double>() && q > 1)) return 0;
  // Euler-Maclaurin: the first terms one by one, then an integral with corrections (2k)! / B(2k).
  constexpr double kCorrections[] = {12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1892437580.3183792, 74724249600., -2950130727918.1642, 116467828143500.67, -4597978722407472.6, 181521054019435467.7, -7166165256175667011.3};
  double sum = pow(q, -x);
  double a = q;
  double b = 0;
  for (int i = 0; i < 9 || a <= 9; ++i) {
    a += 1;
    b = pow(a, -x);
    sum += b;
    if (fabs(b) < fabs(sum) * kEpsilon) return sum;
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
    if (fabs(term) < fabs(sum) * kEpsilon) break;
    k += 1;
    factor *= x + k;
    b /= w;
    k += 1;
  }
  return sum;
}

__device__ double Polygamma(double n, double x) {
  if (n < 0 || n != floor(n)) return nan("");
  if (n == 0) return Digamma(x);
  const double sign = fmod(n, 2) == 0 ? -1 : 1;
  return sign * tgamma(n + 1) * Zeta(n + 1, x);
}

__device__ double LowerGamma(double a, double x) {
  if (x == 0) return 0;
  if (!(x > 0) || !(a > 0)) return nan("");
  if (a == Infinity<double>()) return x == Infinity<double>() ? nan("") : 0;
  if (x == Infinity<double>()) return 1;
  return x > 1 && x > a ? 1 - UpperFraction(a, x) : LowerSeries(a, x);
}

__device__ double UpperGamma(double a, double x) {
  if (!(x >= 0) || !(a > 0)) return nan("");
  if (x == 0) return 1;
  if (a == Infinity<double>()) return x == Infinity<double>() ? nan("") : 1;
  if (x == Infinity<double>()) return 0;
  return x > 1 && x > a ? UpperFraction(a, x) : 1 - LowerSeries(a, x);
}

__device__ double LowerGammaDerivative(double a, double x) {
  if (x == 0) return 0;
  if (!(x > 0) || !(a > 0)) return nan("");
  const double log_weight = LogGammaWeight(a, x);
  if (x == Infinity<double>() || (x > a && log_weight < -700)) return 0;
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
    if (term < sum * kEpsilon && fabs(term_derivative) <= fabs(sum_derivative) * kEpsilon)
      break;
  }
  return exp(log_weight) / a * (sum_derivative + sum * (log(x) - Digamma(a + 1)));
}

__device__ double ScaledBesselI0(double x) {
  return ScaledBessel(fabs(x), 0);
}
__device__ double ScaledBesselI1(double x) {
  return copysign(ScaledBessel(fabs(x), 1), x);
}

// The continued fraction of the incomplete beta function, evaluated forwards; it is quick for
// x < (a + 1) / (a + b + 2).
static __device__ double BetaFraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  const auto nonzero = [](double value) { return fabs(value) < kTiny ? kTiny : value; };
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
    if (fabs(d * c - 1) < kEpsilon) break;
  }
  return h;
}

__device__ double IncompleteBeta(double a, double b, double x) {
  if (!(a > 0) || !(b > 0) || !(x >= 0) || !(x <= 1)) return nan("");
  if (x == 0 || x == 1) return x;
  const double weight =
      exp(LogGamma(a + b) - LogGamma(a) - LogGamma(b) + a * log(x) + b * log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return weight * BetaFraction(a, b, x) / a;
  return 1 - weight * BetaFraction(b, a, 1 - x) / b;
}

