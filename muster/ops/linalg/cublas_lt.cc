#include "muster/ops/linalg/cublas_lt.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "muster/base/log.h"
#include "muster/base/settings.h"
#include "muster/device/gpu/gpu_timer.h"
#include "muster/ops/linalg/cublas.h"

namespace muster {
namespace {

using Handle = struct CublasLtRecord*;
using Description = struct CublasLtDescription*;
using Layout = struct CublasLtLayout*;
using Preference = struct CublasLtPreference*;

struct Algorithm {
  uint64_t data[8];
};
struct HeuristicResult {
  Algorithm algorithm;
  size_t workspace_bytes;
  int state;  // zero: it can be used
  float waves;
  int reserved[4];
};

// Of cublasLt's interface: what is used.
struct CublasLt {
  int (*Create)(Handle* handle);
  int (*CreateDescription)(Description* description, int compute_type, int scale_type);
  int (*SetDescription)(Description description, int attribute, const void* value, size_t bytes);
  int (*CreateLayout)(Layout* layout, int type, uint64_t rows, uint64_t columns, int64_t stride);
  int (*CreatePreference)(Preference* preference);
  int (*SetPreference)(Preference preference, int attribute, const void* value, size_t bytes);
  int (*DestroyPreference)(Preference preference);
  int (*AskHeuristic)(Handle handle, Description description, Layout a, Layout b, Layout c,
                      Layout d, Preference preference, int most, HeuristicResult* results,
                      int* count);
  int (*Multiply)(Handle handle, Description description, const void* alpha, const void* a,
                  Layout layout_a, const void* b, Layout layout_b, const void* beta, const void* c,
                  Layout layout_c, void* d, Layout layout_d, const Algorithm* algorithm,
                  void* workspace, size_t workspace_bytes, cuda::StreamHandle stream);
};

constexpr int kTransposeA = 3, kTransposeB = 4, kEpilogue = 7, kBiasPointer = 8;  // of descriptions
constexpr int kPlain = 1, kWithBias = 4;                                          // epilogues
constexpr int kMostWorkspace = 1, kAlignmentOfA = 5;  // of preferences; then those of b, c and d
constexpr int kComputeFloat = 68, kComputeTf32 = 77;
constexpr int kFloatData = 0;

constexpr int kMostCandidates = 5;
constexpr int kTimedRuns = 3;
constexpr size_t kMostPlans = 4096;
// What a pass over the result would take: the launch, and half of the time to read and write it,
// since it may be part of what comes next.
constexpr float kLaunchMs = 0.001F;
constexpr float kBytesPerMs = 6e9F;

absl::Status Check(int result, const char* what) {
  return result == 0 ? absl::OkStatus() : Internal(what, " failed with the status ", result);
}

absl::StatusOr<const CublasLt*> LoadCublasLt() {
  static const auto* const loaded = [] {
    auto* const result = new absl::StatusOr<const CublasLt*>;
    *result = []() -> absl::StatusOr<const CublasLt*> {
      ASSIGN_OR_RETURN(void* const library,
                       cuda::OpenLibrary("libcublasLt.so", {13, 12}, "cublasLtCreate"));
      static CublasLt lt;
      const auto find = [&](const char* name, auto* function) {
        return cuda::FindFunction(library, name, reinterpret_cast<void**>(function));
      };
      RETURN_IF_ERROR(find("cublasLtCreate", &lt.Create));
      RETURN_IF_ERROR(find("cublasLtMatmulDescCreate", &lt.CreateDescription));
      RETURN_IF_ERROR(find("cublasLtMatmulDescSetAttribute", &lt.SetDescription));
      RETURN_IF_ERROR(find("cublasLtMatrixLayoutCreate", &lt.CreateLayout));
      RETURN_IF_ERROR(find("cublasLtMatmulPreferenceCreate", &lt.CreatePreference));
      RETURN_IF_ERROR(find("cublasLtMatmulPreferenceSetAttribute", &lt.SetPreference));
      RETURN_IF_ERROR(find("cublasLtMatmulPreferenceDestroy", &lt.DestroyPreference));
      RETURN_IF_ERROR(find("cublasLtMatmulAlgoGetHeuristic", &lt.AskHeuristic));
      RETURN_IF_ERROR(find("cublasLtMatmul", &lt.Multiply));
      return &lt;
    }();
    return result;
  }();
  return *loaded;
}

int DataType(DType dtype) {
  return dtype == DType::kHalf ? 2 : dtype == DType::kBfloat16 ? 14 : kFloatData;
}
bool IsOn(const char* variable) {
  const std::string value = EnvironmentVariable(variable);
  return value == "1" || value == "true";
}
int64_t AlignmentOf(const void* pointer) {
  constexpr uintptr_t kMost = 256;
  const uintptr_t bits = reinterpret_cast<uintptr_t>(pointer) | kMost;
  return static_cast<int64_t>(bits & -bits);
}

// All that a plan depends on. Compared by its bytes.
struct PlanKey {
  int64_t dtype, m, n, k, transposes;
  int64_t alignments[4];  // of a, b and c, and the bias, in cublasLt's order
};
PlanKey KeyOf(DType dtype, const GpuBiasedProduct& p) {
  return {static_cast<int64_t>(dtype),
          p.shape.m,
          p.shape.n,
          p.shape.k,
          (p.shape.transpose_a ? 1 : 0) + (p.shape.transpose_b ? 2 : 0),
          {AlignmentOf(p.b), AlignmentOf(p.a), AlignmentOf(p.c), AlignmentOf(p.bias)}};
}

// A way to compute products of one kind. Its parts are never given back: plans live as long as the
// process.
struct Plan {
  Description description = nullptr;
  Layout a = nullptr, b = nullptr, c = nullptr;  // in cublasLt's order
  Algorithm algorithm{};
  size_t workspace_bytes = 0;
};

// Of one card. Thread-safe.
class BiasedProducts {
 public:
  static absl::StatusOr<BiasedProducts*> Of(Gpu& gpu) {
    static auto* const mutex = new Mutex;
    static auto* const all = new std::map<int, absl::StatusOr<std::unique_ptr<BiasedProducts>>>;
    MutexLock lock(*mutex);
    auto found = all->find(gpu.ordinal());
    if (found == all->end()) found = all->emplace(gpu.ordinal(), Start(gpu)).first;
    RETURN_IF_ERROR(found->second.status());
    return found->second->get();
  }

