#include "muster/ops/math/reduce_gpu.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace muster {
namespace {

constexpr char kFile[] = "math/reduction.cu";
constexpr int64_t kPackBytes = 16;
constexpr int64_t kWarp = 32;
constexpr int64_t kThreads = 256;
constexpr int64_t kMostThreads = 1024;  // of a block
constexpr int64_t kMostPieces = 1024;
constexpr int64_t kMostBlocks = 1 << 30;
constexpr int64_t kThreadsPerMultiprocessor = 2048;
// Loads of one lane that are worth another lane, and another launch.
constexpr int64_t kLoadsPerLane = 8;
constexpr int64_t kLoadsPerLaunch = 64;
constexpr int64_t kLoadsPerPiece = 4;
constexpr int64_t kLargestAccumulator = 16;

struct GpuReduceLaunch {
  GpuReducePlan plan;
  GpuGrid grid;
  int64_t pieces() const { return grid.blocks_y; }
};

int64_t CeilDivide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

absl::StatusOr<GpuReducePlan> MakeGpuPlan(const ReductionPlan& from) {
  GpuReducePlan plan;
  plan.outputs = from.output.num_elements();
  plan.terms = from.terms;
  const int rank = static_cast<int>(from.dims.size());
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    const bool is_reduced = from.first_is_reduced == (i % 2 == 0);
    if (i == rank - 1) plan.by_rows = is_reduced ? 1 : 0;
    GpuReduceWalk& walk = is_reduced ? plan.reduced : plan.kept;
    if (walk.dims == GpuReduceWalk::kMaxDims)
      return Unimplemented("a reduction of so many dimensions is not supported on a GPU");
    walk.sizes[walk.dims] = GpuDivisor(from.dims[i]);
    walk.strides[walk.dims++] = stride;
    stride *= from.dims[i];
  }
  return plan;
}

// How many elements a thread reads at once, in rows and in columns.
struct GpuReducePacks {
  int64_t row = 1;
  int64_t columns = 1;
};
GpuReducePacks PacksOf(const Tensor& input, int64_t accumulator_bytes) {
  if (reinterpret_cast<uintptr_t>(input.raw()) % kPackBytes != 0) return {};
  const auto element_bytes = static_cast<int64_t>(DTypeSize(input.dtype()));
  GpuReducePacks packs;
  packs.row = kPackBytes / element_bytes;
  packs.columns = std::max<int64_t>(
      1, std::min(kPackBytes / 2 / element_bytes, kPackBytes / accumulator_bytes));
  return packs;
}

// Lanes for each result, and pieces where the results alone do not keep the card busy.
GpuReduceLaunch Arrange(GpuReducePlan plan, const GpuReducePacks& packs, int64_t card_threads,
                        int64_t most_pieces) {
  const int64_t inner = (plan.by_rows ? plan.reduced : plan.kept).sizes[0].size;
  const int64_t pack = plan.by_rows ? packs.row : packs.columns;
  plan.packed = pack > 1 && inner % pack == 0 ? 1 : 0;
  const int64_t row_pack = plan.by_rows && plan.packed ? pack : 1;
  const int64_t column_pack = plan.by_rows || !plan.packed ? 1 : pack;
  const int64_t loads = plan.terms / row_pack;
  const int64_t outputs = plan.outputs / column_pack;
  int64_t lanes = 1, columns = 1;
  if (plan.by_rows) {
    while (lanes < kWarp && lanes < loads) lanes *= 2;
  } else {
    while (columns < kWarp && columns < inner / column_pack) columns *= 2;
  }
  while (lanes * columns < kMostThreads && outputs * lanes < card_threads &&
         loads >= lanes * kLoadsPerLane) {
    lanes *= 2;
  }
  const int64_t threads = std::max(kThreads, lanes * columns);
  const int64_t blocks = CeilDivide(outputs, threads / lanes);
  int64_t pieces = 1;
  if (blocks * threads * 2 < card_threads && loads >= lanes * kLoadsPerLaunch) {
    pieces =
        std::min({card_threads / (blocks * threads), loads / lanes / kLoadsPerPiece, most_pieces});
  }
  plan.piece = std::max<int64_t>(1, CeilDivide(loads, pieces)) * row_pack;
  pieces = std::max<int64_t>(1, CeilDivide(plan.terms, plan.piece));
  plan.lanes = static_cast<int32_t>(lanes);
  while ((1 << plan.lanes_shift) < lanes) ++plan.lanes_shift;
  GpuReduceLaunch launch;
  launch.plan = plan;
  launch.grid.threads_x = static_cast<unsigned>(threads);
  launch.grid.blocks_x = static_cast<unsigned>(std::min(blocks, kMostBlocks));
  launch.grid.blocks_y = static_cast<unsigned>(pieces);
  return launch;
}

}  // namespace

GpuReducer::GpuReducer(GpuKernel& kernel, const std::string& op, int64_t accumulator_bytes)
    : accumulator_bytes_(accumulator_bytes),
      reduce_(kernel, kFile, absl::StrCat("Reduce<", op, ">")),
      merge_(kernel, kFile, absl::StrCat("Reduce<Merge<", op, ">>")) {}

absl::Status GpuReducer::Run(KernelContext& c, const ReductionPlan& from, const Tensor& input,
                             Tensor& output) const {
  ASSIGN_OR_RETURN(GpuReducePlan plan, MakeGpuPlan(from));
  if (plan.outputs == 0) return absl::OkStatus();
  const int64_t card_threads = reduce_.gpu().multiprocessors() * kThreadsPerMultiprocessor;
  const GpuReducePacks packs = PacksOf(
      input, std::max<int64_t>(accumulator_bytes_, static_cast<int64_t>(DTypeSize(input.dtype()))));
  GpuReduceLaunch first = Arrange(plan, packs, card_threads, kMostPieces);
  if (first.pieces() == 1) {
    first.plan.finish_terms = plan.terms;
    return reduce_.Launch(first.grid, GpuIn(input), GpuOut(output), first.plan);
  }
  first.plan.finish_terms = -1;
  const int64_t pieces = first.pieces();
  ASSIGN_OR_RETURN(const Shape bytes, Shape::Make({pieces, plan.outputs, kLargestAccumulator}));
  ASSIGN_OR_RETURN(Tensor partial, c.AllocateTemporary(DType::kUint8, bytes));
  RETURN_IF_ERROR(reduce_.Launch(first.grid, GpuIn(input), GpuOut(partial), first.plan));
  ReductionPlan rest;
  rest.output = from.output;
  rest.terms = pieces;
  rest.first_is_reduced = true;
  rest.dims = {pieces, plan.outputs};
  ASSIGN_OR_RETURN(const GpuReducePlan merge, MakeGpuPlan(rest));
  GpuReduceLaunch second = Arrange(merge, {}, card_threads, 1);
  second.plan.finish_terms = plan.terms;
  return merge_.Launch(second.grid, GpuIn(partial), GpuOut(output), second.plan);
}

}  // namespace muster
