// Resizing images: bilinear, bicubic, by area, or to the nearest neighbour.
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
    if (images.dim(3) <= 0) return InvalidArgument("image must have at least one channel");
    if (images.dim(1) > kLargest || images.dim(2) > kLargest)
      return InvalidArgument("input sizes must be between 0 and max int32");
    return Shape::Make({images.dim(0), sizes[0], sizes[1], images.dim(3)});
  }

  static absl::Status CheckGradient(const Tensor& grads, const Tensor& original) {
    if (grads.rank() != 4)
      return InvalidArgument("input_grad must be 4-dimensional", grads.shape().ToString());
    if (original.rank() != 4) {
      return InvalidArgument("original_image must be 4-dimensional", original.shape().ToString());
    }
    if (grads.dim(1) <= 0 || grads.dim(2) <= 0)
      return InvalidArgument("resized dimensions must be positive: ", grads.shape().ToString());
    if (original.dim(1) <= 0 || original.dim(2) <= 0)
      return InvalidArgument("original dimensions must be positive: ", original.shape().ToString());
    return absl::OkStatus();
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
    RETURN_IF_ERROR(CheckGradient(grads, original));
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
    ASSIGN_OR_RETURN(const Shape shape, OutputShape(images, c.input(1)));
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
    RETURN_IF_ERROR(CheckGradient(grads, original));
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
    ASSIGN_OR_RETURN(const Shape shape, OutputShape(images, c.input(1)));
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

absl::Status DifferentiateBicubic(GradientContext& c) {
  // Images of whole numbers have none.
  if (c.input(0).base_dtype() != DType::kFloat && c.input(0).base_dtype() != DType::kDouble)
    return absl::OkStatus();
  c.SetDx(0, c.Op("ResizeBicubicGrad", {c.dy(), c.input(0)},
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

using Pixels =
    Types<int8_t, uint8_t, int16_t, uint16_t, int32_t, int64_t, Bfloat16, Half, float, double>;

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
      .CpuTypes<Pixels>("T", []<typename T>() { return New<ResizeBicubic<T>>(); });
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

DEFINE_OP(ResizeArea) {
  op.Attr("T: {int8, uint8, int16, uint16, int32, int64, half, float, double, bfloat16}")
      .Attr("align_corners: bool = false")
      .Input("images: T")
      .Input("size: int32")
      .Output("resized_images: float")
      .Doc("Images of another size, each cell the mean of the area that it covers.")
      .Shape(InferResized)
      .HostMemory({"size"})
      .CpuTypes<Pixels>("T", []<typename T>() { return New<ResizeArea<T>>(); });
}

}  // namespace muster
