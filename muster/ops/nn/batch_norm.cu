// Batch normalisation per channel, and its gradient: a reduction to statistics, a step per channel,
// and a pass over all elements.
#include "muster/ops/nn/channels.cuh"

// Count, mean and sum of squared distances from it, for some elements of a channel (Welford; Chan
// et al. for two sets). The mean is kept as a distance from one of the elements, so that it is
// exact where it is large beside the deviation.
struct Moments {
  float count, pivot, mean, squares;

  static __device__ __forceinline__ Moments None() { return {0, 0, 0, 0}; }
  __device__ __forceinline__ void Add(float x, float inverse_count) {
    if (count == 0) pivot = x;
    count += 1;
    const float y = x - pivot;
    const float distance = y - mean;
    mean += distance * inverse_count;
    squares += distance * (y - mean);
  }
  static __device__ __forceinline__ Moments Join(Moments a, Moments b) {
    if (b.count == 0) return a;
    if (a.count == 0) return b;
    const float count = a.count + b.count;
    const float distance = (b.pivot - a.pivot) + b.mean - a.mean;
    const float share = b.count / count;
    return {count, a.pivot, a.mean + distance * share,
            a.squares + b.squares + distance * distance * a.count * share};
  }
};

template <typename T>
struct AddMoments {
  const T* x;
  template <int wide>
  __device__ __forceinline__ void Run(Moments* totals, int64 i, int64) const {
    const auto pack = *reinterpret_cast<const Pack<T, wide>*>(x + i);
    const float inverse_count = 1.0f / (totals[0].count + 1);
#pragma unroll
    for (int k = 0; k < wide; ++k) totals[k].Add(Load(pack.at, k), inverse_count);
  }
};

// One number per channel each.
struct BatchNormChannels {
  const float* scale;
  const float* old_mean;
  const float* old_variance;
  float* mean;
  float* variance;
  float* used_mean;
  float* used_variance;
  float* factor;  // scale / deviation
  float epsilon, averaging;
  double correction;
};

__device__ __forceinline__ void UseStatistics(const BatchNormChannels& c, int64 i, float mean,
                                              float variance) {
  c.used_mean[i] = mean;
  c.used_variance[i] = variance;
  c.factor[i] = c.scale[i] / sqrt(variance + c.epsilon);
}
__device__ __forceinline__ void FinishMoments(const BatchNormChannels& c, int64 i, Moments m) {
  const float mean = m.pivot + m.mean;
  const float variance = m.squares / m.count;
  UseStatistics(c, i, mean, variance);
  const float share = c.averaging;
  const float corrected = variance * float(c.correction);
  // With a share of one there may be no old ones.
  c.mean[i] = share == 1 ? mean : (1 - share) * c.old_mean[i] + share * mean;
  c.variance[i] = share == 1 ? corrected : (1 - share) * c.old_variance[i] + share * corrected;
}

// To `parts` where there are several.
template <typename T>
__global__ void MeasureChannels(const T* x, Moments* parts, ChannelSplit split,
                                BatchNormChannels channels) {
  ReduceChannels<Moments, T>(split, AddMoments<T>{x}, [=](int64 channel, Moments total) {
    if (gridDim.y == 1) {
      FinishMoments(channels, channel, total);
    } else {
      parts[blockIdx.y * split.channels + channel] = total;
    }
  });
}
__global__ void MeasureParts(const Moments* parts, ChannelSplit split, BatchNormChannels channels) {
  ReduceParts(parts, split,
              [=](int64 channel, Moments total) { FinishMoments(channels, channel, total); });
}
// With the statistics that are given.
__global__ void UseOldStatistics(BatchNormChannels channels, int64 count) {
  FOR_EACH_ELEMENT(i, count) {
    const float mean = channels.old_mean[i], variance = channels.old_variance[i];
    UseStatistics(channels, i, mean, variance);
    channels.mean[i] = mean;
    channels.variance[i] = variance;
  }
}

// An element of a channel, perhaps with another one added to it and Relu behind it: graph rewriting
// may have joined these. They round where the separate nodes would.
template <typename T>
struct Normaliser {
  float mean, factor, offset;
  bool relu;
  __device__ __forceinline__ float Finish(float y) const { return relu && y < 0 ? 0.0f : y; }
  __device__ __forceinline__ float operator()(float x) const {
    return Finish((x - mean) * factor + offset);
  }
  __device__ __forceinline__ float operator()(float x, float side) const {
    return Finish(float(T((x - mean) * factor + offset)) + side);
  }
};

// `side` may be null.
template <typename T>
__global__ void Normalise(const T* x, const float* mean, const float* factor, const float* offset,
                          const T* side, bool relu, T* y, ChannelSplit split) {
  const auto at = [=](int64 i) { return Normaliser<T>{mean[i], factor[i], offset[i], relu}; };
  if (side == nullptr) {
    MapByChannel(split, y, at, x);
  } else {
    MapByChannel(split, y, at, x, side);
  }
}

// --- Gradient

struct GradientSums {
  float dy;
  float product;  // of dy and the distance from the mean

  static __device__ __forceinline__ GradientSums None() { return {0, 0}; }
  static __device__ __forceinline__ GradientSums Join(GradientSums a, GradientSums b) {
    return {a.dy + b.dy, a.product + b.product};
  }
};

