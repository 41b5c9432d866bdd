#include "muster/tensor/tensor.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"

#include "muster/base/status.h"
#include "muster/tensor/memory_guard.h"
#include "muster/tensor/memory_place.h"

namespace muster {
namespace {

// Elements with constructors and destructors, over memory of an allocator.
template <typename T>
class ObjectRegion : public Region {
 public:
  ObjectRegion(Buffer memory, int64_t count)
      : Region(memory.data(), memory.length_bytes(), MemoryKind::kHost),
        memory_(std::move(memory)),
        count_(count) {
    std::uninitialized_value_construct_n(static_cast<T*>(base_), count_);
  }
  ~ObjectRegion() override { std::destroy_n(static_cast<T*>(base_), count_); }

 private:
  Buffer memory_;
  int64_t count_;
};

Buffer ObjectBuffer(DType dtype, Buffer memory, int64_t count) {
  const size_t length = memory.length_bytes();
  switch (dtype) {
    case DType::kString:
      return Buffer(MakeRef<ObjectRegion<std::string>>(std::move(memory), count), 0, length);
    case DType::kResource:
      return Buffer(MakeRef<ObjectRegion<ResourceHandle>>(std::move(memory), count), 0, length);
    case DType::kVariant:
      return Buffer(MakeRef<ObjectRegion<Variant>>(std::move(memory), count), 0, length);
    default:
      return memory;
  }
}

template <typename T>
void CopyObjects(const Tensor& from, Tensor& to) {
  std::copy_n(from.data<T>(), from.num_elements(), to.data<T>());
}

std::string FloatText(double value) {
  if (value != value) return std::signbit(value) ? "-nan" : "nan";
  return absl::StrFormat("%g", value);
}

std::string VariantText(const Variant& value) {
  if (const auto* number = value.get<int32_t>()) return absl::StrCat("<", *number, ">");
  if (const auto* number = value.get<float>()) return absl::StrCat("<", FloatText(*number), ">");
  if (const auto* number = value.get<double>()) return absl::StrCat("<", FloatText(*number), ">");
  if (const auto* truth = value.get<bool>()) return *truth ? "<1>" : "<0>";
  return "?";
}

std::string ElementText(const Tensor& t, int64_t i) {
  switch (t.dtype()) {
    case DType::kFloat:
      return FloatText(t.data<float>()[i]);
    case DType::kDouble:
      return FloatText(t.data<double>()[i]);
    case DType::kHalf:
      return FloatText(static_cast<float>(t.data<Half>()[i]));
    case DType::kBfloat16:
      return FloatText(static_cast<float>(t.data<Bfloat16>()[i]));
    case DType::kInt8:
      return absl::StrCat(static_cast<int>(t.data<int8_t>()[i]));
    case DType::kInt16:
      return absl::StrCat(t.data<int16_t>()[i]);
    case DType::kInt32:
      return absl::StrCat(t.data<int32_t>()[i]);
    case DType::kInt64:
      return absl::StrCat(t.data<int64_t>()[i]);
    case DType::kUint8:
      return absl::StrCat(static_cast<int>(t.data<uint8_t>()[i]));
    case DType::kUint16:
      return absl::StrCat(t.data<uint16_t>()[i]);
    case DType::kUint32:
      return absl::StrCat(t.data<uint32_t>()[i]);
    case DType::kUint64:
      return absl::StrCat(t.data<uint64_t>()[i]);
    case DType::kBool:
      return t.data<bool>()[i] ? "1" : "0";
    case DType::kString:
      return absl::CEscape(t.data<std::string>()[i]);
    case DType::kComplex64: {
      const Complex64 z = t.data<Complex64>()[i];
      return absl::StrCat("(", FloatText(z.real()), ",", FloatText(z.imag()), ")");
    }
    case DType::kComplex128: {
      const Complex128 z = t.data<Complex128>()[i];
      return absl::StrCat("(", FloatText(z.real()), ",", FloatText(z.imag()), ")");
    }
    case DType::kVariant:
      return VariantText(t.data<Variant>()[i]);
    default:
      return "?";
  }
}

// Prints dimension `axis` with nested brackets for inner ones, up to `limit` entries in all.
void AppendValues(const Tensor& t, int axis, int64_t limit, int64_t& next, std::string& out) {
  if (next >= limit) return;
  const int64_t count = t.dim(axis);
  const bool innermost = axis == t.rank() - 1;
  for (int64_t i = 0; i < count && next < limit; ++i) {
    if (innermost) {
      absl::StrAppend(&out, i > 0 ? " " : "", ElementText(t, next++));
    } else {
      absl::StrAppend(&out, "[");
      AppendValues(t, axis + 1, limit, next, out);
      absl::StrAppend(&out, "]");
    }
  }
}

absl::Status OutOfMemory(DType dtype, const Shape& shape, const std::string& place) {
  const std::string shortage = TakeShortage();
  return absl::ResourceExhaustedError(
      absl::StrCat("OOM when allocating tensor with shape", shape.ToString(), " and type ",
                   DTypeName(dtype), " ", place, shortage.empty() ? "" : ": ", shortage));
}

}  // namespace

Tensor::Tensor(DType dtype, Shape shape, Allocator& allocator) {
  std::optional<MustHaveMemory> must;
  if (!CatchesLackOfMemory::is_on()) must.emplace();
  absl::StatusOr<Tensor> made = Make(dtype, std::move(shape), allocator);
  if (absl::IsResourceExhausted(made.status())) throw LackOfMemory(made.status());
  CHECK(made.ok());
  *this = *std::move(made);
}

absl::StatusOr<Tensor> Tensor::Make(DType dtype, Shape shape, Allocator& allocator) {
  const size_t element = DTypeSize(dtype);
  if (element == 0 || IsRef(dtype))
    return InvalidArgument("A tensor cannot have type ", DTypeName(dtype));
  const std::optional<int64_t> bytes =
      MultiplyWithoutOverflow(shape.num_elements(), static_cast<int64_t>(element));
  if (!bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "A tensor of shape ", shape.ToString(), " and type ", DTypeName(dtype), " is too large"));
  }
  Tensor tensor;
  tensor.buffer_ = allocator.Allocate(static_cast<size_t>(*bytes));
  if (!tensor.buffer_) return OutOfMemory(dtype, shape, PlaceOf(allocator));
  if (!IsPlainData(dtype))
    tensor.buffer_ = ObjectBuffer(dtype, std::move(tensor.buffer_), shape.num_elements());
  tensor.dtype_ = dtype;
  tensor.shape_ = std::move(shape);
  return tensor;
}

