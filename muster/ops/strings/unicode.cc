// Texts as code points and in other encodings: UnicodeDecode, UnicodeDecodeWithOffsets,
// UnicodeEncode, UnicodeTranscode.
#include "muster/ops/op.h"
#include "muster/ops/strings/charset.h"

namespace muster {
namespace {

// What becomes of a character that cannot be read or written.
class ErrorPolicy {
 public:
  absl::Status Init(KernelSetup& setup) {
    ASSIGN_OR_RETURN(const std::string errors, setup.Attr<std::string>("errors"));
    strict_ = errors == "strict";
    ignore_ = errors == "ignore";
    ASSIGN_OR_RETURN(replacement_, setup.Attr<int64_t>("replacement_char"));
    if (replacement_ < 0 || replacement_ > kLastCodePoint) {
      return InvalidArgument("replacement_char out of unicode codepoint range");
    }
    return absl::OkStatus();
  }
  bool strict() const { return strict_; }
  bool ignore() const { return ignore_; }
  int64_t replacement() const { return replacement_; }

 private:
  bool strict_ = false;
  bool ignore_ = false;
  int64_t replacement_ = kReplacementCharacter;
};

// Reads texts by the attributes input_encoding, errors, replacement_char and
// replace_control_characters.
class TextReader {
 public:
  absl::Status Init(KernelSetup& setup) {
    RETURN_IF_ERROR(policy_.Init(setup));
    ASSIGN_OR_RETURN(controls_, setup.Attr<bool>("replace_control_characters"));
    ASSIGN_OR_RETURN(const std::string encoding, setup.Attr<std::string>("input_encoding"));
    ASSIGN_OR_RETURN(charset_, Charset::Find(encoding));
    return absl::OkStatus();
  }

  // Calls `got` with each code point and where it begins.
  absl::Status Read(absl::string_view text, absl::FunctionRef<void(int64_t, int64_t)> got) const {
    int64_t at = 0;
    bool failed = false;
    charset_->Decode(text, [&](DecodedChar next) {
      const bool replaced = next.bad || (controls_ && next.code_point <= 0x1F);
      if (replaced && policy_.strict()) failed = true;
      if (!replaced) {
        got(next.code_point, at);
      } else if (!policy_.ignore()) {
        got(policy_.replacement(), at);
      }
      at += next.bytes;
    });
    if (failed) return InvalidArgument("Invalid formatting on input string");
    return absl::OkStatus();
  }

 private:
  ErrorPolicy policy_;
  bool controls_ = false;
  std::shared_ptr<const Charset> charset_;
};

template <typename Split>
class UnicodeDecode : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override { return reader_.Init(setup); }

  absl::Status Compute(KernelContext& c) override {
    const absl::Span<const std::string> texts = c.input(0).values<std::string>();
    ASSIGN_OR_RETURN(Tensor* const splits,
                     c.AllocateOutput(0, Shape({static_cast<int64_t>(texts.size()) + 1})));
    std::vector<int32_t> points;
    std::vector<int64_t> starts;
    splits->data<Split>()[0] = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      RETURN_IF_ERROR(reader_.Read(texts[i], [&](int64_t point, int64_t at) {
        points.push_back(static_cast<int32_t>(point));
        starts.push_back(at);
      }));
      if (points.size() > static_cast<size_t>(std::numeric_limits<Split>::max())) {
        return InvalidArgument("row_splits cannot hold ", points.size(), " characters");
      }
      splits->data<Split>()[i + 1] = static_cast<Split>(points.size());
    }
    const Shape shape({static_cast<int64_t>(points.size())});
    ASSIGN_OR_RETURN(Tensor* const values, c.AllocateOutput(1, shape));
    std::copy(points.begin(), points.end(), values->data<int32_t>());
    if (c.num_outputs() < 3) return absl::OkStatus();
    ASSIGN_OR_RETURN(Tensor* const offsets, c.AllocateOutput(2, shape));
    std::copy(starts.begin(), starts.end(), offsets->data<int64_t>());
    return absl::OkStatus();
  }

 private:
  TextReader reader_;
};

class UnicodeTranscode : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(const std::string encoding, setup.Attr<std::string>("output_encoding"));
    ASSIGN_OR_RETURN(encoding_, FindOutputEncoding(encoding));
    return reader_.Init(setup);
  }

  absl::Status Compute(KernelContext& c) override {
    const absl::Span<const std::string> texts = c.input(0).values<std::string>();
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, c.input(0).shape()));
    for (size_t i = 0; i < texts.size(); ++i) {
      std::string text;
      RETURN_IF_ERROR(reader_.Read(
          texts[i], [&](int64_t point, int64_t /*at*/) { AppendEncoded(encoding_, point, text); }));
      output->data<std::string>()[i] = std::move(text);
    }
    return absl::OkStatus();
  }

 private:
  TextReader reader_;
  OutputEncoding encoding_ = OutputEncoding::kUtf8;
};

