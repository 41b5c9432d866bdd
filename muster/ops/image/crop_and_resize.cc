// CropAndResize: windows of images at a common size, and its gradients.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "muster/graph/gradients/gradient_context.h"
#include "muster/ops/emit.h"
#include "muster/ops/image/crop_geometry.h"

namespace muster {
namespace {

// The positions of the samples of one crop along one axis of the image.
struct Axis {
  float first = 0;
  float step = 0;
  int64_t image = 0;  // pixels

  Axis(float begin, float end, int64_t image_size, int64_t crop_size) : image(image_size) {
    const auto last = static_cast<float>(image_size - 1);
    if (crop_size > 1) {
      first = begin * last;
      step = (end - begin) * last / static_cast<float>(crop_size - 1);
    } else {
      first = 0.5f * (begin + end) * last;
    }
  }
  float at(int64_t i) const { return first + static_cast<float>(i) * step; }
  bool inside(float x) const { return x >= 0 && x <= static_cast<float>(image - 1); }
};

// Two neighbouring pixels and how far a sample is from the lower one.
struct Neighbours {
  int64_t low;
  int64_t high;
  float fraction;
  explicit Neighbours(float x)
      : low(static_cast<int64_t>(std::floor(x))),
        high(static_cast<int64_t>(std::ceil(x))),
        fraction(x - static_cast<float>(low)) {}
};

// What can be said of values in host memory only.
absl::Status CheckBoxIndex(const Tensor& box_index, int64_t batch) {
  for (const int32_t index : box_index.values<int32_t>()) {
    if (index < 0 || index >= batch)
      return absl::OutOfRangeError("box_index has values outside [0, batch_size)");
  }
  return absl::OkStatus();
}

// Calls body(box, y, x, in_y, in_x) for every sample; in_y and in_x are places in the image.
// Samples outside it go to `outside`.
template <typename Body, typename Outside>
void ForEachSample(const CropGeometry& g, const float* boxes, int64_t begin, int64_t end, Body body,
                   Outside outside) {
  for (int64_t b = begin; b < end; ++b) {
    const float* box = boxes + b * 4;
    const Axis rows(box[0], box[2], g.height, g.crop_height);
    const Axis columns(box[1], box[3], g.width, g.crop_width);
    for (int64_t y = 0; y < g.crop_height; ++y) {
      const float in_y = rows.at(y);
      for (int64_t x = 0; x < g.crop_width; ++x) {
        const float in_x = columns.at(x);
        if (rows.inside(in_y) && columns.inside(in_x)) {
          body(b, y, x, in_y, in_x);
        } else {
          outside(b, y, x);
        }
      }
    }
  }
}

template <typename T>
class CropKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(const std::string method, s.Attr<std::string>("method"));
    bilinear_ = method == "bilinear";
    ASSIGN_OR_RETURN(extrapolation_, s.Attr<float>("extrapolation_value"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& image = c.input(0);
    ASSIGN_OR_RETURN(const CropGeometry g, GeometryOfCrops(c, [&](int64_t batch) -> absl::Status {
                       RETURN_IF_ERROR(CheckBoxIndex(c.input(2), batch));
                       for (const float edge : c.input(1).values<float>()) {
                         if (std::isfinite(edge)) continue;
                         return InvalidArgument(
                             "Boxes contains at least one element that is not finite: ", edge);
                       }
                       return absl::OkStatus();
                     }));
    ASSIGN_OR_RETURN(Tensor* const crops, c.AllocateOutput(0, g.crops()));
    const T* const pixels = image.data<T>();
    const int32_t* const index = c.input(2).data<int32_t>();
    float* const out = crops->data<float>();
    const double cost = static_cast<double>(g.crop_height * g.crop_width * g.depth) * 10;
    c.ParallelFor(g.boxes, cost, [&](int64_t begin, int64_t end) {
      const auto target = [&](int64_t b, int64_t y, int64_t x) {
        return out + ((b * g.crop_height + y) * g.crop_width + x) * g.depth;
      };
      ForEachSample(
          g, c.input(1).data<float>(), begin, end,
          [&](int64_t b, int64_t y, int64_t x, float in_y, float in_x) {
            Sample(g, pixels + index[b] * g.height * g.width * g.depth, in_y, in_x,
                   target(b, y, x));
          },
          [&](int64_t b, int64_t y, int64_t x) {
            std::fill_n(target(b, y, x), g.depth, extrapolation_);
          });
    });
    return absl::OkStatus();
  }

 private:
  void Sample(const CropGeometry& g, const T* image, float in_y, float in_x, float* to) const {
    const auto pixel = [&](int64_t y, int64_t x) { return image + (y * g.width + x) * g.depth; };
    if (!bilinear_) {
      const T* nearest = pixel(std::lround(in_y), std::lround(in_x));
      for (int64_t d = 0; d < g.depth; ++d) to[d] = static_cast<float>(nearest[d]);
      return;
    }
    const Neighbours y(in_y), x(in_x);
    const T* const corners[] = {pixel(y.low, x.low), pixel(y.low, x.high), pixel(y.high, x.low),
                                pixel(y.high, x.high)};
    for (int64_t d = 0; d < g.depth; ++d) {
      const auto value = [&](int i) { return static_cast<float>(corners[i][d]); };
      const float top = value(0) + (value(1) - value(0)) * x.fraction;
      const float bottom = value(2) + (value(3) - value(2)) * x.fraction;
      to[d] = top + (bottom - top) * y.fraction;
    }
  }

  bool bilinear_ = true;
  float extrapolation_ = 0;
};

template <typename T>
class ImageGradKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(const std::string method, s.Attr<std::string>("method"));
    bilinear_ = method == "bilinear";
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& dy = c.input(0);
    ASSIGN_OR_RETURN(const CropGeometry g, GeometryOfImageGrad(c));
    RETURN_IF_ERROR(CheckBoxIndex(c.input(2), g.batch));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, g.images()));
    T* const image = output->data<T>();
    std::fill_n(image, output->num_elements(), T(0.0f));
    const float* const gradients = dy.data<float>();
    const int32_t* const index = c.input(2).data<int32_t>();
    // Crops overlap: one thread.
    ForEachSample(
        g, c.input(1).data<float>(), 0, g.boxes,
        [&](int64_t b, int64_t y, int64_t x, float in_y, float in_x) {
          Scatter(g, gradients + ((b * g.crop_height + y) * g.crop_width + x) * g.depth, in_y, in_x,
                  image + index[b] * g.height * g.width * g.depth);
        },
        [](int64_t, int64_t, int64_t) {});
    return absl::OkStatus();
  }

 private:
  void Scatter(const CropGeometry& g, const float* from, float in_y, float in_x, T* image) const {
    const auto add = [&](int64_t y, int64_t x, int64_t d, float value) {
      T& pixel = image[(y * g.width + x) * g.depth + d];
      using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
      pixel = static_cast<T>(static_cast<Sum>(pixel) + static_cast<Sum>(static_cast<T>(value)));
    };
    if (!bilinear_) {
      const int64_t y = std::lround(in_y), x = std::lround(in_x);
      for (int64_t d = 0; d < g.depth; ++d) add(y, x, d, from[d]);
      return;
    }
    const Neighbours y(in_y), x(in_x);
    for (int64_t d = 0; d < g.depth; ++d) {
      const float top = (1 - y.fraction) * from[d];
      const float bottom = y.fraction * from[d];
      add(y.low, x.low, d, (1 - x.fraction) * top);
      add(y.low, x.high, d, x.fraction * top);
      add(y.high, x.low, d, (1 - x.fraction) * bottom);
      add(y.high, x.high, d, x.fraction * bottom);
    }
  }

  bool bilinear_ = true;
};

