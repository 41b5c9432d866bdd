// Decompositions of dense, row-major matrices, a block of columns at a time: what is left of a matrix
// behind the block is a product of matrices, which cuBLAS computes (gpu_solver.cc). A block of
// threads works on one matrix; so many small matrices fill the card by themselves.
#include "muster/ops/gpu.cuh"

// `count` matrices of one size; neighbouring ones are `step` elements apart, rows `row` elements.
template <typename T>
struct Matrices {
  T* at;
  int64 step, row, count;
};

template <typename T>
struct RealPart {
  using type = T;
};
template <typename R>
struct RealPart<Complex<R>> {
  using type = R;
};
template <typename T>
using Real = typename RealPart<T>::type;

template <typename T>
__device__ __forceinline__ T Conjugate(T x) {
  if constexpr (kIsComplex<T>) x.im = -x.im;
  return x;
}
template <typename T>
__device__ __forceinline__ Real<T> SizeOf(T x) {
  if constexpr (kIsComplex<T>)
    return hypot(x.re, x.im);
  else
    return fabs(x);
}
template <typename T>
__device__ __forceinline__ Real<T> RealOf(T x) {
  if constexpr (kIsComplex<T>)
    return x.re;
  else
    return x;
}

// The matrix, or its adjoint.
template <typename T>
__global__ void CopySquare(const T* from, T* to, int64 count, int64 n, int32 adjoint) {
  FOR_EACH_ELEMENT(i, count) {
    const int64 column = i % n, row = i / n % n, matrix = i / n / n;
    to[i] = adjoint != 0 ? Conjugate(from[(matrix * n + column) * n + row]) : from[i];
  }
}
template <typename T>
__global__ void Identity(T* to, int64 count, int64 n) {
  FOR_EACH_ELEMENT(i, count) to[i] = T(Real<T>(i % n == i / n % n ? 1 : 0));
}

// --- Triangular equations

// X with A X = B in the place of B, where A is a triangle of `size` rows, at most kSolved; or with
// A's adjoint. A block of threads works on kSolvedColumns columns.
constexpr int kSolved = 64, kSolvedColumns = 16;
struct Triangle {
  int32 lower, adjoint, unit;  // of the matrix as it is stored; unit: its diagonal counts as ones
  int32 size;
};
template <typename T>
__global__ void SolveTriangle(Matrices<const T> a, Matrices<T> b, int64 columns, Triangle how) {
  __shared__ T x[kSolved][kSolvedColumns];
  const int64 sets = (columns + kSolvedColumns - 1) / kSolvedColumns;
  const int n = how.size;
  const bool forward = (how.lower != 0) != (how.adjoint != 0);
  for (int64 index = blockIdx.x; index < a.count * sets; index += gridDim.x) {
    const int64 matrix = index / sets, column = index % sets * kSolvedColumns + threadIdx.x;
    const T* const from = a.at + matrix * a.step;
    T* const to = b.at + matrix * b.step;
    const bool is_inside = column < columns;
    __syncthreads();
    for (int i = threadIdx.y; i < n; i += blockDim.y) {
      if (is_inside) x[i][threadIdx.x] = to[i * b.row + column];
    }
    __syncthreads();
    for (int step = 0; step < n; ++step) {
      const int k = forward ? step : n - 1 - step;
      if (how.unit == 0) {
        if (threadIdx.y == 0 && is_inside) {
          const T pivot = from[k * a.row + k];
          x[k][threadIdx.x] = x[k][threadIdx.x] / (how.adjoint != 0 ? Conjugate(pivot) : pivot);
        }
        __syncthreads();
      }
      if (is_inside) {
        const T known = x[k][threadIdx.x];
        for (int rest = threadIdx.y; rest < n - 1 - step; rest += blockDim.y) {
          const int i = forward ? k + 1 + rest : rest;
          const T factor = how.adjoint != 0 ? Conjugate(from[k * a.row + i]) : from[i * a.row + k];
          x[i][threadIdx.x] = x[i][threadIdx.x] - factor * known;
        }
      }
      __syncthreads();
    }
    for (int i = threadIdx.y; i < n; i += blockDim.y) {
      if (is_inside) to[i * b.row + column] = x[i][threadIdx.x];
    }
  }
}

