#include "muster/ops/signal/cufft.h"

#include <atomic>
#include <cstring>
#include <list>
#include <string>
#include <utility>

#include "muster/base/mutex.h"

namespace muster {
namespace {

// Of cuFFT's interface: what is used.
struct Cufft {
  int (*Create)(int* plan);
  int (*Destroy)(int plan);
  int (*SetAutoAllocation)(int plan, int allocates);
  int (*SetStream)(int plan, cuda::StreamHandle stream);
  int (*SetWorkArea)(int plan, void* memory);
  int (*MakePlan)(int plan, int rank, long long* lengths, long long* in_embed, long long in_stride,
                  long long in_distance, long long* out_embed, long long out_stride,
                  long long out_distance, int type, long long batch, size_t* workspace_bytes);
  int (*ComplexToComplex)(int plan, void* in, void* out, int direction);
  int (*DoubleToDouble)(int plan, void* in, void* out, int direction);
  int (*RealToComplex)(int plan, void* in, void* out);
  int (*RealToDouble)(int plan, void* in, void* out);
  int (*ComplexToReal)(int plan, void* in, void* out);
  int (*DoubleToReal)(int plan, void* in, void* out);
};
constexpr int kForward = -1, kInverse = 1;

// More plans than these: the one whose use was the longest ago goes.
constexpr size_t kMostPlans = 256;

absl::StatusOr<const Cufft*> FindCufft() {
  ASSIGN_OR_RETURN(void* const library, cuda::OpenLibrary("libcufft.so", {12, 11}, "cufftCreate"));
  static Cufft cufft;
  const auto find = [&](const char* name, auto* function) {
    return cuda::FindFunction(library, name, reinterpret_cast<void**>(function));
  };
  RETURN_IF_ERROR(find("cufftCreate", &cufft.Create));
  RETURN_IF_ERROR(find("cufftDestroy", &cufft.Destroy));
  RETURN_IF_ERROR(find("cufftSetAutoAllocation", &cufft.SetAutoAllocation));
  RETURN_IF_ERROR(find("cufftSetStream", &cufft.SetStream));
  RETURN_IF_ERROR(find("cufftSetWorkArea", &cufft.SetWorkArea));
  RETURN_IF_ERROR(find("cufftMakePlanMany64", &cufft.MakePlan));
  RETURN_IF_ERROR(find("cufftExecC2C", &cufft.ComplexToComplex));
  RETURN_IF_ERROR(find("cufftExecZ2Z", &cufft.DoubleToDouble));
  RETURN_IF_ERROR(find("cufftExecR2C", &cufft.RealToComplex));
  RETURN_IF_ERROR(find("cufftExecD2Z", &cufft.RealToDouble));
  RETURN_IF_ERROR(find("cufftExecC2R", &cufft.ComplexToReal));
  RETURN_IF_ERROR(find("cufftExecZ2D", &cufft.DoubleToReal));
  return &cufft;
}

absl::StatusOr<const Cufft*> LoadCufft() {
  static const auto* const loaded = new absl::StatusOr<const Cufft*>(FindCufft());
  return *loaded;
}

absl::Status Check(int result, const char* what) {
  if (result == 0) return absl::OkStatus();
  return Internal(what, " failed with the status ", result);
}

int TypeOf(const CufftTransform& transform) {
  const bool in_double = transform.in_double != 0;
  switch (transform.kind) {
    case FourierKind::kFromReal:
      return in_double ? 0x6a : 0x2a;
    case FourierKind::kToReal:
      return in_double ? 0x6c : 0x2c;
    default:
      return in_double ? 0x69 : 0x29;
  }
}

}  // namespace

class CufftPlan {
 public:
  CufftPlan(const Cufft& cufft, const CufftTransform& transform)
      : cufft_(cufft), transform_(transform), serial_(++last_serial_) {}
  CufftPlan(const CufftPlan&) = delete;
  CufftPlan& operator=(const CufftPlan&) = delete;
  ~CufftPlan() {
    if (plan_ != kNone) cufft_.Destroy(plan_);
  }

