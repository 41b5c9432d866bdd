// cuBLAS and cublasLt on the emulated card: products of matrices in plain loops.
#include <algorithm>
#include <complex>
#include <cstdint>
#include <cstring>

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
  const void* bias = nullptr;  // one for each row
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
        if (p.bias != nullptr) sum += static_cast<Sum>(from(static_cast<const T*>(p.bias)[i]));
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

int Run(const Product& p, int type) {
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
EXPORT int cublasGemmStridedBatchedEx_64(void* handle, int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k,
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
  if (handle != emulated::CardsStream()) return kInvalidValue;
  return emulated::PutOnStream([p, type] { return Run(p, type); });
}

// --- cublasLt. The second algorithm that it names takes less time on the stream than the first one, and both less than a product
// and a pass over its result (MUSTER_EMULATED_CUBLASLT_CALLS=n: n calls more).
namespace {

struct Description {
  int compute = 0, transpose_a = 0, transpose_b = 0, epilogue = 1;
  const void* bias = nullptr;
};
struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t stride;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t alignments[4] = {256, 256, 256, 256};
};
struct Algorithm {
  uint64_t data[8];
};
struct HeuristicResult {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
constexpr int kNotSupported = 15;
constexpr size_t kLtWorkspace = 4096;

bool IsKnown(int epilogue) {
  return epilogue == 1 || epilogue == 4;
}

}  // namespace

EXPORT int cublasLtCreate(void** handle) {
  if (emulated::NumberFrom("MUSTER_EMULATED_CUBLASLT", 1) == 0) return kInvalidValue;
  *handle = emulated::CardsStream();
  return kOk;
}
EXPORT int cublasLtMatmulDescCreate(void** description, int compute, int scale) {
  if (scale != 0 || (compute != 68 && compute != 77)) return kInvalidValue;
  *description = new Description{compute};
  return kOk;
}
EXPORT int cublasLtMatmulDescSetAttribute(void* description, int attribute, const void* value, size_t bytes) {
  auto& d = *static_cast<Description*>(description);
  int* const number = attribute == 3 ? &d.transpose_a : attribute == 4 ? &d.transpose_b : attribute == 7 ? &d.epilogue : nullptr;
  if (number != nullptr && bytes == sizeof(int)) {
    memcpy(number, value, bytes);
    return kOk;
  }
  if (attribute != 8 || bytes != sizeof(d.bias)) return kInvalidValue;
  memcpy(&d.bias, value, bytes);
  return kOk;
}
EXPORT int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns, int64_t stride) {
  if (stride < static_cast<int64_t>(rows)) return kInvalidValue;
  *layout = new Layout{type, rows, columns, stride};
  return kOk;
}
EXPORT int cublasLtMatmulPreferenceCreate(void** preference) {
  *preference = new Preference;
  return kOk;
}
EXPORT int cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value, size_t bytes) {
  auto& p = *static_cast<Preference*>(preference);
  if (attribute == 1 && bytes == sizeof(p.workspace)) {
    memcpy(&p.workspace, value, bytes);
    return kOk;
  }
  if (attribute < 5 || attribute > 8 || bytes != sizeof(uint32_t)) return kInvalidValue;
  memcpy(&p.alignments[attribute - 5], value, bytes);
  return kOk;
}
EXPORT int cublasLtMatmulPreferenceDestroy(void* preference) {
  delete static_cast<Preference*>(preference);
  return kOk;
}
EXPORT int cublasLtMatmulAlgoGetHeuristic(void*, void* description, void*, void*, void*, void*, void* preference, int most,
                                          void* results, int* count) {
  const auto& d = *static_cast<Description*>(description);
  if (!IsKnown(d.epilogue)) return kNotSupported;
  *count = 0;
  for (int i = 0; i < std::min(most, 2); ++i) {
    HeuristicResult result{};
    result.algorithm.data[0] = static_cast<uint64_t>(i);
    result.workspace = i == 0 ? 0 : kLtWorkspace;
    result.state = result.workspace <= static_cast<Preference*>(preference)->workspace ? kOk : kNotSupported;
    static_cast<HeuristicResult*>(results)[(*count)++] = result;
  }
  return kOk;
}
EXPORT int cublasLtMatmul(void* handle, void* description, const void* alpha, const void* a, void* layout_a, const void* b,
                          void* layout_b, const void* beta, const void*, void*, void* d, void* layout_d, const void* algorithm,
                          void* workspace, size_t workspace_bytes, void* stream) {
  const auto& of = *static_cast<Description*>(description);
  const auto &la = *static_cast<Layout*>(layout_a), &lb = *static_cast<Layout*>(layout_b), &ld = *static_cast<Layout*>(layout_d);
  const bool is_second = static_cast<const Algorithm*>(algorithm)->data[0] == 1;
  const uint64_t inner = of.transpose_a == 0 ? la.columns : la.rows;
  const uint64_t rows = of.transpose_a == 0 ? la.rows : la.columns, columns = of.transpose_b == 0 ? lb.columns : lb.rows;
  if (handle != emulated::CardsStream() || stream == nullptr || !IsKnown(of.epilogue) || rows != ld.rows ||
      columns != ld.columns || inner != (of.transpose_b == 0 ? lb.rows : lb.columns))
    return kInvalidValue;
  if (is_second && (workspace_bytes < kLtWorkspace || !emulated::IsOnCard(workspace, kLtWorkspace))) return kInvalidValue;
  const size_t element = la.type == 0 ? 4 : 2;
  if ((of.epilogue & 4) != 0 && !emulated::IsOnCard(of.bias, rows * element)) return kInvalidValue;
  Product p = {of.transpose_a, of.transpose_b,
               static_cast<int64_t>(rows), static_cast<int64_t>(columns), static_cast<int64_t>(inner),
               a, la.stride, 0, b, lb.stride, 0, d, ld.stride, 0, 1,
               double{*static_cast<const float*>(alpha)}, double{*static_cast<const float*>(beta)}};
  p.bias = (of.epilogue & 4) != 0 ? of.bias : nullptr;
  static const size_t more = emulated::NumberFrom("MUSTER_EMULATED_CUBLASLT_CALLS", 0);
  const size_t others = (is_second ? 0 : 1) + (of.epilogue == 1 ? 0 : more);
  for (size_t i = 0; i < others; ++i) emulated::PutOnStream([] { return kOk; });
  return emulated::PutOnStream([p, type = la.type, workspace, is_second] {
    if (is_second) memset(workspace, 0xAB, kLtWorkspace);
    return Run(p, type);
  });
}