template <typename Split>
class UnicodeEncode : public Kernel {
 public:
  absl::Status Init(KernelSetup& setup) override {
    ASSIGN_OR_RETURN(const std::string encoding, setup.Attr<std::string>("output_encoding"));
    ASSIGN_OR_RETURN(encoding_, FindOutputEncoding(encoding));
    return policy_.Init(setup);
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& values = c.input(0);
    const Tensor& splits = c.input(1);
    RETURN_IF_ERROR(Check(values, splits));
    const int64_t count = splits.dim(0) - 1;
    const Split* const ends = splits.data<Split>() + 1;
    ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, Shape({count})));
    int64_t at = 0;
    for (int64_t i = 0; i < count; ++i) {
      std::string text;
      for (; at < ends[i]; ++at) {
        int64_t point = values.data<int32_t>()[at];
        if (point < 0 || point > kLastCodePoint || IsSurrogate(point)) {
          if (policy_.strict()) {
            return InvalidArgument("Code point is out of range for Unicode, or is a surrogate.");
          }
          if (policy_.ignore()) continue;
          point = policy_.replacement();
        }
        AppendEncoded(encoding_, point, text);
      }
      output->data<std::string>()[i] = std::move(text);
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status Check(const Tensor& values, const Tensor& splits) {
    if (values.rank() != 1 || splits.rank() != 1) {
      return InvalidArgument("Both the input_tensor and input_splits should be of rank 1.");
    }
    if (splits.num_elements() == 0) {
      return InvalidArgument(
          "Input_splits should contain elements, but given input_values has 0 elements");
    }
    const absl::Span<const Split> ends = splits.values<Split>();
    if (ends.front() != 0) return InvalidArgument("First value in input_splits must be zero.");
    if (ends.back() != values.num_elements()) {
      return InvalidArgument("Last value in input_splits must be equal to length of input_tensor.");
    }
    for (size_t i = 1; i < ends.size(); ++i) {
      if (ends[i] < ends[i - 1]) {
        return InvalidArgument("Values in input_splits must be equal or in ascending order.");
      }
    }
    return absl::OkStatus();
  }

  ErrorPolicy policy_;
  OutputEncoding encoding_ = OutputEncoding::kUtf8;
};

absl::Status DecodeShape(ShapeContext& c) {
  const PartialShape& input = c.input(0);
  int64_t count = input.known_rank() ? 1 : -1;
  for (int i = 0; input.known_rank() && i < input.rank(); ++i) {
    count = ShapeContext::MultiplyDims(count, input.dim(i));
  }
  c.SetOutput(0, PartialShape::Vector(ShapeContext::AddDims(count, 1)));
  for (int i = 1; i < c.num_outputs(); ++i) c.SetOutput(i, PartialShape::Vector(-1));
  return absl::OkStatus();
}

absl::Status EncodeShape(ShapeContext& c) {
  RETURN_IF_ERROR(c.WithRank(c.input(0), 1).status());
  ASSIGN_OR_RETURN(const PartialShape splits, c.WithRank(c.input(1), 1));
  c.SetOutput(0, PartialShape::Vector(splits.dim(0) > 0 ? splits.dim(0) - 1 : -1));
  return absl::OkStatus();
}

OpBuilder& DecodeArgs(OpBuilder& op) {
  return op.Attr("input_encoding: string")
      .Attr("errors: {'strict', 'replace', 'ignore'} = 'replace'")
      .Attr("replacement_char: int = 65533")
      .Attr("replace_control_characters: bool = false")
      .Attr("Tsplits: {int32, int64} = DT_INT64")
      .Input("input: string")
      .Output("row_splits: Tsplits")
      .Output("char_values: int32");
}

}  // namespace

DEFINE_OP(UnicodeDecode) {
  DecodeArgs(op)
      .Doc("The code points of texts, as the values and row splits of a ragged matrix.")
      .Shape(DecodeShape)
      .CpuTypes<Indices>("Tsplits", []<typename S>() { return New<UnicodeDecode<S>>(); });
}

DEFINE_OP(UnicodeDecodeWithOffsets) {
  DecodeArgs(op)
      .Output("char_to_byte_starts: int64")
      .Doc("UnicodeDecode, and at which byte of its text each character begins.")
      .Shape(DecodeShape)
      .CpuTypes<Indices>("Tsplits", []<typename S>() { return New<UnicodeDecode<S>>(); });
}

DEFINE_OP(UnicodeEncode) {
  op.Attr("errors: {'ignore', 'replace', 'strict'} = 'replace'")
      .Attr("output_encoding: {'UTF-8', 'UTF-16-BE', 'UTF-32-BE'}")
      .Attr("replacement_char: int = 65533")
      .Attr("Tsplits: {int32, int64} = DT_INT64")
      .Input("input_values: int32")
      .Input("input_splits: Tsplits")
      .Output("output: string")
      .Doc("Texts of the code points in the rows of a ragged matrix.")
      .Shape(EncodeShape)
      .CpuTypes<Indices>("Tsplits", []<typename S>() { return New<UnicodeEncode<S>>(); });
}

DEFINE_OP(UnicodeTranscode) {
  op.Attr("input_encoding: string")
      .Attr("output_encoding: {'UTF-8', 'UTF-16-BE', 'UTF-32-BE'}")
      .Attr("errors: {'strict', 'replace', 'ignore'} = 'replace'")
      .Attr("replacement_char: int = 65533")
      .Attr("replace_control_characters: bool = false")
      .Input("input: string")
      .Output("output: string")
      .Doc("Texts in another encoding.")
      .Shape(UnchangedShape)
      .Cpu(New<UnicodeTranscode>());
}

}  // namespace muster
