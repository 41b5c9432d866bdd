// Tensors out of checkpoints: RestoreV2, which reads both formats, and Restore and RestoreSlice,
// which read V1.
#include "absl/strings/str_join.h"

#include "muster/checkpoint/bundle_commit.h"
#include "muster/checkpoint/bundle_reader.h"
#include "muster/checkpoint/v1_proto.h"
#include "muster/ops/file_kernel.h"
#include "muster/ops/state/saved_shapes.h"

namespace muster {
namespace {

absl::Status RestoreFromV1(FileCall& c, const V1Reader& reader, const std::string& pattern,
                           const std::string& name, const std::string& spec, int output) {
  const V1Reader::Stored* stored = reader.Find(name);
  if (stored == nullptr) {
    return NotFound("Tensor name \"", name, "\" not found in checkpoint files ", pattern);
  }
  if (stored->dtype != c.output_type(output)) {
    return InvalidArgument("Expected to restore a tensor of type ",
                           DTypeName(c.output_type(output)), ", got a tensor of type ",
                           DTypeName(stored->dtype), " instead: tensor_name = ", name);
  }
  TensorSlice slice = TensorSlice::Whole(stored->shape.rank());
  if (!spec.empty()) {
    ASSIGN_OR_RETURN(ShapeAndSlice parsed, ParseShapeAndSlice(spec));
    if (!(parsed.full_shape == stored->shape)) {
      return InvalidArgument(
          "Shape in shape_and_slice spec does not match the shape in the save file: ",
          parsed.full_shape.ToString(), ", save file shape: ", stored->shape.ToString());
    }
    slice = std::move(parsed.slice);
  }
  ASSIGN_OR_RETURN(Tensor tensor, reader.ReadSlice(name, slice));
  c.SetOutput(output, std::move(tensor));
  return absl::OkStatus();
}

// One line for each tensor that has another type than asked for.
absl::Status CheckTypes(FileCall& c, const BundleReader& reader, const Tensor& names) {
  std::vector<std::string> wrong;
  for (int i = 0; i < names.num_elements(); ++i) {
    const std::string& name = names.data<std::string>()[i];
    ASSIGN_OR_RETURN(const BundleEntry entry, reader.Find(name));
    if (entry.dtype == c.output_type(i)) continue;
    wrong.push_back(absl::StrCat("tensor_name = ", name, "; expected dtype ",
                                 DTypeName(c.output_type(i)), " does not equal original dtype ",
                                 DTypeName(entry.dtype)));
  }
  if (wrong.empty()) return absl::OkStatus();
  return InvalidArgument(absl::StrJoin(wrong, "\n"));
}

absl::Status RunRestoreV2(FileCall& c) {
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
  if (names.num_elements() != c.num_outputs()) {
    return InvalidArgument("Got ", names.num_elements(), " tensor names, but ", c.num_outputs(),
                           " expected dtypes.");
  }
  const std::string& file = prefix.scalar<std::string>();
  if (!FileExists(IndexFileName(file))) {
    ASSIGN_OR_RETURN(const std::unique_ptr<V1Reader> reader, V1Reader::Open(file));
    for (int i = 0; i < names.num_elements(); ++i) {
      RETURN_IF_ERROR(RestoreFromV1(c, *reader, file, names.data<std::string>()[i],
                                    slices.data<std::string>()[i], i));
    }
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<BundleReader> reader, BundleReader::Open(file));
  RETURN_IF_ERROR(CheckTypes(c, *reader, names));
  std::vector<BundleReader::Request> requests(static_cast<size_t>(names.num_elements()));
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].name = names.data<std::string>()[i];
    const std::string& spec = slices.data<std::string>()[i];
    if (spec.empty()) continue;
    ASSIGN_OR_RETURN(ShapeAndSlice parsed, ParseShapeAndSlice(spec));
    ASSIGN_OR_RETURN(const BundleEntry entry, reader->Find(requests[i].name));
    if (!(parsed.full_shape == entry.shape)) {
      return InvalidArgument(
          "tensor_name = ", requests[i].name, "; shape in shape_and_slice spec ",
          parsed.full_shape.ToString(),
          " does not match the shape stored in checkpoint: ", entry.shape.ToString());
    }
    requests[i].slice = std::move(parsed.slice);
  }
  return reader->ReadAll(
      requests,
      [&](size_t i, DType, const Shape& shape) {
        return c.AllocateOutput(static_cast<int>(i), shape);
      },
      &FileCall::Threads());
}