  // Null where the parts are better.
  absl::StatusOr<const Plan*> Find(DType dtype, const GpuBiasedProduct& product) {
    const PlanKey key = KeyOf(dtype, product);
    const std::string text(reinterpret_cast<const char*>(&key), sizeof(key));
    {
      MutexLock lock(mutex_);
      const auto found = plans_.find(text);
      if (found != plans_.end()) return found->second.get();
      if (plans_.size() >= kMostPlans) return nullptr;
    }
    MutexLock timing(timing_mutex_);
    RETURN_IF_ERROR(gpu_.MakeCurrent());
    absl::StatusOr<std::unique_ptr<const Plan>> made = Choose(dtype, product, key);
    if (!made.ok()) {
      LOG(WARNING) << "cublasLt computes no product of " << product.shape.m << " x "
                   << product.shape.k << " x " << product.shape.n
                   << " with a bias: " << made.status().message();
      made = std::unique_ptr<const Plan>();
    }
    MutexLock lock(mutex_);
    return plans_.try_emplace(text, *std::move(made)).first->second.get();
  }

  absl::Status Run(const Plan& plan, const GpuBiasedProduct& p) {
    static constexpr float kOne = 1, kZero = 0;
    MutexLock lock(handle_mutex_);
    if (p.bias != nullptr) {
      RETURN_IF_ERROR(Check(
          lt_.SetDescription(plan.description, kBiasPointer, &p.bias, sizeof(p.bias)), "bias"));
    }
    return Check(lt_.Multiply(handle_, plan.description, &kOne, p.b, plan.a, p.a, plan.b, &kZero,
                              p.c, plan.c, p.c, plan.c, &plan.algorithm, workspace_.memory,
                              plan.workspace_bytes, gpu_.stream_handle()),
                 "cublasLtMatmul");
  }
  void* workspace() const { return workspace_.memory; }

