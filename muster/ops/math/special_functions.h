// Special functions, in double: the float kernels round their results.
#pragma once

namespace muster {

double Digamma(double x);
// Hurwitz zeta: sum over k >= 0 of (k + q)^-x.
double Zeta(double x, double q);
// The n-th derivative of digamma.
double Polygamma(double n, double x);
// Regularised incomplete gamma functions, and the derivative of the lower one by a.
double LowerGamma(double a, double x);
double UpperGamma(double a, double x);
double LowerGammaDerivative(double a, double x);
// exp(-|x|) * I0(x) and exp(-|x|) * I1(x): modified Bessel functions of the first kind.
double ScaledBesselI0(double x);
double ScaledBesselI1(double x);
double LogGamma(double x);
// Regularised incomplete beta function of x in [0, 1].
double IncompleteBeta(double a, double b, double x);

}  // namespace muster