// --- P A = L U

// As wide as the sizes, so that nothing lies in between.
template <typename R>
struct RowIndex {
  using type = int32;
};
template <>
struct RowIndex<double> {
  using type = int64;
};
template <typename R>
struct Pivot {
  R size;
  typename RowIndex<R>::type row;
};
// The larger one; of equals the one above. So NaN is not chosen where there is another.
template <typename R>
struct LargerPivot {
  template <typename C>
  static __device__ C None() {
    C none = {};
    none.size = R(-1);
    none.row = 2147483647;
    return none;
  }
  static __device__ Pivot<R> Join(Pivot<R> a, Pivot<R> b) {
    if (b.size > a.size || (b.size == a.size && b.row < a.row)) return b;
    return a;
  }
};

// Columns [first, end) of the whole matrices; rows are exchanged over all columns.
template <typename T>
__global__ void LuColumns(Matrices<T> a, int64 n, int64 first, int64 end, int32* pivots) {
  __shared__ int32 chosen;
  const int64 threads = blockDim.x;
  for (int64 matrix = blockIdx.x; matrix < a.count; matrix += gridDim.x) {
    T* const m = a.at + matrix * a.step;
    for (int64 k = first; k < end; ++k) {
      Pivot<Real<T>> best = LargerPivot<Real<T>>::template None<Pivot<Real<T>>>();
      for (int64 i = k + threadIdx.x; i < n; i += threads) {
        Pivot<Real<T>> own = best;
        own.size = SizeOf(m[i * a.row + k]);
        own.row = i;
        best = LargerPivot<Real<T>>::Join(best, own);
      }
      best = ReduceBlock<LargerPivot<Real<T>>>(best);
      if (threadIdx.x == 0) {
        chosen = int32(best.size > Real<T>(0) ? int64(best.row) : k);
        pivots[matrix * n + k] = chosen;
      }
      __syncthreads();
      const int64 from = chosen;
      if (from != k) {
        for (int64 c = threadIdx.x; c < n; c += threads) {
          const T above = m[k * a.row + c];
          m[k * a.row + c] = m[from * a.row + c];
          m[from * a.row + c] = above;
        }
      }
      __syncthreads();
      const T pivot = m[k * a.row + k];
      if (SizeOf(pivot) > Real<T>(0)) {
        for (int64 i = k + 1 + threadIdx.x; i < n; i += threads) m[i * a.row + k] = m[i * a.row + k] / pivot;
      }
      __syncthreads();
      const int64 width = end - k - 1, rest = (n - k - 1) * width;
      for (int64 e = threadIdx.x; e < rest; e += threads) {
        const int64 i = k + 1 + e / width, c = k + 1 + e % width;
        m[i * a.row + c] = m[i * a.row + c] - m[i * a.row + k] * m[k * a.row + c];
      }
      __syncthreads();
    }
  }
}

// The same exchanges of rows of right sides.
template <typename T>
__global__ void ExchangeRows(T* b, const int32* pivots, int64 count, int64 n, int64 columns) {
  FOR_EACH_ELEMENT(i, count * columns) {
    const int64 matrix = i / columns;
    T* const column = b + matrix * n * columns + i % columns;
    for (int64 k = 0; k < n; ++k) {
      const int64 from = pivots[matrix * n + k];
      if (from == k) continue;
      const T above = column[k * columns];
      column[k * columns] = column[from * columns];
      column[from * columns] = above;
    }
  }
}

// How many matrices are singular, as TensorFlow decides it.
template <typename T>
__global__ void CountSingular(const T* lu, int32* singular, int64 count, int64 n) {
  FOR_EACH_ELEMENT(matrix, count) {
    bool is_singular = false;
    for (int64 i = 0; i < n; ++i) is_singular = is_singular || !(SizeOf(lu[(matrix * n + i) * n + i]) > Real<T>(0));
    if (is_singular) atomicAdd(singular, 1);
  }
}