template <typename T>
absl::Status RunBoxesGrad(KernelContext& c) {
  const Tensor& dy = c.input(0);
  const Tensor& image = c.input(1);
  ASSIGN_OR_RETURN(const CropGeometry g, GeometryOfBoxesGrad(c));
  RETURN_IF_ERROR(CheckBoxIndex(c.input(3), g.batch));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, Shape({g.boxes, 4})));
  float* const d_boxes = output->data<float>();
  std::fill_n(d_boxes, g.boxes * 4, 0.0f);
  const int32_t* const index = c.input(3).data<int32_t>();
  // How the place of sample i of n follows the lower and the upper edge of the box.
  const auto weights = [](int64_t i, int64_t n, int64_t size) {
    const auto last = static_cast<float>(size - 1);
    if (n <= 1) return std::pair<float, float>(0.5f * last, 0.5f * last);
    const float upper = static_cast<float>(i) * (last / static_cast<float>(n - 1));
    return std::pair<float, float>(last - upper, upper);
  };
  ForEachSample(
      g, c.input(2).data<float>(), 0, g.boxes,
      [&](int64_t b, int64_t iy, int64_t ix, float in_y, float in_x) {
        const T* base = image.data<T>() + index[b] * g.height * g.width * g.depth;
        const float* from =
            dy.data<float>() + ((b * g.crop_height + iy) * g.crop_width + ix) * g.depth;
        const Neighbours y(in_y), x(in_x);
        const auto [low_y, high_y] = weights(iy, g.crop_height, g.height);
        const auto [low_x, high_x] = weights(ix, g.crop_width, g.width);
        for (int64_t d = 0; d < g.depth; ++d) {
          const auto pixel = [&](int64_t py, int64_t px) {
            return static_cast<float>(base[(py * g.width + px) * g.depth + d]);
          };
          const float tl = pixel(y.low, x.low), tr = pixel(y.low, x.high);
          const float bl = pixel(y.high, x.low), br = pixel(y.high, x.high);
          const float along_y = ((bl - tl) * (1 - x.fraction) + (br - tr) * x.fraction) * from[d];
          const float along_x = ((tr - tl) * (1 - y.fraction) + (br - bl) * y.fraction) * from[d];
          d_boxes[b * 4] += along_y * low_y;
          d_boxes[b * 4 + 1] += along_x * low_x;
          d_boxes[b * 4 + 2] += along_y * high_y;
          d_boxes[b * 4 + 3] += along_x * high_x;
        }
      },
      [](int64_t, int64_t, int64_t) {});
  return absl::OkStatus();
}

