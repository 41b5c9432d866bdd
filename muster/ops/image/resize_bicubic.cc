// Resizing images by cubic interpolation between the sixteen nearest cells.
#include "muster/ops/image/resize.h"
#include "muster/ops/nn/gradient_support.h"

namespace muster {
namespace {

// The four neighbours of each position and their weights, by a cubic convolution whose values
// TensorFlow takes from a table.
struct CubicNeighbours {
  int64_t at[4];
  float weights[4];
};

class CubicTable {
 public:
  static constexpr int64_t kSteps = 1024;

  explicit CubicTable(float a) : values_(2 * (kSteps + 1)) {
    for (int64_t i = 0; i <= kSteps; ++i) {
      float x = static_cast<float>(i) / kSteps;
      values_[2 * i] = ((a + 2) * x - (a + 3)) * x * x + 1;
      x += 1;
      values_[2 * i + 1] = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
    }
  }
  float near(int64_t step) const { return values_[2 * step]; }
  float far(int64_t step) const { return values_[2 * step + 1]; }

 private:
  std::vector<float> values_;
};

std::vector<CubicNeighbours> CubicInterpolation(const Scaling& scaling, int64_t in, int64_t out) {
  const CubicTable table(scaling.half_pixel ? -0.5f : -0.75f);
  std::vector<CubicNeighbours> all(static_cast<size_t>(out));
  for (int64_t i = 0; i < out; ++i) {
    const float x = scaling.Linear(i);
    const float below = std::floor(x);
    const auto first = static_cast<int64_t>(below) - 1;
    const auto step = static_cast<int64_t>(std::lrint((x - below) * CubicTable::kSteps));
    const int64_t rest = CubicTable::kSteps - step;
    CubicNeighbours& to = all[i];
    const float weights[] = {table.far(step), table.near(step), table.near(rest), table.far(rest)};
    float sum = 0;
    for (int64_t k = 0; k < 4; ++k) {
      to.at[k] = std::clamp<int64_t>(first + k, 0, in - 1);
      // With centres at half pixels what lies outside has no weight.
      to.weights[k] = scaling.half_pixel && to.at[k] != first + k ? 0.0f : weights[k];
      sum += to.weights[k];
    }
    if (!scaling.half_pixel || std::abs(sum) < 1000.0f * std::numeric_limits<float>::min())
      continue;
    for (float& weight : to.weights) weight /= sum;
  }
  return all;
}

template <typename T>
class ResizeBicubic : public Resize {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& images = c.input(0);
    ASSIGN_OR_RETURN(const Shape shape, ResizedShape(images, c.input(1)));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    if (output->num_elements() == 0) return absl::OkStatus();
    const int64_t height = images.dim(1), width = images.dim(2), n = images.dim(3);
    const int64_t out_height = shape.dim(1), out_width = shape.dim(2);
    const auto rows = CubicInterpolation(ScalingOf(height, out_height), height, out_height);
    const auto columns = CubicInterpolation(ScalingOf(width, out_width), width, out_width);
    c.ParallelFor(shape.dim(0) * out_height, 16.0 * static_cast<double>(out_width * n),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      const T* const image = images.data<T>() + i / out_height * height * width * n;
                      const CubicNeighbours& row = rows[i % out_height];
                      float* to = output->data<float>() + i * out_width * n;
                      for (const CubicNeighbours& column : columns) {
                        for (int64_t k = 0; k < n; ++k) {
                          *to++ = At(image + k, row, column, width * n, n);
                        }
                      }
                    }
                  });
    return absl::OkStatus();
  }

 private:
  static float At(const T* image, const CubicNeighbours& row, const CubicNeighbours& column,
                  int64_t row_size, int64_t n) {
    float sum = 0;
    for (int j = 0; j < 4; ++j) {
      float across = 0;
      for (int i = 0; i < 4; ++i) {
        across +=
            static_cast<float>(image[row.at[i] * row_size + column.at[j] * n]) * row.weights[i];
      }
      sum += across * column.weights[j];
    }
    return sum;
  }
};

template <typename T>
class ResizeBicubicGrad : public Resize {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& grads = c.input(0);
    const Tensor& original = c.input(1);
    RETURN_IF_ERROR(CheckResizeGradient(grads, original));
    const int64_t out_height = grads.dim(1), out_width = grads.dim(2), n = grads.dim(3);
    const int64_t height = original.dim(1), width = original.dim(2);
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make({grads.dim(0), height, width, n}));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    std::fill_n(output->data<T>(), output->num_elements(), T(0));
    if (output->num_elements() == 0 || grads.num_elements() == 0) return absl::OkStatus();
    const auto rows = CubicInterpolation(ScalingOf(height, out_height), height, out_height);
    const auto columns = CubicInterpolation(ScalingOf(width, out_width), width, out_width);
    const int64_t image = height * width * n;
    c.ParallelFor(shape.dim(0), 16.0 * static_cast<double>(out_height * out_width * n),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t b = begin; b < end; ++b) {
                      const float* from = grads.data<float>() + b * out_height * out_width * n;
                      T* const to = output->data<T>() + b * image;
                      for (const CubicNeighbours& row : rows) {
                        for (const CubicNeighbours& column : columns) {
                          Spread(from, n, row, column, width, to);
                          from += n;
                        }
                      }
                    }
                  });
    return absl::OkStatus();
  }

 private:
  static void Spread(const float* from, int64_t n, const CubicNeighbours& row,
                     const CubicNeighbours& column, int64_t width, T* to) {
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) {
        T* const cell = to + (row.at[i] * width + column.at[j]) * n;
        const float weight = row.weights[i] * column.weights[j];
        for (int64_t k = 0; k < n; ++k) cell[k] += static_cast<T>(from[k] * weight);
      }
    }
  }
};

absl::Status DifferentiateBicubic(GradientContext& c) {
  // Images of whole numbers have none.
  if (c.input(0).base_dtype() != DType::kFloat && c.input(0).base_dtype() != DType::kDouble)
    return absl::OkStatus();
  c.SetDx(0, c.Op("ResizeBicubicGrad", {c.dy(), c.input(0)},
                  CopyAttrs(c, {"align_corners", "half_pixel_centers"})));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(ResizeBicubic) {
  op.Attr("T: {int8, uint8, int16, uint16, int32, int64, half, float, double, bfloat16}")
      .Attr("align_corners: bool = false")
      .Attr("half_pixel_centers: bool = false")
      .Input("images: T")
      .Input("size: int32")
      .Output("resized_images: float")
      .Doc("Images of another size, by cubic interpolation between the sixteen nearest cells.")
      .Shape(InferResized)
      .Gradient(DifferentiateBicubic)
      .HostMemory({"size"})
      .CpuTypes<ResizableTypes>("T", []<typename T>() { return New<ResizeBicubic<T>>(); });
}

DEFINE_OP(ResizeBicubicGrad) {
  op.Attr("T: {float, double}")
      .Attr("align_corners: bool = false")
      .Attr("half_pixel_centers: bool = false")
      .Input("grads: float")
      .Input("original_image: T")
      .Output("output: T")
      .Doc("Gradient of ResizeBicubic.")
      .Shape([](ShapeContext& c) {
        c.SetOutput(0, c.input(1));
        return absl::OkStatus();
      })
      .NoGradient("TensorFlow has no second derivative of bicubic resizing")
      .CpuTypes<Types<float, double>>("T",
                                      []<typename T>() { return New<ResizeBicubicGrad<T>>(); });
}

}  // namespace muster
