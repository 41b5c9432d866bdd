// A stable radix sort of the rows that indices name, together with where they stand. Each pass
// orders by one digit: tiles of keys count their digits, the counts of each digit are summed over
// the tiles, and each tile moves its keys behind those of the tiles before it.
#include "muster/ops/indexing/scan.cuh"

constexpr int kThreads = 256;  // as row_order.cc has them
constexpr int kTile = 2048;
constexpr int kMostDigits = 512;
constexpr int kWarps = kThreads / kWarp;
constexpr int kRounds = kTile / kThreads;
static_assert(kThreads == kScanThreads && kMostDigits == 2 * kThreads);

struct SortPass {
  int64 count;  // of keys
  int64 num_rows;
  int64 tiles;
  int32 shift, bits;  // of the digit
  __device__ __forceinline__ uint32 DigitOf(uint32 key) const {
    return (key >> shift) & ((1u << bits) - 1);
  }
};

// What an index is sorted by: indices that are out of range come last.
template <typename Index>
__device__ __forceinline__ uint32 KeyOf(Index index, int64 num_rows) {
  const int64 row = int64(index);
  return uint32(row < 0 || row > num_rows ? num_rows : row);
}

// counts is [digits, tiles].
template <typename Index>
__global__ void CountDigits(const Index* indices, uint32* counts, SortPass pass) {
  __shared__ uint32 own[kMostDigits];
  for (int digit = threadIdx.x; digit < kMostDigits; digit += kThreads) own[digit] = 0;
  __syncthreads();
  const int64 first = int64(blockIdx.x) * kTile;
  for (int64 i = first + threadIdx.x; i < first + kTile && i < pass.count; i += kThreads)
    atomicAdd(&own[pass.DigitOf(KeyOf(indices[i], pass.num_rows))], 1u);
  __syncthreads();
  for (int digit = threadIdx.x; digit < (1 << pass.bits); digit += kThreads)
    counts[digit * pass.tiles + blockIdx.x] = own[digit];
}

// One warp for each digit: counts become those of the tiles before, totals those of all tiles.
__global__ void SumDigits(uint32* counts, uint32* totals, SortPass pass) {
  const int digit = int(blockIdx.x) * kWarps + int(threadIdx.x) / kWarp;
  const int lane = threadIdx.x % kWarp;
  if (digit >= (1 << pass.bits)) return;
  uint32* const own = counts + digit * pass.tiles;
  uint32 before = 0;
  for (int64 first = 0; first < pass.tiles; first += kWarp) {
    const int64 tile = first + lane;
    const uint32 value = tile < pass.tiles ? own[tile] : 0;
    uint32 sum = value;
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const uint32 other = __shfl_up_sync(0xFFFFFFFFu, sum, distance);
      if (lane >= distance) sum += other;
    }
    if (tile < pass.tiles) own[tile] = before + sum - value;
    before += __shfl_sync(0xFFFFFFFFu, sum, kWarp - 1);
  }
  if (lane == 0) totals[digit] = before;
}

// The lanes of the warp that have the same digit.
__device__ __forceinline__ uint32 LanesWith(uint32 digit, int bits, bool is_there) {
  uint32 lanes = __ballot_sync(0xFFFFFFFFu, is_there);
  for (int bit = 0; bit < bits; ++bit) {
    const bool is_set = (digit >> bit) & 1;
    const uint32 set = __ballot_sync(0xFFFFFFFFu, is_set);
    lanes &= is_set ? set : ~set;
  }
  return lanes;
}

// Each warp has neighbouring keys of the tile, which it takes in their order. `positions` is null in
// the first pass, where each key stands at its own.
template <typename Index>
__global__ void MoveKeys(const Index* indices, const uint32* positions, const uint32* counts,
                         const uint32* totals, uint32* to_rows, uint32* to_positions,
                         SortPass pass) {
  __shared__ uint32 next[kWarps][kMostDigits];  // where the next key of a digit goes
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int i = threadIdx.x; i < kWarps * kMostDigits; i += kThreads)
    next[i / kMostDigits][i % kMostDigits] = 0;
  __syncthreads();
  const int64 first = int64(blockIdx.x) * kTile + warp * (kTile / kWarps) + lane;
  uint32 keys[kRounds];
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int64 i = first + round * kWarp;
    keys[round] = i < pass.count ? KeyOf(indices[i], pass.num_rows) : 0;
    if (i < pass.count) atomicAdd(&next[warp][pass.DigitOf(keys[round])], 1u);
  }
  // Thread t finds out for the digits 2t and 2t + 1.
  const int num_digits = 1 << pass.bits;
  uint32 sizes[2], total = 0;
  for (int k = 0; k < 2; ++k) {
    const int digit = 2 * int(threadIdx.x) + k;
    sizes[k] = digit < num_digits ? totals[digit] : 0;
  }
  uint32 start = ScanBlock(sizes[0] + sizes[1], total) - sizes[0] - sizes[1];
  for (int k = 0; k < 2; ++k) {
    const int digit = 2 * int(threadIdx.x) + k;
    if (digit >= num_digits) break;
    uint32 at = start + counts[digit * pass.tiles + blockIdx.x];
    for (int w = 0; w < kWarps; ++w) {
      const uint32 size = next[w][digit];
      next[w][digit] = at;
      at += size;
    }
    start += sizes[k];
  }
  __syncthreads();
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int64 i = first + round * kWarp;
    const uint32 digit = pass.DigitOf(keys[round]);
    const uint32 same = LanesWith(digit, pass.bits, i < pass.count);
    const uint32 rank = __popc(same & ((1u << lane) - 1));
    if (i < pass.count) {
      const uint32 to = next[warp][digit] + rank;
      to_rows[to] = keys[round];
      to_positions[to] = positions == nullptr ? uint32(i) : positions[i];
    }
    __syncwarp();
    if (i < pass.count && rank == 0) next[warp][digit] += __popc(same);
    __syncwarp();
  }
}
