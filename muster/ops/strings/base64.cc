// The web-safe base64 of strings: EncodeBase64, DecodeBase64.
#include <array>

#include "muster/ops/op.h"

namespace muster {
namespace {

constexpr absl::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

constexpr std::array<int8_t, 256> MakeValues() {
  std::array<int8_t, 256> values{};
  for (int8_t& value : values) value = -1;
  for (int i = 0; i < 64; ++i)
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
  return values;
}
constexpr std::array<int8_t, 256> kValues = MakeValues();

std::string Encode(absl::string_view text, bool pad) {
  std::string result;
  result.reserve((text.size() + 2) / 3 * 4);
  for (size_t i = 0; i < text.size(); i += 3) {
    const size_t bytes = std::min<size_t>(3, text.size() - i);
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j)
      bits = (bits << 8) | (j < bytes ? static_cast<unsigned char>(text[i + j]) : 0);
    for (size_t j = 0; j <= bytes; ++j) result.push_back(kDigits[(bits >> (18 - 6 * j)) & 63]);
    if (pad) result.append(3 - bytes, '=');
  }
  return result;
}

absl::StatusOr<std::string> Decode(absl::string_view text) {
  // Padding only completes a group of four.
  if (text.size() % 4 == 0) {
    for (int i = 0; i < 2 && !text.empty() && text.back() == '='; ++i) text.remove_suffix(1);
  }
  if (text.size() % 4 == 1) {
    for (char c : text) {
      if (kValues[static_cast<unsigned char>(c)] < 0)
        return InvalidArgument("Invalid character found in base64.");
    }
    return InvalidArgument("Base64 string length cannot be 1 modulo 4.");
  }
  std::string result;
  result.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int count = 0;
  for (char c : text) {
    const int8_t value = kValues[static_cast<unsigned char>(c)];
    if (value < 0) return InvalidArgument("Invalid character found in base64.");
    bits = (bits << 6) | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      result.push_back(static_cast<char>((bits >> count) & 0xFF));
    }
  }
  return result;
}

class EncodeKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(pad_, s.Attr<bool>("pad"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, input.shape()));
    for (int64_t i = 0; i < input.num_elements(); ++i) {
      output->data<std::string>()[i] = Encode(input.data<std::string>()[i], pad_);
    }
    return absl::OkStatus();
  }

 private:
  bool pad_ = false;
};

absl::Status RunDecode(KernelContext& c) {
  const Tensor& input = c.input(0);
  ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, input.shape()));
  for (int64_t i = 0; i < input.num_elements(); ++i) {
    ASSIGN_OR_RETURN(output->data<std::string>()[i], Decode(input.data<std::string>()[i]));
  }
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(EncodeBase64) {
  op.Attr("pad: bool = false")
      .Input("input: string")
      .Output("output: string")
      .Doc("Strings in web-safe base64.")
      .Shape(UnchangedShape)
      .NoGradient("Strings have no gradient.")
      .Cpu(New<EncodeKernel>());
}

DEFINE_OP(DecodeBase64) {
  op.Input("input: string")
      .Output("output: string")
      .Doc("Strings out of web-safe base64, padded or not.")
      .Shape(UnchangedShape)
      .NoGradient("Strings have no gradient.")
      .Cpu(RunDecode);
}

}  // namespace muster
