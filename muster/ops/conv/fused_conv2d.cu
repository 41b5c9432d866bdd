// What _FusedConv2D does behind its convolution.
#include "muster/ops/gpu.cuh"

// As FusedArguments of conv_gpu.cc.
struct FusedArguments {
  const void *first, *second, *third, *fourth;  // the bias; or scale, offset, mean and variance
  const void* added;                            // null: nothing
  int64 count, channels, inner;                 // elements; a channel changes after `inner` of them
  float epsilon, alpha;
  int32 batch_norm, activation;  // of fused_activation.h
};

template <typename C>
__device__ __forceinline__ C Activated(C x, int32 activation, C alpha) {
  switch (activation) {
    case 1:
      return x < C(0) ? C(0) : x;
    case 2:
      return x < C(0) ? C(0) : x > C(6) ? C(6) : x;
    case 3:
      return x < C(0) ? exp(x) - C(1) : x;
    case 4:
      return x > C(0) ? x : x * alpha;
    case 5:
      return tanh(x);
    case 6:
      return C(1) / (C(1) + exp(-x));
    default:
      return x;
  }
}

template <typename T>
__global__ void FinishConv(T* y, FusedArguments a) {
  using C = Compute<T>;
  const T* const first = static_cast<const T*>(a.first);
  FOR_EACH_ELEMENT(i, a.count) {
    const int64 channel = i / a.inner % a.channels;
    C factor = 1, bias = Load(first, channel);
    if (a.batch_norm != 0) {
      factor = bias / sqrt(Load(static_cast<const T*>(a.fourth), channel) + C(a.epsilon));
      bias = Load(static_cast<const T*>(a.second), channel) -
             Load(static_cast<const T*>(a.third), channel) * factor;
    }
    C value = Load(y, i) * factor + bias;
    if (a.added != nullptr) value += Load(static_cast<const T*>(a.added), i);
    Store(y, i, Activated(value, a.activation, C(a.alpha)));
  }
}
