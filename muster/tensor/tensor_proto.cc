#include "muster/tensor/tensor_proto.h"

#include <algorithm>
#include <cstring>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "tensorflow/core/framework/tensor.pb.h"

#include "muster/base/status.h"
#include "muster/tensor/message_proto.h"
#include "muster/tensor/variant_codec.h"

namespace muster {
namespace {

constexpr int64_t kMaxRepeatedBytes = int64_t{1} << 31;

absl::StatusOr<Dims> DimsFromProto(const tensorflow::TensorShapeProto& proto) {
  // Checked before the copy: a message may hold any number of dims.
  if (proto.dim_size() > Shape::kMaxRank) {
    return InvalidArgument("Shape has ", proto.dim_size(), " dimensions; at most ", Shape::kMaxRank,
                           " are possible");
  }
  Dims dims;
  for (const auto& dim : proto.dim()) dims.push_back(dim.size());
  return dims;
}

// `count` elements from the values of a typed field: the last one repeats, no value at all means
// zero.
template <typename T, typename Values, typename Convert>
void FillFrom(const Values& values, int64_t count, char* raw, Convert convert) {
  T* out = reinterpret_cast<T*>(raw);
  const int64_t given = std::min<int64_t>(values.size(), count);
  for (int64_t i = 0; i < given; ++i) out[i] = convert(values.Get(static_cast<int>(i)));
  const T last = given > 0 ? out[given - 1] : T();
  std::fill(out + given, out + count, last);
}

template <typename T, typename Values>
void FillFrom(const Values& values, int64_t count, char* raw) {
  FillFrom<T>(values, count, raw, [](auto value) { return static_cast<T>(value); });
}

// Complex numbers: real and imaginary parts in turn. A real part without its imaginary part is left
// out.
template <typename T, typename Values>
void FillComplex(const Values& values, int64_t count, char* raw) {
  auto* out = reinterpret_cast<std::complex<T>*>(raw);
  const int64_t given = std::min<int64_t>(values.size() / 2, count);
  for (int64_t i = 0; i < given; ++i) {
    out[i] = {values.Get(static_cast<int>(2 * i)), values.Get(static_cast<int>(2 * i + 1))};
  }
  const std::complex<T> last = given > 0 ? out[given - 1] : std::complex<T>();
  std::fill(out + given, out + count, last);
}

void FillBytes(const std::string& values, int64_t count, char* raw) {
  const int64_t given = std::min<int64_t>(static_cast<int64_t>(values.size()), count);
  std::copy_n(values.data(), given, raw);
  std::fill(raw + given, raw + count, given > 0 ? values[given - 1] : '\0');
}

absl::StatusOr<Variant> VariantFromProto(const tensorflow::VariantTensorDataProto& proto) {
  if (proto.type_name().empty() && proto.metadata().empty() && proto.tensors_size() == 0)
    return Variant();
  for (const VariantCodec& codec : VariantCodecs()) {
    if (codec.type_name != proto.type_name()) continue;
    VariantParts parts;
    parts.metadata = proto.metadata();
    for (const tensorflow::TensorProto& part : proto.tensors()) {
      ASSIGN_OR_RETURN(parts.tensors.emplace_back(), TensorFromProto(part));
    }
    return codec.decode(std::move(parts));
  }
  return Unimplemented("Variant values of type '", proto.type_name(),
                       "' cannot be read from a message");
}

absl::Status VariantToProto(const Variant& value, tensorflow::VariantTensorDataProto& proto) {
  if (value.empty()) return absl::OkStatus();
  for (const VariantCodec& codec : VariantCodecs()) {
    const std::optional<VariantParts> parts = codec.encode(value);
    if (!parts) continue;
    proto.set_type_name(codec.type_name);
    proto.set_metadata(parts->metadata);
    for (const Tensor& part : parts->tensors)
      RETURN_IF_ERROR(TensorToProto(part, TensorEncoding::kContent, *proto.add_tensors()));
    return absl::OkStatus();
  }
  return Unimplemented("Variant values of this kind cannot be written to a message");
}

// How many values the field that belongs to `dtype` holds.
int64_t TypedValueCount(const tensorflow::TensorProto& proto, DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return proto.float_val_size();
    case DType::kDouble:
      return proto.double_val_size();
    case DType::kString:
      return proto.string_val_size();
    case DType::kComplex64:
      return proto.scomplex_val_size() / 2;
    case DType::kComplex128:
      return proto.dcomplex_val_size() / 2;
    case DType::kInt64:
      return proto.int64_val_size();
    case DType::kBool:
      return proto.bool_val_size();
    case DType::kHalf:
    case DType::kBfloat16:
      return proto.half_val_size();
    case DType::kResource:
      return proto.resource_handle_val_size();
    case DType::kVariant:
      return proto.variant_val_size();
    case DType::kUint32:
      return proto.uint32_val_size();
    case DType::kUint64:
      return proto.uint64_val_size();
    case DType::kFloat8E5m2:
    case DType::kFloat8E4m3fn:
    case DType::kFloat8E4m3fnuz:
    case DType::kFloat8E4m3b11fnuz:
    case DType::kFloat8E5m2fnuz:
    case DType::kFloat4E2m1fn:
      return static_cast<int64_t>(proto.float8_val().size());
    default:
      return proto.int_val_size();
  }
}

// What one more element that repeats the last value takes.
int64_t RepeatedElementBytes(const tensorflow::TensorProto& proto, DType dtype) {
  size_t held = 0;
  if (dtype == DType::kString && proto.string_val_size() > 0) {
    held = proto.string_val(proto.string_val_size() - 1).size();
  } else if (dtype == DType::kResource && proto.resource_handle_val_size() > 0) {
    held = proto.resource_handle_val(proto.resource_handle_val_size() - 1).ByteSizeLong();
  } else if (dtype == DType::kVariant && proto.variant_val_size() > 0) {
    held = proto.variant_val(proto.variant_val_size() - 1).ByteSizeLong();
  }
  return static_cast<int64_t>(DTypeSize(dtype) + held);
}

absl::Status ReadTyped(const tensorflow::TensorProto& proto, Tensor& tensor) {
  const int64_t count = tensor.num_elements();
  char* raw = tensor.raw();
  switch (tensor.dtype()) {
    case DType::kFloat:
      FillFrom<float>(proto.float_val(), count, raw);
      break;
    case DType::kDouble:
      FillFrom<double>(proto.double_val(), count, raw);
      break;
    case DType::kInt64:
      FillFrom<int64_t>(proto.int64_val(), count, raw);
      break;
    case DType::kUint32:
      FillFrom<uint32_t>(proto.uint32_val(), count, raw);
      break;
    case DType::kUint64:
      FillFrom<uint64_t>(proto.uint64_val(), count, raw);
      break;
    case DType::kBool:
      FillFrom<bool>(proto.bool_val(), count, raw);
      break;
    case DType::kHalf:
    case DType::kBfloat16:
      FillFrom<uint16_t>(proto.half_val(), count, raw);
      break;
    case DType::kComplex64:
      FillComplex<float>(proto.scomplex_val(), count, raw);
      break;
    case DType::kComplex128:
      FillComplex<double>(proto.dcomplex_val(), count, raw);
      break;
    case DType::kInt32:
    case DType::kQint32:
      FillFrom<int32_t>(proto.int_val(), count, raw);
      break;
    case DType::kInt16:
    case DType::kUint16:
    case DType::kQint16:
    case DType::kQuint16:
      FillFrom<uint16_t>(proto.int_val(), count, raw);
      break;
    case DType::kInt8:
    case DType::kUint8:
    case DType::kQint8:
    case DType::kQuint8:
    case DType::kInt4:
    case DType::kUint4:
    case DType::kInt2:
    case DType::kUint2:
      FillFrom<uint8_t>(proto.int_val(), count, raw);
      break;
    case DType::kString: {
      FillFrom<std::string>(proto.string_val(), count, raw,
                            [](const std::string& value) { return value; });
      break;
    }
    case DType::kResource: {
      std::vector<ResourceHandle> handles;
      for (int i = 0; i < proto.resource_handle_val_size() && i < count; ++i) {
        ASSIGN_OR_RETURN(ResourceHandle handle,
                         ResourceHandleFromProto(proto.resource_handle_val(i)));
        handles.push_back(std::move(handle));
      }
      auto* out = tensor.data<ResourceHandle>();
      for (int64_t i = 0; i < count && !handles.empty(); ++i) {
        out[i] = handles[std::min<size_t>(static_cast<size_t>(i), handles.size() - 1)];
      }
      break;
    }
    case DType::kVariant: {
      auto* out = tensor.data<Variant>();
      const int64_t given = std::min<int64_t>(proto.variant_val_size(), count);
      for (int64_t i = 0; i < given; ++i) {
        ASSIGN_OR_RETURN(out[i], VariantFromProto(proto.variant_val(static_cast<int>(i))));
      }
      for (int64_t i = given; i < count && given > 0; ++i) out[i] = out[given - 1];
      break;
    }
    default:
      FillBytes(proto.float8_val(), count, raw);
  }
  return absl::OkStatus();
}

absl::Status BadContent(DType dtype, const Shape& shape, size_t length) {
  return InvalidArgument("tensor_content of ", length, " bytes does not hold a tensor of type ",
                         DTypeName(dtype), " and shape ", shape.ToString());
}

// The list layout of strings, resources and variants: all lengths as varints, then the elements
// back to back. Returns the pieces, which point into `content`.
absl::StatusOr<std::vector<absl::string_view>> SplitContent(absl::string_view content, DType dtype,
                                                            const Shape& shape) {
  const int64_t count = shape.num_elements();
  // Each length takes a byte at least.
  if (count > static_cast<int64_t>(content.size()) || content.size() > kMaxMessageBytes)
    return BadContent(dtype, shape, content.size());
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(content.data()),
                                            static_cast<int>(content.size()));
  std::vector<uint32_t> lengths(static_cast<size_t>(count));
  uint64_t total = 0;
  for (uint32_t& length : lengths) {
    if (!in.ReadVarint32(&length)) return BadContent(dtype, shape, content.size());
    total += length;
  }
  const size_t start = static_cast<size_t>(in.CurrentPosition());
  if (start + total != content.size()) return BadContent(dtype, shape, content.size());
  std::vector<absl::string_view> pieces;
  pieces.reserve(lengths.size());
  size_t at = start;
  for (uint32_t length : lengths) {
    pieces.push_back(content.substr(at, length));
    at += length;
  }
  return pieces;
}

