#include "muster/checkpoint/bundle_proto.h"

#include "tensorflow/core/framework/tensor.pb.h"
#include "tensorflow/core/framework/tensor_slice.pb.h"
#include "tensorflow/core/protobuf/tensor_bundle.pb.h"

#include "muster/checkpoint/table/coding.h"
#include "muster/tensor/message_proto.h"
#include "muster/tensor/tensor_proto.h"
#include "muster/tensor/variant_codec.h"

namespace muster {
namespace {

constexpr int kFormatVersion = 1;

// Elements of 8, 16 and 32 bits share a field.
template <typename T>
void AddInts(const Tensor& tensor, tensorflow::TensorProto& proto) {
  const T* values = reinterpret_cast<const T*>(tensor.raw());
  for (int64_t i = 0; i < tensor.num_elements(); ++i) proto.add_int_val(values[i]);
}

template <typename Part, typename Field>
void AddParts(const Tensor& tensor, int64_t parts_per_element, Field& field) {
  const auto* values = reinterpret_cast<const Part*>(tensor.raw());
  field.Add(values, values + tensor.num_elements() * parts_per_element);
}

}  // namespace

std::string BundleHeader::Serialize() const {
  tensorflow::BundleHeaderProto proto;
  proto.set_num_shards(num_shards);
  proto.set_endianness(big_endian ? tensorflow::BundleHeaderProto::BIG
                                  : tensorflow::BundleHeaderProto::LITTLE);
  proto.mutable_version()->set_producer(producer);
  proto.mutable_version()->set_min_consumer(min_consumer);
  return proto.SerializeAsString();
}

absl::StatusOr<BundleHeader> BundleHeader::Parse(absl::string_view bytes) {
  tensorflow::BundleHeaderProto proto;
  if (!MessageFromBytes(bytes, proto)) return absl::DataLossError("unable to parse header entry");
  BundleHeader header;
  header.num_shards = proto.num_shards();
  header.big_endian = proto.endianness() == tensorflow::BundleHeaderProto::BIG;
  header.producer = proto.version().producer();
  header.min_consumer = proto.version().min_consumer();
  if (header.min_consumer > kFormatVersion) {
    return InvalidArgument("Checkpoint file has a min consumer version of ", header.min_consumer,
                           ", above this reader's version ", kFormatVersion,
                           ". Please upgrade: the file was written by a later version.");
  }
  for (int bad : proto.version().bad_consumers()) {
    if (bad == kFormatVersion) {
      return InvalidArgument("Checkpoint file disallows consumer version ", bad,
                             ". Please upgrade: this version is likely buggy.");
    }
  }
  return header;
}

void SliceToProto(const TensorSlice& slice, tensorflow::TensorSliceProto& proto) {
  for (const SliceExtent& extent : slice.extents) {
    tensorflow::TensorSliceProto::Extent& out = *proto.add_extent();
    if (extent.length == SliceExtent::kWhole) continue;
    out.set_start(extent.start);
    out.set_length(extent.length);
  }
}

TensorSlice SliceFromProto(const tensorflow::TensorSliceProto& proto) {
  TensorSlice slice;
  for (const tensorflow::TensorSliceProto::Extent& extent : proto.extent()) {
    const bool has_length =
        extent.has_length_hack_case() == tensorflow::TensorSliceProto::Extent::kLength;
    slice.extents.push_back({extent.start(), has_length ? extent.length() : SliceExtent::kWhole});
  }
  return slice;
}

std::string BundleEntry::Serialize() const {
  tensorflow::BundleEntryProto proto;
  proto.set_dtype(static_cast<tensorflow::DataType>(dtype));
  ShapeToProto(shape, *proto.mutable_shape());
  proto.set_shard_id(shard);
  proto.set_offset(offset);
  proto.set_size(size);
  proto.set_crc32c(masked_crc);
  for (const TensorSlice& slice : slices) SliceToProto(slice, *proto.add_slices());
  return proto.SerializeAsString();
}

absl::StatusOr<BundleEntry> BundleEntry::Parse(absl::string_view bytes) {
  tensorflow::BundleEntryProto proto;
  if (!MessageFromBytes(bytes, proto)) return absl::DataLossError("unable to parse the entry");
  BundleEntry entry;
  const int number = proto.dtype();
  if (!IsValidDType(number) || number > 100) {
    return absl::DataLossError(absl::StrCat("the entry's type ", number, " does not exist"));
  }
  entry.dtype = static_cast<DType>(number);
  const absl::StatusOr<Shape> shape = ShapeFromProto(proto.shape());
  if (!shape.ok()) {
    return absl::DataLossError(
        absl::StrCat("the entry's shape is not valid: ", shape.status().message()));
  }
  entry.shape = *shape;
  entry.shard = proto.shard_id();
  entry.offset = proto.offset();
  entry.size = proto.size();
  entry.masked_crc = proto.crc32c();
  if (entry.shard < 0 || entry.offset < 0 || entry.size < 0) {
    return absl::DataLossError(absl::StrCat("the entry's place (shard ", entry.shard, ", offset ",
                                            entry.offset, ", size ", entry.size, ") is not valid"));
  }
  for (const tensorflow::TensorSliceProto& slice : proto.slices()) {
    entry.slices.push_back(SliceFromProto(slice));
  }
  return entry;
}

int64_t MostElementBytes(const Tensor& tensor) {
  // A negative number takes ten bytes, however short its type is.
  constexpr int64_t kVarint = 10;
  const int64_t count = tensor.num_elements();
  switch (tensor.dtype()) {
    case DType::kBool:
      return count;
    case DType::kUint8:
    case DType::kQuint8:
      return 2 * count;
    case DType::kUint16:
    case DType::kQuint16:
    case DType::kHalf:
    case DType::kBfloat16:
      return 3 * count;
    case DType::kFloat:
    case DType::kDouble:
    case DType::kComplex64:
    case DType::kComplex128:
      return static_cast<int64_t>(tensor.size_bytes());
    case DType::kString: {
      int64_t bytes = kVarint * count;
      for (const std::string& text : tensor.values<std::string>())
        bytes += static_cast<int64_t>(text.size());
      return bytes;
    }
    default:
      return kVarint * count;
  }
}

absl::Status ElementsToProto(const Tensor& tensor, tensorflow::TensorProto& proto) {
  if (MostElementBytes(tensor) > static_cast<int64_t>(kMaxMessageBytes)) {
    return InvalidArgument("A tensor of type ", DTypeName(tensor.dtype()), " and shape ",
                           tensor.shape().ToString(), " may take ", MostElementBytes(tensor),
                           " bytes; a message has at most ", kMaxMessageBytes);
  }
  switch (tensor.dtype()) {
    case DType::kFloat:
      AddParts<float>(tensor, 1, *proto.mutable_float_val());
      break;
    case DType::kDouble:
      AddParts<double>(tensor, 1, *proto.mutable_double_val());
      break;
    case DType::kInt32:
    case DType::kQint32:
      AddInts<int32_t>(tensor, proto);
      break;
    case DType::kUint8:
    case DType::kQuint8:
      AddInts<uint8_t>(tensor, proto);
      break;
    case DType::kInt16:
    case DType::kQint16:
      AddInts<int16_t>(tensor, proto);
      break;
    case DType::kUint16:
    case DType::kQuint16:
      AddInts<uint16_t>(tensor, proto);
      break;
    case DType::kInt8:
    case DType::kQint8:
      AddInts<int8_t>(tensor, proto);
      break;
    case DType::kInt64:
      AddParts<int64_t>(tensor, 1, *proto.mutable_int64_val());
      break;
    case DType::kUint32:
      AddParts<uint32_t>(tensor, 1, *proto.mutable_uint32_val());
      break;
    case DType::kUint64:
      AddParts<uint64_t>(tensor, 1, *proto.mutable_uint64_val());
      break;
    case DType::kBool:
      AddParts<bool>(tensor, 1, *proto.mutable_bool_val());
      break;
    case DType::kComplex64:
      AddParts<float>(tensor, 2, *proto.mutable_scomplex_val());
      break;
    case DType::kComplex128:
      AddParts<double>(tensor, 2, *proto.mutable_dcomplex_val());
      break;
    case DType::kHalf:
    case DType::kBfloat16:
      AddParts<uint16_t>(tensor, 1, *proto.mutable_half_val());
      break;
    case DType::kString:
      for (const std::string& text : tensor.values<std::string>()) proto.add_string_val(text);
      break;
    default:
      return Unimplemented("Tensors of type ", DTypeName(tensor.dtype()),
                           " have no typed values in a message");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> SerializeVariant(const Variant& value) {
  tensorflow::VariantTensorDataProto proto;
  if (value.empty()) return proto.SerializeAsString();
  for (const VariantCodec& codec : VariantCodecs()) {
    const std::optional<VariantParts> parts = codec.encode(value);
    if (!parts) continue;
    proto.set_type_name(codec.type_name);
    proto.set_metadata(parts->metadata);
    for (const Tensor& part : parts->tensors) {
      tensorflow::TensorProto& out = *proto.add_tensors();
      if (part.dtype() == DType::kVariant || part.dtype() == DType::kResource) {
        return Unimplemented("Variants that hold tensors of type ", DTypeName(part.dtype()),
                             " cannot be saved");
      }
      out.set_dtype(static_cast<tensorflow::DataType>(part.dtype()));
      ShapeToProto(part.shape(), *out.mutable_tensor_shape());
      RETURN_IF_ERROR(ElementsToProto(part, out));
    }
    return MessageToBytes(proto);
  }
  return Unimplemented("Variant values of this kind cannot be saved");
}

absl::StatusOr<Variant> ParseVariant(absl::string_view bytes) {
  // A tensor message with one element, which the reader of tensors knows.
  tensorflow::TensorProto proto;
  proto.set_dtype(tensorflow::DT_VARIANT);
  proto.mutable_tensor_shape();
  if (!MessageFromBytes(bytes, *proto.add_variant_val()))
    return absl::DataLossError("Unable to parse the variant");
  ASSIGN_OR_RETURN(const Tensor tensor, TensorFromProto(proto));
  return tensor.scalar<Variant>();
}

}  // namespace muster
