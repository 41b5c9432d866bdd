// Resizing on GPUs.
#include "muster/ops/image/resize.h"
#include "muster/ops/nn/packs.h"

namespace muster {
namespace {

// As in resize.cu.
struct GpuAxis {
  int64_t original, resized;
  float scale;
  int32_t half_pixel;
  int64_t align_corners;
};
struct GpuResizing {
  int64_t channels;
  GpuAxis rows, columns;
};

class GpuResize : public GpuKernel {
 public:
  GpuResize(const char* function, DType dtype)
      : run_(*this, "image/resize.cu", absl::StrCat(function, "<", GpuTypeName(dtype), ">")) {}
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(attrs_, ReadResizeAttrs(setup.node()));
    return GpuKernel::Init(setup);
  }

 protected:
  // `from` to `to`, shapes of the images before and after.
  absl::Status Run(const Tensor& from, Tensor& to, const Shape& original, const Shape& resized) {
    const auto axis = [&](int i) {
      const Scaling scaling =
          Scaling::Make(original.dim(i), resized.dim(i), attrs_.align_corners, attrs_.half_pixel);
      return GpuAxis{original.dim(i), resized.dim(i), scaling.scale, attrs_.half_pixel ? 1 : 0,
                     attrs_.align_corners ? 1 : 0};
    };
    const GpuResizing resizing = {original.dim(3), axis(1), axis(2)};
    return run_.LaunchForEach(to.num_elements(), GpuIn(from), GpuOut(to), to.num_elements(),
                              resizing);
  }

 private:
  GpuFunction run_;
  ResizeAttrs attrs_;
};

class GpuForwardResize : public GpuResize {
 public:
  using GpuResize::GpuResize;
  absl::Status Compute(KernelContext& c) override {
    const Tensor& images = c.input(0);
    ASSIGN_OR_RETURN(const Shape shape, ResizedShape(images, c.input(1)));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    return Run(images, *output, images.shape(), shape);
  }
};

// `GradShape` checks the inputs and gives the shape of the originals.
template <absl::StatusOr<Shape> (*GradShape)(const Tensor&, const Tensor&)>
class GpuResizeGrad : public GpuResize {
 public:
  using GpuResize::GpuResize;
  absl::Status Compute(KernelContext& c) override {
    const Tensor& grads = c.input(0);
    ASSIGN_OR_RETURN(const Shape shape, GradShape(grads, c.input(1)));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
    return Run(grads, *output, shape, grads.shape());
  }
};

}  // namespace

KernelFactory MakeGpuResizeBilinear(DType dtype) {
  return [=] { return std::make_unique<GpuForwardResize>("ResizeBilinear", dtype); };
}
KernelFactory MakeGpuResizeBilinearGrad(DType dtype) {
  return [=] {
    return std::make_unique<GpuResizeGrad<BilinearGradShape>>("ResizeBilinearGrad", dtype);
  };
}
KernelFactory MakeGpuResizeNearest(DType dtype) {
  return [=] { return std::make_unique<GpuForwardResize>("ResizeNearest", dtype); };
}
KernelFactory MakeGpuResizeNearestGrad(DType dtype) {
  return
      [=] { return std::make_unique<GpuResizeGrad<NearestGradShape>>("ResizeNearestGrad", dtype); };
}

}  // namespace muster
