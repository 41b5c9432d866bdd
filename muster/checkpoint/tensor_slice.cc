#include "muster/checkpoint/tensor_slice.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace muster {
namespace {

// --- OrderedCode: encodings that sort, byte by byte, as the values do.

void AppendOrderedUnsigned(std::string& out, uint64_t value) {
  int bytes = 0;
  while (bytes < 8 && (value >> (8 * bytes)) != 0) ++bytes;
  out.push_back(static_cast<char>(bytes));
  for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<char>(value >> (8 * i)));
}

void AppendOrderedString(std::string& out, absl::string_view text) {
  for (char c : text) {
    out.push_back(c);
    if (c == '\0') out.push_back('\xff');
    if (c == '\xff') out.push_back('\0');
  }
  out.append("\0\1", 2);
}

void AppendOrderedSigned(std::string& out, int64_t value) {
  const uint64_t magnitude = static_cast<uint64_t>(value < 0 ? ~value : value);
  if (magnitude < 64) {
    out.push_back(static_cast<char>(0x80 ^ (value & 0xff)));
    return;
  }
  size_t length = 2;
  while (length < 10 && (magnitude >> (7 * length - 1)) != 0) ++length;
  // Ten bytes, big endian, of the value with its sign; the last `length` of them, with as many
  // leading ones (or zeros, when negative) in front as there are bytes.
  char bytes[10];
  for (int i = 0; i < 10; ++i) {
    const int shift = 8 * (9 - i);
    bytes[i] = static_cast<char>(shift >= 64 ? (value < 0 ? 0xff : 0) : value >> shift);
  }
  static constexpr unsigned char kHeaders[11][2] = {{0, 0},    {0x80, 0},    {0xc0, 0},   {0xe0, 0},
                                                    {0xf0, 0}, {0xf8, 0},    {0xfc, 0},   {0xfe, 0},
                                                    {0xff, 0}, {0xff, 0x80}, {0xff, 0xc0}};
  char* first = bytes + 10 - length;
  first[0] = static_cast<char>(first[0] ^ kHeaders[length][0]);
  first[1] = static_cast<char>(first[1] ^ kHeaders[length][1]);
  out.append(first, length);
}

absl::StatusOr<SliceExtent> ParseExtent(absl::string_view item, absl::string_view text) {
  if (item == "-") return SliceExtent();
  const std::vector<absl::string_view> numbers = absl::StrSplit(item, ',');
  SliceExtent extent;
  if (numbers.size() != 2 || !absl::SimpleAtoi(numbers[0], &extent.start) ||
      !absl::SimpleAtoi(numbers[1], &extent.length)) {
    return InvalidArgument("Expected a pair of numbers or '-' but got '", item,
                           "': string = ", text);
  }
  if (extent.start < 0 || extent.length <= 0) {
    return InvalidArgument("Expected non-negative start and positive length but got start = ",
                           extent.start, ", length = ", extent.length, ": string = ", text);
  }
  return extent;
}

}  // namespace

absl::StatusOr<TensorSlice> TensorSlice::Parse(absl::string_view text) {
  TensorSlice slice;
  for (absl::string_view item : absl::StrSplit(text, ':', absl::SkipEmpty())) {
    ASSIGN_OR_RETURN(slice.extents.emplace_back(), ParseExtent(item, text));
  }
  return slice;
}

std::string TensorSlice::ToString() const {
  return absl::StrJoin(extents, ":", [](std::string* out, const SliceExtent& extent) {
    if (extent.length == SliceExtent::kWhole) {
      out->push_back('-');
    } else {
      absl::StrAppend(out, extent.start, ",", extent.length);
    }
  });
}

absl::StatusOr<TensorSlice> TensorSlice::Resolved(const Shape& full) const {
  if (static_cast<int>(extents.size()) != full.rank()) {
    return Internal("Mismatching ranks: shape = ", full.ToString(), ", slice = ", ToString());
  }
  TensorSlice resolved = *this;
  for (int d = 0; d < full.rank(); ++d) {
    SliceExtent& extent = resolved.extents[d];
    if (extent.length == SliceExtent::kWhole && extent.start == 0) extent.length = full.dim(d);
    if (extent.start < 0 || extent.length < 0 || extent.start > full.dim(d) ||
        extent.length > full.dim(d) - extent.start) {
      return Internal("Extent in dimension ", d, " out of bounds: shape = ", full.ToString(),
                      ", slice = ", ToString());
    }
  }
  return resolved;
}

absl::StatusOr<Shape> TensorSlice::ShapeWithin(const Shape& full) const {
  ASSIGN_OR_RETURN(const TensorSlice resolved, Resolved(full));
  Dims dims;
  for (const SliceExtent& extent : resolved.extents) dims.push_back(extent.length);
  return Shape::Make(dims);
}

