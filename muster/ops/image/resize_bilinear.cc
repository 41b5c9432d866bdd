// Resizing images by interpolation between the four nearest cells.
#include "muster/ops/image/resize.h"
#include "muster/ops/nn/gradient_support.h"

namespace muster {
namespace {

// The two neighbours of each position and the weight of the upper one.
struct Neighbours {
  int64_t lower;
  int64_t upper;
  float weight;
};
std::vector<Neighbours> Interpolation(const Scaling& scaling, int64_t in, int64_t out) {
  std::vector<Neighbours> all(static_cast<size_t>(out));
  for (int64_t i = 0; i < out; ++i) {
    const float x = scaling.Linear(i);
    const float below = std::floor(x);
    all[i].lower = std::clamp<int64_t>(static_cast<int64_t>(below), 0, in - 1);
    all[i].upper = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(x)), 0, in - 1);
    all[i].weight = x - below;
  }
  return all;
}

template <typename T>
class ResizeBilinear : public Resize {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& images = c.input(0);
    ASSIGN_OR_RETURN(const Shape shape, ResizedShape(images, c.input(1)));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    if (output->num_elements() == 0) return absl::OkStatus();
    const int64_t height = images.dim(1), width = images.dim(2), n = images.dim(3);
    const int64_t out_height = shape.dim(1), out_width = shape.dim(2);
    const auto rows = Interpolation(ScalingOf(height, out_height), height, out_height);
    const auto columns = Interpolation(ScalingOf(width, out_width), width, out_width);
    const T* const in = images.data<T>();
    float* const out = output->data<float>();
    c.ParallelFor(shape.dim(0) * out_height, 2.0 * static_cast<double>(out_width * n),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      const T* const image = in + i / out_height * height * width * n;
                      const Neighbours& row = rows[i % out_height];
                      const T* const top = image + row.lower * width * n;
                      const T* const bottom = image + row.upper * width * n;
                      float* to = out + i * out_width * n;
                      for (const Neighbours& column : columns) {
                        const int64_t left = column.lower * n, right = column.upper * n;
                        for (int64_t k = 0; k < n; ++k, ++to) {
                          const float top_left = static_cast<float>(top[left + k]);
                          const float bottom_left = static_cast<float>(bottom[left + k]);
                          const float upper =
                              top_left +
                              (static_cast<float>(top[right + k]) - top_left) * column.weight;
                          const float lower =
                              bottom_left +
                              (static_cast<float>(bottom[right + k]) - bottom_left) * column.weight;
                          *to = upper + (lower - upper) * row.weight;
                        }
                      }
                    }
                  });
    return absl::OkStatus();
  }
};

template <typename T>
class ResizeBilinearGrad : public Resize {
 public:
  absl::Status Compute(KernelContext& c) override {
    using V = muster::Compute<T>;
    const Tensor& grads = c.input(0);
    const Tensor& original = c.input(1);
    ASSIGN_OR_RETURN(const Shape shape, BilinearGradShape(grads, original));
    const int64_t out_height = grads.dim(1), out_width = grads.dim(2), n = grads.dim(3);
    const int64_t height = original.dim(1), width = original.dim(2);
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    if (output->num_elements() == 0) return absl::OkStatus();
    const auto rows = Interpolation(ScalingOf(height, out_height), height, out_height);
    const auto columns = Interpolation(ScalingOf(width, out_width), width, out_width);
    const int64_t image = height * width * n;
    c.ParallelFor(shape.dim(0), 4.0 * static_cast<double>(out_height * out_width * n + image),
                  [&](int64_t begin, int64_t end) {
                    std::vector<V> sums(static_cast<size_t>(image));
                    for (int64_t b = begin; b < end; ++b) {
                      std::fill(sums.begin(), sums.end(), V(0));
                      const float* from = grads.data<float>() + b * out_height * out_width * n;
                      for (const Neighbours& row : rows) {
                        for (const Neighbours& column : columns) {
                          Spread(from, n, row, column, width, sums.data());
                          from += n;
                        }
                      }
                      T* const to = output->data<T>() + b * image;
                      for (int64_t i = 0; i < image; ++i) to[i] = static_cast<T>(sums[i]);
                    }
                  });
    return absl::OkStatus();
  }

 private:
  template <typename V>
  static void Spread(const float* from, int64_t n, const Neighbours& row, const Neighbours& column,
                     int64_t width, V* sums) {
    const float right = column.weight, left = 1 - right;
    const float bottom = row.weight, top = 1 - bottom;
    V* const upper = sums + row.lower * width * n;
    V* const lower = sums + row.upper * width * n;
    for (int64_t k = 0; k < n; ++k) {
      upper[column.lower * n + k] += static_cast<V>(from[k] * top * left);
      upper[column.upper * n + k] += static_cast<V>(from[k] * top * right);
      lower[column.lower * n + k] += static_cast<V>(from[k] * bottom * left);
      lower[column.upper * n + k] += static_cast<V>(from[k] * bottom * right);
    }
  }
};

absl::Status DifferentiateBilinear(GradientContext& c) {
  c.SetDx(0, c.Op("ResizeBilinearGrad", {c.dy(), c.input(0)},
                  CopyAttrs(c, {"align_corners", "half_pixel_centers"})));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(ResizeBilinear) {
  op.Attr("T: {int8, uint8, int16, uint16, int32, int64, bfloat16, half, float, double, bfloat16}")
      .Attr("align_corners: bool = false")
      .Attr("half_pixel_centers: bool = false")
      .Input("images: T")
      .Input("size: int32")
      .Output("resized_images: float")
      .Doc("Images of another size, by interpolation between the four nearest cells.")
      .Shape(InferResized)
      .Gradient(DifferentiateBilinear)
      .HostMemory({"size"})
      .CpuTypes<ResizableTypes>("T", []<typename T>() { return New<ResizeBilinear<T>>(); })
      .GpuTypes("T", {DType::kFloat, DType::kDouble}, MakeGpuResizeBilinear);
}

DEFINE_OP(ResizeBilinearGrad) {
  op.Attr("T: {float, bfloat16, half, double}")
      .Attr("align_corners: bool = false")
      .Attr("half_pixel_centers: bool = false")
      .Input("grads: float")
      .Input("original_image: T")
      .Output("output: T")
      .Doc("Gradient of ResizeBilinear.")
      .Shape([](ShapeContext& c) {
        c.SetOutput(0, c.input(1));
        return absl::OkStatus();
      })
      .NoGradient("TensorFlow has no second derivative of bilinear resizing")
      .CpuTypes<Floats>("T", []<typename T>() { return New<ResizeBilinearGrad<T>>(); })
      .GpuTypes("T", {DType::kFloat, DType::kDouble}, MakeGpuResizeBilinearGrad);
}

}  // namespace muster