  absl::Status Make(const Gpu& gpu) {
    RETURN_IF_ERROR(gpu.MakeCurrent());
    RETURN_IF_ERROR(Check(cufft_.Create(&plan_), "cufftCreate"));
    RETURN_IF_ERROR(Check(cufft_.SetAutoAllocation(plan_, 0), "cufftSetAutoAllocation"));
    long long lengths[3] = {};
    std::copy_n(transform_.lengths, transform_.rank, lengths);
    RETURN_IF_ERROR(Check(
        cufft_.MakePlan(plan_, static_cast<int>(transform_.rank), lengths, nullptr, 1, 1, nullptr,
                        1, 1, TypeOf(transform_), transform_.batch, &workspace_bytes_),
        "cufftMakePlanMany64"));
    return Check(cufft_.SetStream(plan_, gpu.stream_handle()), "cufftSetStream");
  }
  // A plan remembers where its workspace is, so one thread uses it at a time.
  absl::Status Run(void* in, void* out, void* workspace) const {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(Check(cufft_.SetWorkArea(plan_, workspace), "cufftSetWorkArea"));
    const bool in_double = transform_.in_double != 0;
    if (transform_.kind == FourierKind::kComplex) {
      const auto run = in_double ? cufft_.DoubleToDouble : cufft_.ComplexToComplex;
      return Check(run(plan_, in, out, transform_.inverse != 0 ? kInverse : kForward),
                   "a transform of cuFFT's");
    }
    const auto run = transform_.kind == FourierKind::kFromReal
                         ? in_double ? cufft_.RealToDouble : cufft_.RealToComplex
                     : in_double ? cufft_.DoubleToReal
                                 : cufft_.ComplexToReal;
    return Check(run(plan_, in, out), "a transform of cuFFT's");
  }
  int64_t serial() const { return serial_; }
  int64_t workspace_bytes() const { return static_cast<int64_t>(workspace_bytes_); }

 private:
  static constexpr int kNone = -1;
  static std::atomic<int64_t> last_serial_;

  const Cufft& cufft_;
  const CufftTransform transform_;
  const int64_t serial_;  // no other plan of the process has it
  int plan_ = kNone;
  size_t workspace_bytes_ = 0;
  mutable Mutex mutex_;
};
std::atomic<int64_t> CufftPlan::last_serial_{0};

namespace {

// The plans of the process, those used last first.
struct KnownPlans {
  struct Entry {
    std::string key;
    std::shared_ptr<const CufftPlan> plan;
  };
  Mutex mutex;
  std::list<Entry> entries ABSL_GUARDED_BY(mutex);

  std::shared_ptr<const CufftPlan> Find(const std::string& key) {
    MutexLock lock(mutex);
    for (auto at = entries.begin(); at != entries.end(); ++at) {
      if (at->key != key) continue;
      entries.splice(entries.begin(), entries, at);
      return at->plan;
    }
    return nullptr;
  }
  void Add(std::string key, std::shared_ptr<const CufftPlan> plan) {
    std::list<Entry> gone;  // behind the lock
    MutexLock lock(mutex);
    entries.push_front({std::move(key), std::move(plan)});
    if (entries.size() > kMostPlans) gone.splice(gone.begin(), entries, std::prev(entries.end()));
  }
};

KnownPlans& Plans() {
  static auto* const plans = new KnownPlans;
  return *plans;
}

}  // namespace

absl::Status PrepareCufft() {
  return LoadCufft().status();
}

absl::StatusOr<std::shared_ptr<const CufftPlan>> FindCufftPlan(Gpu& gpu,
                                                               const CufftTransform& transform) {
  ASSIGN_OR_RETURN(const Cufft* const cufft, LoadCufft());
  std::string key(reinterpret_cast<const char*>(&transform), sizeof(transform));
  absl::StrAppend(&key, gpu.ordinal());
  if (std::shared_ptr<const CufftPlan> known = Plans().Find(key)) return known;
  auto plan = std::make_shared<CufftPlan>(*cufft, transform);
  RETURN_IF_ERROR(plan->Make(gpu));
  Plans().Add(std::move(key), plan);
  return plan;
}

int64_t WorkspaceBytes(const CufftPlan& plan) {
  return plan.workspace_bytes();
}

absl::Status RunCufft(Gpu& gpu, std::shared_ptr<const CufftPlan> plan, void* in, void* out,
                      void* workspace) {
  const struct {
    char kind[8];
    int64_t serial;
    void *in, *out, *workspace;
  } key = {"cufft", plan->serial(), in, out, workspace};
  return gpu.AddLibraryCall(
      absl::MakeConstSpan(reinterpret_cast<const char*>(&key), sizeof(key)),
      [plan = std::move(plan), in, out, workspace] { return plan->Run(in, out, workspace); });
}

}  // namespace muster
