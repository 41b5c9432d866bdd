#include "muster/checkpoint/v1_proto.h"

#include <algorithm>

#include "tensorflow/core/util/saved_tensor_slice.pb.h"

#include "muster/checkpoint/bundle_proto.h"
#include "muster/checkpoint/table/table_writer.h"
#include "muster/tensor/message_proto.h"
#include "muster/tensor/tensor_proto.h"

namespace muster {
namespace {

constexpr int kFormatVersion = 1;
// As TensorFlow reckons, so that the same tensors are refused.
constexpr int64_t kMostSliceBytes = int64_t{1} << 31;
constexpr int64_t kTensorHeaderBytes = 1 << 10;

std::string ForTensor(absl::string_view name) {
  return absl::StrCat("; tensor '", name, "'");
}

absl::Status ParseSlices(absl::string_view bytes, tensorflow::SavedTensorSlices& message) {
  if (MessageFromBytes(bytes, message)) return absl::OkStatus();
  return absl::DataLossError("unable to parse the entry");
}

}  // namespace

absl::StatusOr<std::unique_ptr<V1Reader>> V1Reader::Open(const std::string& pattern) {
  std::vector<std::string> names = MatchFiles(pattern);
  if (names.empty() && FileExists(pattern)) names = {pattern};
  if (names.empty()) {
    return NotFound(
        "Unsuccessful TensorSliceReader constructor: Failed to find any matching files for ",
        pattern);
  }
  auto reader = std::make_unique<V1Reader>();
  for (const std::string& name : names) {
    if (absl::Status status = reader->AddFile(name); !status.ok())
      return Suffixed(Prefixed(status, absl::StrCat("Unable to open table file ", name, ": ")),
                      ": perhaps your file is in a different file format and you need to use a "
                      "different restore operator?");
  }
  return reader;
}

absl::Status V1Reader::AddFile(const std::string& name) {
  ASSIGN_OR_RETURN(std::unique_ptr<TableReader> table, TableReader::Open(name));
  ASSIGN_OR_RETURN(const std::optional<std::string> bytes, table->Get(""));
  if (!bytes) return absl::DataLossError("it has no description of its tensors");
  tensorflow::SavedTensorSlices message;
  RETURN_IF_ERROR(ParseSlices(*bytes, message));
  if (message.meta().versions().min_consumer() > kFormatVersion) {
    return InvalidArgument("Checkpoint file has a min consumer version of ",
                           message.meta().versions().min_consumer(),
                           ", above this reader's version ", kFormatVersion);
  }
  for (const tensorflow::SavedSliceMeta& meta : message.meta().tensor()) {
    const absl::StatusOr<Shape> shape = ShapeFromProto(meta.shape());
    if (!shape.ok() || !IsValidDType(meta.type()) || meta.type() > 100) {
      return absl::DataLossError(absl::StrCat("the description of its type or shape is not valid",
                                              ForTensor(meta.name())));
    }
    const auto dtype = static_cast<DType>(meta.type());
    const auto [place, is_new] = tensors_.try_emplace(meta.name());
    Stored& stored = place->second;
    if (is_new) {
      stored.dtype = dtype;
      stored.shape = *shape;
    } else if (stored.dtype != dtype || !(stored.shape == *shape)) {
      return InvalidArgument("Incompatible types or shapes of one name in two files",
                             ForTensor(meta.name()));
    }
    for (const tensorflow::TensorSliceProto& slice : meta.slice())
      stored.slices.emplace_back(SliceFromProto(slice), files_.size());
  }
  files_.push_back(std::move(table));
  return absl::OkStatus();
}

const V1Reader::Stored* V1Reader::Find(absl::string_view name) const {
  const auto place = tensors_.find(std::string(name));
  return place == tensors_.end() ? nullptr : &place->second;
}

absl::StatusOr<Tensor> V1Reader::ReadStored(const std::string& name, const Stored& stored,
                                            size_t i) const {
  const auto& [slice, file] = stored.slices[i];
  ASSIGN_OR_RETURN(const Shape shape, slice.ShapeWithin(stored.shape));
  const absl::StatusOr<std::optional<std::string>> bytes = files_[file]->Get(SliceKey(name, slice));
  if (!bytes.ok()) return Suffixed(bytes.status(), ForTensor(name));
  if (!bytes->has_value()) {
    return absl::DataLossError(
        absl::StrCat("The slice ", slice.ToString(), " is missing", ForTensor(name)));
  }
  tensorflow::SavedTensorSlices message;
  RETURN_IF_ERROR(Suffixed(ParseSlices(**bytes, message), ForTensor(name)));
  // The message has values only; each is there, since none is left out when they repeat.
  tensorflow::TensorProto& proto = *message.mutable_data()->mutable_data();
  proto.set_dtype(static_cast<tensorflow::DataType>(stored.dtype));
  ShapeToProto(shape, *proto.mutable_tensor_shape());
  const int64_t held = static_cast<int64_t>(proto.ByteSizeLong());
  if (shape.num_elements() > held) {
    return absl::DataLossError(absl::StrCat("The slice ", slice.ToString(), " has ",
                                            shape.num_elements(), " elements, but ", held, " bytes",
                                            ForTensor(name)));
  }
  absl::StatusOr<Tensor> tensor = TensorFromProto(proto);
  if (!tensor.ok()) return Suffixed(tensor.status(), ForTensor(name));
  return tensor;
}

absl::StatusOr<Tensor> V1Reader::ReadSlice(const std::string& name,
                                           const TensorSlice& slice) const {
  const Stored* stored = Find(name);
  if (stored == nullptr) return NotFound("Key ", name, " not found in checkpoint");
  ASSIGN_OR_RETURN(const TensorSlice wanted, slice.Resolved(stored->shape));
  std::vector<TensorSlice> resolved;
  for (const auto& [part, file] : stored->slices) {
    absl::StatusOr<TensorSlice> lengths = part.Resolved(stored->shape);
    if (!lengths.ok())
      return absl::DataLossError(absl::StrCat(lengths.status().message(), ForTensor(name)));
    resolved.push_back(*std::move(lengths));
  }
  const absl::StatusOr<std::optional<std::vector<size_t>>> cover = Cover(resolved, wanted);
  if (!cover.ok()) return Suffixed(cover.status(), ForTensor(name));
  if (!cover->has_value()) {
    return InvalidArgument("Does not have sufficient slices for partitioned tensor ", name,
                           " to restore in slice_spec: ", slice.ToString());
  }
  ASSIGN_OR_RETURN(const Shape shape, wanted.ShapeWithin(stored->shape));
  Tensor result;
  for (size_t i : **cover) {
    ASSIGN_OR_RETURN(Tensor part, ReadStored(name, *stored, i));
    if (resolved[i] == wanted) return part;
    if (!result.valid()) {
      ASSIGN_OR_RETURN(result, Tensor::Make(stored->dtype, shape));
    }
    CopyOverlap(part, resolved[i], wanted, result);
  }
  if (!result.valid()) return Tensor::Make(stored->dtype, shape);  // no elements at all
  return result;
}

absl::StatusOr<Tensor> V1Reader::Read(const std::string& name) const {
  const Stored* stored = Find(name);
  if (stored == nullptr) return NotFound("Key ", name, " not found in checkpoint");
  return ReadSlice(name, TensorSlice::Whole(stored->shape.rank()));
}

absl::Status V1Writer::Add(const std::string& name, const Shape& full_shape,
                           const TensorSlice& slice, const Tensor& tensor) {
  ASSIGN_OR_RETURN(const Shape slice_shape, slice.ShapeWithin(full_shape));
  if (!(slice_shape == tensor.shape())) {
    return InvalidArgument("Slice ", slice.ToString(), " of tensor ", name, " has shape ",
                           slice_shape.ToString(), ", but the given part has ",
                           tensor.shape().ToString());
  }
  auto place = std::find_if(tensors_.begin(), tensors_.end(),
                            [&](const auto& entry) { return entry.first == name; });
  if (place == tensors_.end()) {
    tensors_.push_back({name, {tensor.dtype(), full_shape, {}}});
    place = tensors_.end() - 1;
  }
  Stored& stored = place->second;
  if (stored.dtype != tensor.dtype() || !(stored.shape == full_shape)) {
    return Internal("Mismatching types or shapes for tensor ", name, ": ", DTypeName(stored.dtype),
                    stored.shape.ToString(), " and ", DTypeName(tensor.dtype()),
                    full_shape.ToString());
  }
  tensorflow::SavedTensorSlices message;
  tensorflow::SavedSlice& data = *message.mutable_data();
  data.set_name(name);
  SliceToProto(slice, *data.mutable_slice());
  const int64_t most_bytes =
      static_cast<int64_t>(data.ByteSizeLong()) + kTensorHeaderBytes + MostElementBytes(tensor);
  if (most_bytes > kMostSliceBytes) {
    return InvalidArgument("Tensor slice is too large to serialize (conservative estimate: ",
                           most_bytes, " bytes)", ForTensor(name));
  }
  RETURN_IF_ERROR(ElementsToProto(tensor, *data.mutable_data()));
  ASSIGN_OR_RETURN(std::string bytes, MessageToBytes(message));
  stored.slices.push_back(slice);
  if (!entries_.emplace(SliceKey(name, slice), std::move(bytes)).second)
    return InvalidArgument("Adding duplicate key: ", name);
  return absl::OkStatus();
}

absl::Status V1Writer::Finish(FileSystem& files) {
  tensorflow::SavedTensorSlices message;
  for (const auto& [name, stored] : tensors_) {
    tensorflow::SavedSliceMeta& meta = *message.mutable_meta()->add_tensor();
    meta.set_name(name);
    ShapeToProto(stored.shape, *meta.mutable_shape());
    meta.set_type(static_cast<tensorflow::DataType>(stored.dtype));
    for (const TensorSlice& slice : stored.slices) SliceToProto(slice, *meta.add_slice());
  }
  message.mutable_meta()->mutable_versions()->set_producer(kFormatVersion);
  TableWriter table;
  ASSIGN_OR_RETURN(const std::string description, MessageToBytes(message));
  table.Add("", description);
  for (const auto& [key, value] : entries_) table.Add(key, value);
  return WriteFileAtomically(name_, std::move(table).Finish(), files);
}

}  // namespace muster
