#include "muster/ops/linalg/cublas.h"

#include <map>
#include <memory>

namespace muster {
namespace {

using Handle = struct CublasRecord*;

// Of cuBLAS' interface: what is used.
struct Cublas {
  int (*Create)(Handle* handle);
  int (*SetStream)(Handle handle, cuda::StreamHandle stream);
  int (*SetWorkspace)(Handle handle, void* memory, size_t bytes);
  int (*Multiply)(Handle handle, int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k,
                  const void* alpha, const void* a, int type_a, int64_t lda, long long stride_a,
                  const void* b, int type_b, int64_t ldb, long long stride_b, const void* beta,
                  void* c, int type_c, int64_t ldc, long long stride_c, int64_t count,
                  int compute_type, int algorithm);
};

constexpr int kAsItIs = 0, kTransposed = 1, kAdjoint = 2;
constexpr int kComputeFloat = 68, kComputeTf32 = 77, kComputeDouble = 70;
constexpr int kAnyAlgorithm = -1;
constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // what cuBLAS recommends for Hopper

struct ElementType {
  int type;
  int compute_type;
};

absl::StatusOr<ElementType> TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return ElementType{0, kComputeTf32};
    case DType::kDouble:
      return ElementType{1, kComputeDouble};
    case DType::kHalf:
      return ElementType{2, kComputeFloat};
    case DType::kBfloat16:
      return ElementType{14, kComputeFloat};
    case DType::kComplex64:
      return ElementType{4, kComputeTf32};
    case DType::kComplex128:
      return ElementType{5, kComputeDouble};
    default:
      return Unimplemented("matrix products of ", DTypeName(dtype), " on a GPU");
  }
}

absl::StatusOr<const Cublas*> LoadCublas() {
  static const auto* const loaded = [] {
    auto* const result = new absl::StatusOr<const Cublas*>;
    *result = []() -> absl::StatusOr<const Cublas*> {
      ASSIGN_OR_RETURN(void* const library,
                       cuda::OpenLibrary("libcublas.so", {13, 12}, "cublasCreate_v2"));
      static Cublas cublas;
      const auto find = [&](const char* name, auto* function) {
        return cuda::FindFunction(library, name, reinterpret_cast<void**>(function));
      };
      RETURN_IF_ERROR(find("cublasCreate_v2", &cublas.Create));
      RETURN_IF_ERROR(find("cublasSetStream_v2", &cublas.SetStream));
      RETURN_IF_ERROR(find("cublasSetWorkspace_v2", &cublas.SetWorkspace));
      RETURN_IF_ERROR(find("cublasGemmStridedBatchedEx_64", &cublas.Multiply));
      return &cublas;
    }();
    return result;
  }();
  return *loaded;
}

// A handle keeps state between calls, so one thread uses it at a time.
struct CardProducts {
  Mutex mutex;
  Handle handle ABSL_GUARDED_BY(mutex) = nullptr;
  Buffer workspace ABSL_GUARDED_BY(mutex);
};

CardProducts& ProductsOf(const Gpu& gpu) {
  static auto* const mutex = new Mutex;
  static auto* const all = new std::map<int, std::unique_ptr<CardProducts>>;
  MutexLock lock(*mutex);
  std::unique_ptr<CardProducts>& found = (*all)[gpu.ordinal()];
  if (found == nullptr) found = std::make_unique<CardProducts>();
  return *found;
}

absl::Status Check(int result, const char* what) {
  if (result == 0) return absl::OkStatus();
  return Internal(what, " failed with the status ", result);
}

// 1, -1 or 0 in the type that sums are kept in.
const void* Number(int compute_type, int value) {
  // As real and as complex numbers alike.
  static constexpr float kFloats[] = {-1, 0, 0, 0, 1, 0};
  static constexpr double kDoubles[] = {-1, 0, 0, 0, 1, 0};
  const int at = 2 * (value + 1);
  return compute_type == kComputeDouble ? static_cast<const void*>(kDoubles + at) : kFloats + at;
}

int Operation(bool transpose, bool conjugate) {
  return !transpose ? kAsItIs : conjugate ? kAdjoint : kTransposed;
}

}  // namespace