// What comes through Relu behind the normalisation, to one channel: gradients of the values that are
// positive once they are rounded to T.
template <typename T>
struct ThroughRelu {
  float mean, factor, offset;
  __device__ __forceinline__ float operator()(float dy, float x) const {
    return float(T((x - mean) * factor + offset)) > 0 ? dy : 0.0f;
  }
};
template <typename T>
struct Relus {
  const float* mean;
  const float* factor;  // scale / deviation, as the values were computed with
  const float* offset;
  __device__ __forceinline__ ThroughRelu<T> operator()(int64 i) const {
    return {mean[i], factor[i], offset[i]};
  }
};
struct ThroughNothing {
  __device__ __forceinline__ float operator()(float dy, float) const { return dy; }
};
struct NoRelus {
  const float* mean;
  __device__ __forceinline__ ThroughNothing operator()(int64) const { return {}; }
};

template <typename T, typename Through>
struct AddGradients {
  const T* dy;
  const T* x;
  Through through;
  template <int wide>
  __device__ __forceinline__ void Run(GradientSums* totals, int64 i, int64 channel) const {
    const auto dys = *reinterpret_cast<const Pack<T, wide>*>(dy + i);
    const auto xs = *reinterpret_cast<const Pack<T, wide>*>(x + i);
#pragma unroll
    for (int k = 0; k < wide; ++k) {
      const float value = Load(xs.at, k);
      const float d = through(channel + k)(Load(dys.at, k), value);
      totals[k].dy += d;
      totals[k].product += d * (value - through.mean[channel + k]);
    }
  }
};

struct BatchNormGradChannels {
  const float* scale;
  const float* variance;
  float* dscale;
  float* doffset;
  // dx = factor * (dy - constant - slope * (x - mean)); the last two only when the statistics
  // depend on x.
  float* factor;
  float* constant;
  float* slope;
  float epsilon, count;
  int64 is_training;
};

__device__ __forceinline__ void FinishGradients(const BatchNormGradChannels& c, int64 i,
                                                GradientSums sums) {
  const float total = c.variance[i] + c.epsilon;
  const float inverse = 1.0f / sqrt(total);
  c.dscale[i] = sums.product * inverse;
  c.doffset[i] = sums.dy;
  c.factor[i] = c.scale[i] * inverse;
  c.constant[i] = c.is_training ? sums.dy / c.count : 0.0f;
  c.slope[i] = c.is_training ? sums.product / c.count / total : 0.0f;
}

template <typename T, typename Through>
__device__ __forceinline__ void SumThrough(const T* dy, const T* x, const Through& through,
                                           GradientSums* parts, const ChannelSplit& split,
                                           const BatchNormGradChannels& channels) {
  ReduceChannels<GradientSums, T>(
      split, AddGradients<T, Through>{dy, x, through}, [=](int64 channel, GradientSums total) {
        if (gridDim.y == 1) {
          FinishGradients(channels, channel, total);
        } else {
          parts[blockIdx.y * split.channels + channel] = total;
        }
      });
}
template <typename T>
__global__ void SumGradients(const T* dy, const T* x, const float* mean, GradientSums* parts,
                             ChannelSplit split, BatchNormGradChannels channels) {
  SumThrough(dy, x, NoRelus{mean}, parts, split, channels);
}
template <typename T>
__global__ void SumReluGradients(const T* dy, const T* x, const float* mean, const float* factor,
                                 const float* offset, GradientSums* parts, ChannelSplit split,
                                 BatchNormGradChannels channels) {
  SumThrough(dy, x, Relus<T>{mean, factor, offset}, parts, split, channels);
}
__global__ void SumGradientParts(const GradientSums* parts, ChannelSplit split,
                                 BatchNormGradChannels channels) {
  ReduceParts(parts, split, [=](int64 channel, GradientSums total) {
    FinishGradients(channels, channel, total);
  });
}

// dx in one channel.
template <typename Through>
struct GradientNormaliser {
  float mean, factor, constant, slope;
  Through through;
  __device__ __forceinline__ float operator()(float dy, float x) const {
    return factor * ((through(dy, x) - constant) - slope * (x - mean));
  }
};
template <typename T, typename Through>
__device__ __forceinline__ void NormaliseThrough(const T* dy, const T* x, const Through& through,
                                                 const BatchNormGradChannels& c, T* dx,
                                                 const ChannelSplit& split) {
  const auto at = [=](int64 i) {
    return GradientNormaliser<decltype(through(i))>{through.mean[i], c.factor[i], c.constant[i],
                                                    c.slope[i], through(i)};
  };
  MapByChannel(split, dx, at, dy, x);
}
template <typename T>
__global__ void NormaliseGrad(const T* dy, const T* x, const float* mean,
                              BatchNormGradChannels c, T* dx, ChannelSplit split) {
  NormaliseThrough(dy, x, NoRelus{mean}, c, dx, split);
}
template <typename T>
__global__ void NormaliseReluGrad(const T* dy, const T* x, const float* mean, const float* factor,
                                  const float* offset, BatchNormGradChannels c, T* dx,
                                  ChannelSplit split) {
  NormaliseThrough(dy, x, Relus<T>{mean, factor, offset}, c, dx, split);
}