absl::StatusOr<Tensor> Tensor::FromBuffer(DType dtype, Shape shape, Buffer buffer) {
  if (!IsPlainData(dtype))
    return InvalidArgument("Elements of type ", DTypeName(dtype), " cannot be adopted");
  const std::optional<int64_t> bytes =
      MultiplyWithoutOverflow(shape.num_elements(), static_cast<int64_t>(DTypeSize(dtype)));
  if (!bytes || static_cast<size_t>(*bytes) > buffer.length_bytes()) {
    return InvalidArgument("A buffer of ", buffer.length_bytes(), " bytes is too short for shape ",
                           shape.ToString(), " of type ", DTypeName(dtype));
  }
  Tensor tensor;
  tensor.dtype_ = dtype;
  tensor.shape_ = std::move(shape);
  tensor.buffer_ = std::move(buffer);
  return tensor;
}

Tensor Tensor::Zeros(DType dtype, Shape shape, Allocator& allocator) {
  Tensor tensor(dtype, std::move(shape), allocator);
  if (IsPlainData(dtype)) std::memset(tensor.raw(), 0, tensor.size_bytes());
  return tensor;
}

Tensor Tensor::Reshaped(Shape shape) const {
  DCHECK(shape.num_elements() == num_elements());
  Tensor result = *this;
  result.shape_ = std::move(shape);
  return result;
}

Tensor Tensor::Bitcast(DType dtype, Shape shape) const {
  Tensor result = *this;
  result.dtype_ = dtype;
  result.shape_ = std::move(shape);
  return result;
}

Tensor Tensor::Rows(int64_t begin, int64_t end) const {
  DCHECK(rank() > 0 && begin >= 0 && begin <= end && end <= dim(0) && IsPlainData(dtype_));
  const size_t row_bytes = dim(0) == 0 ? 0 : size_bytes() / static_cast<size_t>(dim(0));
  Tensor result = *this;
  result.shape_.Set(0, end - begin);
  result.buffer_ = buffer_.Slice(static_cast<size_t>(begin) * row_bytes,
                                 static_cast<size_t>(end - begin) * row_bytes);
  return result;
}

Tensor Tensor::Clone(Allocator& allocator) const {
  if (!valid()) return Tensor();
  if (is_on_device()) return CloneOnDevice();
  Tensor copy(dtype_, shape_, allocator);
  switch (dtype_) {
    case DType::kString:
      CopyObjects<std::string>(*this, copy);
      break;
    case DType::kResource:
      CopyObjects<ResourceHandle>(*this, copy);
      break;
    case DType::kVariant:
      CopyObjects<Variant>(*this, copy);
      break;
    default:
      if (num_elements() > 0) std::memcpy(copy.raw(), raw(), size_bytes());
  }
  return copy;
}

Tensor Tensor::CloneOnDevice() const {
  Tensor copy = *this;
  copy.buffer_ = buffer_.CopyOnDevice();
  if (!copy.buffer_) throw LackOfMemory(OutOfMemory(dtype_, shape_, "on the device"));
  return copy;
}

std::string Tensor::SummarizeValues(int64_t max_entries) const {
  const int64_t count = num_elements();
  const int64_t limit = max_entries < 0 ? count : std::min(max_entries, count);
  std::string out;
  int64_t next = 0;
  if (rank() == 0) {
    out = ElementText(*this, 0);
    next = 1;
  } else {
    AppendValues(*this, 0, limit, next, out);
  }
  if (count > limit) absl::StrAppend(&out, "...");
  return out;
}

std::string Tensor::ToString() const {
  return absl::StrCat("Tensor<", DTypeName(dtype_), " ", shape_.ToString(), " ",
                      valid() ? SummarizeValues(10) : "", ">");
}

bool SameTensor(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  if (a.num_elements() == 0 || a.raw() == b.raw()) return true;
  if (a.dtype() == DType::kString) return a.values<std::string>() == b.values<std::string>();
  if (!IsPlainData(a.dtype())) return false;
  return std::memcmp(a.raw(), b.raw(), a.size_bytes()) == 0;
}

absl::StatusOr<Dims> IntegerValues(const Tensor& tensor) {
  if (tensor.dtype() == DType::kInt32) {
    const auto values = tensor.values<int32_t>();
    return Dims(values.begin(), values.end());
  }
  if (tensor.dtype() == DType::kInt64) {
    const auto values = tensor.values<int64_t>();
    return Dims(values.begin(), values.end());
  }
  return InvalidArgument("Expected integers of type int32 or int64, got ",
                         DTypeName(tensor.dtype()));
}

}  // namespace muster
