#include "muster/base/json.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

namespace muster {
namespace {

constexpr int kMaxDepth = 64;

void AppendUtf8(uint32_t code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr uint8_t kFirst[] = {0, 0xC0, 0xE0, 0xF0};
  out += static_cast<char>(kFirst[more] | (code >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3F));
}

class Reader {
 public:
  explicit Reader(absl::string_view text) : text_(text) {}

  absl::StatusOr<Json> Document() {
    ASSIGN_OR_RETURN(Json value, Value(0));
    SkipSpace();
    if (at_ != text_.size()) return Expected("the end of the text");
    return value;
  }

 private:
  absl::Status Expected(absl::string_view what) const {
    return InvalidArgument(
        "not JSON: at byte ", at_, ", ", what, " was expected, but found ",
        at_ < text_.size() ? absl::StrCat("'", text_.substr(at_, 10), "'") : "the end of the text");
  }
  void SkipSpace() {
    while (at_ < text_.size() && absl::StrContains(" \t\r\n", text_[at_])) ++at_;
  }
  bool Take(char c) {
    SkipSpace();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool TakeWord(absl::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  absl::StatusOr<Json> Value(int depth) {
    if (depth > kMaxDepth)
      return InvalidArgument("not read: JSON nested deeper than ", kMaxDepth, " levels");
    SkipSpace();
    if (at_ >= text_.size()) return Expected("a value");
    switch (text_[at_]) {
      case '{':
        return Object(depth);
      case '[':
        return List(depth);
      case '"': {
        ASSIGN_OR_RETURN(std::string text, String());
        return Json(std::move(text));
      }
      default:
        break;
    }
    if (TakeWord("true")) return Json(true);
    if (TakeWord("false")) return Json(false);
    if (TakeWord("null")) return Json();
    return Number();
  }

  absl::StatusOr<Json> Object(int depth) {
    Json::Object members;
    Take('{');
    if (Take('}')) return Json(std::move(members));
    do {
      SkipSpace();
      if (at_ >= text_.size() || text_[at_] != '"') return Expected("a name in quotes");
      ASSIGN_OR_RETURN(std::string name, String());
      if (std::any_of(members.begin(), members.end(),
                      [&](const Json::Member& m) { return m.first == name; })) {
        return InvalidArgument("the name ", JsonQuoted(name), " stands twice in one JSON object");
      }
      if (!Take(':')) return Expected("':'");
      ASSIGN_OR_RETURN(Json value, Value(depth + 1));
      members.emplace_back(std::move(name), std::move(value));
    } while (Take(','));
    if (!Take('}')) return Expected("',' or '}'");
    return Json(std::move(members));
  }

  absl::StatusOr<Json> List(int depth) {
    Json::List items;
    Take('[');
    if (Take(']')) return Json(std::move(items));
    do {
      ASSIGN_OR_RETURN(Json value, Value(depth + 1));
      items.push_back(std::move(value));
    } while (Take(','));
    if (!Take(']')) return Expected("',' or ']'");
    return Json(std::move(items));
  }

  absl::StatusOr<Json> Number() {
    const size_t start = at_;
    size_t end = at_;
    const auto digits = [&] {
      const size_t from = end;
      while (end < text_.size() && absl::ascii_isdigit(text_[end])) ++end;
      return end > from;
    };
    const auto next_is = [&](absl::string_view any) {
      return end < text_.size() && absl::StrContains(any, text_[end]);
    };
    if (next_is("-")) ++end;
    const size_t first = end;
    bool good = digits() && (text_[first] != '0' || end == first + 1);
    if (good && next_is(".")) {
      ++end;
      good = digits();
    }
    if (good && next_is("eE")) {
      ++end;
      if (next_is("+-")) ++end;
      good = digits();
    }
    double value;
    if (!good || !absl::SimpleAtod(text_.substr(start, end - start), &value))
      return Expected("a value");
    at_ = end;
    return Json(value);
  }

  absl::StatusOr<std::string> String() {
    std::string out;
    ++at_;  // the quote
    while (at_ < text_.size() && text_[at_] != '"') {
      const char c = text_[at_];
      if (static_cast<uint8_t>(c) < 0x20) return Expected("no control character in a string");
      ++at_;
      if (c != '\\') {
        out += c;
        continue;
      }
      RETURN_IF_ERROR(Escape(out));
    }
    if (at_ >= text_.size()) return Expected("'\"'");
    ++at_;
    return out;
  }

  absl::Status Escape(std::string& out) {
    constexpr absl::string_view kNames = "\"\\/bfnrt";
    constexpr absl::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    if (const size_t which = kNames.find(c); c != '\0' && which != absl::string_view::npos) {
      out += kMeanings[which];
      ++at_;
      return absl::OkStatus();
    }
    if (c != 'u') return Expected("an escape");
    ASSIGN_OR_RETURN(uint32_t code, FourHexDigits());
    if (code >= 0xD800 && code < 0xDC00) {  // the first half of a pair
      if (text_.substr(at_, 2) != "\\u") return Expected("the second half of a surrogate pair");
      ++at_;
      ASSIGN_OR_RETURN(const uint32_t low, FourHexDigits());
      if (low < 0xDC00 || low > 0xDFFF) return Expected("the second half of a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code < 0xE000) {
      return Expected("the first half of a surrogate pair");
    }
    AppendUtf8(code, out);
    return absl::OkStatus();
  }

  // Stands at the 'u'.
  absl::StatusOr<uint32_t> FourHexDigits() {
    const absl::string_view digits = text_.substr(std::min(at_ + 1, text_.size()), 4);
    uint32_t code = 0;
    if (digits.size() != 4 || !std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit) ||
        !absl::SimpleHexAtoi(digits, &code)) {
      return Expected("four hexadecimal digits");
    }
    at_ += 5;
    return code;
  }

  absl::string_view text_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<Json> Json::Parse(absl::string_view text) {
  return Reader(text).Document();
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
