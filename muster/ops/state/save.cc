// Tensors into checkpoints: SaveV2, and Save and SaveSlices for the V1 format.
#include <algorithm>
#include <numeric>

#include "muster/checkpoint/bundle_writer.h"
#include "muster/checkpoint/v1_proto.h"
#include "muster/ops/file_kernel.h"
#include "muster/ops/state/saved_shapes.h"

namespace muster {
namespace {

// What shape_and_slice says about an input; nothing when it is empty.
absl::StatusOr<std::optional<ShapeAndSlice>> SliceFor(const std::string& spec,
                                                      const Tensor& tensor) {
  if (spec.empty()) return std::nullopt;
  ASSIGN_OR_RETURN(ShapeAndSlice parsed, ParseShapeAndSlice(spec));
  if (!(parsed.slice_shape == tensor.shape())) {
    return InvalidArgument(
        "Slice in shape_and_slice specification does not match the shape of the tensor to  save: ",
        spec, ", tensor: ", tensor.shape().ToString());
  }
  return std::make_optional(std::move(parsed));
}

absl::Status RunSaveV2(FileCall& c) {
  constexpr int kFixed = 3;
  const Tensor& prefix = c.input(0);
  const Tensor& names = c.input(1);
  const Tensor& slices = c.input(2);
  if (prefix.num_elements() != 1) {
    return InvalidArgument("Input prefix should have a single element, got ", prefix.num_elements(),
                           " instead.");
  }
  if (names.rank() != 1 || slices.rank() != 1) {
    return InvalidArgument("Input tensor_names and shape_and_slices should be an 1-D tensors, got ",
                           names.shape().ToString(), " and ", slices.shape().ToString(),
                           " instead.");
  }
  if (names.num_elements() != slices.num_elements()) {
    return InvalidArgument("tensor_names and shape_and_slices have different number of elements: ",
                           names.num_elements(), " vs. ", slices.num_elements());
  }
  if (names.num_elements() != c.num_inputs() - kFixed) {
    return InvalidArgument("Got ", names.num_elements(), " tensor names but ",
                           c.num_inputs() - kFixed, " tensors.");
  }
  BundleWriter::Options options;
  options.scheduler = &FileCall::Threads();
  BundleWriter writer(prefix.scalar<std::string>(), options);
  for (int i = 0; i < names.num_elements(); ++i) {
    const std::string& name = names.data<std::string>()[i];
    const Tensor& tensor = c.input(kFixed + i);
    ASSIGN_OR_RETURN(const std::optional<ShapeAndSlice> part,
                     SliceFor(slices.data<std::string>()[i], tensor));
    RETURN_IF_ERROR(part ? writer.AddSlice(name, part->full_shape, part->slice, tensor)
                         : writer.Add(name, tensor));
  }
  return writer.Finish();
}

// The V1 format has no place for these.
absl::Status CheckV1Type(DType dtype) {
  if (dtype == DType::kUint32 || dtype == DType::kUint64) {
    return InvalidArgument("Tensor slice serialization not implemented for dtype ",
                           static_cast<int>(dtype), " (", DTypeName(dtype), ")");
  }
  if (dtype == DType::kBfloat16)
    return Unimplemented("Saving data type ", DTypeName(dtype), " not yet supported");
  return absl::OkStatus();
}

absl::Status SaveV1(FileCall& c, bool has_slices) {
  const int fixed = has_slices ? 3 : 2;
  const Tensor& file = c.input(0);
  const Tensor& names = c.input(1);
  if (file.num_elements() != 1) {
    return InvalidArgument("Input 0 (filename) must be a string scalar; got a tensor of ",
                           file.num_elements(), "elements");
  }
  const int64_t count = names.num_elements();
  if (has_slices && c.input(2).num_elements() != count) {
    return InvalidArgument("Expected ", count,
                           " elements for the tensor shapes and slices but got ",
                           c.input(2).num_elements());
  }
  if (c.num_inputs() != count + fixed) {
    return InvalidArgument(
        "Expected totally ", count + fixed,
        " inputs as input #1 (which is a string tensor of saved names) contains ", count,
        " names, but received ", c.num_inputs(), " inputs");
  }
  for (int i = fixed; i < c.num_inputs(); ++i) RETURN_IF_ERROR(CheckV1Type(c.input(i).dtype()));
  V1Writer writer(file.scalar<std::string>());
  // In order of their names, as TensorFlow does it for this format.
  std::vector<int> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return names.data<std::string>()[a] < names.data<std::string>()[b];
  });
  for (int i : order) {
    const std::string& name = names.data<std::string>()[i];
    const Tensor& tensor = c.input(fixed + i);
    ASSIGN_OR_RETURN(
        const std::optional<ShapeAndSlice> part,
        SliceFor(has_slices ? c.input(2).data<std::string>()[i] : std::string(), tensor));
    RETURN_IF_ERROR(
        part ? writer.Add(name, part->full_shape, part->slice, tensor)
             : writer.Add(name, tensor.shape(), TensorSlice::Whole(tensor.rank()), tensor));
  }
  return writer.Finish();
}

absl::Status RunSave(FileCall& c) {
  return SaveV1(c, false);
}

absl::Status RunSaveSlices(FileCall& c) {
  return SaveV1(c, true);
}

absl::Status SaveShape(ShapeContext& c) {
  return CheckSavedNames(c, 1, c.num_inputs() - 2);
}

absl::Status SaveSlicesShape(ShapeContext& c) {
  return CheckSavedNames(c, 2, c.num_inputs() - 3);
}

}  // namespace

DEFINE_OP(SaveV2) {
  op.Attr("dtypes: list(type) >= 1")
      .Input("prefix: string")
      .Input("tensor_names: string")
      .Input("shape_and_slices: string")
      .Input("tensors: dtypes")
      .Stateful()
      .Doc("Writes tensors, or parts of larger ones, as a checkpoint.")
      .Shape(SaveSlicesShape)
      .Cpu(New<FileKernel<FileFunction<RunSaveV2>>>());
}

DEFINE_OP(Save) {
  op.Attr("T: list(type) >= 1")
      .Input("filename: string")
      .Input("tensor_names: string")
      .Input("data: T")
      .Stateful()
      .Doc("Writes tensors as a checkpoint in the V1 format.")
      .Shape(SaveShape)
      .Cpu(New<FileKernel<FileFunction<RunSave>>>());
}

DEFINE_OP(SaveSlices) {
  op.Attr("T: list(type) >= 1")
      .Input("filename: string")
      .Input("tensor_names: string")
      .Input("shapes_and_slices: string")
      .Input("data: T")
      .Stateful()
      .Doc("Writes parts of larger tensors as a checkpoint in the V1 format.")
      .Shape(SaveSlicesShape)
      .Cpu(New<FileKernel<FileFunction<RunSaveSlices>>>());
}

}  // namespace muster