template <typename Message>
absl::StatusOr<Message> ParsePiece(absl::string_view piece) {
  Message message;
  if (!MessageFromBytes(piece, message)) {
    return InvalidArgument("tensor_content holds an element that is not a ",
                           Message::descriptor()->full_name());
  }
  return message;
}

absl::StatusOr<Tensor> ReadContent(const std::string& content, DType dtype, Shape shape) {
  if (IsPlainData(dtype)) {
    const std::optional<int64_t> bytes =
        MultiplyWithoutOverflow(shape.num_elements(), static_cast<int64_t>(DTypeSize(dtype)));
    if (!bytes || *bytes != static_cast<int64_t>(content.size()))
      return BadContent(dtype, shape, content.size());
    ASSIGN_OR_RETURN(Tensor tensor, Tensor::Make(dtype, std::move(shape)));
    std::memcpy(tensor.raw(), content.data(), content.size());
    if (dtype == DType::kBool) {
      // Any other byte is not a valid bool in C++.
      std::transform(content.begin(), content.end(), tensor.data<bool>(),
                     [](char c) { return c != 0; });
    }
    return tensor;
  }
  ASSIGN_OR_RETURN(std::vector<absl::string_view> pieces, SplitContent(content, dtype, shape));
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Make(dtype, std::move(shape)));
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (dtype == DType::kString) {
      tensor.data<std::string>()[i] = std::string(pieces[i]);
    } else if (dtype == DType::kResource) {
      ASSIGN_OR_RETURN(auto message, ParsePiece<tensorflow::ResourceHandleProto>(pieces[i]));
      ASSIGN_OR_RETURN(tensor.data<ResourceHandle>()[i], ResourceHandleFromProto(message));
    } else {
      ASSIGN_OR_RETURN(auto message, ParsePiece<tensorflow::VariantTensorDataProto>(pieces[i]));
      ASSIGN_OR_RETURN(tensor.data<Variant>()[i], VariantFromProto(message));
    }
  }
  return tensor;
}

