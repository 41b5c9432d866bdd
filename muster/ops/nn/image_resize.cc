// Resizing images by bilinear interpolation or to the nearest neighbour.
#include <cmath>

#include "muster/graph/emit.h"
#include "muster/ops/nn/gradient_support.h"
#include "muster/ops/op.h"

namespace muster {
namespace {

// How output positions map to input positions along one axis.
struct Scaling {
  float scale = 1;
  bool half_pixel = false;

  static Scaling Make(int64_t in, int64_t out, bool align_corners, bool half_pixel) {
    const float scale = align_corners && out > 1
                            ? static_cast<float>(in - 1) / static_cast<float>(out - 1)
                            : static_cast<float>(in) / static_cast<float>(out);
    return {scale, half_pixel};
  }
  float Linear(int64_t i) const {
    const float x = static_cast<float>(i);
    return half_pixel ? (x + 0.5f) * scale - 0.5f : x * scale;
  }
  int64_t Nearest(int64_t i, int64_t size, bool align_corners) const {
    const float x = (half_pixel ? static_cast<float>(i) + 0.5f : static_cast<float>(i)) * scale;
    const int64_t at = static_cast<int64_t>(align_corners ? std::round(x) : std::floor(x));
    return std::clamp<int64_t>(at, 0, size - 1);
  }
};

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

class Resize : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(align_corners_, setup.Attr<bool>("align_corners"));
    ASSIGN_OR_RETURN(half_pixel_, setup.Attr<bool>("half_pixel_centers"));
    if (half_pixel_ && align_corners_) {
      return InvalidArgument("If half_pixel_centers is True, align_corners must be False.");
    }
    return absl::OkStatus();
  }

 protected:
  Scaling ScalingOf(int64_t in, int64_t out) const {
    return Scaling::Make(in, out, align_corners_, half_pixel_);
  }
  // Checks images and sizes; gives the output's shape.
  static absl::StatusOr<Shape> OutputShape(const Tensor& images, const Tensor& size) {
    if (images.rank() != 4)
      return InvalidArgument("input must be 4-dimensional", images.shape().ToString());
    if (size.rank() != 1)
      return InvalidArgument("shape_t must be 1-dimensional", size.shape().ToString());
    if (size.num_elements() != 2)
      return InvalidArgument("shape_t must have two elements", size.shape().ToString());
    ASSIGN_OR_RETURN(const Dims sizes, IntegerValues(size));
    if (sizes[0] <= 0 || sizes[1] <= 0)
      return InvalidArgument("output dimensions must be positive");
    if (images.dim(1) <= 0 || images.dim(2) <= 0)
      return InvalidArgument("input image must be of non-zero size");
    if (images.dim(1) > kLargest || images.dim(2) > kLargest)
      return InvalidArgument("input sizes must be between 0 and max int32");
    return Shape::Make({images.dim(0), sizes[0], sizes[1], images.dim(3)});
  }

  static constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
  bool align_corners_ = false;
  bool half_pixel_ = false;
};

template <typename T>
class ResizeBilinear : public Resize {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& images = c.input(0);
    ASSIGN_OR_RETURN(const Shape shape, OutputShape(images, c.input(1)));
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
    if (grads.rank() != 4)
      return InvalidArgument("input_grad must be 4-dimensional", grads.shape().ToString());
    if (original.rank() != 4) {
      return InvalidArgument("original_image must be 4-dimensional", original.shape().ToString());
    }
    const int64_t out_height = grads.dim(1), out_width = grads.dim(2), n = grads.dim(3);
    const int64_t height = original.dim(1), width = original.dim(2);
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make({grads.dim(0), height, width, n}));
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

