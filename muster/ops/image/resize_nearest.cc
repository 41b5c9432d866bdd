// Resizing images to the nearest neighbour.
#include "muster/graph/build/emit.h"
#include "muster/ops/image/resize.h"
#include "muster/ops/nn/gradient_support.h"
#include "muster/ops/nn/packs.h"

namespace muster {
namespace {

template <typename T>
class ResizeNearest : public Resize {
 public:
  absl::Status Compute(KernelContext& c) override {
    const Tensor& images = c.input(0);
    ASSIGN_OR_RETURN(const Shape shape, ResizedShape(images, c.input(1)));
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
    ASSIGN_OR_RETURN(const Shape shape, NearestGradShape(grads, c.input(1)));
    const int64_t in_height = grads.dim(1), in_width = grads.dim(2), n = grads.dim(3);
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    if (output->num_elements() == 0) return absl::OkStatus();
    const Scaling rows = ScalingOf(shape.dim(1), in_height);
    const Scaling columns = ScalingOf(shape.dim(2), in_width);
    const int64_t image = shape.dim(1) * shape.dim(2) * n;
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
      .CpuTypes<ResizableTypes>("T", []<typename T>() { return New<ResizeNearest<T>>(); })
      .GpuTypes("T", GpuFloats(), MakeGpuResizeNearest);
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
          "T", []<typename T>() { return New<ResizeNearestGrad<T>>(); })
      .GpuTypes("T", GpuFloats(), MakeGpuResizeNearestGrad);
}

}  // namespace muster