// Types whose arrays TensorFlow's Python writes as tensor_content.
bool PythonWritesContent(DType dtype) {
  switch (dtype) {
    case DType::kString:
    case DType::kResource:
    case DType::kVariant:
    case DType::kBool:
    case DType::kComplex64:
    case DType::kComplex128:
    case DType::kUint16:
    case DType::kInt4:
    case DType::kUint4:
    case DType::kInt2:
    case DType::kUint2:
      return false;
    default:
      return true;
  }
}

// Beyond this many elements the fields, of four bytes for each of one byte, cost more than matching
// Python's output is worth: every reader takes plain content as well.
constexpr int64_t kMaxTypedElements = int64_t{1} << 20;

bool IsWrittenTyped(const Tensor& tensor) {
  if (tensor.num_elements() == 1) return true;
  if (PythonWritesContent(tensor.dtype())) return false;
  return !IsPlainData(tensor.dtype()) || tensor.num_elements() <= kMaxTypedElements;
}

// Up to this many equal integers are more likely a list (of indices, strides, axes) than one value
// and a shape.
constexpr int64_t kMaxListedIntegers = 8;

// Whether a tensor is one value over and over, as constants of a value and a shape are. Python
// writes those with the one value, so that the accumulators of a large table take no room in a
// graph.
bool RepeatsOneValue(const Tensor& tensor) {
  const int64_t count = tensor.num_elements();
  if (count < 2) return false;
  if (tensor.dtype() == DType::kString) {
    const absl::Span<const std::string> values = tensor.values<std::string>();
    return std::equal(values.begin() + 1, values.end(), values.begin());
  }
  if (!IsPlainData(tensor.dtype())) return false;
  if (IsInteger(tensor.dtype()) && count <= kMaxListedIntegers) return false;
  const size_t size = DTypeSize(tensor.dtype());
  return std::memcmp(tensor.raw(), tensor.raw() + size, tensor.size_bytes() - size) == 0;
}