absl::StatusOr<ShapeAndSlice> ParseShapeAndSlice(absl::string_view text) {
  std::vector<absl::string_view> parts = absl::StrSplit(text, ' ');
  if (parts.size() < 2) {
    return InvalidArgument("Need least two elements in shape_and_slice specification: ", text);
  }
  ShapeAndSlice result;
  ASSIGN_OR_RETURN(result.slice, TensorSlice::Parse(parts.back()));
  parts.pop_back();
  Dims dims;
  for (absl::string_view part : parts) {
    if (!absl::SimpleAtoi(part, &dims.emplace_back())) {
      return InvalidArgument("Non numerical dimension in shape_and_slice: ", text);
    }
  }
  ASSIGN_OR_RETURN(result.full_shape, Shape::Make(dims));
  ASSIGN_OR_RETURN(result.slice_shape, result.slice.ShapeWithin(result.full_shape));
  return result;
}

std::optional<TensorSlice> Intersection(const TensorSlice& a, const TensorSlice& b) {
  TensorSlice common;
  for (size_t d = 0; d < a.extents.size(); ++d) {
    const SliceExtent& x = a.extents[d];
    const SliceExtent& y = b.extents[d];
    const int64_t start = std::max(x.start, y.start);
    const int64_t end = std::min(x.start + x.length, y.start + y.length);
    if (start >= end) return std::nullopt;
    common.extents.push_back({start, end - start});
  }
  return common;
}

int64_t ElementsIn(const TensorSlice& resolved) {
  int64_t count = 1;
  for (const SliceExtent& extent : resolved.extents) count *= extent.length;
  return count;
}

absl::StatusOr<std::optional<std::vector<size_t>>> Cover(const std::vector<TensorSlice>& stored,
                                                         const TensorSlice& wanted) {
  std::vector<size_t> chosen;
  int64_t covered = 0;
  for (size_t i = 0; i < stored.size(); ++i) {
    const std::optional<TensorSlice> common = Intersection(stored[i], wanted);
    if (!common) continue;
    for (size_t other : chosen) {
      if (Intersection(stored[i], stored[other])) {
        return Internal("Overlapping slices: existing slice = ", stored[other].ToString(),
                        ", new slice = ", stored[i].ToString());
      }
    }
    covered += ElementsIn(*common);
    chosen.push_back(i);
  }
  if (covered != ElementsIn(wanted)) return std::optional<std::vector<size_t>>();
  return std::make_optional(std::move(chosen));
}

void CopyOverlap(const Tensor& from, const TensorSlice& from_slice, const TensorSlice& to_slice,
                 Tensor& to) {
  const std::optional<TensorSlice> common = Intersection(from_slice, to_slice);
  if (!common) return;
  const auto rank = static_cast<int>(common->extents.size());
  // Runs of the last dimension are contiguous in both; scalars are one run.
  const int64_t run = rank == 0 ? 1 : common->extents[rank - 1].length;
  Dims at(rank, 0);  // within the common part
  while (true) {
    int64_t from_index = 0;
    int64_t to_index = 0;
    for (int d = 0; d < rank; ++d) {
      const int64_t place = common->extents[d].start + at[d];
      from_index = from_index * from_slice.extents[d].length + place - from_slice.extents[d].start;
      to_index = to_index * to_slice.extents[d].length + place - to_slice.extents[d].start;
    }
    if (from.dtype() == DType::kString) {
      std::copy_n(from.data<std::string>() + from_index, run, to.data<std::string>() + to_index);
    } else if (from.dtype() == DType::kVariant) {
      std::copy_n(from.data<Variant>() + from_index, run, to.data<Variant>() + to_index);
    } else {
      const auto width = static_cast<int64_t>(DTypeSize(from.dtype()));
      std::memcpy(to.raw() + to_index * width, from.raw() + from_index * width,
                  static_cast<size_t>(run * width));
    }
    int d = rank - 2;
    for (; d >= 0; --d) {
      if (++at[d] < common->extents[d].length) break;
      at[d] = 0;
    }
    if (d < 0) return;
  }
}

std::string SliceKey(absl::string_view name, const TensorSlice& slice) {
  std::string key;
  AppendOrderedUnsigned(key, 0);
  AppendOrderedString(key, name);
  AppendOrderedUnsigned(key, slice.extents.size());
  for (const SliceExtent& extent : slice.extents) {
    AppendOrderedSigned(key, extent.start);
    AppendOrderedSigned(key, extent.length);
  }
  return key;
}

}  // namespace muster
