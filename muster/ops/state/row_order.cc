#include "muster/ops/state/row_order.h"

#include <bit>
#include <limits>

#include "absl/strings/str_cat.h"

namespace muster {
namespace {

constexpr char kOrderFile[] = "state/row_order.cu";

// --- As in row_order.cu
constexpr unsigned kOrderThreads = 256;
constexpr int64_t kTile = 2048;
constexpr int kMostDigitBits = 9;
struct SortPass {
  int64_t count;
  int64_t num_rows;
  int64_t tiles;
  int32_t shift, bits;
};

std::string WithIndex(const char* function, const char* index) {
  return absl::StrCat(function, "<", index, ">");
}

}  // namespace

GpuRowOrder::GpuRowOrder(GpuKernel& kernel, DType index)
    : count_first_(kernel, kOrderFile, WithIndex("CountDigits", GpuTypeName(index))),
      count_(kernel, kOrderFile, WithIndex("CountDigits", "uint32")),
      sum_(kernel, kOrderFile, "SumDigits"),
      move_first_(kernel, kOrderFile, WithIndex("MoveKeys", GpuTypeName(index))),
      move_(kernel, kOrderFile, WithIndex("MoveKeys", "uint32")) {}

absl::StatusOr<GpuRowOrder::Order> GpuRowOrder::Sort(KernelContext& c, const Tensor& indices,
                                                     int64_t num_rows) const {
  const int64_t count = indices.num_elements();
  if (num_rows >= std::numeric_limits<uint32_t>::max() ||
      count > std::numeric_limits<int32_t>::max()) {
    return Unimplemented("Changes of single rows on a GPU: ", count, " of ", num_rows,
                         " rows are too many");
  }
  const int bits = std::max(static_cast<int>(std::bit_width(static_cast<uint64_t>(num_rows))), 1);
  const int passes = (bits + kMostDigitBits - 1) / kMostDigitBits;
  const int digit_bits = (bits + passes - 1) / passes;
  const int64_t tiles = (count + kTile - 1) / kTile;
  const int64_t digits = int64_t{1} << digit_bits;
  ASSIGN_OR_RETURN(Tensor counts, c.AllocateTemporary(DType::kUint32, Shape({digits, tiles})));
  ASSIGN_OR_RETURN(Tensor totals, c.AllocateTemporary(DType::kUint32, Shape({digits})));
  Order from, to;
  ASSIGN_OR_RETURN(to.rows, c.AllocateTemporary(DType::kUint32, Shape({count})));
  ASSIGN_OR_RETURN(to.positions, c.AllocateTemporary(DType::kUint32, Shape({count})));
  if (passes > 1) {
    ASSIGN_OR_RETURN(from.rows, c.AllocateTemporary(DType::kUint32, Shape({count})));
    ASSIGN_OR_RETURN(from.positions, c.AllocateTemporary(DType::kUint32, Shape({count})));
  }
  GpuGrid by_tile, by_digit;
  by_tile.threads_x = by_digit.threads_x = kOrderThreads;
  by_tile.blocks_x = static_cast<unsigned>(tiles);
  by_digit.blocks_x = static_cast<unsigned>((digits * 32 + kOrderThreads - 1) / kOrderThreads);
  for (int i = 0; i < passes; ++i) {
    const SortPass pass = {count, num_rows, tiles, i * digit_bits, digit_bits};
    const void* const keys = i == 0 ? GpuIn(indices) : GpuIn(from.rows);
    const void* const positions = i == 0 ? nullptr : GpuIn(from.positions);
    RETURN_IF_ERROR((i == 0 ? count_first_ : count_).Launch(by_tile, keys, GpuOut(counts), pass));
    RETURN_IF_ERROR(sum_.Launch(by_digit, GpuOut(counts), GpuOut(totals), pass));
    RETURN_IF_ERROR((i == 0 ? move_first_ : move_)
                        .Launch(by_tile, keys, positions, GpuIn(counts), GpuIn(totals),
                                GpuOut(to.rows), GpuOut(to.positions), pass));
    if (i + 1 < passes) std::swap(from, to);
  }
  return to;
}

}  // namespace muster
