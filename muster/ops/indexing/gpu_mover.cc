#include "muster/ops/indexing/gpu_mover.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "muster/ops/indexing/boxes.h"

namespace muster {
namespace {

constexpr char kFile[] = "indexing/strided_copy.cu";

// --- The structs of strided_copy.cu that boxes.h lacks
constexpr int64_t kTile = 32;
constexpr int kTileThreads = 8;
struct Tiles {
  const void* from;
  void* to;
  uint32_t rows, columns;
  int64_t column_from_stride, row_to_stride;
  uint32_t count;
  QuickDivider row_tiles, column_tiles;
  int rank;
  GpuBoxAxis axes[kMostBoxAxes];
};

// A shorter side of the matrices leaves too many threads of a tile idle.
constexpr int64_t kLeastTileSide = 8;
// The functions count elements in 32 bits.
constexpr int64_t kMostElements = int64_t{1} << 30;
constexpr size_t kWideBytes = sizeof(Word16);

int64_t CountOf(const StridedBox& box) {
  int64_t count = 1;
  for (int64_t dim : box.dims) count *= dim;
  return count;
}

int LastOf(const StridedBox& box) {
  return static_cast<int>(box.dims.size()) - 1;
}

// The offsets are moved into the pointers.
void SetOff(BoxCopy& copy, size_t element_bytes) {
  const auto bytes = static_cast<int64_t>(element_bytes);
  copy.from += copy.box.from_offset * bytes;
  copy.to += copy.box.to_offset * bytes;
  copy.box.from_offset = copy.box.to_offset = 0;
}

bool IsDense(const StridedBox& box) {
  return box.from_strides.back() == 1 && box.to_strides.back() == 1;
}

// Neighbours become one element of kWideBytes, where sizes and addresses allow it.
bool Widen(BoxCopy& copy, size_t element_bytes) {
  StridedBox& box = copy.box;
  if (element_bytes == kWideBytes || !IsDense(box)) return false;
  const auto ratio = static_cast<int64_t>(kWideBytes / element_bytes);
  if (reinterpret_cast<uintptr_t>(copy.from) % kWideBytes != 0 ||
      reinterpret_cast<uintptr_t>(copy.to) % kWideBytes != 0 || box.dims.back() % ratio != 0)
    return false;
  for (int i = 0; i < LastOf(box); ++i) {
    if (box.from_strides[i] % ratio != 0 || box.to_strides[i] % ratio != 0) return false;
  }
  box.dims.back() /= ratio;
  for (int i = 0; i < LastOf(box); ++i) {
    box.from_strides[i] /= ratio;
    box.to_strides[i] /= ratio;
  }
  return true;
}

// Into pieces that the functions can count and whose axes they have room for.
void Divide(BoxCopy copy, size_t element_bytes, std::vector<BoxCopy>& pieces) {
  StridedBox& box = copy.box;
  const bool too_large = CountOf(box) > kMostElements;
  if (!too_large && LastOf(box) < kMostBoxAxes) return pieces.push_back(std::move(copy));
  const auto longest =
      too_large ? std::max_element(box.dims.begin(), box.dims.end()) : box.dims.begin();
  const auto axis = longest - box.dims.begin();
  const int64_t half = box.dims[axis] / 2;
  BoxCopy rest = copy;
  box.dims[axis] = half;
  rest.box.dims[axis] -= half;
  rest.box.from_offset = half * box.from_strides[axis];
  rest.box.to_offset = half * box.to_strides[axis];
  SetOff(rest, element_bytes);
  for (BoxCopy* part : {&copy, &rest}) {
    SimplifyBox(part->box);
    Divide(std::move(*part), element_bytes, pieces);
  }
}

// Of a transposed copy: the axis whose elements are read as neighbours; else -1.
int RowAxis(const StridedBox& box) {
  if (box.to_strides.back() != 1 || box.from_strides.back() == 1 ||
      box.dims.back() < kLeastTileSide)
    return -1;
  for (int i = 0; i < LastOf(box); ++i) {
    if (box.from_strides[i] == 1 && box.dims[i] >= kLeastTileSide) return i;
  }
  return -1;
}

template <int most>
GpuBox<most> BoxFor(const BoxCopy& copy) {
  GpuBox<most> box{};
  box.from = copy.from;
  box.to = copy.to;
  box.count = static_cast<uint32_t>(CountOf(copy.box));
  box.rank = LastOf(copy.box) + 1;
  for (int i = 0; i < box.rank; ++i) {
    box.axes[i] = {QuickDivider(copy.box.dims[i]), copy.box.from_strides[i],
                   copy.box.to_strides[i]};
  }
  return box;
}

std::array<std::string, 2> Expressions(const char* function, size_t element_bytes) {
  return {absl::StrCat(function, "<", GpuWordName(element_bytes), ">"),
          absl::StrCat(function, "<", GpuWordName(kWideBytes), ">")};
}

}  // namespace

std::vector<DType> GpuFloatsAnd(std::initializer_list<DType> more) {
  std::vector<DType> dtypes = {DType::kHalf, DType::kBfloat16, DType::kFloat, DType::kDouble};
  dtypes.insert(dtypes.end(), more);
  return dtypes;
}

absl::Status GpuFiller::Fill(const Tensor& value, Tensor& to) const {
  Word16 given;
  const size_t element_bytes = DTypeSize(to.dtype());
  const bool on_host = !IsInDeviceMemory(value);
  if (on_host) {
    for (size_t at = 0; at < sizeof(given); at += element_bytes)
      std::memcpy(reinterpret_cast<char*>(&given) + at, value.raw(), element_bytes);
  }
  const auto bytes = static_cast<int64_t>(to.size_bytes());
  const void* const from = on_host ? nullptr : GpuIn(value);
  return fill_.LaunchForEach((bytes + kWideBytes - 1) / kWideBytes, from, given,
                             static_cast<int>(element_bytes), GpuOut(to), bytes);
}

GpuMover::GpuMover(GpuKernel& kernel, DType dtype)
    : element_bytes_(DTypeSize(dtype)),
      box_{{{kernel, kFile, Expressions("CopyBox", element_bytes_)[0]},
            {kernel, kFile, Expressions("CopyBox", element_bytes_)[1]}}},
      boxes_{{{kernel, kFile, Expressions("CopyBoxes", element_bytes_)[0]},
              {kernel, kFile, Expressions("CopyBoxes", element_bytes_)[1]}}},
      tiles_(kernel, kFile, Expressions("CopyTiles", element_bytes_)[0]),
      filler_(kernel) {}

absl::Status GpuMover::CopyAll(const Tensor& from, Tensor& to) const {
  return box_[0].gpu().CopyWithin(to.raw(), from.raw(), from.size_bytes());
}

absl::Status GpuMover::Zero(Tensor& to) const {
  return box_[0].gpu().Fill(to.raw(), 0, to.size_bytes());
}

absl::Status GpuMover::Copy(const KernelContext&, DType, std::vector<BoxCopy> copies) const {
  std::vector<BoxCopy> pieces;
  for (BoxCopy& copy : copies) {
    if (CountOf(copy.box) == 0) continue;
    SimplifyBox(copy.box);
    SetOff(copy, element_bytes_);
    Divide(std::move(copy), element_bytes_, pieces);
  }
  // Many are copied together, apart by the size of their elements.
  std::array<std::vector<BoxCopy>, 2> small;
  for (BoxCopy& piece : pieces) {
    const bool wide = Widen(piece, element_bytes_);
    const int row = wide ? -1 : RowAxis(piece.box);
    if (row >= 0) {
      RETURN_IF_ERROR(CopyTiles(piece, row));
    } else if (pieces.size() > 1 && LastOf(piece.box) < kAxesOfSmallBox) {
      small[wide].push_back(std::move(piece));
    } else {
      const auto box = BoxFor<kMostBoxAxes>(piece);
      RETURN_IF_ERROR(box_[wide].LaunchForEach(box.count, box));
    }
  }
  RETURN_IF_ERROR(CopySmall(small[0], boxes_[0]));
  return CopySmall(small[1], boxes_[1]);
}

absl::Status GpuMover::CopySmall(absl::Span<const BoxCopy> copies, const GpuFunction& function) {
  while (!copies.empty()) {
    const absl::Span<const BoxCopy> batch = copies.subspan(0, kMostBoxes);
    copies.remove_prefix(batch.size());
    GpuBoxList boxes{};
    uint32_t most = 0;
    for (size_t i = 0; i < batch.size(); ++i) {
      boxes.list[i] = BoxFor<kAxesOfSmallBox>(batch[i]);
      most = std::max(most, boxes.list[i].count);
    }
    GpuGrid grid = function.GridForEach(most);
    grid.blocks_y = static_cast<unsigned>(batch.size());
    RETURN_IF_ERROR(function.Launch(grid, boxes));
  }
  return absl::OkStatus();
}

absl::Status GpuMover::CopyTiles(const BoxCopy& copy, int row) const {
  const StridedBox& box = copy.box;
  Tiles tiles{};
  tiles.from = copy.from;
  tiles.to = copy.to;
  tiles.rows = static_cast<uint32_t>(box.dims[row]);
  tiles.columns = static_cast<uint32_t>(box.dims.back());
  tiles.column_from_stride = box.from_strides.back();
  tiles.row_to_stride = box.to_strides[row];
  tiles.row_tiles = QuickDivider((box.dims[row] + kTile - 1) / kTile);
  tiles.column_tiles = QuickDivider((box.dims.back() + kTile - 1) / kTile);
  tiles.count = tiles.row_tiles.divisor * tiles.column_tiles.divisor;
  for (int i = 0; i < LastOf(box); ++i) {
    if (i == row) continue;
    tiles.axes[tiles.rank++] = {QuickDivider(box.dims[i]), box.from_strides[i], box.to_strides[i]};
    tiles.count *= static_cast<uint32_t>(box.dims[i]);
  }
  GpuGrid grid;
  grid.threads_x = kTile;
  grid.threads_y = kTileThreads;
  grid.blocks_x = tiles_.GridForEach(int64_t{tiles.count} * kTile * kTileThreads).blocks_x;
  return tiles_.Launch(grid, tiles);
}

}  // namespace muster
