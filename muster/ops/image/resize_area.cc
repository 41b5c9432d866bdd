// Resizing images by means over areas.
#include "muster/ops/image/resize.h"

namespace muster {
namespace {

// The cells that an output position covers along one axis, each with the part that it covers.
struct Covered {
  int64_t begin;
  std::vector<float> parts;
};
std::vector<Covered> Coverage(float scale, int64_t out) {
  std::vector<Covered> all(static_cast<size_t>(out));
  for (int64_t i = 0; i < out; ++i) {
    const float from = static_cast<float>(i) * scale;
    const float to = static_cast<float>(i + 1) * scale;
    all[i].begin = static_cast<int64_t>(std::floor(from));
    for (int64_t at = all[i].begin; at < static_cast<int64_t>(std::ceil(to)); ++at) {
      const auto start = static_cast<float>(at);
      all[i].parts.push_back(std::min(start + 1, to) - std::max(start, from));
    }
  }
  return all;
}

template <typename T>
class ResizeArea : public Resize {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(align_corners_, setup.Attr<bool>("align_corners"));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override {
    const Tensor& images = c.input(0);
    ASSIGN_OR_RETURN(const Shape shape, ResizedShape(images, c.input(1)));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    if (output->num_elements() == 0) return absl::OkStatus();
    const int64_t height = images.dim(1), width = images.dim(2), n = images.dim(3);
    const int64_t out_height = shape.dim(1), out_width = shape.dim(2);
    const float down = ScalingOf(height, out_height).scale;
    const float across = ScalingOf(width, out_width).scale;
    const std::vector<Covered> rows = Coverage(down, out_height);
    const std::vector<Covered> columns = Coverage(across, out_width);
    const double cost = static_cast<double>(down + 1) * (across + 1) * static_cast<double>(n);
    c.ParallelFor(shape.dim(0) * out_height, cost * static_cast<double>(out_width),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      const T* const image = images.data<T>() + i / out_height * height * width * n;
                      float* to = output->data<float>() + i * out_width * n;
                      for (const Covered& column : columns) {
                        for (int64_t k = 0; k < n; ++k) {
                          *to++ = Sum(image + k, rows[i % out_height], column, height, width, n) /
                                  (down * across);
                        }
                      }
                    }
                  });
    return absl::OkStatus();
  }

 private:
  static float Sum(const T* image, const Covered& row, const Covered& column, int64_t height,
                   int64_t width, int64_t n) {
    float sum = 0;
    for (size_t i = 0; i < row.parts.size(); ++i) {
      const int64_t y = std::min(row.begin + static_cast<int64_t>(i), height - 1);
      for (size_t j = 0; j < column.parts.size(); ++j) {
        const int64_t x = std::min(column.begin + static_cast<int64_t>(j), width - 1);
        sum += static_cast<float>(image[(y * width + x) * n]) * row.parts[i] * column.parts[j];
      }
    }
    return sum;
  }
};

}  // namespace

DEFINE_OP(ResizeArea) {
  op.Attr("T: {int8, uint8, int16, uint16, int32, int64, half, float, double, bfloat16}")
      .Attr("align_corners: bool = false")
      .Input("images: T")
      .Input("size: int32")
      .Output("resized_images: float")
      .Doc("Images of another size, each cell the mean of the area that it covers.")
      .Shape(InferResized)
      .HostMemory({"size"})
      .CpuTypes<ResizableTypes>("T", []<typename T>() { return New<ResizeArea<T>>(); });
}

}  // namespace muster
