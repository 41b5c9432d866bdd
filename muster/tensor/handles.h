// The element types of resource and variant tensors.
#pragma once

#include <memory>
#include <string>
#include <typeindex>
#include <vector>

#include "muster/base/ref_counted.h"
#include "muster/tensor/dtype.h"
#include "muster/tensor/shape.h"

namespace muster {

// Anything that a resource handle can point to: a variable, a stack, a tensor array, later a queue.
class Resource : public RefCounted {
 public:
  // For error texts, e.g. "Variable".
  virtual std::string Describe() const = 0;
};

// What a resource holds, as shape inference and the wire format need it.
struct DTypeAndShape {
  DType dtype = DType::kInvalid;
  PartialShape shape;
};

// Names a resource; `resource` may carry the object itself, which saves the lookup.
class ResourceHandle {
 public:
  std::string device;
  std::string container;
  std::string name;
  uint64_t hash_code = 0;
  std::string type_name;
  std::vector<DTypeAndShape> dtypes_and_shapes;
  RefPtr<Resource> resource;
};

// A value of any copyable type, held by shared pointer and immutable once published.
class Variant {
 public:
  Variant() : type_(typeid(void)) {}
  template <typename T>
  explicit Variant(std::shared_ptr<const T> value) : type_(typeid(T)), value_(std::move(value)) {}
  template <typename T>
  const T* get() const {
    return type_ == typeid(T) ? static_cast<const T*>(value_.get()) : nullptr;
  }
  bool empty() const { return value_ == nullptr; }

 private:
  std::type_index type_;
  std::shared_ptr<const void> value_;
};

}  // namespace muster
