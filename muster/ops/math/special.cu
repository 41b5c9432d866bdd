// Lgamma, Digamma, BesselI0e, BesselI1e, Zeta, Polygamma, Igamma, Igammac, IgammaGradA, Betainc: all
// in double, as on the CPU.
#include "muster/ops/math/elementwise.cuh"

__device__ double LogGamma(double x) { return lgamma(x); }

#include "muster/ops/math/special_functions.cuh"

template <double (*function)(double)>
struct Function1 {
  template <typename C>
  static __device__ C Apply(C x) {
    return C(function(double(x)));
  }
};
template <double (*function)(double, double)>
struct Function2 {
  template <typename C>
  static __device__ C Apply(C x, C y) {
    return C(function(double(x), double(y)));
  }
};
struct Betainc {
  template <typename C>
  static __device__ C Apply(C a, C b, C x) {
    return C(IncompleteBeta(double(a), double(b), double(x)));
  }
};
