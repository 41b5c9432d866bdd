// Copies a box of elements between two strided layouts. Slicing, concatenating, transposing,
// reversing, tiling and padding are all this one operation with different strides.
#pragma once

#include "muster/runtime/kernel.h"

namespace muster {

// Element i0,i1,... of the box is at from_offset + i0*from_strides[0] + ... in the source and
// likewise in the destination. Strides and offsets count elements; they may be negative, and a
// source stride may be 0 to repeat.
struct StridedBox {
  Dims dims;
  Dims from_strides;
  Dims to_strides;
  int64_t from_offset = 0;
  int64_t to_offset = 0;

  void Add(int64_t size, int64_t from_stride, int64_t to_stride) {
    dims.push_back(size);
    from_strides.push_back(from_stride);
    to_strides.push_back(to_stride);
  }
};

// Drops dims of size 1, orders the others by where they write and merges neighbours that continue
// each other. At least one dim is left.
void SimplifyBox(StridedBox& box);

// Strides of a dense row-major tensor with these dims.
Dims RowMajorStrides(absl::Span<const int64_t> dims);

// Requires: every element of the box is inside `from` and inside `to`, which hold elements of
// `dtype` and do not overlap, and no two elements of the box share a place in `to`.
void CopyBox(const KernelContext& c, DType dtype, StridedBox box, const char* from, char* to);

// Zeros (empty strings and handles) or copies of one element in all of `to`, which holds `count`
// elements.
void ZeroElements(DType dtype, char* to, int64_t count);
void FillElements(const KernelContext& c, DType dtype, const char* value, char* to, int64_t count);

}  // namespace muster