template <typename T>
__device__ __forceinline__ T SignOf(const int32* pivots, int64 n) {
  bool is_odd = false;
  for (int64 i = 0; i < n; ++i) is_odd = is_odd != (pivots[i] != i);
  return T(Real<T>(is_odd ? -1 : 1));
}
template <typename T>
__global__ void Determinants(const T* lu, const int32* pivots, T* results, int64 count, int64 n) {
  FOR_EACH_ELEMENT(matrix, count) {
    T product = SignOf<T>(pivots + matrix * n, n);
    for (int64 i = 0; i < n; ++i) product = product * lu[(matrix * n + i) * n + i];
    results[matrix] = product;
  }
}
template <typename T>
__global__ void LogDeterminants(const T* lu, const int32* pivots, T* signs, T* logs, int64 count, int64 n) {
  FOR_EACH_ELEMENT(matrix, count) {
    T sign = SignOf<T>(pivots + matrix * n, n);
    Real<T> sum = 0;
    for (int64 i = 0; i < n; ++i) {
      const T element = lu[(matrix * n + i) * n + i];
      const Real<T> size = SizeOf(element);
      sign = sign * (element / T(size));
      sum += log(size);
    }
    // A singular matrix has neither.
    if (!(fabs(sum) < Infinity<Real<T>>())) {
      sign = T(Real<T>(0));
      sum = sum > Real<T>(0) ? Infinity<Real<T>>() : -Infinity<Real<T>>();
    }
    signs[matrix] = sign;
    logs[matrix] = T(sum);
  }
}

// --- A = L L^H

// The triangle of `size` rows at `a`; where it is not positive definite, `failed` says so.
template <typename T>
__global__ void CholeskyTriangle(Matrices<T> a, int32 size, int32* failed) {
  for (int64 matrix = blockIdx.x; matrix < a.count; matrix += gridDim.x) {
    T* const m = a.at + matrix * a.step;
    for (int k = 0; k < size; ++k) {
      __syncthreads();
      const Real<T> square = RealOf(m[k * a.row + k]);
      const Real<T> pivot = sqrt(square);
      __syncthreads();
      if (threadIdx.x == 0) {
        if (square <= Real<T>(0)) failed[matrix] = 1;
        m[k * a.row + k] = T(pivot);
      }
      for (int i = k + 1 + threadIdx.x; i < size; i += blockDim.x) m[i * a.row + k] = m[i * a.row + k] / T(pivot);
      __syncthreads();
      const int width = size - k - 1;
      for (int e = threadIdx.x; e < width * width; e += blockDim.x) {
        const int i = k + 1 + e / width, c = k + 1 + e % width;
        if (c <= i) m[i * a.row + c] = m[i * a.row + c] - m[i * a.row + k] * Conjugate(m[c * a.row + k]);
      }
    }
  }
}
// The rows below it: X with X L^H = B, in the place of B.
template <typename T>
__global__ void CholeskyRows(Matrices<const T> l, Matrices<T> b, int64 rows, int32 size) {
  FOR_EACH_ELEMENT(index, l.count * rows) {
    const int64 matrix = index / rows;
    const T* const from = l.at + matrix * l.step;
    T* const row = b.at + matrix * b.step + index % rows * b.row;
    for (int k = 0; k < size; ++k) {
      T sum = row[k];
      for (int i = 0; i < k; ++i) sum = sum - row[i] * Conjugate(from[k * l.row + i]);
      row[k] = sum / Conjugate(from[k * l.row + k]);
    }
  }
}
// Zeros above the diagonal, and NaN below it where the matrix was not positive definite.
template <typename T>
__global__ void FinishCholesky(T* l, const int32* failed, int64 count, int64 n) {
  FOR_EACH_ELEMENT(i, count) {
    const int64 column = i % n, row = i / n % n, matrix = i / n / n;
    if (column > row) {
      l[i] = T(Real<T>(0));
    } else if (failed[matrix] != 0) {
      l[i] = T(Infinity<Real<T>>() - Infinity<Real<T>>());
    }
  }
}
