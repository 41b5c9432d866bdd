// The bytes of strings as numbers: DecodeRaw.
#include <algorithm>
#include <cstring>

#include "muster/ops/op.h"

namespace muster {
namespace {

class DecodeRawKernel : public Kernel {
 public:
  absl::Status Init(KernelSetup& s) override {
    ASSIGN_OR_RETURN(dtype_, s.Attr<DType>("out_type"));
    ASSIGN_OR_RETURN(little_endian_, s.Attr<bool>("little_endian"));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    const absl::Span<const std::string> texts = input.values<std::string>();
    const size_t size = texts.empty() ? 0 : texts[0].size();
    for (size_t i = 1; i < texts.size(); ++i) {
      if (texts[i].size() != size) {
        return InvalidArgument(
            "DecodeRaw requires input strings to all be the same size, but element ", i,
            " has size ", size, " != ", texts[i].size());
      }
    }
    const size_t element = DTypeSize(dtype_);
    if (size % element != 0) {
      return InvalidArgument("Input to DecodeRaw has length ", size, " that is not a multiple of ",
                             element, ", the size of ", DTypeName(dtype_));
    }
    Dims dims(input.shape().dims());
    dims.push_back(static_cast<int64_t>(size / element));
    ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, shape));
    char* to = output->raw();
    for (const std::string& text : texts) {
      if (size > 0) std::memcpy(to, text.data(), size);
      to += size;
    }
    if (!little_endian_) SwapBytes(output->raw(), output->size_bytes());
    if (dtype_ == DType::kBool) {
      // Any byte other than 0 and 1 is not a valid bool.
      char* bytes = output->raw();
      for (size_t i = 0; i < output->size_bytes(); ++i) bytes[i] = bytes[i] != 0;
    }
    return absl::OkStatus();
  }

 private:
  void SwapBytes(char* data, size_t bytes) const {
    // A complex number is two numbers.
    const size_t element = IsComplex(dtype_) ? DTypeSize(dtype_) / 2 : DTypeSize(dtype_);
    if (element == 1) return;
    for (size_t i = 0; i < bytes; i += element) std::reverse(data + i, data + i + element);
  }

  DType dtype_ = DType::kInvalid;
  bool little_endian_ = true;
};

absl::Status DecodeRawShape(ShapeContext& c) {
  c.SetOutput(0, ShapeContext::Concatenate(c.input(0), PartialShape::Vector(-1)));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(DecodeRaw) {
  op.Attr(
        "out_type: {half, float, double, int32, uint16, uint8, int16, int8, int64, complex64, "
        "complex128, bool, "
        "bfloat16}")
      .Attr("little_endian: bool = true")
      .Input("bytes: string")
      .Output("output: out_type")
      .Doc("The bytes of strings of one length, read as numbers.")
      .Shape(DecodeRawShape)
      .NoGradient("Strings have no gradient.")
      .Cpu(New<DecodeRawKernel>());
}

}  // namespace muster
