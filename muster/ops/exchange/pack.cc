// Many small tensors that go to another task in one (muster/graph/place/pack_reads.cc).
//
// For each tensor the number of its dimensions and their sizes, eight bytes each; after all of
// these the elements, each tensor's at a multiple of the alignment of buffers.
#include <cstring>

#include "muster/ops/op.h"

namespace muster {
namespace {

size_t Aligned(size_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

// Bools would have to be validated byte by byte.
absl::Status CheckType(DType dtype) {
  if (IsPlainData(dtype) && dtype != DType::kBool) return absl::OkStatus();
  return Unimplemented("Tensors of type ", DTypeName(dtype), " cannot be packed");
}

// Names the node that would have read the variable, as users know it.
absl::Status Uninitialized(const KernelContext& c, int i) {
  ASSIGN_OR_RETURN(const auto reads, c.node().Attr<std::vector<std::string>>("reads"));
  const size_t at = static_cast<size_t>(i);
  return FailedPrecondition("Attempting to use uninitialized value ",
                            c.node().input(i).node->name(), "\n\t [[{{node ",
                            at < reads.size() ? reads[at] : "", "}}]]");
}

absl::Status Pack(KernelContext& c) {
  size_t numbers = 0;
  size_t total = 0;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const Tensor& value = c.input(i);
    if (!value.valid()) return Uninitialized(c, i);
    RETURN_IF_ERROR(CheckType(value.dtype()));
    numbers += 1 + static_cast<size_t>(value.rank());
    total += Aligned(value.size_bytes());
  }
  size_t at = Aligned(numbers * sizeof(int64_t));
  ASSIGN_OR_RETURN(Tensor * packed, c.AllocateOutput(0, Shape({static_cast<int64_t>(at + total)})));
  char* const to = packed->raw();
  auto* number = reinterpret_cast<int64_t*>(to);
  for (int i = 0; i < c.num_inputs(); ++i) {
    const Tensor& value = c.input(i);
    *number++ = value.rank();
    for (const int64_t size : value.shape().dims()) *number++ = size;
    if (value.size_bytes() > 0) std::memcpy(to + at, value.raw(), value.size_bytes());
    at += Aligned(value.size_bytes());
  }
  return absl::OkStatus();
}

// The outputs share the memory of the received tensor or, on another device, of one copy.
absl::Status Unpack(KernelContext& c) {
  const Tensor& packed = c.input(0);
  const size_t length = packed.size_bytes();
  const auto too_short = [&] {
    return InvalidArgument(length, " bytes are too few for ", c.num_outputs(), " packed tensors");
  };
  size_t next_number = 0;
  const auto take = [&](int64_t& number) {
    if (next_number + sizeof(int64_t) > length) return false;
    std::memcpy(&number, packed.raw() + next_number, sizeof(int64_t));
    next_number += sizeof(int64_t);
    return true;
  };
  std::vector<Shape> shapes;
  shapes.reserve(static_cast<size_t>(c.num_outputs()));
  for (int i = 0; i < c.num_outputs(); ++i) {
    RETURN_IF_ERROR(CheckType(c.output_type(i)));
    int64_t rank;
    if (!take(rank)) return too_short();
    if (rank < 0 || rank > Shape::kMaxRank)
      return InvalidArgument("Packed tensor ", i, " has ", rank, " dimensions");
    Dims dims;
    for (int64_t k = 0; k < rank; ++k) {
      int64_t size;
      if (!take(size)) return too_short();
      dims.push_back(size);
    }
    ASSIGN_OR_RETURN(shapes.emplace_back(), Shape::Make(dims));
  }
  ASSIGN_OR_RETURN(const Tensor elements, c.device().CopyFromHost(packed));
  size_t at = Aligned(next_number);
  for (int i = 0; i < c.num_outputs(); ++i) {
    const DType dtype = c.output_type(i);
    const std::optional<int64_t> bytes =
        MultiplyWithoutOverflow(shapes[i].num_elements(), static_cast<int64_t>(DTypeSize(dtype)));
    if (!bytes || at > length || static_cast<size_t>(*bytes) > length - at) return too_short();
    const auto size_bytes = static_cast<size_t>(*bytes);
    ASSIGN_OR_RETURN(Tensor value, Tensor::FromBuffer(dtype, std::move(shapes[i]),
                                                      elements.buffer().Slice(at, size_bytes)));
    c.SetOutput(i, std::move(value));
    at += Aligned(size_bytes);
  }
  return absl::OkStatus();
}

}  // namespace

DEFINE_OP(_MusterPack) {
  op.Attr("T: list(type) >= 1")
      .Attr("reads: list(string) = []")
      .Input("values: T")
      .Output("packed: uint8")
      .AllowsUninitializedInput()
      .Doc("Several tensors as one; `reads` are the names of the nodes that they come from.")
      .NoGradient("stands between two tasks of a step")
      .Shape(UnknownShape)
      .Cpu(Pack);
}

DEFINE_OP(_MusterUnpack) {
  op.Attr("T: list(type) >= 1")
      .Input("packed: uint8")
      .Output("values: T")
      .Doc("The tensors that _MusterPack has made one.")
      .NoGradient("stands between two tasks of a step")
      .Shape(UnknownShape)
      .HostMemory({"packed"})
      .Cpu(Unpack)
      .Gpu(Unpack);
}

}  // namespace muster
