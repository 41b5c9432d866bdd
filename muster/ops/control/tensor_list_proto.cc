// Lists of tensors on the wire, as TensorFlow writes them. The metadata are varints: how many items
// have no value yet, their indices, the element type, the largest size; then the shape of an
// element as a message.
#include "tensorflow/core/framework/tensor_shape.pb.h"
#include <google/protobuf/io/coded_stream.h>

#include "muster/ops/control/tensor_list.h"
#include "muster/tensor/tensor_proto.h"
#include "muster/tensor/variant_codec.h"

namespace muster {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

void AppendVarint(uint64_t value, std::string& text) {
  uint8_t bytes[10];
  const uint8_t* end = CodedOutputStream::WriteVarint64ToArray(value, bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(end - bytes));
}

std::optional<VariantParts> Encode(const Variant& value) {
  const auto* list = value.get<TensorList>();
  if (list == nullptr) return std::nullopt;
  VariantParts parts;
  std::vector<uint64_t> missing;
  for (int64_t i = 0; i < list->size(); ++i) {
    Tensor item = list->item(i);
    if (item.valid()) {
      parts.tensors.push_back(std::move(item));
    } else {
      missing.push_back(static_cast<uint64_t>(i));
    }
  }
  AppendVarint(missing.size(), parts.metadata);
  for (const uint64_t index : missing) AppendVarint(index, parts.metadata);
  AppendVarint(static_cast<uint64_t>(list->dtype()), parts.metadata);
  AppendVarint(static_cast<uint64_t>(list->max_size()), parts.metadata);
  tensorflow::TensorShapeProto shape;
  PartialShapeToProto(list->shape(), shape);
  parts.metadata += shape.SerializeAsString();
  return parts;
}

absl::Status Bad(absl::string_view what) {
  return InvalidArgument("A tensorflow::TensorList in a message has ", what);
}

absl::StatusOr<Variant> Decode(VariantParts parts) {
  CodedInputStream in(reinterpret_cast<const uint8_t*>(parts.metadata.data()),
                      static_cast<int>(parts.metadata.size()));
  uint64_t num_missing = 0;
  // Each index takes a byte at least.
  if (!in.ReadVarint64(&num_missing) || num_missing > parts.metadata.size())
    return Bad("metadata that is cut off");
  const size_t size = parts.tensors.size() + num_missing;
  std::vector<bool> missing(size);
  for (uint64_t i = 0; i < num_missing; ++i) {
    uint64_t index = 0;
    if (!in.ReadVarint64(&index)) return Bad("metadata that is cut off");
    if (index >= size || missing[index]) return Bad("a wrong index of an item without value");
    missing[index] = true;
  }
  uint64_t dtype_number = 0;
  uint64_t max_size = 0;
  if (!in.ReadVarint64(&dtype_number) || !in.ReadVarint64(&max_size))
    return Bad("metadata that is cut off");
  if (dtype_number > 100 || !IsValidDType(static_cast<int>(dtype_number)))
    return Bad("an unknown element type");
  const auto dtype = static_cast<DType>(dtype_number);
  tensorflow::TensorShapeProto shape_proto;
  if (!shape_proto.ParseFromCodedStream(&in)) return Bad("a bad element shape");
  ASSIGN_OR_RETURN(PartialShape shape, PartialShapeFromProto(shape_proto));
  std::vector<Tensor> items;
  size_t next = 0;
  for (size_t i = 0; i < size; ++i) {
    if (missing[i]) {
      items.emplace_back();
      continue;
    }
    if (parts.tensors[next].dtype() != dtype) return Bad("an item of another type");
    items.push_back(std::move(parts.tensors[next++]));
  }
  return Variant(std::make_shared<const TensorList>(
      dtype, std::move(shape), static_cast<int64_t>(max_size), std::move(items)));
}

[[maybe_unused]] const bool registered =
    RegisterVariantCodec({"tensorflow::TensorList", &Encode, &Decode});

}  // namespace
}  // namespace muster
