// Local response normalisation across neighbouring channels.
#include <cmath>

#include "muster/ops/nn/gradient_support.h"
#include "muster/ops/nn/packs.h"

namespace muster {
namespace {

struct LrnAttrs {
  int64_t radius = 0;
  float bias = 0, alpha = 0, beta = 0;
};
absl::StatusOr<LrnAttrs> ReadLrnAttrs(const Node& node) {
  LrnAttrs attrs;
  ASSIGN_OR_RETURN(attrs.radius, node.Attr<int64_t>("depth_radius"));
  ASSIGN_OR_RETURN(attrs.bias, node.Attr<float>("bias"));
  ASSIGN_OR_RETURN(attrs.alpha, node.Attr<float>("alpha"));
  ASSIGN_OR_RETURN(attrs.beta, node.Attr<float>("beta"));
  // In TensorFlow's words, which has negative numbers in mind too.
  if (attrs.radius < 0 || attrs.radius >= std::numeric_limits<int32_t>::max())
    return InvalidArgument("depth_radius = ", attrs.radius, " larger than int max");
  return attrs;
}

absl::Status CheckLrn(const Shape& input) {
  if (input.rank() != 4) return InvalidArgument("in must be 4-dimensional");
  return absl::OkStatus();
}
absl::Status CheckLrnGrad(const KernelContext& c) {
  const Shape& gradients = c.input(0).shape();
  const Shape& images = c.input(1).shape();
  if (gradients.rank() != 4 || images.rank() != 4)
    return InvalidArgument("inputs must be 4-dimensional");
  if (gradients != images || c.input(2).shape() != images) {
    return InvalidArgument("input_grads, input_image, and out_image should have the same shape");
  }
  return absl::OkStatus();
}

class Normalisation : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadLrnAttrs(setup.node()));
    return absl::OkStatus();
  }

 protected:
  // bias + alpha * the sum of squares around each of `depth` channels.
  template <typename T>
  void Norms(const T* x, int64_t depth, float* norms) const {
    for (int64_t i = 0; i < depth; ++i) {
      const int64_t begin = std::max<int64_t>(i - attrs_.radius, 0);
      const int64_t end = std::min(i + attrs_.radius + 1, depth);
      float sum = 0;
      for (int64_t k = begin; k < end; ++k)
        sum += static_cast<float>(x[k]) * static_cast<float>(x[k]);
      norms[i] = attrs_.bias + attrs_.alpha * sum;
    }
  }
  float Power(float norm) const {
    if (attrs_.beta == 1.0f) return 1.0f / norm;
    if (attrs_.beta == 0.5f) return 1.0f / std::sqrt(norm);
    return std::pow(norm, -attrs_.beta);
  }
  double Cost(int64_t depth) const {
    return static_cast<double>(depth) *
           (20 + static_cast<double>(std::min(2 * attrs_.radius + 1, depth)));
  }

  LrnAttrs attrs_;
};

template <typename T>
class Lrn : public Normalisation {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    RETURN_IF_ERROR(CheckLrn(input.shape()));
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
    RETURN_IF_ERROR(CheckLrnGrad(c));
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
          const int64_t first = std::max<int64_t>(i - attrs_.radius, 0);
          const int64_t last = std::min(i + attrs_.radius + 1, depth);
          float sum = 0;
          for (int64_t k = first; k < last; ++k) sum += ratios[k];
          const float own = static_cast<float>(dy[at + i]) * Power(norms[i]);
          dx[at + i] = static_cast<T>(own - 2 * attrs_.alpha * attrs_.beta *
                                                static_cast<float>(in[at + i]) * sum);
        }
      }
    });
    return absl::OkStatus();
  }
};

// As in lrn.cu. Without padding, since equal launches are known by their bytes.
struct GpuLrnAttrs {
  int64_t depth;
  int64_t radius;
  float bias, alpha;
  double beta;
};
GpuLrnAttrs ForImages(const LrnAttrs& attrs, const Shape& images) {
  return {images.dim(3), attrs.radius, attrs.bias, attrs.alpha, attrs.beta};
}

std::string LrnFunction(const char* name, DType dtype) {
  return absl::StrCat(name, "<", GpuTypeName(dtype), ">");
}

class GpuLrn : public GpuKernel {
 public:
  explicit GpuLrn(DType dtype) : run_(*this, "nn/lrn.cu", LrnFunction("Normalise", dtype)) {}
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadLrnAttrs(setup.node()));
    return GpuKernel::Init(setup);
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    RETURN_IF_ERROR(CheckLrn(x.shape()));
    ASSIGN_OR_RETURN(Tensor* const y, c.AllocateOutput(0, x.shape()));
    return run_.LaunchForEach(x.num_elements(), GpuIn(x), GpuOut(*y), x.num_elements(),
                              ForImages(attrs_, x.shape()));
  }

 private:
  GpuFunction run_;
  LrnAttrs attrs_;
};

class GpuLrnGrad : public GpuKernel {
 public:
  explicit GpuLrnGrad(DType dtype)
      : ratios_(*this, "nn/lrn.cu", LrnFunction("Ratios", dtype)),
        run_(*this, "nn/lrn.cu", LrnFunction("NormaliseGrad", dtype)) {}
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadLrnAttrs(setup.node()));
    return GpuKernel::Init(setup);
  }
  absl::Status Compute(KernelContext& c) override {
    RETURN_IF_ERROR(CheckLrnGrad(c));
    const Tensor& dy = c.input(0);
    const Tensor& x = c.input(1);
    ASSIGN_OR_RETURN(Tensor* const dx, c.AllocateOutput(0, x.shape()));
    ASSIGN_OR_RETURN(Tensor ratios, c.AllocateTemporary(DType::kFloat, x.shape()));
    const GpuLrnAttrs attrs = ForImages(attrs_, x.shape());
    const int64_t count = x.num_elements();
    RETURN_IF_ERROR(ratios_.LaunchForEach(count, GpuIn(dy), GpuIn(x), GpuIn(c.input(2)),
                                          GpuOut(ratios), count, attrs));
    return run_.LaunchForEach(count, GpuIn(dy), GpuIn(x), GpuIn(ratios), GpuOut(*dx), count, attrs);
  }

 private:
  GpuFunction ratios_;
  GpuFunction run_;
  LrnAttrs attrs_;
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
      .CpuTypes<LrnTypes>("T", []<typename T>() { return New<Lrn<T>>(); })
      .GpuTypes("T", {DType::kFloat}, MakeGpu<GpuLrn>);
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
      .CpuTypes<LrnTypes>("T", []<typename T>() { return New<LrnGrad<T>>(); })
      .GpuTypes("T", {DType::kFloat}, MakeGpu<GpuLrnGrad>);
}

}  // namespace muster
