// Fingerprint: eight bytes for every row of a tensor.
#include <algorithm>

#include "muster/ops/op.h"
#include "muster/ops/strings/hash.h"

namespace muster {
namespace {

void PutLittleEndian(uint64_t value, uint8_t* to) {
  for (int i = 0; i < 8; ++i) to[i] = static_cast<uint8_t>(value >> (8 * i));
}

absl::Status Run(KernelContext& c) {
  const Tensor& method = c.input(1);
  if (method.rank() != 0) {
    return InvalidArgument("`method` should be a scalar string: ", method.shape().ToString());
  }
  if (method.scalar<std::string>() != "farmhash64") {
    return InvalidArgument("Unsupported fingerprint method: ", method.scalar<std::string>());
  }
  const Tensor& data = c.input(0);
  if (data.rank() < 1) {
    return InvalidArgument("`data` should have at least one dimension: ", data.shape().ToString());
  }
  const bool strings = data.dtype() == DType::kString;
  const std::vector<DType> plain = PlainDTypes();
  if (!strings && std::find(plain.begin(), plain.end(), data.dtype()) == plain.end()) {
    return InvalidArgument("Fingerprints of type ", DTypeName(data.dtype()), " do not exist");
  }
  ASSIGN_OR_RETURN(const Shape shape, Shape::Make({data.dim(0), 8}));
  ASSIGN_OR_RETURN(Tensor* const output, c.AllocateOutput(0, shape));
  const int64_t width = data.shape().ElementsIn(1, data.rank());
  const auto bytes = static_cast<size_t>(width) * DTypeSize(data.dtype());
  std::string hashes;  // of the strings of a row
  for (int64_t row = 0; row < data.dim(0); ++row) {
    uint64_t value = 0;
    if (!strings) {
      const char* const from = data.raw() == nullptr ? "" : data.raw() + row * bytes;
      value = Fingerprint64(absl::string_view(from, bytes));
    } else if (width == 1) {
      value = Fingerprint64(data.data<std::string>()[row]);
    } else {
      hashes.assign(static_cast<size_t>(width) * 8, '\0');
      for (int64_t i = 0; i < width; ++i) {
        PutLittleEndian(Fingerprint64(data.data<std::string>()[row * width + i]),
                        reinterpret_cast<uint8_t*>(hashes.data()) + i * 8);
      }
      value = Fingerprint64(hashes);
    }
    PutLittleEndian(value, output->data<uint8_t>() + row * 8);
  }
  return absl::OkStatus();
}

absl::Status FingerprintShape(ShapeContext& c) {
  ASSIGN_OR_RETURN(const PartialShape data, c.WithRankAtLeast(c.input(0), 1));
  RETURN_IF_ERROR(c.WithRank(c.input(1), 0).status());
  c.SetOutput(0, PartialShape::Matrix(data.known_rank() ? data.dim(0) : -1, 8));
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(Fingerprint) {
  op.Attr("T: type")
      .Input("data: T")
      .Input("method: string")
      .Output("fingerprint: uint8")
      .Doc("A fingerprint of eight bytes for every row.")
      .Shape(FingerprintShape)
      .Cpu(Run);
}

}  // namespace muster
