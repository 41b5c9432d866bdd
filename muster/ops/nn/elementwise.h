// Loops of the activations: element by element, in place where the input is free.
#pragma once

#include "muster/ops/op.h"

namespace muster {

// to[i] = f(in[i]), computed in Compute<T>. `cost_ns` is the rough time of one element.
template <typename T, typename F>
absl::Status MapElements(KernelContext& c, double cost_ns, F f) {
  const Shape shape = c.input(0).shape();
  const T* const in = c.input(0).data<T>();
  ASSIGN_OR_RETURN(Tensor * output, c.ForwardOrAllocate({0}, 0, shape));
  T* const out = output->data<T>();
  c.ParallelFor(shape.num_elements(), cost_ns, [=](int64_t begin, int64_t end) {
    const T* const from = in;
    T* const to = out;
// Input and output are the same memory or do not touch.
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i)
      to[i] = static_cast<T>(f(static_cast<Compute<T>>(from[i])));
  });
  return absl::OkStatus();
}

// InvalidArgument unless both inputs have one shape.
inline absl::Status CheckSameShapes(const KernelContext& c) {
  if (c.input(1).shape() == c.input(0).shape()) return absl::OkStatus();
  return InvalidArgument(
      "Inputs to operation ", c.node().name(), " of type ", c.node().op(),
      " must have the same size and shape.  Input 0: ", c.input(0).shape().ToString(),
      " != input 1: ", c.input(1).shape().ToString());
}

// to[i] = f(a[i], b[i]) for two inputs of one shape.
template <typename T, typename F>
absl::Status MapPairs(KernelContext& c, double cost_ns, F f) {
  RETURN_IF_ERROR(CheckSameShapes(c));
  const Shape shape = c.input(0).shape();
  const T* const a = c.input(0).data<T>();
  const T* const b = c.input(1).data<T>();
  ASSIGN_OR_RETURN(Tensor * output, c.ForwardOrAllocate({0, 1}, 0, shape));
  T* const out = output->data<T>();
  c.ParallelFor(shape.num_elements(), cost_ns, [=](int64_t begin, int64_t end) {
    const T* const x = a;
    const T* const y = b;
    T* const to = out;
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) {
      to[i] = static_cast<T>(f(static_cast<Compute<T>>(x[i]), static_cast<Compute<T>>(y[i])));
    }
  });
  return absl::OkStatus();
}

}  // namespace muster
