// LowerBound and UpperBound: binary search in sorted rows.
#include "muster/ops/math/elementwise.cuh"

template <typename T, bool upper, typename Index>
__global__ void SearchRows(const T* sorted, const T* values, Index* places, int64 count,
                           int64 width, Divisor per_row) {
  FOR_EACH_ELEMENT(i, count) {
    const T* const row = sorted + per_row.Divide(i) * width;
    const auto value = Load(values, i);
    int64 begin = 0, end = width;
    while (begin < end) {
      const int64 middle = (begin + end) / 2;
      const auto x = Load(row, middle);
      if (upper ? !(value < x) : x < value)
        begin = middle + 1;
      else
        end = middle;
    }
    places[i] = Index(begin);
  }
}
