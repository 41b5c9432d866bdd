#include "muster/graph/attr_value.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "muster/base/status.h"

namespace muster {
namespace {

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::CEscape(text), "\"");
}

std::string FunctionText(const FunctionRef& function) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : function.attrs)
    parts.push_back(absl::StrCat(name, "=", value.ToString()));
  return absl::StrCat(function.name, "[", absl::StrJoin(parts, ", "), "]");
}

// Element texts; overloads serve single values and lists alike.
std::string Text(const std::string& value) {
  return Quoted(value);
}
std::string Text(int64_t value) {
  return absl::StrCat(value);
}
std::string Text(float value) {
  return absl::StrFormat("%.9g", value);
}
std::string Text(bool value) {
  return value ? "true" : "false";
}
std::string Text(DType value) {
  return absl::StrCat("DT_", absl::AsciiStrToUpper(DTypeName(value)));
}
std::string Text(const PartialShape& value) {
  return value.ToString();
}
std::string Text(const Tensor& value) {
  return absl::StrCat("Tensor<type: ", DTypeName(value.dtype()),
                      " shape: ", value.shape().ToString(),
                      " values: ", value.valid() ? value.SummarizeValues(-1) : "", ">");
}
std::string Text(const FunctionRef& value) {
  return FunctionText(value);
}
std::string Text(const std::shared_ptr<const FunctionRef>& value) {
  return FunctionText(*value);
}
std::string Text(const AttrPlaceholder& value) {
  return absl::StrCat("$", value.name);
}
std::string Text(EmptyList) {
  return "[]";
}
std::string Text(std::monostate) {
  return "";
}
template <typename T>
std::string Text(const std::vector<T>& values) {
  std::vector<std::string> parts;
  for (const T& value : values) parts.push_back(Text(value));
  return absl::StrCat("[", absl::StrJoin(parts, ", "), "]");
}

}  // namespace

AttrValue::AttrValue(FunctionRef value)
    : value_(std::make_shared<const FunctionRef>(std::move(value))) {}
AttrValue::AttrValue(std::vector<FunctionRef> value) : value_(std::move(value)) {}

std::string AttrValue::kind() const {
  static constexpr const char* kKinds[] = {
      "none",       "string",       "int",          "float",       "bool",
      "type",       "shape",        "tensor",       "func",        "placeholder",
      "list()",     "list(string)", "list(int)",    "list(float)", "list(bool)",
      "list(type)", "list(shape)",  "list(tensor)", "list(func)"};
  return kKinds[value_.index()];
}

std::string AttrValue::ToString() const {
  return std::visit([](const auto& value) { return Text(value); }, value_);
}

bool operator==(const AttrValue& a, const AttrValue& b) {
  if (a.value().index() != b.value().index()) {
    // An empty list equals an empty list of any kind.
    return a.ToString() == "[]" && b.ToString() == "[]";
  }
  if (const Tensor* tensor = a.get<Tensor>()) return SameTensor(*tensor, *b.get<Tensor>());
  return a.ToString() == b.ToString();
}

namespace {

template <typename T>
constexpr bool kIsList = false;
template <typename T>
constexpr bool kIsList<std::vector<T>> = true;

}  // namespace

template <typename T>
absl::StatusOr<T> GetAttr(const AttrMap& attrs, absl::string_view name) {
  const auto found = attrs.find(name);
  if (found == attrs.end()) return NotFound("No attr named '", name, "'");
  if (const T* value = found->second.get<T>()) return *value;
  if constexpr (kIsList<T>) {
    if (found->second.get<EmptyList>() != nullptr) return T();
  }
  return InvalidArgument("Attr '", name, "' has a value of kind ", found->second.kind(), " where ",
                         AttrValue(T()).kind(), " is wanted");
}
template <>
absl::StatusOr<FunctionRef> GetAttr(const AttrMap& attrs, absl::string_view name) {
  const auto found = attrs.find(name);
  if (found == attrs.end()) return NotFound("No attr named '", name, "'");
  if (const auto* value = found->second.get<std::shared_ptr<const FunctionRef>>()) return **value;
  return InvalidArgument("Attr '", name, "' has a value of kind ", found->second.kind(),
                         " where func is wanted");
}

template absl::StatusOr<std::string> GetAttr(const AttrMap&, absl::string_view);
template absl::StatusOr<int64_t> GetAttr(const AttrMap&, absl::string_view);
template absl::StatusOr<float> GetAttr(const AttrMap&, absl::string_view);
template absl::StatusOr<bool> GetAttr(const AttrMap&, absl::string_view);
template absl::StatusOr<DType> GetAttr(const AttrMap&, absl::string_view);
template absl::StatusOr<PartialShape> GetAttr(const AttrMap&, absl::string_view);
template absl::StatusOr<Tensor> GetAttr(const AttrMap&, absl::string_view);
template absl::StatusOr<std::vector<std::string>> GetAttr(const AttrMap&, absl::string_view);
template absl::StatusOr<std::vector<int64_t>> GetAttr(const AttrMap&, absl::string_view);
template absl::StatusOr<std::vector<float>> GetAttr(const AttrMap&, absl::string_view);
template absl::StatusOr<std::vector<bool>> GetAttr(const AttrMap&, absl::string_view);
template absl::StatusOr<std::vector<DType>> GetAttr(const AttrMap&, absl::string_view);
template absl::StatusOr<std::vector<PartialShape>> GetAttr(const AttrMap&, absl::string_view);
template absl::StatusOr<std::vector<Tensor>> GetAttr(const AttrMap&, absl::string_view);
template absl::StatusOr<std::vector<FunctionRef>> GetAttr(const AttrMap&, absl::string_view);

}  // namespace muster
