// Local response normalisation across neighbouring channels.
#include <cmath>

#include "muster/ops/nn/gradient_support.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

class Normalisation : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(radius_, setup.Attr<int64_t>("depth_radius"));
    ASSIGN_OR_RETURN(bias_, setup.Attr<float>("bias"));
    ASSIGN_OR_RETURN(alpha_, setup.Attr<float>("alpha"));
    ASSIGN_OR_RETURN(beta_, setup.Attr<float>("beta"));
    // In TensorFlow's words, which has negative numbers in mind too.
    if (radius_ < 0 || radius_ >= std::numeric_limits<int32_t>::max())
      return InvalidArgument("depth_radius = ", radius_, " larger than int max");
    return absl::OkStatus();
  }

 protected:
  // bias + alpha * the sum of squares around each of `depth` channels.
  template <typename T>
  void Norms(const T* x, int64_t depth, float* norms) const {
    for (int64_t i = 0; i < depth; ++i) {
      const int64_t begin = std::max<int64_t>(i - radius_, 0);
      const int64_t end = std::min(i + radius_ + 1, depth);
      float sum = 0;
      for (int64_t k = begin; k < end; ++k)
        sum += static_cast<float>(x[k]) * static_cast<float>(x[k]);
      norms[i] = bias_ + alpha_ * sum;
    }
  }
  float Power(float norm) const {
    if (beta_ == 1.0f) return 1.0f / norm;
    if (beta_ == 0.5f) return 1.0f / std::sqrt(norm);
    return std::pow(norm, -beta_);
  }
  double Cost(int64_t depth) const {
    return static_cast<double>(depth) *
           (20 + static_cast<double>(std::min(2 * radius_ + 1, depth)));
  }

  int64_t radius_ = 0;
  float bias_ = 0, alpha_ = 0, beta_ = 0;
};

template <typename T>
class Lrn : public Normalisation {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    if (input.rank() != 4) return InvalidArgument("in must be 4-dimensional");
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, input.shape()));
    if (input.num_elements() == 0) return absl::OkStatus();
    const int64_t depth = input.dim(3);
    const T* const in = input.data<T>();
    T* const out = output->data<T>();
    c.ParallelFor(input.num_elements() / depth, Cost(depth), [&](int64_t begin, int64_t end) {
      std::vector<float> norms(static_cast<size_t>(depth));
      for (int64_t cell = begin; cell < end; ++cell) {
        const T* const x = in + cell * depth;
        Norms(x, depth, norms.data());
        for (int64_t i = 0; i < depth; ++i) {
          out[cell * depth + i] = static_cast<T>(static_cast<float>(x[i]) * Power(norms[i]));
        }
      }
    });
    return absl::OkStatus();
  }
};

template <typename T>
class LrnGrad : public Normalisation {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& gradients = c.input(0);
    const Tensor& images = c.input(1);
    const Tensor& outputs = c.input(2);
    if (gradients.rank() != 4 || images.rank() != 4)
      return InvalidArgument("inputs must be 4-dimensional");
    if (gradients.shape() != images.shape() || outputs.shape() != images.shape()) {
      return InvalidArgument("input_grads, input_image, and out_image should have the same shape");
    }
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, images.shape()));
    if (images.num_elements() == 0) return absl::OkStatus();
    const int64_t depth = images.dim(3);
    const T* const dy = gradients.data<T>();
    const T* const in = images.data<T>();
    const T* const activations = outputs.data<T>();
    T* const dx = output->data<T>();
    c.ParallelFor(images.num_elements() / depth, 2 * Cost(depth), [&](int64_t begin, int64_t end) {
      std::vector<float> norms(static_cast<size_t>(depth));
      std::vector<float> ratios(static_cast<size_t>(depth));
      for (int64_t cell = begin; cell < end; ++cell) {
        const int64_t at = cell * depth;
        Norms(in + at, depth, norms.data());
        for (int64_t i = 0; i < depth; ++i) {
          ratios[i] =
              static_cast<float>(dy[at + i]) * static_cast<float>(activations[at + i]) / norms[i];
        }
        for (int64_t i = 0; i < depth; ++i) {
          const int64_t first = std::max<int64_t>(i - radius_, 0);
          const int64_t last = std::min(i + radius_ + 1, depth);
          float sum = 0;
          for (int64_t k = first; k < last; ++k) sum += ratios[k];
          const float own = static_cast<float>(dy[at + i]) * Power(norms[i]);
          dx[at + i] =
              static_cast<T>(own - 2 * alpha_ * beta_ * static_cast<float>(in[at + i]) * sum);
        }
      }
    });
    return absl::OkStatus();
  }
};

absl::Status InferLrn(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.WithRank(c.input(0), 4));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferLrnGrad(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape shape, c.WithRank(c.input(0), 4));
  ASSIGN_OR_RETURN(shape, shape.Merge(c.input(1)));
  ASSIGN_OR_RETURN(shape, shape.Merge(c.input(2)));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

using LrnTypes = Types<Half, Bfloat16, float>;

}  // namespace

DEFINE_OP(LRN) {
  op.Attr("depth_radius: int = 5")
      .Attr("bias: float = 1.0")
      .Attr("alpha: float = 1.0")
      .Attr("beta: float = 0.5")
      .Attr("T: {half, bfloat16, float} = DT_FLOAT")
      .Input("input: T")
      .Output("output: T")
      .Doc("x / (bias + alpha * sum of squares over the neighbouring channels)^beta.")
      .Shape(InferLrn)
      .Gradient([](GradientContext& c) {
        c.SetDx(0, c.Op("LRNGrad", {c.dy(), c.input(0), c.output()},
                        CopyAttrs(c, {"depth_radius", "bias", "alpha", "beta"})));
        return absl::OkStatus();
      })
      .CpuTypes<LrnTypes>("T", []<typename T>() { return New<Lrn<T>>(); });
}

DEFINE_OP(LRNGrad) {
  op.Attr("depth_radius: int = 5")
      .Attr("bias: float = 1.0")
      .Attr("alpha: float = 1.0")
      .Attr("beta: float = 0.5")
      .Attr("T: {half, bfloat16, float} = DT_FLOAT")
      .Input("input_grads: T")
      .Input("input_image: T")
      .Input("output_image: T")
      .Output("output: T")
      .Doc("Gradient of LRN.")
      .Shape(InferLrnGrad)
      .CpuTypes<LrnTypes>("T", []<typename T>() { return New<LrnGrad<T>>(); });
}

}  // namespace muster