absl::Status CropShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape image, c.WithRank(c.input(0), 4));
  ASSIGN_OR_RETURN(const PartialShape boxes, c.WithRank(c.input(1), 2));
  ASSIGN_OR_RETURN(const PartialShape index, c.WithRank(c.input(2), 1));
  ASSIGN_OR_RETURN(const int64_t count, ShapeContext::MergeDims(boxes.dim(0), index.dim(0)));
  RETURN_IF_ERROR(ShapeContext::MergeDims(boxes.dim(1), 4).status());
  ASSIGN_OR_RETURN(const PartialShape size, c.WithRank(c.input(3), 1));
  RETURN_IF_ERROR(ShapeContext::MergeDims(size.dim(0), 2).status());
  ASSIGN_OR_RETURN(PartialShape crop, c.InputAsShape(3));
  ASSIGN_OR_RETURN(crop, c.WithRank(crop, 2));
  c.SetOutput(0, PartialShape({count, crop.dim(0), crop.dim(1), image.dim(3)}));
  return absl::OkStatus();
}

absl::Status ImageGradShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(PartialShape image, c.InputAsShape(3));
  ASSIGN_OR_RETURN(image, c.WithRank(image, 4));
  c.SetOutput(0, image);
  return absl::OkStatus();
}

absl::Status BoxesGradShape(ShapeContext& c) {
  c.SetOutput(0, c.input(2));
  return absl::OkStatus();
}

absl::Status CropGradient(GradientContext& c) {
  const Output image = c.input(0);
  const Output dy = c.dy();
  const DType dtype = image.base_dtype();
  const std::optional<Shape> known = image.shape().ToShape();
  Output size;
  if (!known) size = c.ShapeOf(image);
  if (dtype == DType::kHalf || dtype == DType::kFloat || dtype == DType::kDouble) {
    const NamedOp grad(c.scope(), "CropAndResizeGradImage");
    if (known) {
      Tensor dims(DType::kInt32, Shape({known->rank()}));
      for (int i = 0; i < known->rank(); ++i)
        dims.data<int32_t>()[i] = static_cast<int32_t>(known->dim(i));
      size = grad.inner().Const(std::move(dims), "image_size");
    }
    c.SetDx(0, grad.Op("CropAndResizeGradImage", {dy, c.input(1), c.input(2), size},
                       {{"T", dtype}, {"method", c.Attr<std::string>("method")}}));
  }
  c.SetDx(1, c.Op("CropAndResizeGradBoxes", {dy, image, c.input(1), c.input(2)}));
  return absl::OkStatus();
}

using Pixels = Types<uint8_t, uint16_t, int8_t, int16_t, int32_t, int64_t, Half, float, double>;

}  // namespace

DEFINE_OP(CropAndResize) {
  op.Attr("T: {uint8, uint16, int8, int16, int32, int64, half, float, double}")
      .Attr("method: {'bilinear', 'nearest'} = 'bilinear'")
      .Attr("extrapolation_value: float = 0.0")
      .Input("image: T")
      .Input("boxes: float")
      .Input("box_ind: int32")
      .Input("crop_size: int32")
      .Output("crops: float")
      .Doc("Windows of images, resized to a common size.")
      .Shape(CropShape)
      .Gradient(CropGradient)
      .CpuTypes<Pixels>("T", []<typename T>() { return New<CropKernel<T>>(); })
      .GpuTypes("T", GpuCropTypes(), MakeGpuCrop, {"crop_size"});
}

DEFINE_OP(CropAndResizeGradImage) {
  op.Attr("T: {float, half, double}")
      .Attr("method: {'bilinear', 'nearest'} = 'bilinear'")
      .Input("grads: float")
      .Input("boxes: float")
      .Input("box_ind: int32")
      .Input("image_size: int32")
      .Output("output: T")
      .Doc("Gradient of CropAndResize by its images.")
      .Shape(ImageGradShape)
      .CpuTypes<Types<float, Half, double>>("T",
                                            []<typename T>() { return New<ImageGradKernel<T>>(); })
      .GpuTypes("T", GpuCropTypes(), MakeGpuCropImageGrad, {"image_size"});
}

DEFINE_OP(CropAndResizeGradBoxes) {
  op.Attr("T: {uint8, uint16, int8, int16, int32, int64, half, float, double}")
      .Attr("method: {'bilinear'} = 'bilinear'")
      .Input("grads: float")
      .Input("image: T")
      .Input("boxes: float")
      .Input("box_ind: int32")
      .Output("output: float")
      .Doc("Gradient of CropAndResize by its boxes.")
      .Shape(BoxesGradShape)
      .CpuTypes<Pixels>("T", []<typename T>() { return Stateless(RunBoxesGrad<T>); })
      .GpuTypes("T", GpuCropTypes(), MakeGpuCropBoxesGrad);
}

}  // namespace muster