absl::StatusOr<Tensor> FirstElement(const Tensor& tensor) {
  if (tensor.dtype() == DType::kString) return Tensor::Scalar(tensor.values<std::string>()[0]);
  ASSIGN_OR_RETURN(Tensor first, Tensor::Make(tensor.dtype(), Shape()));
  std::memcpy(first.raw(), tensor.raw(), first.size_bytes());
  return first;
}

template <typename T, typename Field>
void AddAll(const Tensor& tensor, Field& field) {
  const T* values = reinterpret_cast<const T*>(tensor.raw());
  field.Reserve(static_cast<int>(tensor.num_elements()));
  for (int64_t i = 0; i < tensor.num_elements(); ++i) field.Add(values[i]);
}

// The size in memory; the contents of strings and variants come on top.
absl::Status CheckFitsMessage(const Tensor& tensor) {
  if (tensor.size_bytes() <= kMaxMessageBytes) return absl::OkStatus();
  return InvalidArgument("A tensor of ", tensor.size_bytes(), " bytes, type ",
                         DTypeName(tensor.dtype()), " and shape ", tensor.shape().ToString(),
                         ", cannot be written to a message; the limit is ", kMaxMessageBytes,
                         " bytes");
}

absl::Status WriteTyped(const Tensor& tensor, tensorflow::TensorProto& proto) {
  switch (tensor.dtype()) {
    case DType::kFloat:
      AddAll<float>(tensor, *proto.mutable_float_val());
      break;
    case DType::kDouble:
      AddAll<double>(tensor, *proto.mutable_double_val());
      break;
    case DType::kInt64:
      AddAll<int64_t>(tensor, *proto.mutable_int64_val());
      break;
    case DType::kUint32:
      AddAll<uint32_t>(tensor, *proto.mutable_uint32_val());
      break;
    case DType::kUint64:
      AddAll<uint64_t>(tensor, *proto.mutable_uint64_val());
      break;
    case DType::kBool:
      AddAll<bool>(tensor, *proto.mutable_bool_val());
      break;
    case DType::kHalf:
    case DType::kBfloat16:
      AddAll<uint16_t>(tensor, *proto.mutable_half_val());
      break;
    case DType::kInt32:
    case DType::kQint32:
      AddAll<int32_t>(tensor, *proto.mutable_int_val());
      break;
    case DType::kInt16:
    case DType::kQint16:
      AddAll<int16_t>(tensor, *proto.mutable_int_val());
      break;
    case DType::kUint16:
    case DType::kQuint16:
      AddAll<uint16_t>(tensor, *proto.mutable_int_val());
      break;
    case DType::kInt8:
    case DType::kQint8:
    case DType::kInt4:
    case DType::kInt2:
      AddAll<int8_t>(tensor, *proto.mutable_int_val());
      break;
    case DType::kUint8:
    case DType::kQuint8:
    case DType::kUint4:
    case DType::kUint2:
      AddAll<uint8_t>(tensor, *proto.mutable_int_val());
      break;
    case DType::kComplex64:
      for (const Complex64& value : tensor.values<Complex64>()) {
        proto.add_scomplex_val(value.real());
        proto.add_scomplex_val(value.imag());
      }
      break;
    case DType::kComplex128:
      for (const Complex128& value : tensor.values<Complex128>()) {
        proto.add_dcomplex_val(value.real());
        proto.add_dcomplex_val(value.imag());
      }
      break;
    case DType::kString:
      for (const std::string& value : tensor.values<std::string>()) proto.add_string_val(value);
      break;
    case DType::kResource:
      for (const ResourceHandle& value : tensor.values<ResourceHandle>()) {
        ResourceHandleToProto(value, *proto.add_resource_handle_val());
      }
      break;
    case DType::kVariant:
      for (const Variant& value : tensor.values<Variant>())
        RETURN_IF_ERROR(VariantToProto(value, *proto.add_variant_val()));
      break;
    default:
      proto.set_float8_val(tensor.raw(), tensor.size_bytes());
  }
  return absl::OkStatus();
}

