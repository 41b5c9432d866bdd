#include "muster/ops/strings/charset.h"

#include <algorithm>
#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include <iconv.h>

namespace muster {
namespace {

uint32_t Byte(absl::string_view text, size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// The first character; a broken one takes as many bytes as could have begun a good one.
DecodedChar FirstUtf8(absl::string_view text) {
  const uint32_t lead = Byte(text, 0);
  if (lead < 0x80) return {static_cast<int32_t>(lead), 1, false};
  const int more = lead >= 0xC2 && lead < 0xE0   ? 1
                   : lead >= 0xE0 && lead < 0xF0 ? 2
                   : lead >= 0xF0 && lead < 0xF5 ? 3
                                                 : 0;
  if (more == 0) return {};
  uint32_t point = lead & (0x3F >> more);
  for (int i = 1; i <= more; ++i) {
    if (static_cast<size_t>(i) >= text.size()) return {kReplacementCharacter, i, true};
    const uint32_t next = Byte(text, static_cast<size_t>(i));
    uint32_t low = 0x80;
    uint32_t high = 0xBF;
    if (i == 1) {
      if (lead == 0xE0) low = 0xA0;  // no longer than needed
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xED) high = 0x9F;  // no surrogates
      if (lead == 0xF4) high = 0x8F;  // no more than U+10FFFF
    }
    if (next < low || next > high) return {kReplacementCharacter, i, true};
    point = point << 6 | (next & 0x3F);
  }
  return {static_cast<int32_t>(point), more + 1, false};
}

class Utf8 : public Charset {
 public:
  void Decode(absl::string_view text, absl::FunctionRef<void(DecodedChar)> got) const override {
    while (!text.empty()) {
      const DecodedChar next = FirstUtf8(text);
      got(next);
      text.remove_prefix(static_cast<size_t>(next.bytes));
    }
  }
};

// Code points are bytes, up to a limit.
class SingleByte : public Charset {
 public:
  explicit SingleByte(uint32_t end) : end_(end) {}
  void Decode(absl::string_view text, absl::FunctionRef<void(DecodedChar)> got) const override {
    for (size_t i = 0; i < text.size(); ++i) {
      const uint32_t byte = Byte(text, i);
      got(byte < end_ ? DecodedChar{static_cast<int32_t>(byte), 1, false} : DecodedChar{});
    }
  }

 private:
  const uint32_t end_;
};

enum class ByteOrder { kBig, kLittle, kByMark };

// UTF-16 and UTF-32.
class WideUnits : public Charset {
 public:
  WideUnits(size_t unit, ByteOrder order) : unit_(unit), order_(order) {}

  void Decode(absl::string_view text, absl::FunctionRef<void(DecodedChar)> got) const override {
    bool big = order_ != ByteOrder::kLittle;
    int64_t mark = 0;  // bytes of a byte order mark count to the first character
    if (order_ == ByteOrder::kByMark && text.size() >= unit_) {
      if (Unit(text, true) == 0xFEFF) {
        mark = static_cast<int64_t>(unit_);
      } else if (Unit(text, false) == 0xFEFF) {
        mark = static_cast<int64_t>(unit_);
        big = false;
      }
      text.remove_prefix(static_cast<size_t>(mark));
    }
    while (!text.empty()) {
      DecodedChar next = First(text, big);
      text.remove_prefix(static_cast<size_t>(next.bytes));
      next.bytes += mark;
      mark = 0;
      got(next);
    }
  }

 private:
  uint32_t Unit(absl::string_view text, bool big) const {
    uint32_t value = 0;
    for (size_t i = 0; i < unit_; ++i) value = value << 8 | Byte(text, big ? i : unit_ - 1 - i);
    return value;
  }

  DecodedChar First(absl::string_view text, bool big) const {
    const auto unit = static_cast<int64_t>(unit_);
    if (text.size() < unit_) {
      return {kReplacementCharacter, static_cast<int64_t>(text.size()), true};
    }
    const uint32_t first = Unit(text, big);
    if (!IsSurrogate(first)) {
      if (first > kLastCodePoint) return {kReplacementCharacter, unit, true};
      return {static_cast<int32_t>(first), unit, false};
    }
    if (unit_ == 2 && first < 0xDC00 && text.size() >= 4) {
      const uint32_t second = Unit(text.substr(2), big);
      if (second >= 0xDC00 && second <= 0xDFFF) {
        return {static_cast<int32_t>(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)), 4,
                false};
      }
    }
    return {kReplacementCharacter, unit, true};
  }

  const size_t unit_;
  const ByteOrder order_;
};

// Whatever else the C library can convert.
class SystemCharset : public Charset {
 public:
  explicit SystemCharset(std::string name) : name_(std::move(name)) {}

