// A tensor: type, shape and a reference to its elements. A cheap value; elements are immutable once
// published, and the holder of the only reference may reuse the memory.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "muster/base/check.h"
#include "muster/tensor/buffer.h"
#include "muster/tensor/dtype.h"
#include "muster/tensor/handles.h"
#include "muster/tensor/shape.h"

namespace muster {

class Tensor {
 public:
  Tensor() = default;  // no type, no elements
  // Uninitialised plain data, or default-constructed strings and handles. Requires: memory for it
  // exists; sizes that come from input go through Make.
  Tensor(DType dtype, Shape shape, Allocator& allocator = HostAllocator());
  // ResourceExhausted when the memory is refused.
  static absl::StatusOr<Tensor> Make(DType dtype, Shape shape,
                                     Allocator& allocator = HostAllocator());
  // Elements in `buffer`, which must hold at least shape.num_elements() of plain data.
  static absl::StatusOr<Tensor> FromBuffer(DType dtype, Shape shape, Buffer buffer);

  template <typename T>
  static Tensor Scalar(T value) {
    Tensor tensor(kDTypeOf<T>, Shape());
    tensor.data<T>()[0] = std::move(value);
    return tensor;
  }
  template <typename T>
  static Tensor Vector(absl::Span<const T> values) {
    Tensor tensor(kDTypeOf<T>, Shape({static_cast<int64_t>(values.size())}));
    std::copy(values.begin(), values.end(), tensor.data<T>());
    return tensor;
  }
  // Requires: values.size() == shape.num_elements().
  template <typename T>
  static Tensor Of(Shape shape, absl::Span<const T> values) {
    Tensor tensor(kDTypeOf<T>, std::move(shape));
    CHECK(static_cast<int64_t>(values.size()) == tensor.num_elements());
    std::copy(values.begin(), values.end(), tensor.data<T>());
    return tensor;
  }
  // All elements zero (empty strings).
  static Tensor Zeros(DType dtype, Shape shape, Allocator& allocator = HostAllocator());

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  int64_t dim(int i) const { return shape_.dim(i); }
  int64_t num_elements() const { return shape_.num_elements(); }
  size_t size_bytes() const { return static_cast<size_t>(num_elements()) * DTypeSize(dtype_); }
  bool valid() const { return dtype_ != DType::kInvalid; }

  // Elements in row-major order. Requires: T is the C++ type of dtype().
  template <typename T>
  T* data() {
    DCHECK(kDTypeOf<T> == dtype_);
    return reinterpret_cast<T*>(buffer_.data());
  }
  template <typename T>
  const T* data() const {
    DCHECK(kDTypeOf<T> == dtype_);
    return reinterpret_cast<const T*>(buffer_.data());
  }
  template <typename T>
  absl::Span<const T> values() const {
    return absl::Span<const T>(data<T>(), static_cast<size_t>(num_elements()));
  }
  // Requires: num_elements() >= 1.
  template <typename T>
  const T& scalar() const {
    return *data<T>();
  }
  char* raw() { return buffer_.data(); }
  const char* raw() const { return buffer_.data(); }
  const Buffer& buffer() const { return buffer_; }

  // The same elements under another shape. Requires: equal element counts.
  Tensor Reshaped(Shape shape) const;
  // The same bytes as another type of equal size, e.g. quantized as plain. Requires: plain data.
  Tensor Bitcast(DType dtype, Shape shape) const;
  // Rows [begin, end) of dimension 0, sharing memory. Plain data only; may lose the 64-byte
  // alignment.
  Tensor Rows(int64_t begin, int64_t end) const;
  // A copy with memory of its own: of `allocator`, or of the device whose memory the elements are
  // in.
  Tensor Clone(Allocator& allocator = HostAllocator()) const;
  // The host cannot use the elements.
  bool is_on_device() const { return buffer_.is_on_device(); }
  // There is no other reference to the elements.
  bool exclusive() const { return buffer_.exclusive(); }

  // "[1 2 3...]"-like text of up to `max_entries` elements, as TensorFlow's Assert and error texts
  // show tensors.
  std::string SummarizeValues(int64_t max_entries) const;
  std::string ToString() const;  // type, shape and a few values, for people

 private:
  Tensor CloneOnDevice() const;
  DType dtype_ = DType::kInvalid;
  Shape shape_;
  Buffer buffer_;
};

// The elements are in the memory of a device, where the host must not touch them.
inline bool IsInDeviceMemory(const Tensor& tensor) {
  const Region* const region = tensor.buffer().region();
  return region != nullptr && region->kind() == MemoryKind::kDevice;
}

// Same type, shape and elements (bitwise for plain data).
bool SameTensor(const Tensor& a, const Tensor& b);

// The elements of an int32 or int64 tensor as int64.
absl::StatusOr<Dims> IntegerValues(const Tensor& tensor);

}  // namespace muster
