// Values of node attributes, as domain types. The protobuf form is in graph_proto.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "muster/tensor/dtype.h"
#include "muster/tensor/shape.h"
#include "muster/tensor/tensor.h"

namespace muster {

class AttrValue;
// Attributes of a node by name; sorted, as graphs are written.
using AttrMap = std::map<std::string, AttrValue, std::less<>>;

// A function and the attributes to instantiate it with.
struct FunctionRef {
  std::string name;
  AttrMap attrs;
};
// The name of an attribute of the enclosing function, in place of a value (only inside function
// bodies).
struct AttrPlaceholder {
  std::string name;
};
// A list whose element type is not known yet: "[]" for any list(...) attribute.
struct EmptyList {};

class AttrValue {
 public:
  using Value = std::variant<std::monostate, std::string, int64_t, float, bool, DType, PartialShape,
                             Tensor, std::shared_ptr<const FunctionRef>, AttrPlaceholder, EmptyList,
                             std::vector<std::string>, std::vector<int64_t>, std::vector<float>,
                             std::vector<bool>, std::vector<DType>, std::vector<PartialShape>,
                             std::vector<Tensor>, std::vector<FunctionRef>>;

  AttrValue() = default;
  // NOLINTBEGIN(google-explicit-constructor): attribute lists read as {{"axis", 1}, {"T",
  // DType::kFloat}}.
  AttrValue(const char* value) : value_(std::string(value)) {}
  AttrValue(absl::string_view value) : value_(std::string(value)) {}
  AttrValue(std::string value) : value_(std::move(value)) {}
  AttrValue(int value) : value_(int64_t{value}) {}
  AttrValue(int64_t value) : value_(value) {}
  AttrValue(float value) : value_(value) {}
  AttrValue(double value) : value_(static_cast<float>(value)) {}
  AttrValue(bool value) : value_(value) {}
  AttrValue(DType value) : value_(value) {}
  AttrValue(PartialShape value) : value_(std::move(value)) {}
  AttrValue(const Shape& value) : value_(PartialShape(value)) {}
  AttrValue(Tensor value) : value_(std::move(value)) {}
  AttrValue(FunctionRef value);
  AttrValue(AttrPlaceholder value) : value_(std::move(value)) {}
  AttrValue(EmptyList value) : value_(value) {}
  AttrValue(std::vector<std::string> value) : value_(std::move(value)) {}
  AttrValue(std::vector<int64_t> value) : value_(std::move(value)) {}
  AttrValue(std::vector<float> value) : value_(std::move(value)) {}
  AttrValue(std::vector<bool> value) : value_(std::move(value)) {}
  AttrValue(std::vector<DType> value) : value_(std::move(value)) {}
  AttrValue(std::vector<PartialShape> value) : value_(std::move(value)) {}
  AttrValue(std::vector<Tensor> value) : value_(std::move(value)) {}
  AttrValue(std::vector<FunctionRef> value);
  // NOLINTEND(google-explicit-constructor)

  const Value& value() const { return value_; }
  bool has_value() const { return !std::holds_alternative<std::monostate>(value_); }
  // Null when the value is of another kind. An EmptyList is not seen here: GetAttr turns it into
  // the wanted list.
  template <typename T>
  const T* get() const {
    return std::get_if<T>(&value_);
  }
  // "string", "list(int)", "func", ...: the names used in op definitions.
  std::string kind() const;
  // A deterministic text, for error messages, signatures and comparing attributes.
  std::string ToString() const;

 private:
  Value value_;
};

bool operator==(const AttrValue& a, const AttrValue& b);

// The attribute as T; NotFound or InvalidArgument (wrong kind) otherwise.
template <typename T>
absl::StatusOr<T> GetAttr(const AttrMap& attrs, absl::string_view name);

}  // namespace muster
