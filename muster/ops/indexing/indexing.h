// What gathers, scatters and segments share: reading index tensors and moving rows.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "muster/ops/op.h"
#include "muster/ops/rows_ahead.h"

namespace muster {

// Calls body with the elements of an index tensor of type int16, int32 or int64.
template <typename Body>
absl::Status WithIndices(const Tensor& indices, Body body) {
  switch (indices.dtype()) {
    case DType::kInt16:
      return body(indices.data<int16_t>());
    case DType::kInt32:
      return body(indices.data<int32_t>());
    case DType::kInt64:
      return body(indices.data<int64_t>());
    default:
      return InvalidArgument("indices must be int16, int32 or int64, got ",
                             DTypeName(indices.dtype()));
  }
}

// "[1,2]": flat position `index` as coordinates in a tensor of that shape.
std::string PositionText(const Shape& shape, int64_t index);

// Moves `count` rows of `row_bytes` plain bytes: to[i] = from(i), which gives a pointer. Rows of
// the common small sizes are single loads and stores.
template <typename From>
void MoveRows(char* to, int64_t count, int64_t row_bytes, From from) {
  const auto fixed = [&]<size_t kBytes>() {
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(to + i * static_cast<int64_t>(kBytes), from(i), kBytes);
  };
  switch (row_bytes) {
    case 0:
      return;
    case 1:
      return fixed.template operator()<1>();
    case 2:
      return fixed.template operator()<2>();
    case 4:
      return fixed.template operator()<4>();
    case 8:
      return fixed.template operator()<8>();
    case 16:
      return fixed.template operator()<16>();
    default:
      for (int64_t i = 0; i < count; ++i) {
        if (i + kRowsAhead < count) PrefetchRow(from(i + kRowsAhead), row_bytes);
        std::memcpy(to + i * row_bytes, from(i), static_cast<size_t>(row_bytes));
      }
  }
}

}  // namespace muster