 private:
  BiasedProducts(Gpu& gpu, const CublasLt& lt, Handle handle, GpuWorkspace workspace)
      : gpu_(gpu), lt_(lt), handle_(handle), workspace_(workspace), timer_(gpu) {}

  static absl::StatusOr<std::unique_ptr<BiasedProducts>> Start(Gpu& gpu) {
    ASSIGN_OR_RETURN(const CublasLt* const lt, LoadCublasLt());
    RETURN_IF_ERROR(gpu.MakeCurrent());
    Handle handle = nullptr;
    RETURN_IF_ERROR(Check(lt->Create(&handle), "cublasLtCreate"));
    return std::unique_ptr<BiasedProducts>(
        new BiasedProducts(gpu, *lt, handle, WorkspaceOfGpuProducts(gpu)));
  }

  // The transpose of what is asked for, since cublasLt has columns where we have rows.
  absl::StatusOr<Plan> Describe(DType dtype, const GpuBiasedProduct& p, int epilogue) const {
    const int type = DataType(dtype);
    static const bool no_tf32 = EnvironmentVariable("NVIDIA_TF32_OVERRIDE") == "0";
    const int compute = type == kFloatData && !no_tf32 ? kComputeTf32 : kComputeFloat;
    const GemmShape& s = p.shape;
    Plan plan;
    RETURN_IF_ERROR(Check(lt_.CreateDescription(&plan.description, compute, kFloatData),
                          "cublasLtMatmulDescCreate"));
    const auto set = [&](int attribute, int value) {
      return Check(lt_.SetDescription(plan.description, attribute, &value, sizeof(value)),
                   "cublasLtMatmulDescSetAttribute");
    };
    RETURN_IF_ERROR(set(kTransposeA, s.transpose_b ? 1 : 0));
    RETURN_IF_ERROR(set(kTransposeB, s.transpose_a ? 1 : 0));
    RETURN_IF_ERROR(set(kEpilogue, epilogue));
    const auto layout = [&](Layout* made, int64_t rows, int64_t columns) {
      return Check(lt_.CreateLayout(made, type, static_cast<uint64_t>(columns),
                                    static_cast<uint64_t>(rows), columns),
                   "cublasLtMatrixLayoutCreate");
    };
    RETURN_IF_ERROR(s.transpose_b ? layout(&plan.a, s.n, s.k) : layout(&plan.a, s.k, s.n));
    RETURN_IF_ERROR(s.transpose_a ? layout(&plan.b, s.k, s.m) : layout(&plan.b, s.m, s.k));
    RETURN_IF_ERROR(layout(&plan.c, s.m, s.n));
    return plan;
  }

  absl::StatusOr<std::vector<Plan>> Candidates(DType dtype, const GpuBiasedProduct& p,
                                               const PlanKey& key, int epilogue, int most) const {
    ASSIGN_OR_RETURN(const Plan described, Describe(dtype, p, epilogue));
    if (p.bias != nullptr && epilogue != kPlain) {
      RETURN_IF_ERROR(
          Check(lt_.SetDescription(described.description, kBiasPointer, &p.bias, sizeof(p.bias)),
                "bias"));
    }
    Preference preference = nullptr;
    RETURN_IF_ERROR(Check(lt_.CreatePreference(&preference), "cublasLtMatmulPreferenceCreate"));
    const size_t bytes = workspace_.bytes;
    int result = lt_.SetPreference(preference, kMostWorkspace, &bytes, sizeof(bytes));
    for (const int operand : {0, 1, 2, 3}) {  // c is d as well
      const auto alignment = static_cast<uint32_t>(key.alignments[std::min(operand, 2)]);
      if (result == 0)
        result =
            lt_.SetPreference(preference, kAlignmentOfA + operand, &alignment, sizeof(alignment));
    }
    std::array<HeuristicResult, kMostCandidates> found{};
    int count = 0;
    if (result == 0) {
      result = lt_.AskHeuristic(handle_, described.description, described.a, described.b,
                                described.c, described.c, preference, most, found.data(), &count);
    }
    lt_.DestroyPreference(preference);
    RETURN_IF_ERROR(Check(result, "cublasLtMatmulAlgoGetHeuristic"));
    std::vector<Plan> plans;
    for (int i = 0; i < std::min(count, most); ++i) {
      if (found[i].state != 0 || found[i].workspace_bytes > bytes) continue;
      plans.push_back(described);
      plans.back().algorithm = found[i].algorithm;
      plans.back().workspace_bytes = found[i].workspace_bytes;
    }
    if (plans.empty()) return NotFound("no algorithm takes it");
    return plans;
  }