absl::Status WriteContent(const Tensor& tensor, tensorflow::TensorProto& proto) {
  if (IsPlainData(tensor.dtype())) {
    proto.set_tensor_content(tensor.raw(), tensor.size_bytes());
    return absl::OkStatus();
  }
  std::string lengths;
  std::string elements;
  const auto add = [&](absl::string_view element) {
    uint8_t varint[10];
    const uint8_t* end = google::protobuf::io::CodedOutputStream::WriteVarint32ToArray(
        static_cast<uint32_t>(element.size()), varint);
    lengths.append(reinterpret_cast<const char*>(varint), static_cast<size_t>(end - varint));
    elements.append(element.data(), element.size());
  };
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    if (tensor.dtype() == DType::kString) {
      add(tensor.data<std::string>()[i]);
    } else if (tensor.dtype() == DType::kResource) {
      tensorflow::ResourceHandleProto handle;
      ResourceHandleToProto(tensor.data<ResourceHandle>()[i], handle);
      ASSIGN_OR_RETURN(const std::string bytes, MessageToBytes(handle));
      add(bytes);
    } else {
      tensorflow::VariantTensorDataProto variant;
      RETURN_IF_ERROR(VariantToProto(tensor.data<Variant>()[i], variant));
      ASSIGN_OR_RETURN(const std::string bytes, MessageToBytes(variant));
      add(bytes);
    }
  }
  proto.set_tensor_content(lengths + elements);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Shape> ShapeFromProto(const tensorflow::TensorShapeProto& proto) {
  if (proto.unknown_rank()) return InvalidArgument("Shape <unknown> is not fully defined");
  ASSIGN_OR_RETURN(Dims dims, DimsFromProto(proto));
  return Shape::Make(dims);
}

absl::StatusOr<PartialShape> PartialShapeFromProto(const tensorflow::TensorShapeProto& proto) {
  if (proto.unknown_rank()) {
    if (proto.dim_size() == 0) return PartialShape();
    return InvalidArgument("An unknown shape must not have any dimensions set.");
  }
  ASSIGN_OR_RETURN(Dims dims, DimsFromProto(proto));
  if (std::any_of(dims.begin(), dims.end(), [](int64_t size) { return size < -1; })) {
    return InvalidArgument("Shape ", PartialShape(dims).ToString(),
                           " has dimensions with values below -1 (where -1 means unknown)");
  }
  return PartialShape::Make(dims);
}

