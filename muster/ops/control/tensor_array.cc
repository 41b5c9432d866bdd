#include "muster/ops/control/tensor_array.h"

#include "muster/ops/control/held_elements.h"

namespace muster {

absl::Status TensorArray::CheckOpen() const {
  if (closed_) return InvalidArgument("TensorArray ", options_.name, " has already been closed.");
  return absl::OkStatus();
}

absl::Status TensorArray::Write(KernelContext& c, int64_t index, Tensor value) {
  MutexLock lock(mutex_);
  return WriteLocked(c, index, std::move(value));
}

absl::Status TensorArray::WriteMany(KernelContext& c, absl::Span<const int64_t> indices,
                                    std::vector<Tensor> values) {
  MutexLock lock(mutex_);
  for (size_t i = 0; i < values.size(); ++i)
    RETURN_IF_ERROR(WriteLocked(c, indices[i], std::move(values[i])));
  return absl::OkStatus();
}

absl::Status TensorArray::WriteLocked(KernelContext& c, int64_t index, Tensor value) {
  RETURN_IF_ERROR(CheckOpen());
  const int64_t size = static_cast<int64_t>(elements_.size());
  if (index < 0 || (!options_.dynamic_size && index >= size)) {
    return InvalidArgument("TensorArray ", options_.name, ": Tried to write to index ", index,
                           " but array is not resizeable and size is: ", size);
  }
  if (index >= kMaxSize)
    return absl::ResourceExhaustedError(
        absl::StrCat("TensorArray ", options_.name, ": index ", index, " is too large"));
  if (value.dtype() != options_.dtype) {
    return InvalidArgument("TensorArray ", options_.name, ": Could not write to TensorArray index ",
                           index, " because the value dtype is ", DTypeName(value.dtype()),
                           " but TensorArray dtype is ", DTypeName(options_.dtype), ".");
  }
  if (!element_shape_.CompatibleWith(value.shape())) {
    return InvalidArgument("TensorArray ", options_.name, ": Could not write to TensorArray index ",
                           index, " because the value shape is ", value.shape().ToString(),
                           " which is incompatible with the TensorArray's inferred element shape: ",
                           element_shape_.ToString(), " (consider setting infer_shape=False).");
  }
  if (options_.identical_shapes && !element_shape_.fully_known())
    element_shape_ = PartialShape(value.shape());
  if (index >= size) elements_.resize(index + 1);
  Element& element = elements_[index];
  if (element.read) {
    return InvalidArgument("TensorArray ", options_.name, ": Could not write to TensorArray index ",
                           index, " because it has already been read.");
  }
  if (options_.is_gradient && element.shape.has_value() && *element.shape != value.shape()) {
    return InvalidArgument("TensorArray ", options_.name,
                           ": Could not aggregate to TensorArray index ", index,
                           " because the existing shape is ", element.shape->ToString(),
                           " but the new input shape is ", value.shape().ToString(), ".");
  }
  if (element.written) {
    if (options_.is_gradient) return AddLocked(c, element, value);
    return InvalidArgument("TensorArray ", options_.name, ": Could not write to TensorArray index ",
                           index, " because it has already been written to.");
  }
  element.shape = value.shape();
  element.value = std::move(value);
  element.written = true;
  return absl::OkStatus();
}

absl::Status TensorArray::AddLocked(KernelContext& c, Element& element, const Tensor& value) {
  if (!CanBeAdded(value.dtype())) {
    return Unimplemented("TensorArray does not aggregate values of type ",
                         DTypeName(value.dtype()));
  }
  if (element.own) return AddTo(c, element.value, value);
  // Other readers may share the written value: the sum gets its own memory.
  ASSIGN_OR_RETURN(element.value, Sum(c, element.value, value));
  element.own = true;
  return absl::OkStatus();
}

absl::StatusOr<Tensor> TensorArray::Read(KernelContext& c, int64_t index) {
  MutexLock lock(mutex_);
  return ReadLocked(c, index);
}

absl::StatusOr<std::vector<Tensor>> TensorArray::ReadMany(KernelContext& c,
                                                          absl::Span<const int64_t> indices) {
  MutexLock lock(mutex_);
  std::vector<Tensor> values;
  values.reserve(indices.size());
  for (int64_t index : indices) {
    ASSIGN_OR_RETURN(Tensor value, ReadLocked(c, index));
    values.push_back(std::move(value));
  }
  return values;
}

absl::StatusOr<Tensor> TensorArray::ReadLocked(KernelContext& c, int64_t index) {
  RETURN_IF_ERROR(CheckOpen());
  const int64_t size = static_cast<int64_t>(elements_.size());
  if (index < 0 || index >= size) {
    return InvalidArgument("Tried to read from index ", index, " but array size is: ", size);
  }
  Element& element = elements_[index];
  if (element.cleared) {
    return InvalidArgument(
        "TensorArray ", options_.name, ": Could not read index ", index,
        " twice because it was cleared after a previous read (perhaps try setting ",
        "clear_after_read = false?).");
  }
  if (!element.written) {
    std::optional<Shape> shape =
        element.shape.has_value() ? element.shape : element_shape_.ToShape();
    if (!shape.has_value()) {
      return InvalidArgument(
          "TensorArray ", options_.name, ": Could not read from TensorArray index ", index,
          ".  Furthermore, the element shape is not fully defined: ", element_shape_.ToString(),
          ".  It is possible you are working with a resizeable TensorArray and stop_gradients ",
          "is not allowing the gradients to be written.  If you set the full element_shape ",
          "property on the forward TensorArray, the proper all-zeros tensor will be returned ",
          "instead of incurring this error.");
    }
    ASSIGN_OR_RETURN(element.value, Zeros(c, options_.dtype, *shape));
    element.written = true;
  }
  element.read = true;
  if (!options_.clear_after_read) return element.value;
  element.cleared = true;
  return std::exchange(element.value, Tensor());
}

absl::StatusOr<int64_t> TensorArray::Size() const {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(CheckOpen());
  return static_cast<int64_t>(elements_.size());
}

absl::StatusOr<int64_t> TensorArray::ConcatSize() const {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(CheckOpen());
  if (options_.is_gradient && marked_size_ >= 0) return marked_size_;
  return static_cast<int64_t>(elements_.size());
}

void TensorArray::SetMarkedSize(int64_t size) {
  MutexLock lock(mutex_);
  if (!options_.is_gradient) marked_size_ = size;
}

void TensorArray::Close() {
  MutexLock lock(mutex_);
  elements_.clear();
  closed_ = true;
}

absl::StatusOr<RefPtr<TensorArray>> TensorArray::MakeGradient(
    std::string name, absl::Span<const int64_t> shape_to_prepend) const {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(CheckOpen());
  Options options;
  options.name = std::move(name);
  options.dtype = options_.dtype;
  options.identical_shapes = options_.identical_shapes;
  options.is_gradient = true;
  if (element_shape_.known_rank()) {
    Dims dims(shape_to_prepend.begin(), shape_to_prepend.end());
    dims.insert(dims.end(), element_shape_.dims().begin(), element_shape_.dims().end());
    ASSIGN_OR_RETURN(options.element_shape, PartialShape::Make(dims));
  }
  const int64_t size = static_cast<int64_t>(elements_.size());
  RefPtr<TensorArray> gradient = MakeRef<TensorArray>(std::move(options), size);
  MutexLock gradient_lock(gradient->mutex_);
  gradient->marked_size_ = marked_size_;
  for (int64_t i = 0; i < size; ++i) {
    if (!elements_[i].shape.has_value()) continue;
    Dims dims(shape_to_prepend.begin(), shape_to_prepend.end());
    dims.insert(dims.end(), elements_[i].shape->dims().begin(), elements_[i].shape->dims().end());
    ASSIGN_OR_RETURN(gradient->elements_[i].shape, Shape::Make(dims));
  }
  return gradient;
}

}  // namespace muster
