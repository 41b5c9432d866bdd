#include "muster/ops/control/rows.h"

#include "muster/device/gpu/gpu.h"

namespace muster {
namespace {

BoxCopy Dense(const char* from, char* to, int64_t count) {
  BoxCopy copy{{}, from, to};
  copy.box.Add(count, 1, 1);
  return copy;
}

bool AreAligned(absl::Span<const Shape> shapes, size_t element_bytes) {
  for (const Shape& shape : shapes) {
    if (static_cast<size_t>(shape.num_elements()) * element_bytes % kBufferAlignment != 0)
      return false;
  }
  return true;
}

// A part that shares the memory of `from`.
Tensor PartOf(const Tensor& from, int64_t begin, const Shape& shape) {
  const Tensor flat = from.Reshaped(Shape({from.num_elements()}));
  return flat.Rows(begin, begin + shape.num_elements()).Reshaped(shape);
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> CutRows(KernelContext& c, const Mover& mover,
                                            const Tensor& from, absl::Span<const Shape> shapes) {
  const size_t element_bytes = DTypeSize(from.dtype());
  const bool on_card = IsInDeviceMemory(from);
  const bool shares = on_card && AreAligned(shapes, element_bytes);
  std::vector<Tensor> parts;
  parts.reserve(shapes.size());
  std::vector<BoxCopy> copies;
  int64_t begin = 0;
  for (const Shape& shape : shapes) {
    const int64_t count = shape.num_elements();
    const char* const at = from.raw() + static_cast<size_t>(begin) * element_bytes;
    if (shares && count > 0) {
      parts.push_back(PartOf(from, begin, shape));
    } else {
      ASSIGN_OR_RETURN(parts.emplace_back(), c.AllocateTemporary(from.dtype(), shape));
      if (count > 0 && on_card) copies.push_back(Dense(at, parts.back().raw(), count));
      if (count > 0 && !on_card) CopyElements(from.dtype(), at, parts.back().raw(), count);
    }
    begin += count;
  }
  if (!copies.empty()) RETURN_IF_ERROR(mover.Copy(c, from.dtype(), std::move(copies)));
  return parts;
}

absl::Status JoinRows(KernelContext& c, const Mover& mover, absl::Span<const Tensor> parts,
                      absl::Span<const int64_t> counts, Tensor& to) {
  const bool on_card = IsInDeviceMemory(to);
  std::vector<BoxCopy> copies;
  char* at = to.raw();
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t bytes = static_cast<size_t>(counts[i]) * DTypeSize(to.dtype());
    if (counts[i] == 0) continue;
    if (parts[i].valid() && IsInDeviceMemory(parts[i]) != on_card)
      return Internal("element ", i, " is not in the memory of ", c.device().name());
    if (!parts[i].valid()) {
      if (on_card)
        RETURN_IF_ERROR(c.device().gpu()->Fill(at, 0, bytes));
      else
        ZeroElements(to.dtype(), at, counts[i]);
    } else if (on_card) {
      copies.push_back(Dense(parts[i].raw(), at, counts[i]));
    } else {
      CopyElements(to.dtype(), parts[i].raw(), at, counts[i]);
    }
    at += bytes;
  }
  return copies.empty() ? absl::OkStatus() : mover.Copy(c, to.dtype(), std::move(copies));
}

}  // namespace muster
