#include "muster/ops/image/resize.h"

namespace muster {
namespace {

constexpr int64_t kLargestSide = std::numeric_limits<int32_t>::max();

}  // namespace

absl::StatusOr<ResizeAttrs> ReadResizeAttrs(const Node& node) {
  ResizeAttrs attrs;
  ASSIGN_OR_RETURN(attrs.align_corners, node.Attr<bool>("align_corners"));
  ASSIGN_OR_RETURN(attrs.half_pixel, node.Attr<bool>("half_pixel_centers"));
  if (attrs.half_pixel && attrs.align_corners) {
    return InvalidArgument("If half_pixel_centers is True, align_corners must be False.");
  }
  return attrs;
}

absl::Status Resize::Init(KernelSetup& setup) {
  ASSIGN_OR_RETURN(const ResizeAttrs attrs, ReadResizeAttrs(setup.node()));
  align_corners_ = attrs.align_corners;
  half_pixel_ = attrs.half_pixel;
  return absl::OkStatus();
}

absl::StatusOr<Shape> ResizedShape(const Tensor& images, const Tensor& size) {
  if (images.rank() != 4)
    return InvalidArgument("input must be 4-dimensional", images.shape().ToString());
  if (size.rank() != 1)
    return InvalidArgument("shape_t must be 1-dimensional", size.shape().ToString());
  if (size.num_elements() != 2)
    return InvalidArgument("shape_t must have two elements", size.shape().ToString());
  ASSIGN_OR_RETURN(const Dims sizes, IntegerValues(size));
  if (sizes[0] <= 0 || sizes[1] <= 0) return InvalidArgument("output dimensions must be positive");
  if (images.dim(1) <= 0 || images.dim(2) <= 0)
    return InvalidArgument("input image must be of non-zero size");
  if (images.dim(3) <= 0) return InvalidArgument("image must have at least one channel");
  if (images.dim(1) > kLargestSide || images.dim(2) > kLargestSide)
    return InvalidArgument("input sizes must be between 0 and max int32");
  return Shape::Make({images.dim(0), sizes[0], sizes[1], images.dim(3)});
}

absl::Status CheckResizeGradient(const Tensor& grads, const Tensor& original) {
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

absl::StatusOr<Shape> BilinearGradShape(const Tensor& grads, const Tensor& original) {
  RETURN_IF_ERROR(CheckResizeGradient(grads, original));
  return Shape::Make({grads.dim(0), original.dim(1), original.dim(2), grads.dim(3)});
}

absl::StatusOr<Shape> NearestGradShape(const Tensor& grads, const Tensor& size) {
  if (grads.rank() != 4)
    return InvalidArgument("input must be 4-dimensional", grads.shape().ToString());
  if (size.rank() != 1)
    return InvalidArgument("shape_t must be 1-dimensional", size.shape().ToString());
  if (size.num_elements() != 2)
    return InvalidArgument("shape_t must have two elements", size.shape().ToString());
  ASSIGN_OR_RETURN(const Dims sizes, IntegerValues(size));
  if (sizes[0] <= 0 || sizes[1] <= 0) return InvalidArgument("shape_t's elements must be positive");
  return Shape::Make({grads.dim(0), sizes[0], sizes[1], grads.dim(3)});
}

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

}  // namespace muster