  void Decode(absl::string_view text, absl::FunctionRef<void(DecodedChar)> got) const override {
    // A converter has a state: one per text.
    const iconv_t converter = iconv_open("UTF-32BE", name_.c_str());
    if (converter == reinterpret_cast<iconv_t>(-1)) return;
    std::string copy(text);
    char* from = copy.data();
    size_t left = copy.size();
    while (left > 0) {
      char* const before = from;
      char point[4] = {};
      char* to = point;
      size_t room = sizeof(point);  // for one character: the converter stops behind it
      const size_t result = iconv(converter, &from, &left, &to, &room);
      const bool bad = room != 0;
      if (bad && result == static_cast<size_t>(-1)) {
        const size_t skip = errno == EINVAL ? left : std::min<size_t>(left, 1);
        from += skip;
        left -= skip;
        iconv(converter, nullptr, nullptr, nullptr, nullptr);
      }
      if (from == before) break;
      if (bad && result != static_cast<size_t>(-1)) continue;  // only a change of state
      DecodedChar next{kReplacementCharacter, from - before, bad};
      if (!bad) {
        const absl::string_view bytes(point, sizeof(point));
        next.code_point = static_cast<int32_t>(Byte(bytes, 0) << 24 | Byte(bytes, 1) << 16 |
                                               Byte(bytes, 2) << 8 | Byte(bytes, 3));
      }
      got(next);
    }
    iconv_close(converter);
  }

  static bool Knows(const std::string& name) {
    const iconv_t converter = iconv_open("UTF-32BE", name.c_str());
    if (converter == reinterpret_cast<iconv_t>(-1)) return false;
    iconv_close(converter);
    return true;
  }

 private:
  const std::string name_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Charset>> Charset::Find(const std::string& name) {
  std::string plain;
  for (const char letter : name) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(letter))) {
      plain.push_back(absl::ascii_tolower(static_cast<unsigned char>(letter)));
    }
  }
  if (plain == "utf8") return std::make_shared<Utf8>();
  if (plain == "utf16be") return std::make_shared<WideUnits>(2, ByteOrder::kBig);
  if (plain == "utf16le") return std::make_shared<WideUnits>(2, ByteOrder::kLittle);
  if (plain == "utf16") return std::make_shared<WideUnits>(2, ByteOrder::kByMark);
  if (plain == "utf32be") return std::make_shared<WideUnits>(4, ByteOrder::kBig);
  if (plain == "utf32le") return std::make_shared<WideUnits>(4, ByteOrder::kLittle);
  if (plain == "utf32") return std::make_shared<WideUnits>(4, ByteOrder::kByMark);
  if (plain == "usascii" || plain == "ascii") return std::make_shared<SingleByte>(0x80);
  if (plain == "iso88591" || plain == "latin1") return std::make_shared<SingleByte>(0x100);
  // With a backslash where the standard has a yen sign, as is usual.
  if (plain == "shiftjis" || plain == "sjis") {
    if (SystemCharset::Knows("CP932")) return std::make_shared<SystemCharset>("CP932");
  }
  if (!plain.empty() && name.find('/') == std::string::npos) {  // what follows a / are options
    for (const std::string& spelling : {name, absl::StrReplaceAll(name, {{"_", "-"}})}) {
      if (SystemCharset::Knows(spelling)) return std::make_shared<SystemCharset>(spelling);
    }
  }
  return InvalidArgument("Could not create converter for input encoding: ", name);
}

absl::StatusOr<OutputEncoding> FindOutputEncoding(absl::string_view name) {
  if (name == "UTF-8") return OutputEncoding::kUtf8;
  if (name == "UTF-16-BE") return OutputEncoding::kUtf16Be;
  if (name == "UTF-32-BE") return OutputEncoding::kUtf32Be;
  return InvalidArgument("output_encoding must be one of UTF-8, UTF-16-BE, UTF-32-BE, not ", name);
}

void AppendEncoded(OutputEncoding encoding, int64_t code_point, std::string& to) {
  if (code_point < 0 || code_point > kLastCodePoint || IsSurrogate(code_point)) {
    code_point = kReplacementCharacter;
  }
  const auto point = static_cast<uint32_t>(code_point);
  const auto put = [&to](uint32_t byte) { to.push_back(static_cast<char>(byte & 0xFF)); };
  const auto put_unit = [&](uint32_t unit) {
    put(unit >> 8);
    put(unit);
  };
  switch (encoding) {
    case OutputEncoding::kUtf8:
      if (point < 0x80) return put(point);
      if (point < 0x800) {
        put(0xC0 | point >> 6);
      } else if (point < 0x10000) {
        put(0xE0 | point >> 12);
        put(0x80 | (point >> 6 & 0x3F));
      } else {
        put(0xF0 | point >> 18);
        put(0x80 | (point >> 12 & 0x3F));
        put(0x80 | (point >> 6 & 0x3F));
      }
      return put(0x80 | (point & 0x3F));
    case OutputEncoding::kUtf16Be:
      if (point < 0x10000) return put_unit(point);
      put_unit(0xD800 + ((point - 0x10000) >> 10));
      return put_unit(0xDC00 + ((point - 0x10000) & 0x3FF));
    case OutputEncoding::kUtf32Be:
      put_unit(point >> 16);
      return put_unit(point & 0xFFFF);
  }
}

}  // namespace muster
