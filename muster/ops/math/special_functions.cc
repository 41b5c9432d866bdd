#include "muster/ops/math/special_functions.h"

#include <cmath>
#include <limits>

namespace muster {
namespace {

template <typename T>
T Infinity() {
  return std::numeric_limits<T>::infinity();
}

}  // namespace

double LogGamma(double x) {
  int sign = 0;
  return lgamma_r(x, &sign);
}

#define __device__
#include "muster/ops/math/special_functions.cuh"
#undef __device__

}  // namespace muster
