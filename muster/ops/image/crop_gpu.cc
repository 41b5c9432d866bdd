// CropAndResize and its gradients on GPUs.
#include <algorithm>

#include "muster/ops/image/crop_geometry.h"
#include "muster/ops/nn/packs.h"

namespace muster {
namespace {

// As in crop_and_resize.cu.
struct GpuCropGeometry {
  int64_t batch, height, width, depth;
  int64_t boxes, crop_height, crop_width;
  int64_t bilinear;
};

class GpuCropKernel : public GpuKernel {
 public:
  GpuCropKernel(const char* function, DType dtype)
      : run_(*this, "image/crop_and_resize.cu",
             absl::StrCat(function, "<", GpuTypeName(dtype), ">")) {}
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(const std::string method, setup.Attr<std::string>("method"));
    bilinear_ = method == "bilinear";
    return GpuKernel::Init(setup);
  }

 protected:
  GpuCropGeometry ForGpu(const CropGeometry& g) const {
    return {g.batch, g.height,      g.width,      g.depth,
            g.boxes, g.crop_height, g.crop_width, bilinear_ ? 1 : 0};
  }
  GpuFunction run_;

 private:
  bool bilinear_ = true;
};

class GpuCrop : public GpuCropKernel {
 public:
  explicit GpuCrop(DType dtype) : GpuCropKernel("CropAndResize", dtype) {}
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(extrapolation_, setup.Attr<float>("extrapolation_value"));
    return GpuCropKernel::Init(setup);
  }
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const CropGeometry g,
                     GeometryOfCrops(c, [](int64_t) { return absl::OkStatus(); }));
    ASSIGN_OR_RETURN(Tensor* const crops, c.AllocateOutput(0, g.crops()));
    return run_.LaunchForEach(crops->num_elements(), GpuIn(c.input(0)), GpuIn(c.input(1)),
                              GpuIn(c.input(2)), GpuOut(*crops), crops->num_elements(), ForGpu(g),
                              extrapolation_);
  }

 private:
  float extrapolation_ = 0;
};

class GpuCropImageGrad : public GpuCropKernel {
 public:
  explicit GpuCropImageGrad(DType dtype) : GpuCropKernel("CropAndResizeGradImage", dtype) {}
  absl::Status Compute(KernelContext& c) override {
    const Tensor& dy = c.input(0);
    ASSIGN_OR_RETURN(const CropGeometry g, GeometryOfImageGrad(c));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, g.images()));
    RETURN_IF_ERROR(
        gpu().Fill(output->raw(), 0,
                   static_cast<size_t>(output->num_elements()) * DTypeSize(output->dtype())));
    return run_.LaunchForEach(dy.num_elements(), GpuIn(dy), GpuIn(c.input(1)), GpuIn(c.input(2)),
                              GpuOut(*output), dy.num_elements(), ForGpu(g));
  }
};

class GpuCropBoxesGrad : public GpuCropKernel {
 public:
  explicit GpuCropBoxesGrad(DType dtype) : GpuCropKernel("CropAndResizeGradBoxes", dtype) {}
  absl::Status Compute(KernelContext& c) override {
    ASSIGN_OR_RETURN(const CropGeometry g, GeometryOfBoxesGrad(c));
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, Shape({g.boxes, 4})));
    GpuGrid grid;
    grid.blocks_x = static_cast<unsigned>(std::min<int64_t>(g.boxes, 1 << 30));
    return run_.Launch(grid, GpuIn(c.input(0)), GpuIn(c.input(1)), GpuIn(c.input(2)),
                       GpuIn(c.input(3)), GpuOut(*output), ForGpu(g));
  }
};

}  // namespace

KernelFactory MakeGpuCrop(DType dtype) {
  return MakeGpu<GpuCrop>(dtype);
}
KernelFactory MakeGpuCropImageGrad(DType dtype) {
  return MakeGpu<GpuCropImageGrad>(dtype);
}
KernelFactory MakeGpuCropBoxesGrad(DType dtype) {
  return MakeGpu<GpuCropBoxesGrad>(dtype);
}
std::vector<DType> GpuCropTypes() {
  return {DType::kHalf, DType::kFloat, DType::kDouble};
}

}  // namespace muster
