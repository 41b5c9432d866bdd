// Bands and diagonals of matrices. Elements are moved as words of their size.
#include "muster/ops/gpu.cuh"

struct Words16 {
  uint64 low, high;
};

// The element that stands where no diagonal is.
struct Padding {
  unsigned char bytes[16];
  template <typename W>
  __device__ __forceinline__ W As() const {
    W word;
    memcpy(&word, bytes, sizeof(W));
    return word;
  }
};

template <typename W>
__global__ void BandPart(const W* x, W* y, int64 count, int64 rows, int64 columns, int64 lower,
                         int64 upper) {
  FOR_EACH_ELEMENT(i, count) {
    const int64 above = i / columns;
    const int64 column = i - above * columns, row = above % rows;
    y[i] = row - column <= lower && column - row <= upper ? x[i] : W{};
  }
}

// Diagonals lower to upper of matrices, and the tensor [matrices, upper - lower + 1, longest] in
// which shorter ones are padded on one side.
struct Band {
  int64 rows, columns;
  int64 lower, upper;
  int64 longest;
  int32 above_is_left, below_is_left;

  __device__ __forceinline__ int64 diagonals() const { return upper - lower + 1; }
  // Where diagonal `d` begins in its row of that tensor.
  __device__ __forceinline__ int64 Begin(int64 d) const {
    const bool left = (d >= 0 && above_is_left) || (d <= 0 && below_is_left);
    return left ? 0 : longest - Length(d);
  }
  __device__ __forceinline__ int64 Length(int64 d) const {
    const int64 in_rows = d < 0 ? rows + d : rows, in_columns = d > 0 ? columns - d : columns;
    return in_rows < in_columns ? in_rows : in_columns;
  }
  // The place of a matrix element in the tensor of diagonals, or -1.
  __device__ __forceinline__ int64 PlaceOf(int64 matrix, int64 row, int64 column) const {
    const int64 d = column - row;
    if (d < lower || d > upper) return -1;
    return (matrix * diagonals() + (upper - d)) * longest + Begin(d) +
           (row < column ? row : column);
  }
};

template <typename W>
__global__ void MakeMatrices(const W* diagonals, W* y, int64 count, Band band, Padding padding) {
  const W rest = padding.As<W>();
  FOR_EACH_ELEMENT(i, count) {
    const int64 above = i / band.columns, matrix = above / band.rows;
    const int64 from =
        band.PlaceOf(matrix, above - matrix * band.rows, i - above * band.columns);
    y[i] = from < 0 ? rest : diagonals[from];
  }
}

template <typename W>
__global__ void SetDiagonals(const W* x, const W* diagonals, W* y, int64 count, Band band) {
  FOR_EACH_ELEMENT(i, count) {
    const int64 above = i / band.columns, matrix = above / band.rows;
    const int64 from =
        band.PlaceOf(matrix, above - matrix * band.rows, i - above * band.columns);
    y[i] = from < 0 ? x[i] : diagonals[from];
  }
}

template <typename W>
__global__ void TakeDiagonals(const W* x, W* y, int64 count, Band band, Padding padding) {
  const W rest = padding.As<W>();
  FOR_EACH_ELEMENT(i, count) {
    const int64 above = i / band.longest, matrix = above / band.diagonals();
    const int64 d = band.upper - (above - matrix * band.diagonals());
    const int64 at = i - above * band.longest - band.Begin(d);
    if (at < 0 || at >= band.Length(d)) {
      y[i] = rest;
      continue;
    }
    const int64 row = d < 0 ? at - d : at, column = d > 0 ? at + d : at;
    y[i] = x[(matrix * band.rows + row) * band.columns + column];
  }
}
