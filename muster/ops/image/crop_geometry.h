// The sizes of CropAndResize and its gradients, and what they check on every device.
#pragma once

#include "absl/functional/function_ref.h"

#include "muster/ops/op.h"

namespace muster {

struct CropGeometry {
  int64_t batch = 0, height = 0, width = 0, depth = 0;
  int64_t boxes = 0, crop_height = 0, crop_width = 0;

  Shape images() const { return Shape({batch, height, width, depth}); }
  Shape crops() const { return Shape({boxes, crop_height, crop_width, depth}); }
};

// `check_values` is called where TensorFlow looks at boxes and their indices, which are not always
// in host memory.
absl::StatusOr<CropGeometry> GeometryOfCrops(
    const KernelContext& c, absl::FunctionRef<absl::Status(int64_t batch)> check_values);
absl::StatusOr<CropGeometry> GeometryOfImageGrad(const KernelContext& c);
absl::StatusOr<CropGeometry> GeometryOfBoxesGrad(const KernelContext& c);

// Kernels for GPUs. Samples of images that do not exist are outside of them, as in TensorFlow.
KernelFactory MakeGpuCrop(DType dtype);
KernelFactory MakeGpuCropImageGrad(DType dtype);
KernelFactory MakeGpuCropBoxesGrad(DType dtype);
std::vector<DType> GpuCropTypes();

}  // namespace muster
