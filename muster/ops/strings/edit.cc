// Parts and properties of strings: Substr, StringLength, StringStrip, StringLower, StringUpper.
#include <algorithm>

#include "absl/strings/ascii.h"
#include <locale.h>
#include <wctype.h>

#include "muster/ops/op.h"
#include "muster/ops/strings/charset.h"

namespace muster {
namespace {

// Whether a byte continues a character of UTF-8.
bool Continues(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

int64_t CountCharacters(absl::string_view text) {
  int64_t count = 0;
  for (char c : text) count += !Continues(c);
  return count;
}

// The byte where character `index` begins; the size of the text for the one after the last.
size_t ByteOf(absl::string_view text, int64_t index) {
  size_t at = 0;
  while (at < text.size() && Continues(text[at])) ++at;
  for (; index > 0 && at < text.size(); --index) {
    ++at;
    while (at < text.size() && Continues(text[at])) ++at;
  }
  return at;
}

absl::StatusOr<bool> UnitIsUtf8(KernelSetup& s) {
  ASSIGN_OR_RETURN(const std::string unit, s.Attr<std::string>("unit"));
  return unit == "UTF8_CHAR";
}

class SubstrKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(utf8_, UnitIsUtf8(s));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    const Shape& pos_shape = c.input(1).shape();
    if (pos_shape != c.input(2).shape()) {
      return InvalidArgument("pos and len should have the same shape, got: ", pos_shape.ToString(),
                             " vs. ", c.input(2).shape().ToString());
    }
    ASSIGN_OR_RETURN(const Dims pos, IntegerValues(c.input(1)));
    ASSIGN_OR_RETURN(const Dims len, IntegerValues(c.input(2)));
    const absl::StatusOr<PartialShape> joint =
        BroadcastShapes(PartialShape(input.shape()), PartialShape(pos_shape));
    const std::optional<Shape> shape = joint.ok() ? joint->ToShape() : std::nullopt;
    if (!shape.has_value()) {
      return InvalidArgument("Incompatible shapes: ", input.shape().ToString(), " vs. ",
                             pos_shape.ToString());
    }
    if (!pos_shape.is_scalar() && pos_shape != input.shape() && shape->rank() > 2)
      return Unimplemented("Substr broadcast not implemented for ", shape->rank(), " dimensions");
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, *shape));
    const std::vector<int64_t> input_at = BroadcastOffsets(input.shape(), *shape);
    const std::vector<int64_t> pos_at = BroadcastOffsets(pos_shape, *shape);
    for (int64_t i = 0; i < output->num_elements(); ++i) {
      const std::string& text = input.data<std::string>()[input_at[i]];
      ASSIGN_OR_RETURN(const absl::string_view part, Part(text, pos[pos_at[i]], len[pos_at[i]], i));
      output->data<std::string>()[i] = std::string(part);
    }
    return absl::OkStatus();
  }

 private:
  // For every element of `to` the flat place of the element of `from` that broadcasting puts there.
  static std::vector<int64_t> BroadcastOffsets(const Shape& from, const Shape& to) {
    std::vector<int64_t> offsets(to.num_elements(), 0);
    int64_t from_stride = 1;
    int64_t to_stride = 1;
    for (int i = to.rank() - 1; i >= 0; --i) {
      const int j = i - (to.rank() - from.rank());
      if (j >= 0 && from.dim(j) != 1) {
        for (size_t k = 0; k < offsets.size(); ++k) {
          offsets[k] += (static_cast<int64_t>(k) / to_stride % to.dim(i)) * from_stride;
        }
        from_stride *= from.dim(j);
      }
      to_stride *= to.dim(i);
    }
    return offsets;
  }

  absl::StatusOr<absl::string_view> Part(absl::string_view text, int64_t pos, int64_t len,
                                         int64_t index) const {
    const int64_t size = utf8_ ? CountCharacters(text) : static_cast<int64_t>(text.size());
    if (pos > size || pos < -size) {
      if (utf8_) return InvalidArgument("pos ", pos, " out of range for string at index ", index);
      return InvalidArgument("pos ", pos, " out of range for string b'", text, "' at index ",
                             index);
    }
    const int64_t begin = pos < 0 ? pos + size : pos;
    // A negative length means the rest.
    const int64_t count = len < 0 ? size - begin : std::min(len, size - begin);
    if (!utf8_) return text.substr(begin, count);
    const size_t from = ByteOf(text, begin);
    return text.substr(from, ByteOf(text.substr(from), count));
  }

  bool utf8_ = false;
};

absl::Status SubstrShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape pos, c.input(1).Merge(c.input(2)));
  if (!c.input(0).known_rank() || !pos.known_rank()) return UnknownShape(c);
  ASSIGN_OR_RETURN(PartialShape output, BroadcastShapes(c.input(0), pos));
  c.SetOutput(0, std::move(output));
  return absl::OkStatus();
}

class LengthKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(utf8_, UnitIsUtf8(s));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, input.shape()));
    for (int64_t i = 0; i < input.num_elements(); ++i) {
      const std::string& text = input.data<std::string>()[i];
      output->data<int32_t>()[i] =
          static_cast<int32_t>(utf8_ ? CountCharacters(text) : static_cast<int64_t>(text.size()));
    }
    return absl::OkStatus();
  }

 private:
  bool utf8_ = false;
};

