#include "muster/ops/conv/conv3d_geometry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "muster/ops/conv/conv_geometry.h"

namespace muster {
namespace {

absl::Status CheckChannels(absl::string_view what, int64_t channels, int64_t of_filter,
                           bool in_groups) {
  if (channels == of_filter || (in_groups && of_filter > 0 && channels % of_filter == 0))
    return absl::OkStatus();
  return InvalidArgument(what, " and filter_sizes must have the same number of channels. Got ",
                         channels, " for ", what, " and ", of_filter, " for filter_sizes");
}

}  // namespace

absl::Status CheckConv3DLengths(const VolumeAttrs& attrs) {
  if (attrs.dilations.size() != 5)
    return InvalidArgument("Dilation rates field must specify 5 dimensions");
  if (attrs.strides.size() != 5)
    return InvalidArgument("Sliding window strides field must specify 5 dimensions");
  return absl::OkStatus();
}

absl::Status CheckConv3DSteps(const VolumeAttrs& attrs, const std::vector<int64_t>& steps,
                              absl::string_view what) {
  if (steps[0] == 1 && steps[attrs.channels()] == 1) return absl::OkStatus();
  return InvalidArgument("Current implementation does not yet support ", what,
                         " in the batch and depth dimensions.");
}

bool AreOneInSpace(const VolumeAttrs& attrs, const std::vector<int64_t>& steps) {
  const auto first = steps.begin() + attrs.space();
  return std::all_of(first, first + 3, [](int64_t step) { return step == 1; });
}

std::string Conv3DGradientLabel(const Node& node) {
  return absl::StrCat(absl::StripSuffix(node.def().name, "V2"), "Op");
}

absl::Status CheckConv3DAttrs(const VolumeAttrs& attrs) {
  RETURN_IF_ERROR(CheckConv3DLengths(attrs));
  RETURN_IF_ERROR(CheckConv3DSteps(attrs, attrs.strides, "strides"));
  RETURN_IF_ERROR(CheckConv3DSteps(attrs, attrs.dilations, "dilation rates"));
  for (int i = 0; i < 3; ++i) {
    if (attrs.dilations[attrs.space() + i] <= 0)
      return InvalidArgument("Dilated rates should be larger than 0.");
    if (attrs.strides[attrs.space() + i] <= 0)
      return InvalidArgument("Spatial strides should be larger than 0.");
  }
  return absl::OkStatus();
}

absl::StatusOr<Shape> Conv3DOutputShape(const VolumeAttrs& attrs, const Shape& input,
                                        const Shape& filter) {
  if (input.rank() != 5) return InvalidArgument("input must be 5-dimensional");
  if (filter.rank() != 5) return InvalidArgument("filter must be 5-dimensional");
  const int64_t depth = input.dim(attrs.channels());
  if (filter.dim(3) == 0) return InvalidArgument("filter_depth must be non-zero");
  if (depth % filter.dim(3) != 0) {
    return InvalidArgument("Input depth must be evenly divisible by filter depth: ", depth, " vs ",
                           filter.dim(3));
  }
  if (filter.num_elements() == 0) {
    return InvalidArgument(
        "filter must not have zero elements (i.e. all dimensions must be non-zero)");
  }
  Dims dims(5);
  dims[0] = input.dim(0);
  dims[attrs.channels()] = filter.dim(4);
  for (int i = 0; i < 3; ++i) {
    const int axis = attrs.space() + i;
    ASSIGN_OR_RETURN(const WindowSize size,
                     WindowedOutputSize(input.dim(axis), filter.dim(i), attrs.dilations[axis],
                                        attrs.strides[axis], attrs.padding));
    dims[axis] = size.output;
  }
  return Shape::Make(dims);
}

absl::Status CheckConv3DGradient(const VolumeAttrs& attrs, absl::string_view label,
                                 const Shape& input, const Shape& filter, const Shape& dy,
                                 bool in_groups) {
  for (const auto& [shape, what] : {std::pair(&input, "input"), std::pair(&filter, "filter_sizes"),
                                    std::pair(&dy, "out_backprop")}) {
    if (shape->rank() != 5) return InvalidArgument(what, " tensor must have 5 dimensions");
  }
  RETURN_IF_ERROR(CheckChannels("input", input.dim(attrs.channels()), filter.dim(3), in_groups));
  RETURN_IF_ERROR(CheckChannels("out_backprop", dy.dim(attrs.channels()), filter.dim(4), false));
  if (input.dim(0) != dy.dim(0)) {
    return InvalidArgument(label,
                           ": input and out_backprop must have the same batch size. Input batch: ",
                           input.dim(0), ", outbackprop batch: ", dy.dim(0), ", batch_dim: 0");
  }
  if (filter.dim(3) == 0)
    return InvalidArgument(label, ": filter depth must be strictly greated than zero");
  for (int i = 0; i < 3; ++i) {
    const int axis = attrs.space() + i;
    const int64_t stride = attrs.strides[axis], dilation = attrs.dilations[axis];
    ASSIGN_OR_RETURN(const WindowSize size, WindowedOutputSize(input.dim(axis), filter.dim(i),
                                                               dilation, stride, attrs.padding));
    if (dy.dim(axis) == size.output) continue;
    return InvalidArgument(label,
                           ": Size of out_backprop doesn't match computed: actual = ", dy.dim(axis),
                           ", computed = ", size.output, " spatial_dim: ", axis,
                           " input: ", input.dim(axis), " filter: ", filter.dim(i),
                           " output: ", dy.dim(axis), " stride: ", stride, " dilation: ", dilation);
  }
  return absl::OkStatus();
}

absl::StatusOr<Shape> Conv3DInputShape(const Tensor& sizes) {
  if (sizes.rank() != 1) {
    return InvalidArgument("shape must be a vector of {int32,int64}, got shape ",
                           sizes.shape().ToString());
  }
  ASSIGN_OR_RETURN(const Dims dims, IntegerValues(sizes));
  return Shape::Make(dims);
}

absl::StatusOr<Shape> Conv3DFilterShape(const Tensor& sizes) {
  if (sizes.rank() != 1)
    return InvalidArgument("filter_sizes shape must be rank 1 but is rank ", sizes.rank());
  return Conv3DInputShape(sizes);
}

}  // namespace muster