template <typename T>
class ResizeNearest : public Resize {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& images = c.input(0);
    ASSIGN_OR_RETURN(const Shape shape, OutputShape(images, c.input(1)));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    if (output->num_elements() == 0) return absl::OkStatus();
    const int64_t height = images.dim(1), width = images.dim(2), n = images.dim(3);
    const int64_t out_height = shape.dim(1), out_width = shape.dim(2);
    const Scaling rows = ScalingOf(height, out_height);
    const Scaling columns = ScalingOf(width, out_width);
    const T* const in = images.data<T>();
    T* const out = output->data<T>();
    c.ParallelFor(shape.dim(0) * out_height, static_cast<double>(out_width * n),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      const int64_t y = rows.Nearest(i % out_height, height, align_corners_);
                      const T* const row = in + (i / out_height * height + y) * width * n;
                      T* const to = out + i * out_width * n;
                      for (int64_t x = 0; x < out_width; ++x) {
                        std::copy_n(row + columns.Nearest(x, width, align_corners_) * n, n,
                                    to + x * n);
                      }
                    }
                  });
    return absl::OkStatus();
  }
};

template <typename T>
class ResizeNearestGrad : public Resize {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& grads = c.input(0);
    const Tensor& size = c.input(1);
    if (grads.rank() != 4)
      return InvalidArgument("input must be 4-dimensional", grads.shape().ToString());
    if (size.rank() != 1)
      return InvalidArgument("shape_t must be 1-dimensional", size.shape().ToString());
    if (size.num_elements() != 2)
      return InvalidArgument("shape_t must have two elements", size.shape().ToString());
    ASSIGN_OR_RETURN(const Dims sizes, IntegerValues(size));
    if (sizes[0] <= 0 || sizes[1] <= 0)
      return InvalidArgument("shape_t's elements must be positive");
    const int64_t in_height = grads.dim(1), in_width = grads.dim(2), n = grads.dim(3);
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make({grads.dim(0), sizes[0], sizes[1], n}));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    if (output->num_elements() == 0) return absl::OkStatus();
    const Scaling rows = ScalingOf(sizes[0], in_height);
    const Scaling columns = ScalingOf(sizes[1], in_width);
    const int64_t image = sizes[0] * sizes[1] * n;
    c.ParallelFor(shape.dim(0), static_cast<double>(in_height * in_width * n + image),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t b = begin; b < end; ++b) {
                      Spread(grads.data<T>() + b * in_height * in_width * n, grads.shape(), rows,
                             columns, shape, output->data<T>() + b * image);
                    }
                  });
    return absl::OkStatus();
  }

 private:
  void Spread(const T* from, const Shape& grads, const Scaling& rows, const Scaling& columns,
              const Shape& shape, T* out) const {
    using V = muster::Compute<T>;
    const int64_t n = shape.dim(3);
    std::vector<V> sums(static_cast<size_t>(shape.dim(1) * shape.dim(2) * n), V(0));
    for (int64_t y = 0; y < grads.dim(1); ++y) {
      const int64_t to_y = rows.Nearest(y, shape.dim(1), align_corners_);
      for (int64_t x = 0; x < grads.dim(2); ++x, from += n) {
        V* const to = sums.data() +
                      (to_y * shape.dim(2) + columns.Nearest(x, shape.dim(2), align_corners_)) * n;
        for (int64_t k = 0; k < n; ++k) {
          if constexpr (std::is_integral_v<V>) {
            to[k] = static_cast<V>(static_cast<uint64_t>(to[k]) + static_cast<uint64_t>(from[k]));
          } else {
            to[k] += static_cast<V>(from[k]);
          }
        }
      }
    }
    for (size_t i = 0; i < sums.size(); ++i) out[i] = static_cast<T>(sums[i]);
  }
};