absl::Status RunStrip(KernelContext& c) {
  const Tensor& input = c.input(0);
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, input.shape()));
  for (int64_t i = 0; i < input.num_elements(); ++i) {
    output->data<std::string>()[i] =
        std::string(absl::StripAsciiWhitespace(input.data<std::string>()[i]));
  }
  return absl::OkStatus();
}

// The case of letters beyond ASCII, one letter for one; sharp s, which has no capital of its own,
// and the sigma at the end of a word besides.
class LetterCases {
 public:
  explicit LetterCases(locale_t locale) : locale_(locale) {}

  // Null where the system has no table of letters.
  static const LetterCases* Find() {
    static const LetterCases cases(newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr));
    return cases.locale_ == nullptr ? nullptr : &cases;
  }

  std::string Convert(const Charset& utf8, absl::string_view text, bool upper) const {
    std::vector<int32_t> points;
    utf8.Decode(text, [&](DecodedChar next) { points.push_back(next.code_point); });
    std::string result;
    for (size_t i = 0; i < points.size(); ++i) {
      const auto letter = static_cast<wint_t>(points[i]);
      if (upper && points[i] == kSharpS) {
        result += "SS";
      } else if (!upper && points[i] == kSigma && IsLetter(points, i, -1) &&
                 !IsLetter(points, i, 1)) {
        AppendEncoded(OutputEncoding::kUtf8, kFinalSigma, result);
      } else {
        const wint_t converted = upper ? towupper_l(letter, locale_) : towlower_l(letter, locale_);
        AppendEncoded(OutputEncoding::kUtf8, static_cast<int64_t>(converted), result);
      }
    }
    return result;
  }

 private:
  static constexpr int32_t kSharpS = 0xDF;
  static constexpr int32_t kSigma = 0x3A3;
  static constexpr int32_t kFinalSigma = 0x3C2;

  bool IsLetter(const std::vector<int32_t>& points, size_t i, int step) const {
    const auto at = static_cast<int64_t>(i) + step;
    return at >= 0 && at < static_cast<int64_t>(points.size()) &&
           iswalpha_l(static_cast<wint_t>(points[at]), locale_) != 0;
  }

  const locale_t locale_;
};

template <bool kUpper>
class CaseKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(encoding_, s.Attr<std::string>("encoding"));
    if (encoding_.empty()) return absl::OkStatus();
    if (encoding_ != "utf-8") {
      return InvalidArgument("only utf-8 or '' (no encoding) is supported, received ", encoding_);
    }
    ASSIGN_OR_RETURN(utf8_, Charset::Find("UTF-8"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, input.shape()));
    for (int64_t i = 0; i < input.num_elements(); ++i) {
      const std::string& text = input.data<std::string>()[i];
      std::string& result = output->data<std::string>()[i];
      if (encoding_.empty() ||
          std::none_of(text.begin(), text.end(), [](char b) { return b & 0x80; })) {
        result = kUpper ? absl::AsciiStrToUpper(text) : absl::AsciiStrToLower(text);
        continue;
      }
      const LetterCases* const cases = LetterCases::Find();
      if (cases == nullptr) {
        return Unimplemented(c.node().op(), " knows the case of ASCII letters only on a system ",
                             "without the locale C.UTF-8; element ", i, " has others");
      }
      result = cases->Convert(*utf8_, text, kUpper);
    }
    return absl::OkStatus();
  }

 private:
  std::string encoding_;
  std::shared_ptr<const Charset> utf8_;
};

}  // namespace

DEFINE_OP(Substr) {
  op.Attr("T: {int32, int64}")
      .Attr("unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'")
      .Input("input: string")
      .Input("pos: T")
      .Input("len: T")
      .Output("output: string")
      .Doc(
          "len bytes or characters of every string from pos on; a negative pos counts from the "
          "end.")
      .Shape(SubstrShape)
      .Cpu(New<SubstrKernel>());
}

DEFINE_OP(StringLength) {
  op.Attr("unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'")
      .Input("input: string")
      .Output("output: int32")
      .Doc("The number of bytes or characters of every string.")
      .Shape(UnchangedShape)
      .Cpu(New<LengthKernel>());
}

DEFINE_OP(StringStrip) {
  op.Input("input: string")
      .Output("output: string")
      .Doc("Strings without white space at their ends.")
      .Shape(UnchangedShape)
      .Cpu(RunStrip);
}

DEFINE_OP(StringLower) {
  op.Attr("encoding: string = ''")
      .Input("input: string")
      .Output("output: string")
      .Doc("Strings in lower case.")
      .Shape(UnchangedShape)
      .Cpu(New<CaseKernel<false>>());
}

DEFINE_OP(StringUpper) {
  op.Attr("encoding: string = ''")
      .Input("input: string")
      .Output("output: string")
      .Doc("Strings in upper case.")
      .Shape(UnchangedShape)
      .Cpu(New<CaseKernel<true>>());
}

}  // namespace muster