absl::Status RestoreOne(FileCall& c, bool has_slice) {
  const Tensor& pattern = c.input(0);
  if (pattern.num_elements() != 1) {
    return InvalidArgument("Input 0 (file_pattern) must be a string scalar; got a tensor of ",
                           pattern.num_elements(), "elements");
  }
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (c.input(i).num_elements() < 1)
      return InvalidArgument("Input ", i, " (file_pattern) must be a have at least 1 elements");
  }
  const std::string& file = pattern.scalar<std::string>();
  ASSIGN_OR_RETURN(const std::unique_ptr<V1Reader> reader, V1Reader::Open(file));
  return RestoreFromV1(c, *reader, file, c.input(1).scalar<std::string>(),
                       has_slice ? c.input(2).scalar<std::string>() : std::string(), 0);
}

// Restore, or RestoreSlice. The shard is only a hint, which is not used.
template <bool has_slice>
struct RestoreOneSettings {
  static absl::Status Init(KernelSetup& setup) {
    ASSIGN_OR_RETURN(const int64_t shard, setup.Attr<int64_t>("preferred_shard"));
    if (shard >= -1) return absl::OkStatus();
    return InvalidArgument("Attribute 'preferred_shard' must be greater or equal to -1, but is ",
                           shard);
  }
  static absl::Status Run(FileCall& c) { return RestoreOne(c, has_slice); }
};

absl::Status RestoreV2Shape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 0).status());
  ASSIGN_OR_RETURN(const PartialShape names, c.WithRank(c.input(1), 1));
  ASSIGN_OR_RETURN(const PartialShape slices, c.WithRank(c.input(2), 1));
  RETURN_IF_ERROR(c.Merge(names, slices).status());
  const std::optional<Tensor> specs = c.ConstantInput(2);
  if (!specs) return UnknownShape(c);
  if (specs->num_elements() != c.num_outputs())
    return InvalidArgument("The number of shape_and_slice doesn't match tensor outputs.");
  for (int i = 0; i < c.num_outputs(); ++i) {
    ASSIGN_OR_RETURN(PartialShape shape, ShapeOfSlice(specs->data<std::string>()[i]));
    c.SetOutput(i, std::move(shape));
  }
  return absl::OkStatus();
}

absl::Status RestoreShape(ShapeContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) RETURN_IF_ERROR(c.WithRank(c.input(i), 0).status());
  return UnknownShape(c);
}

absl::Status RestoreSliceShape(ShapeContext& c) {
  RETURN_IF_ERROR(RestoreShape(c));
  const std::optional<Tensor> spec = c.ConstantInput(2);
  if (!spec) return absl::OkStatus();
  ASSIGN_OR_RETURN(PartialShape shape, ShapeOfSlice(spec->scalar<std::string>()));
  c.SetOutput(0, std::move(shape));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(RestoreV2) {
  op.Attr("dtypes: list(type) >= 1")
      .Input("prefix: string")
      .Input("tensor_names: string")
      .Input("shape_and_slices: string")
      .Output("tensors: dtypes")
      .Stateful()
      .Doc("Reads tensors, or parts of them, from a checkpoint of either format.")
      .Shape(RestoreV2Shape)
      .Cpu(New<FileKernel<FileFunction<RunRestoreV2>>>());
}

DEFINE_OP(Restore) {
  op.Attr("dt: type")
      .Attr("preferred_shard: int = -1")
      .Input("file_pattern: string")
      .Input("tensor_name: string")
      .Output("tensor: dt")
      .Stateful()
      .Doc("Reads a tensor from a checkpoint in the V1 format.")
      .Shape(RestoreShape)
      .Cpu(New<FileKernel<RestoreOneSettings<false>>>());
}

DEFINE_OP(RestoreSlice) {
  op.Attr("dt: type")
      .Attr("preferred_shard: int = -1")
      .Input("file_pattern: string")
      .Input("tensor_name: string")
      .Input("shape_and_slice: string")
      .Output("tensor: dt")
      .Stateful()
      .Doc("Reads a part of a tensor from a checkpoint in the V1 format.")
      .Shape(RestoreSliceShape)
      .Cpu(New<FileKernel<RestoreOneSettings<true>>>());
}

}  // namespace muster