absl::Status PrepareGpuProducts(Gpu& gpu) {
  ASSIGN_OR_RETURN(const Cublas* const cublas, LoadCublas());
  RETURN_IF_ERROR(gpu.MakeCurrent());
  CardProducts& card = ProductsOf(gpu);
  {
    MutexLock lock(card.mutex);
    if (card.handle != nullptr) return absl::OkStatus();
  }
  // No lock is held while memory is taken, which may have to wait for the card.
  Buffer workspace = gpu.memory().Allocate(kWorkspaceBytes);
  MutexLock lock(card.mutex);
  if (card.handle != nullptr) return absl::OkStatus();
  Handle handle = nullptr;
  RETURN_IF_ERROR(Check(cublas->Create(&handle), "cublasCreate"));
  RETURN_IF_ERROR(Check(cublas->SetStream(handle, gpu.stream_handle()), "cublasSetStream"));
  if (workspace) {
    RETURN_IF_ERROR(Check(cublas->SetWorkspace(handle, workspace.data(), kWorkspaceBytes),
                          "cublasSetWorkspace"));
  }
  card.workspace = std::move(workspace);
  card.handle = handle;
  return absl::OkStatus();
}

GpuWorkspace WorkspaceOfGpuProducts(const Gpu& gpu) {
  CardProducts& card = ProductsOf(gpu);
  MutexLock lock(card.mutex);
  if (!card.workspace) return {};
  return {card.workspace.data(), kWorkspaceBytes};
}

// cuBLAS has columns where we have rows: a row-major matrix is its transpose there, and the
// transpose of c = a b is b' a'.
absl::Status MultiplyOnGpu(Gpu& gpu, DType dtype, const GpuProducts& products) {
  const GemmShape& shape = products.shape;
  if (shape.m == 0 || shape.n == 0 || products.count == 0) return absl::OkStatus();
  const bool keeps = products.adds || products.subtracts;
  if (shape.k == 0 && keeps) return absl::OkStatus();
  if (shape.k == 0) {
    const auto elements = static_cast<size_t>(shape.m * shape.n * products.count);
    return gpu.Fill(products.c, 0, elements * DTypeSize(dtype));
  }
  ASSIGN_OR_RETURN(ElementType type, TypeOf(dtype));
  if (products.is_exact && type.compute_type == kComputeTf32) type.compute_type = kComputeFloat;
  ASSIGN_OR_RETURN(const Cublas* const cublas, LoadCublas());
  CardProducts& card = ProductsOf(gpu);
  const auto multiply = [cublas, &card, type, products, keeps]() -> absl::Status {
    const GemmShape& size = products.shape;
    const int64_t lda = size.lda != 0 ? size.lda : size.transpose_a ? size.m : size.k;
    const int64_t ldb = size.ldb != 0 ? size.ldb : size.transpose_b ? size.k : size.n;
    const int64_t ldc = size.ldc != 0 ? size.ldc : size.n;
    MutexLock lock(card.mutex);
    return Check(cublas->Multiply(
                     card.handle, Operation(size.transpose_b, size.conjugate_b),
                     Operation(size.transpose_a, size.conjugate_a), size.n, size.m, size.k,
                     Number(type.compute_type, products.subtracts ? -1 : 1), products.b, type.type,
                     ldb, products.stride_b, products.a, type.type, lda, products.stride_a,
                     Number(type.compute_type, keeps ? 1 : 0), products.c, type.type, ldc,
                     products.stride_c, products.count, type.compute_type, kAnyAlgorithm),
                 "cublasGemmStridedBatchedEx");
  };
  const struct {
    char kind[8];
    int64_t dtype, m, n, k, lda, ldb, ldc, flags, count, stride_a, stride_b, stride_c;
    const void *a, *b, *c;
  } key = {"product",
           static_cast<int64_t>(dtype),
           shape.m,
           shape.n,
           shape.k,
           shape.lda,
           shape.ldb,
           shape.ldc,
           Operation(shape.transpose_a, shape.conjugate_a) * 4 +
               Operation(shape.transpose_b, shape.conjugate_b) + (products.adds ? 16 : 0) +
               (products.subtracts ? 32 : 0) + (products.is_exact ? 64 : 0),
           products.count,
           products.stride_a,
           products.stride_b,
           products.stride_c,
           products.a,
           products.b,
           products.c};
  const void* const reads[] = {products.a, products.b};
  void* const writes[] = {products.c};
  return gpu.AddLibraryCall(absl::MakeConstSpan(reinterpret_cast<const char*>(&key), sizeof(key)),
                            GpuAccesses{reads, writes}, multiply);
}

}  // namespace muster
