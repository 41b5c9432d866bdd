// Reads JSON (RFC 8259) as it stands: no comments, no trailing commas, no name twice in an object,
// no more than 64 levels. RapidJSON finds the values; this is what the rest of Muster sees of it.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "muster/base/status.h"

namespace muster {

// A value.
class Json {
 public:
  using List = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;  // in the order of the text

  // InvalidArgument naming the place and what was expected there.
  static absl::StatusOr<Json> Parse(absl::string_view text);

  Json() = default;  // null
  explicit Json(bool value) : value_(value) {}
  explicit Json(double value) : value_(value) {}
  explicit Json(std::string value) : value_(std::move(value)) {}
  explicit Json(List value) : value_(std::move(value)) {}
  explicit Json(Object value) : value_(std::move(value)) {}

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  // Null when the value is of another kind.
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const double* number() const { return std::get_if<double>(&value_); }
  const std::string* string() const { return std::get_if<std::string>(&value_); }
  const List* list() const { return std::get_if<List>(&value_); }
  const Object* object() const { return std::get_if<Object>(&value_); }
  // A member of an object; null when this is none or has no such member.
  const Json* Find(absl::string_view name) const;
  absl::string_view kind() const;  // "an object", for messages

 private:
  std::variant<std::monostate, bool, double, std::string, List, Object> value_;
};

// The text between quotes, with what JSON demands escaped.
std::string JsonQuoted(absl::string_view text);

}  // namespace muster
