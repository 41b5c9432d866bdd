// Parts and properties of strings: Substr, StringLength, StringStrip, StringLower, StringUpper.
#include "absl/strings/ascii.h"

#include "muster/ops/op.h"

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

template <bool kUpper>
class CaseKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(encoding_, s.Attr<std::string>("encoding"));
    if (encoding_.empty() || encoding_ == "utf-8") return absl::OkStatus();
    return InvalidArgument("only utf-8 or '' (no encoding) is supported, received ", encoding_);
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, input.shape()));
    for (int64_t i = 0; i < input.num_elements(); ++i) {
      const std::string& text = input.data<std::string>()[i];
      if (!encoding_.empty() &&
          std::any_of(text.begin(), text.end(), [](char b) { return b & 0x80; })) {
        return Unimplemented(c.node().op(), " knows the case of ASCII letters only, element ", i,
                             " has others");
      }
      output->data<std::string>()[i] =
          kUpper ? absl::AsciiStrToUpper(text) : absl::AsciiStrToLower(text);
    }
    return absl::OkStatus();
  }

 private:
  std::string encoding_;
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