// [batch, size[0], size[1], channels] of the first input.
absl::Status InferResized(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape images, c.WithRank(c.input(0), 4));
  ASSIGN_OR_RETURN(const PartialShape size, c.WithRank(c.input(1), 1));
  if (size.dim(0) >= 0 && size.dim(0) != 2)
    return InvalidArgument("Dimension must be 2 but is ", size.dim(0));
  PartialShape output = PartialShape::OfRank(4);
  output.Set(0, images.dim(0));
  output.Set(3, images.dim(3));
  if (const auto value = c.ConstantInput(1)) {
    ASSIGN_OR_RETURN(const Dims sizes, IntegerValues(*value));
    if (sizes.size() == 2) {
      output.Set(1, std::max<int64_t>(sizes[0], -1));
      output.Set(2, std::max<int64_t>(sizes[1], -1));
    }
  }
  c.SetOutput(0, std::move(output));
  return absl::OkStatus();
}

absl::Status DifferentiateBilinear(GradientContext& c) {
  c.SetDx(0, c.Op("ResizeBilinearGrad", {c.dy(), c.input(0)},
                  CopyAttrs(c, {"align_corners", "half_pixel_centers"})));
  return absl::OkStatus();
}

absl::Status DifferentiateNearest(GradientContext& c) {
  const PartialShape& shape = c.input(0).shape();
  const AttrMap attrs = CopyAttrs(c, {"align_corners", "half_pixel_centers"});
  if (shape.known_rank() && shape.rank() == 4 && shape.dim(1) >= 0 && shape.dim(2) >= 0) {
    const int32_t sizes[] = {static_cast<int32_t>(shape.dim(1)),
                             static_cast<int32_t>(shape.dim(2))};
    c.SetDx(0, OpWithConstant(c, "ResizeNearestNeighborGrad", c.dy(),
                              Tensor::Vector<int32_t>(sizes), "size", attrs));
    return absl::OkStatus();
  }
  const Output whole = c.ShapeOf(c.input(0));
  const Scope slice = c.scope().NameScope("strided_slice");
  const Output begin = slice.ConstVector({1}, "stack");
  const Output end = slice.ConstVector({3}, "stack_1");
  const Output step = slice.ConstVector({1}, "stack_2");
  const Output size = OpNamed(slice, "StridedSlice", {whole, begin, end, step});
  c.SetDx(0, c.Op("ResizeNearestNeighborGrad", {c.dy(), size}, attrs));
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
      .CpuTypes<Types<int8_t, uint8_t, int16_t, uint16_t, int32_t, int64_t, Bfloat16, Half, float,
                      double>>("T", []<typename T>() { return New<ResizeBilinear<T>>(); });
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
      .CpuTypes<Floats>("T", []<typename T>() { return New<ResizeBilinearGrad<T>>(); });
}

DEFINE_OP(ResizeNearestNeighbor) {
  op.Attr("T: {int8, uint8, int16, uint16, int32, int64, half, float, double, bfloat16}")
      .Attr("align_corners: bool = false")
      .Attr("half_pixel_centers: bool = false")
      .Input("images: T")
      .Input("size: int32")
      .Output("resized_images: T")
      .Doc("Images of another size, each cell that of the nearest one.")
      .Shape(InferResized)
      .Gradient(DifferentiateNearest)
      .HostMemory({"size"})
      .CpuTypes<Types<int8_t, uint8_t, int16_t, uint16_t, int32_t, int64_t, Bfloat16, Half, float,
                      double>>("T", []<typename T>() { return New<ResizeNearest<T>>(); });
}

DEFINE_OP(ResizeNearestNeighborGrad) {
  op.Attr("T: {uint8, int8, int32, half, float, double, bfloat16}")
      .Attr("align_corners: bool = false")
      .Attr("half_pixel_centers: bool = false")
      .Input("grads: T")
      .Input("size: int32")
      .Output("output: T")
      .Doc("Gradient of ResizeNearestNeighbor.")
      .Shape(InferResized)
      .HostMemory({"size"})
      .CpuTypes<Types<uint8_t, int8_t, int32_t, Half, Bfloat16, float, double>>(
          "T", []<typename T>() { return New<ResizeNearestGrad<T>>(); });
}

}  // namespace muster
