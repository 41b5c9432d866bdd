// cuBLAS on the emulated card: products of matrices in plain loops.
#include <complex>
#include <cstdint>

#include "emulated_gpu.h"

using emulated::kOk;

namespace {

constexpr int kInvalidValue = 7;

template <typename T>
T Conjugate(T value) {
  return value;
}
template <typename R>
std::complex<R> Conjugate(std::complex<R> value) {
  return std::conj(value);
}

struct Product {
  int transpose_a, transpose_b;
  int64_t m, n, k;
  const void* a;
  int64_t lda, stride_a;
  const void* b;
  int64_t ldb, stride_b;
  void* c;
  int64_t ldc, stride_c, count;
  double alpha, beta;
};

// Column-major; sums are kept in Sum.
template <typename T, typename Sum, typename From, typename To>
void Multiply(const Product& p, From from, To to) {
  for (int64_t batch = 0; batch < p.count; ++batch) {
    const T* const a = static_cast<const T*>(p.a) + batch * p.stride_a;
    const T* const b = static_cast<const T*>(p.b) + batch * p.stride_b;
    T* const c = static_cast<T*>(p.c) + batch * p.stride_c;
    for (int64_t j = 0; j < p.n; ++j) {
      for (int64_t i = 0; i < p.m; ++i) {
        Sum sum = 0;
        for (int64_t l = 0; l < p.k; ++l) {
          Sum x = from(p.transpose_a == 0 ? a[i + l * p.lda] : a[l + i * p.lda]);
          Sum y = from(p.transpose_b == 0 ? b[l + j * p.ldb] : b[j + l * p.ldb]);
          if (p.transpose_a == 2) x = Conjugate(x);
          if (p.transpose_b == 2) y = Conjugate(y);
          sum += x * y;
        }
        sum *= static_cast<Sum>(p.alpha);
        if (p.beta != 0) sum += static_cast<Sum>(p.beta) * static_cast<Sum>(from(c[i + j * p.ldc]));
        c[i + j * p.ldc] = to(sum);
      }
    }
  }
}

template <typename T>
void MultiplyPlain(const Product& p) {
  const auto same = [](T value) { return value; };
  Multiply<T, T>(p, same, same);
}

}  // namespace

EXPORT int cublasCreate_v2(void** handle) {
  *handle = emulated::CardsStream();
  return kOk;
}
EXPORT int cublasSetStream_v2(void*, void*) {
  return kOk;
}
EXPORT int cublasSetWorkspace_v2(void*, void*, size_t) {
  return kOk;
}
EXPORT int cublasGemmStridedBatchedEx_64(void*, int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k,
                                         const void* alpha, const void* a, int type, int64_t lda, long long stride_a, const void* b, int,
                                         int64_t ldb, long long stride_b, const void* beta, void* c, int, int64_t ldc,
                                         long long stride_c, int64_t count, int, int) {
  const auto number = [type](const void* at) {
    return type == 1 || type == 5 ? *static_cast<const double*>(at) : double{*static_cast<const float*>(at)};
  };
  const Product p = {transpose_a, transpose_b, m,        n,     k,
                     a,           lda,         stride_a, b,     ldb,
                     stride_b,    c,           ldc,      stride_c, count,
                     number(alpha), number(beta)};
  return emulated::PutOnStream([p, type] {
    switch (type) {
      case 0:
        MultiplyPlain<float>(p);
        return kOk;
      case 1:
        MultiplyPlain<double>(p);
        return kOk;
      case 2:
        Multiply<uint16_t, float>(p, emulated::FromHalf, emulated::ToHalf);
        return kOk;
      case 4:
        MultiplyPlain<std::complex<float>>(p);
        return kOk;
      case 5:
        MultiplyPlain<std::complex<double>>(p);
        return kOk;
      case 14:
        Multiply<uint16_t, float>(p, emulated::FromBfloat16, emulated::ToBfloat16);
        return kOk;
      default:
        return kInvalidValue;
    }
  });
}
