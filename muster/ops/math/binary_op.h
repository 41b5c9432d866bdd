// What ops of two operands with broadcasting have in common.
#pragma once

#include <complex>
#include <utility>

#include "muster/ops/math/elementwise.h"

namespace muster {

// Floating-point and complex numbers.
using Fields = Join<Floats, Complexes>;

template <typename T>
constexpr bool kIsComplex = false;
template <typename T>
constexpr bool kIsComplex<std::complex<T>> = true;

// The attribute T of Mul and of most divisions, in TensorFlow's order.
inline constexpr char kArithmeticTypes[] =
    "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
    "complex64, complex128}";

// Operands x and y and their result z, all of type T.
inline OpBuilder& BinaryDef(OpBuilder& op, const char* types, const char* doc,
                            GradientFunction gradient) {
  return op.Attr(types)
      .Input("x: T")
      .Input("y: T")
      .Output("z: T")
      .Doc(doc)
      .Shape(BroadcastBinaryShape)
      .Gradient(std::move(gradient));
}

}  // namespace muster
