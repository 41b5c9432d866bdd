#include "muster/ops/linalg/decompositions.h"

#include <cmath>

#include <Eigen/Cholesky>
#include <Eigen/LU>
#include <Eigen/QR>

#include "muster/tensor/dtype.h"

namespace muster {
namespace {

template <typename T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <typename T>
Eigen::Map<const Matrix<T>> View(const T* data, int64_t rows, int64_t columns) {
  return {data, rows, columns};
}
template <typename T>
Eigen::Map<Matrix<T>> View(T* data, int64_t rows, int64_t columns) {
  return {data, rows, columns};
}

// As TensorFlow decides it.
template <typename T>
bool IsSingular(const Eigen::PartialPivLU<Matrix<T>>& lu) {
  for (Eigen::Index i = 0; i < lu.rows(); ++i) {
    if (!(std::abs(lu.matrixLU()(i, i)) > 0)) return true;
  }
  return false;
}

template <typename T>
Eigen::PartialPivLU<Matrix<T>> LuOf(const T* a, bool adjoint, int64_t n) {
  Matrix<T> matrix = View(a, n, n);
  if (adjoint) matrix.adjointInPlace();
  return Eigen::PartialPivLU<Matrix<T>>(std::move(matrix));
}

}  // namespace

template <typename T>
bool LuDiagonal(const T* a, int64_t n, T* diagonal) {
  if (n == 0) return false;
  const Eigen::PartialPivLU<Matrix<T>> lu = LuOf(a, /*adjoint=*/false, n);
  View(diagonal, n, 1) = lu.matrixLU().diagonal();
  return lu.permutationP().determinant() < 0;
}

template <typename T>
bool SolveLinear(const T* a, bool adjoint, int64_t n, const T* b, int64_t columns, T* x) {
  const Eigen::PartialPivLU<Matrix<T>> lu = LuOf(a, adjoint, n);
  if (IsSingular(lu)) return false;
  const Matrix<T> right = View(b, n, columns);
  View(x, n, columns) = lu.solve(right);
  return true;
}

template <typename T>
bool Invert(const T* a, bool adjoint, int64_t n, T* inverse) {
  const Eigen::PartialPivLU<Matrix<T>> lu = LuOf(a, adjoint, n);
  if (IsSingular(lu)) return false;
  const Matrix<T> identity = Matrix<T>::Identity(n, n);
  View(inverse, n, n) = lu.solve(identity);
  return true;
}

template <typename T>
void DecomposeQr(const T* a, int64_t rows, int64_t columns, int64_t middle, T* q, T* r) {
  const Eigen::HouseholderQR<Matrix<T>> parts(View(a, rows, columns));
  Matrix<T> orthogonal = Matrix<T>::Identity(rows, middle);
  orthogonal.applyOnTheLeft(parts.householderQ());
  View(q, rows, middle) = orthogonal;
  View(r, middle, columns) =
      parts.matrixQR().topRows(middle).template triangularView<Eigen::Upper>();
}

template <typename T>
bool DecomposeCholesky(const T* a, int64_t n, T* l) {
  const Eigen::LLT<Matrix<T>> parts(View(a, n, n));
  if (parts.info() != Eigen::Success) return false;
  View(l, n, n) = parts.matrixL();
  return true;
}

template <typename T>
void SolveTriangular(const T* a, bool lower, bool adjoint, int64_t n, const T* b, int64_t columns,
                     T* x) {
  Matrix<T> matrix = View(a, n, n);
  if (adjoint) matrix.adjointInPlace();
  Matrix<T> solution = View(b, n, columns);
  if (lower != adjoint) {
    matrix.template triangularView<Eigen::Lower>().solveInPlace(solution);
  } else {
    matrix.template triangularView<Eigen::Upper>().solveInPlace(solution);
  }
  View(x, n, columns) = solution;
}

#define MUSTER_DECOMPOSITIONS(T)                                             \
  template bool LuDiagonal(const T*, int64_t, T*);                           \
  template bool SolveLinear(const T*, bool, int64_t, const T*, int64_t, T*); \
  template bool Invert(const T*, bool, int64_t, T*);                         \
  template void DecomposeQr(const T*, int64_t, int64_t, int64_t, T*, T*);    \
  template bool DecomposeCholesky(const T*, int64_t, T*);                    \
  template void SolveTriangular(const T*, bool, bool, int64_t, const T*, int64_t, T*)

MUSTER_DECOMPOSITIONS(float);
MUSTER_DECOMPOSITIONS(double);
MUSTER_DECOMPOSITIONS(Complex64);
MUSTER_DECOMPOSITIONS(Complex128);
#undef MUSTER_DECOMPOSITIONS

}  // namespace muster