  absl::StatusOr<std::unique_ptr<const Plan>> Choose(DType dtype, const GpuBiasedProduct& product,
                                                     const PlanKey& key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(timing_mutex_) {
    static const bool only_deterministic = IsOn("TF_DETERMINISTIC_OPS");
    ASSIGN_OR_RETURN(
        const std::vector<Plan> fused,
        Candidates(dtype, product, key, kWithBias, only_deterministic ? 1 : kMostCandidates));
    if (only_deterministic) return std::make_unique<const Plan>(fused.front());
    ASSIGN_OR_RETURN(const std::vector<Plan> plain, Candidates(dtype, product, key, kPlain, 1));
    const auto result_bytes = static_cast<float>(product.shape.m * product.shape.n *
                                                 static_cast<int64_t>(DTypeSize(dtype)));
    float least = 0;
    const Plan* best = nullptr;
    GpuTimer& timer = timer_;
    RETURN_IF_ERROR(gpu_.RunNow([&]() -> absl::Status {
      GpuBiasedProduct without = product;
      without.bias = nullptr;
      ASSIGN_OR_RETURN(const float apart, Time(plain.front(), without, timer));
      least = apart + kLaunchMs + result_bytes / kBytesPerMs;
      for (const Plan& candidate : fused) {
        const absl::StatusOr<float> time = Time(candidate, product, timer);
        if (!time.ok() || *time >= least) continue;
        least = *time;
        best = &candidate;
      }
      return absl::OkStatus();
    }));
    std::unique_ptr<const Plan> chosen;
    if (best != nullptr) chosen = std::make_unique<const Plan>(*best);
    return chosen;
  }

  absl::StatusOr<float> Time(const Plan& plan, const GpuBiasedProduct& product, GpuTimer& timer) {
    RETURN_IF_ERROR(Run(plan, product));
    RETURN_IF_ERROR(timer.Begin());
    for (int i = 0; i < kTimedRuns; ++i) RETURN_IF_ERROR(Run(plan, product));
    ASSIGN_OR_RETURN(const float milliseconds, timer.End());
    return milliseconds / kTimedRuns;
  }

  Gpu& gpu_;
  const CublasLt& lt_;
  // Held while a product is timed; the others are taken behind it.
  Mutex timing_mutex_;
  Mutex handle_mutex_;
  const Handle handle_;
  const GpuWorkspace workspace_;  // what is on the stream uses it one after the other
  GpuTimer timer_ ABSL_GUARDED_BY(timing_mutex_);
  Mutex mutex_;
  absl::flat_hash_map<std::string, std::unique_ptr<const Plan>> plans_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<bool> MultiplyWithBiasOnGpu(Gpu& gpu, DType dtype, const GpuBiasedProduct& product) {
  const GemmShape& s = product.shape;
  if (s.m == 0 || s.n == 0 || s.k == 0) return false;
  const absl::StatusOr<BiasedProducts*> products = BiasedProducts::Of(gpu);
  if (!products.ok()) return false;
  ASSIGN_OR_RETURN(const Plan* const plan, (*products)->Find(dtype, product));
  if (plan == nullptr) return false;
  const struct {
    char kind[8];
    const Plan* plan;
    const void *a, *b, *bias, *c;
  } key = {"biased", plan, product.a, product.b, product.bias, product.c};
  const void* const reads[] = {product.a, product.b, product.bias};
  void* const writes[] = {product.c, (*products)->workspace()};
  RETURN_IF_ERROR(gpu.AddLibraryCall(
      absl::MakeConstSpan(reinterpret_cast<const char*>(&key), sizeof(key)),
      GpuAccesses{reads, writes},
      [products = *products, plan, product] { return products->Run(*plan, product); }));
  return true;
}

}  // namespace muster
