#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "muster/ops/indexing/gpu_mover.h"
#include "muster/ops/indexing/moving.h"

namespace muster {
namespace {

constexpr char kFile[] = "indexing/embed.cu";
// The function counts elements in 32 bits.
constexpr int64_t kMostElements = int64_t{1} << 30;

// --- The structs of embed.cu
struct Axis {
  QuickDivider size, step;
  int32_t first;
  uint32_t count;
  bool is_backwards;
  int64_t from_stride;
};
constexpr int kMostAxes = 8;
struct Embedding {
  const void* from;
  void* to;
  uint32_t count;
  int rank;
  Word16 around;
  Axis axes[kMostAxes];
};

bool IsWhole(const EmbeddedAxis& axis) {
  return axis.first == 0 && axis.step == 1 && axis.count == axis.size;
}

// Axes that are whole become part of those before them.
std::vector<EmbeddedAxis> Merged(absl::Span<const EmbeddedAxis> axes) {
  std::vector<EmbeddedAxis> merged;
  for (EmbeddedAxis axis : axes) {
    if (axis.count == 1) axis.step = 1;
    if (merged.empty() || !IsWhole(axis) || merged.back().step != 1) {
      merged.push_back(axis);
    } else {
      merged.back().size *= axis.size;
      merged.back().first *= axis.size;
      merged.back().count *= axis.size;
    }
  }
  return merged;
}

// Neighbours become one element of 16 bytes, where sizes and addresses allow it.
bool WidenLast(std::vector<EmbeddedAxis>& axes, size_t element_bytes, const void* from,
               const void* to) {
  const auto ratio = static_cast<int64_t>(sizeof(Word16) / element_bytes);
  if (axes.empty() || ratio == 1) return false;
  EmbeddedAxis& last = axes.back();
  if (last.step != 1 || last.size % ratio != 0 || last.first % ratio != 0 ||
      last.count % ratio != 0 || !RowsAreWide(from, to, 0))
    return false;
  last.size /= ratio;
  last.first /= ratio;
  last.count /= ratio;
  return true;
}

}  // namespace

GpuEmbedder::GpuEmbedder(GpuKernel& kernel, DType dtype)
    : GpuMover(kernel, dtype),
      embed_{{{kernel, kFile, absl::StrCat("Embed<", GpuWordName(DTypeSize(dtype)), ">")},
              {kernel, kFile, absl::StrCat("Embed<", GpuWordName(sizeof(Word16)), ">")}}} {}

absl::Status GpuEmbedder::Embed(const KernelContext& c, absl::Span<const EmbeddedAxis> axes,
                                const Tensor* value, const Tensor& from, Tensor& to) const {
  std::vector<EmbeddedAxis> merged = Merged(axes);
  if (merged.size() > kMostAxes || to.num_elements() > kMostElements || from.num_elements() == 0 ||
      (value != nullptr && IsInDeviceMemory(*value)))
    return GpuMover::Embed(c, axes, value, from, to);
  const size_t element_bytes = DTypeSize(to.dtype());
  const bool wide = WidenLast(merged, element_bytes, from.raw(), to.raw());
  Embedding embedding{};
  embedding.from = from.raw();
  embedding.to = to.raw();
  embedding.count = 1;
  embedding.rank = static_cast<int>(merged.size());
  if (value != nullptr) {
    for (size_t at = 0; at < sizeof(Word16); at += element_bytes)
      std::memcpy(reinterpret_cast<char*>(&embedding.around) + at, value->raw(), element_bytes);
  }
  int64_t from_stride = 1;
  for (int i = embedding.rank - 1; i >= 0; --i) {
    const EmbeddedAxis& axis = merged[i];
    embedding.axes[i] = {QuickDivider(axis.size),
                         QuickDivider(std::abs(axis.step)),
                         static_cast<int32_t>(axis.first),
                         static_cast<uint32_t>(axis.count),
                         axis.step < 0,
                         from_stride};
    embedding.count *= static_cast<uint32_t>(axis.size);
    from_stride *= axis.count;
  }
  return embed_[wide].LaunchForEach(embedding.count, embedding);
}

}  // namespace muster