void ShapeToProto(const Shape& shape, tensorflow::TensorShapeProto& proto) {
  proto.Clear();
  for (int64_t size : shape.dims()) proto.add_dim()->set_size(size);
}

void PartialShapeToProto(const PartialShape& shape, tensorflow::TensorShapeProto& proto) {
  proto.Clear();
  if (!shape.known_rank()) proto.set_unknown_rank(true);
  for (int64_t size : shape.dims()) proto.add_dim()->set_size(size);
}

absl::StatusOr<ResourceHandle> ResourceHandleFromProto(
    const tensorflow::ResourceHandleProto& proto) {
  ResourceHandle handle;
  handle.device = proto.device();
  handle.container = proto.container();
  handle.name = proto.name();
  handle.hash_code = proto.hash_code();
  handle.type_name = proto.maybe_type_name();
  for (const auto& part : proto.dtypes_and_shapes()) {
    if (!IsValidDType(part.dtype())) {
      return InvalidArgument("Resource handle '", proto.name(), "' has unknown data type ",
                             part.dtype());
    }
    ASSIGN_OR_RETURN(PartialShape shape, PartialShapeFromProto(part.shape()));
    handle.dtypes_and_shapes.push_back({static_cast<DType>(part.dtype()), std::move(shape)});
  }
  return handle;
}

void ResourceHandleToProto(const ResourceHandle& handle, tensorflow::ResourceHandleProto& proto) {
  proto.Clear();
  proto.set_device(handle.device);
  proto.set_container(handle.container);
  proto.set_name(handle.name);
  proto.set_hash_code(handle.hash_code);
  proto.set_maybe_type_name(handle.type_name);
  for (const DTypeAndShape& part : handle.dtypes_and_shapes) {
    auto& out = *proto.add_dtypes_and_shapes();
    out.set_dtype(static_cast<tensorflow::DataType>(part.dtype));
    PartialShapeToProto(part.shape, *out.mutable_shape());
  }
}

absl::StatusOr<Tensor> TensorFromProto(const tensorflow::TensorProto& proto) {
  const DType dtype = static_cast<DType>(proto.dtype());
  if (!IsValidDType(proto.dtype()) || IsRef(dtype)) {
    return InvalidArgument(
        "A tensor cannot have data type ",
        IsValidDType(proto.dtype()) ? DTypeName(dtype) : absl::StrCat("number ", proto.dtype()));
  }
  ASSIGN_OR_RETURN(Shape shape, ShapeFromProto(proto.tensor_shape()));
  if (!proto.tensor_content().empty() && shape.num_elements() > 0) {
    return ReadContent(proto.tensor_content(), dtype, std::move(shape));
  }
  const std::optional<int64_t> bytes =
      MultiplyWithoutOverflow(shape.num_elements(), RepeatedElementBytes(proto, dtype));
  if (TypedValueCount(proto, dtype) < shape.num_elements() &&
      (!bytes || *bytes > kMaxRepeatedBytes)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("A tensor of type ", DTypeName(dtype), " and shape ", shape.ToString(),
                     " that repeats values takes more than ", kMaxRepeatedBytes, " bytes"));
  }
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Make(dtype, std::move(shape)));
  RETURN_IF_ERROR(ReadTyped(proto, tensor));
  return tensor;
}

absl::Status TensorToProto(const Tensor& tensor, TensorEncoding encoding,
                           tensorflow::TensorProto& proto) {
  proto.Clear();
  if (!tensor.valid()) return InvalidArgument("A tensor without a type cannot be written");
  proto.set_dtype(static_cast<tensorflow::DataType>(tensor.dtype()));
  ShapeToProto(tensor.shape(), *proto.mutable_tensor_shape());
  if (tensor.num_elements() == 0) return absl::OkStatus();
  if (encoding == TensorEncoding::kTyped && RepeatsOneValue(tensor)) {
    ASSIGN_OR_RETURN(const Tensor first, FirstElement(tensor));
    return WriteTyped(first, proto);
  }
  RETURN_IF_ERROR(CheckFitsMessage(tensor));
  if (encoding == TensorEncoding::kTyped && IsWrittenTyped(tensor))
    return WriteTyped(tensor, proto);
  return WriteContent(tensor, proto);
}

}  // namespace muster
