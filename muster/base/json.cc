#include "muster/base/json.h"

#include <cmath>
#include <cstdint>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
// RapidJSON adds to null pointers, which is undefined: the sanitizer ends the process there.
#ifdef __clang__
#pragma clang attribute push(__attribute__((no_sanitize("pointer-overflow"))), apply_to = function)
#endif
#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>
#ifdef __clang__
#pragma clang attribute pop
#endif

namespace muster {
namespace {

constexpr int kMaxDepth = 64;
// RapidJSON's own conversion to the nearest double is undefined for some zeros ("0e92").
constexpr unsigned kFlags = rapidjson::kParseNumbersAsStringsFlag;

// Builds values out of what RapidJSON finds. False ends the reading; status() says why.
class Builder : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, Builder> {
 public:
  bool Null() { return Add(Json()); }
  bool Bool(bool value) { return Add(Json(value)); }
  bool RawNumber(const char* text, rapidjson::SizeType size, bool /*copy*/) {
    double value = 0;
    if (absl::SimpleAtod({text, size}, &value) && std::isfinite(value)) return Add(Json(value));
    status_ = InvalidArgument("not JSON: the number ", absl::string_view(text, size),
                              " does not fit into a double");
    return false;
  }
  bool String(const char* text, rapidjson::SizeType size, bool /*copy*/) {
    return IsText({text, size}) && Add(Json(std::string(text, size)));
  }
  bool Key(const char* text, rapidjson::SizeType size, bool /*copy*/) {
    if (!IsText({text, size})) return false;
    Open& object = open_.back();
    object.name.assign(text, size);
    if (object.names.insert(object.name).second) return true;
    status_ =
        InvalidArgument("the name ", JsonQuoted(object.name), " stands twice in one JSON object");
    return false;
  }
  bool StartObject() { return Start(/*is_object=*/true); }
  bool StartArray() { return Start(/*is_object=*/false); }
  bool EndObject(rapidjson::SizeType /*count*/) {
    Json::Object members = std::move(open_.back().members);
    open_.pop_back();
    return Add(Json(std::move(members)));
  }
  bool EndArray(rapidjson::SizeType /*count*/) {
    Json::List items = std::move(open_.back().items);
    open_.pop_back();
    return Add(Json(std::move(items)));
  }

  const absl::Status& status() const { return status_; }
  Json TakeValue() { return std::move(value_); }

 private:
  // An object or list whose end has not come.
  struct Open {
    Json::Object members;
    absl::flat_hash_set<std::string> names;
    std::string name;  // of the member that comes next
    Json::List items;
    bool is_object = false;
  };

  // RapidJSON lets the second half of a surrogate pair (\udc00) stand alone, which no text has.
  bool IsText(absl::string_view text) {
    for (size_t i = 0; i + 1 < text.size(); ++i) {
      if (text[i] != '\xED' || static_cast<uint8_t>(text[i + 1]) < 0xA0) continue;
      status_ = InvalidArgument("not JSON: a string has half of a surrogate pair");
      return false;
    }
    return true;
  }
  bool Start(bool is_object) {
    if (open_.size() >= kMaxDepth) {
      status_ = InvalidArgument("not read: JSON nested deeper than ", kMaxDepth, " levels");
      return false;
    }
    open_.emplace_back().is_object = is_object;
    return true;
  }
  bool Add(Json value) {
    if (open_.empty()) {
      value_ = std::move(value);
    } else if (Open& open = open_.back(); open.is_object) {
      open.members.emplace_back(std::move(open.name), std::move(value));
    } else {
      open.items.push_back(std::move(value));
    }
    return true;
  }

  std::vector<Open> open_;  // the innermost last
  Json value_;
  absl::Status status_;
};

absl::Status NotJson(absl::string_view text, size_t at, absl::string_view why) {
  return InvalidArgument("not JSON: at byte ", at, ", ",
                         at < text.size() ? absl::StrCat("'", text.substr(at, 10), "'") : "the end",
                         ": ", why);
}

}  // namespace

absl::StatusOr<Json> Json::Parse(absl::string_view text) {
  rapidjson::MemoryStream stream(text.data(), text.size());
  rapidjson::Reader reader;
  Builder builder;
  const rapidjson::ParseResult result = reader.Parse<kFlags>(stream, builder);
  RETURN_IF_ERROR(builder.status());
  if (result.IsError())
    return NotJson(text, result.Offset(), rapidjson::GetParseError_En(result.Code()));
  // RapidJSON takes a byte of zeros for the end of the text.
  if (stream.Tell() < text.size()) return NotJson(text, stream.Tell(), "The text must end here.");
  return builder.TakeValue();
}

const Json* Json::Find(absl::string_view name) const {
  if (object() == nullptr) return nullptr;
  for (const Member& member : *object()) {
    if (member.first == name) return &member.second;
  }
  return nullptr;
}

absl::string_view Json::kind() const {
  constexpr absl::string_view kKinds[] = {"null",     "a truth value", "a number",
                                          "a string", "a list",        "an object"};
  return kKinds[value_.index()];
}

std::string JsonQuoted(absl::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<uint8_t>(c) < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace muster
