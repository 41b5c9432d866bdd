// Strings and numbers: StringToNumber, AsString.
#include <cstdio>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

#include "muster/ops/op.h"

namespace muster {
namespace {

bool Parse(const std::string& text, float& value) {
  char* end = nullptr;
  value = std::strtof(text.c_str(), &end);
  return !text.empty() && end == text.c_str() + text.size();
}
bool Parse(const std::string& text, double& value) {
  char* end = nullptr;
  value = std::strtod(text.c_str(), &end);
  return !text.empty() && end == text.c_str() + text.size();
}
template <typename T>
bool Parse(const std::string& text, T& value) {
  return absl::SimpleAtoi(text, &value);
}

template <typename T>
absl::Status RunToNumber(KernelContext& c) {
  const Tensor& input = c.input(0);
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, input.shape()));
  for (int64_t i = 0; i < input.num_elements(); ++i) {
    const std::string& text = input.data<std::string>()[i];
    if (!Parse(std::string(absl::StripAsciiWhitespace(text)), output->data<T>()[i])) {
      return InvalidArgument("StringToNumberOp could not correctly convert string: ", text);
    }
  }
  return absl::OkStatus();
}

// How AsString writes one number.
struct NumberFormat {
  std::string flag;  // "", " ", "+", "-", "0" or "#"
  int width = -1;
  int precision = -1;
  char floating = 'f';

  std::string Of(absl::string_view length, char kind) const {
    std::string format = absl::StrCat("%", flag);
    if (width > -1) absl::StrAppend(&format, width);
    if (precision > -1) absl::StrAppend(&format, ".", precision);
    absl::StrAppend(&format, length, std::string(1, kind));
    return format;
  }
  template <typename T>
  std::string Print(const std::string& format, T value) const {
    const int size = std::snprintf(nullptr, 0, format.c_str(), value);
    std::string text(size > 0 ? static_cast<size_t>(size) : 0, '\0');
    std::snprintf(text.data(), text.size() + 1, format.c_str(), value);
    return text;
  }
};

template <typename T>
std::string Text(const NumberFormat& format, const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    // A string may hold zero bytes, which a format would end at.
    const auto missing = static_cast<size_t>(std::max(format.width, 0));
    if (value.size() >= missing) return value;
    const std::string spaces(missing - value.size(), ' ');
    return format.flag == "-" ? value + spaces : spaces + value;
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>) {
    return Text(format, static_cast<float>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    return format.Print(format.Of("", format.floating), static_cast<double>(value));
  } else if constexpr (std::is_integral_v<T>) {
    if constexpr (std::is_signed_v<T>)
      return format.Print(format.Of("ll", 'd'), static_cast<long long>(value));
    return format.Print(format.Of("ll", 'u'), static_cast<unsigned long long>(value));
  } else {
    return absl::StrCat("(", Text(format, value.real()), ",", Text(format, value.imag()), ")");
  }
}

template <typename T>
class AsStringKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(const int64_t precision, s.Attr<int64_t>("precision"));
    ASSIGN_OR_RETURN(const int64_t width, s.Attr<int64_t>("width"));
    ASSIGN_OR_RETURN(const bool scientific, s.Attr<bool>("scientific"));
    ASSIGN_OR_RETURN(const bool shortest, s.Attr<bool>("shortest"));
    ASSIGN_OR_RETURN(format_.flag, s.Attr<std::string>("fill"));
    const DType dtype = kDTypeOf<T>;
    if (!IsFloating(dtype) && !IsComplex(dtype)) {
      if (scientific || shortest) {
        return InvalidArgument("scientific and shortest format not supported for datatype ",
                               DTypeName(dtype));
      }
      if (precision >= 0)
        return InvalidArgument("precision not supported for datatype ", DTypeName(dtype));
    }
    if (format_.flag.size() > 1)
      return InvalidArgument("Fill string must be one or fewer characters");
    if (scientific && shortest)
      return InvalidArgument("Cannot select both scientific and shortest notation");
    if (!format_.flag.empty() && std::string(" +-0#").find(format_.flag) == std::string::npos) {
      return InvalidArgument("Fill argument not supported: \"", format_.flag, "\"");
    }
    constexpr int64_t kLimit = 1 << 16;
    if (precision > kLimit || width > kLimit) {
      return InvalidArgument("width and precision must be at most ", kLimit, ", got ", width,
                             " and ", precision);
    }
    format_.precision = static_cast<int>(std::max<int64_t>(precision, -1));
    format_.width = static_cast<int>(std::max<int64_t>(width, -1));
    format_.floating = scientific ? 'e' : shortest ? 'g' : 'f';
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, input.shape()));
    for (int64_t i = 0; i < input.num_elements(); ++i) {
      output->data<std::string>()[i] = Text(format_, input.data<T>()[i]);
    }
    return absl::OkStatus();
  }

 private:
  NumberFormat format_;
};

using ParsedTypes = Types<float, double, int32_t, int64_t, uint32_t, uint64_t>;

}  // namespace

DEFINE_OP(StringToNumber) {
  op.Attr("out_type: {float, double, int32, int64, uint32, uint64} = DT_FLOAT")
      .Input("string_tensor: string")
      .Output("output: out_type")
      .Doc("The numbers that strings spell.")
      .Shape(UnchangedShape)
      .NoGradient("Strings have no gradient.")
      .CpuTypes<ParsedTypes>("out_type", []<typename T>() { return Stateless(RunToNumber<T>); });
}

DEFINE_OP(AsString) {
  op.Attr(
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, "
        "uint64, complex64, "
        "complex128, bool, variant, string}")
      .Attr("precision: int = -1")
      .Attr("scientific: bool = false")
      .Attr("shortest: bool = false")
      .Attr("width: int = -1")
      .Attr("fill: string = ''")
      .Input("input: T")
      .Output("output: string")
      .Doc("Numbers as text, formatted as by printf.")
      .Shape(UnchangedShape)
      .NoGradient("Strings have no gradient.")
      .CpuTypes<Join<Numbers, Types<bool, std::string>>>(
          "T", []<typename T>() { return New<AsStringKernel<T>>(); });
}

}  // namespace muster
