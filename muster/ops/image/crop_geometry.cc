#include "muster/ops/image/crop_geometry.h"

namespace muster {
namespace {

absl::Status CheckBoxes(const Tensor& boxes, const Tensor& box_index) {
  if (boxes.num_elements() != 0 || box_index.num_elements() != 0) {
    if (boxes.rank() != 2) return InvalidArgument("boxes must be 2-D", boxes.shape().ToString());
    if (boxes.dim(1) != 4) return InvalidArgument("boxes must have 4 columns");
    if (box_index.rank() != 1)
      return InvalidArgument("box_index must be 1-D", box_index.shape().ToString());
    if (box_index.dim(0) != boxes.dim(0))
      return InvalidArgument("box_index has incompatible shape");
  }
  return absl::OkStatus();
}

absl::Status CheckImage(const CropGeometry& g) {
  if (g.height > 0 && g.width > 0) return absl::OkStatus();
  return InvalidArgument("image dimensions must be positive");
}

// Both gradients: dy has the crops' shape.
absl::StatusOr<CropGeometry> GradientGeometry(const Tensor& dy, const Dims& image,
                                              const Tensor& boxes, const Tensor& box_index) {
  if (dy.rank() != 4) return InvalidArgument("grads image must be 4-D", dy.shape().ToString());
  if (image.size() != 4) return InvalidArgument("image must be 4-D");
  CropGeometry g;
  g.batch = image[0], g.height = image[1], g.width = image[2], g.depth = image[3];
  RETURN_IF_ERROR(CheckImage(g));
  RETURN_IF_ERROR(CheckBoxes(boxes, box_index));
  g.boxes = box_index.num_elements();
  g.crop_height = dy.dim(1);
  g.crop_width = dy.dim(2);
  if (g.crop_height <= 0 || g.crop_width <= 0)
    return InvalidArgument("grads dimensions must be positive");
  if (dy.dim(0) != g.boxes) return InvalidArgument("boxes and grads have incompatible shape");
  if (dy.dim(3) != g.depth) return InvalidArgument("image_size and grads are incompatible");
  return g;
}

}  // namespace

absl::StatusOr<CropGeometry> GeometryOfCrops(
    const KernelContext& c, absl::FunctionRef<absl::Status(int64_t batch)> check_values) {
  const Tensor& image = c.input(0);
  const Tensor& crop_size = c.input(3);
  if (image.rank() != 4)
    return InvalidArgument("input image must be 4-D", image.shape().ToString());
  if (crop_size.rank() != 1)
    return InvalidArgument("crop_size must be 1-D", crop_size.shape().ToString());
  if (crop_size.dim(0) != 2)
    return InvalidArgument("crop_size must have two elements", crop_size.shape().ToString());
  CropGeometry g;
  g.batch = image.dim(0), g.height = image.dim(1), g.width = image.dim(2), g.depth = image.dim(3);
  RETURN_IF_ERROR(CheckImage(g));
  RETURN_IF_ERROR(CheckBoxes(c.input(1), c.input(2)));
  RETURN_IF_ERROR(check_values(g.batch));
  g.boxes = c.input(2).num_elements();
  g.crop_height = crop_size.data<int32_t>()[0];
  g.crop_width = crop_size.data<int32_t>()[1];
  if (g.crop_height <= 0 || g.crop_width <= 0)
    return InvalidArgument("crop dimensions must be positive");
  RETURN_IF_ERROR(Shape::Make({g.boxes, g.crop_height, g.crop_width, g.depth}).status());
  return g;
}

absl::StatusOr<CropGeometry> GeometryOfImageGrad(const KernelContext& c) {
  ASSIGN_OR_RETURN(const Dims size, IntegerVector(c.input(3), "image_size"));
  RETURN_IF_ERROR(Shape::Make(size).status());
  return GradientGeometry(c.input(0), size, c.input(1), c.input(2));
}

absl::StatusOr<CropGeometry> GeometryOfBoxesGrad(const KernelContext& c) {
  return GradientGeometry(c.input(0), c.input(1).shape().dims(), c.input(2), c.input(3));
}

}  // namespace muster
