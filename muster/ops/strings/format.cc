// Tensors written into a text: StringFormat.
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

#include "muster/ops/op.h"

namespace muster {
namespace {

// Special characters as C writes them; bytes beyond ASCII stay.
std::string Escape(absl::string_view text) {
  std::string result;
  for (char c : text) {
    switch (c) {
      case '\n':
        result += "\\n";
        break;
      case '\r':
        result += "\\r";
        break;
      case '\t':
        result += "\\t";
        break;
      case '"':
        result += "\\\"";
        break;
      case '\'':
        result += "\\'";
        break;
      case '\\':
        result += "\\\\";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
          absl::StrAppendFormat(&result, "\\%03o", static_cast<unsigned char>(c));
        } else {
          result.push_back(c);
        }
    }
  }
  return result;
}

// The fewest digits, six or as many as it takes, that give the number back.
template <typename T>
std::string Shortest(T value, int few, int enough) {
  std::string text = absl::StrFormat("%.*g", few, value);
  T back = 0;
  if constexpr (std::is_same_v<T, float>) {
    if (!absl::SimpleAtof(text, &back)) return text;
  } else {
    if (!absl::SimpleAtod(text, &back)) return text;
  }
  return back == value || value != value ? text : absl::StrFormat("%.*g", enough, value);
}

template <typename T>
std::string Text(const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return absl::StrCat("\"", Escape(value), "\"");
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "1" : "0";
  } else if constexpr (std::is_same_v<T, float>) {
    return Shortest(value, 6, 9);
  } else if constexpr (std::is_same_v<T, double>) {
    return Shortest(value, 15, 17);
  } else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>) {
    return Text(static_cast<float>(value));
  } else if constexpr (std::is_integral_v<T>) {
    return absl::StrCat(+value);
  } else {
    return absl::StrCat("(", Text(value.real()), ",", Text(value.imag()), ")");
  }
}

// Nested brackets with at most `ends` entries at both ends of every axis.
template <typename T>
class Writer {
 public:
  Writer(const Tensor& tensor, int64_t ends) : tensor_(tensor), ends_(ends) {}

  std::string Write() {
    WriteAxis(0, 0);
    return std::move(text_);
  }

 private:
  void WriteAxis(int axis, int64_t at) {
    if (axis == tensor_.rank()) {
      text_ += Text(tensor_.data<T>()[at]);
      return;
    }
    const int64_t count = tensor_.dim(axis);
    const int64_t stride = tensor_.shape().ElementsIn(axis + 1, tensor_.rank());
    text_ += "[";
    for (int64_t i = 0; i < std::min(ends_, count); ++i) {
      if (i > 0) Space(axis);
      WriteAxis(axis + 1, at + i * stride);
    }
    if (ends_ < count - ends_) {
      Space(axis);
      text_ += "...";
    }
    for (int64_t i = std::max(ends_, count - ends_); i < count; ++i) {
      Space(axis);
      WriteAxis(axis + 1, at + i * stride);
    }
    text_ += "]";
  }

  void Space(int axis) {
    if (axis == tensor_.rank() - 1) {
      text_ += " ";
      return;
    }
    text_.append(tensor_.rank() - 1 - axis, '\n');
    text_.append(axis + 1, ' ');
  }

  const Tensor& tensor_;
  const int64_t ends_;
  std::string text_;
};

absl::StatusOr<std::string> Format(const Tensor& tensor, int64_t ends) {
  switch (tensor.dtype()) {
    case DType::kFloat:
      return Writer<float>(tensor, ends).Write();
    case DType::kDouble:
      return Writer<double>(tensor, ends).Write();
    case DType::kHalf:
      return Writer<Half>(tensor, ends).Write();
    case DType::kBfloat16:
      return Writer<Bfloat16>(tensor, ends).Write();
    case DType::kInt8:
      return Writer<int8_t>(tensor, ends).Write();
    case DType::kInt16:
      return Writer<int16_t>(tensor, ends).Write();
    case DType::kInt32:
      return Writer<int32_t>(tensor, ends).Write();
    case DType::kInt64:
      return Writer<int64_t>(tensor, ends).Write();
    case DType::kUint8:
      return Writer<uint8_t>(tensor, ends).Write();
    case DType::kUint16:
      return Writer<uint16_t>(tensor, ends).Write();
    case DType::kUint32:
      return Writer<uint32_t>(tensor, ends).Write();
    case DType::kUint64:
      return Writer<uint64_t>(tensor, ends).Write();
    case DType::kBool:
      return Writer<bool>(tensor, ends).Write();
    case DType::kString:
      return Writer<std::string>(tensor, ends).Write();
    case DType::kComplex64:
      return Writer<Complex64>(tensor, ends).Write();
    case DType::kComplex128:
      return Writer<Complex128>(tensor, ends).Write();
    default:
      return Unimplemented("StringFormat does not write values of type ",
                           DTypeName(tensor.dtype()));
  }
}

// The pieces of the template between placeholders.
std::vector<std::string> Pieces(const std::string& text, const std::string& placeholder) {
  if (placeholder.empty()) return {text};
  return absl::StrSplit(text, placeholder);
}

absl::Status CheckPlaceholders(size_t pieces, size_t inputs) {
  if (pieces - 1 == inputs) return absl::OkStatus();
  return InvalidArgument("num placeholders in template and num inputs must match: ", pieces - 1,
                         " vs. ", inputs);
}

class FormatKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(const std::string text, s.Attr<std::string>("template"));
    ASSIGN_OR_RETURN(const std::string placeholder, s.Attr<std::string>("placeholder"));
    ASSIGN_OR_RETURN(const int64_t summarize, s.Attr<int64_t>("summarize"));
    ends_ = summarize < 0 ? std::numeric_limits<int64_t>::max() : summarize;
    pieces_ = Pieces(text, placeholder);
    return CheckPlaceholders(pieces_.size(), s.node().num_inputs());
  }

  absl::Status Compute(KernelContext& c) override {
    std::string text = pieces_[0];
    for (int i = 0; i < c.num_inputs(); ++i) {
      ASSIGN_OR_RETURN(const std::string value, Format(c.input(i), ends_));
      absl::StrAppend(&text, value, pieces_[i + 1]);
    }
    c.SetOutput(0, Tensor::Scalar<std::string>(std::move(text)));
    return absl::OkStatus();
  }

 private:
  std::vector<std::string> pieces_;
  int64_t ends_ = 3;
};

absl::Status FormatShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const std::string text, c.Attr<std::string>("template"));
  ASSIGN_OR_RETURN(const std::string placeholder, c.Attr<std::string>("placeholder"));
  RETURN_IF_ERROR(CheckPlaceholders(Pieces(text, placeholder).size(), c.num_inputs()));
  return ScalarShape(c);
}

}  // namespace

DEFINE_OP(StringFormat) {
  op.Attr("T: list(type) >= 0")
      .Attr("template: string = '%s'")
      .Attr("placeholder: string = '%s'")
      .Attr("summarize: int = 3")
      .Input("inputs: T")
      .Output("output: string")
      .Doc("The template with each placeholder replaced by the values of a tensor.")
      .Shape(FormatShape)
      .Cpu(New<FormatKernel>());
}

}  // namespace muster
