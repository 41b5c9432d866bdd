#include "muster/device/gpu/gpu_times.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "muster/base/clock.h"
#include "muster/device/gpu/gpu.h"
#include "muster/device/running_node.h"

namespace muster {
namespace {

// Events that know their time, of each card, for the next traced step.
struct FreeEvents {
  Mutex mutex;
  std::map<const Gpu*, std::vector<cuda::Event>> of_card ABSL_GUARDED_BY(mutex);
};

FreeEvents& TheFreeEvents() {
  static auto* const free = new FreeEvents;
  return *free;
}

absl::StatusOr<cuda::Event> RecordedEvent(Gpu& gpu) {
  FreeEvents& free = TheFreeEvents();
  cuda::Event event = nullptr;
  {
    MutexLock lock(free.mutex);
    std::vector<cuda::Event>& events = free.of_card[&gpu];
    if (!events.empty()) {
      event = events.back();
      events.pop_back();
    }
  }
  if (event == nullptr)
    RETURN_IF_ERROR(gpu.Check(gpu.driver().EventCreate(&event, /*flags=*/0), "cuEventCreate"));
  RETURN_IF_ERROR(gpu.Check(gpu.driver().EventRecord(event, gpu.stream_handle()), "cuEventRecord"));
  return event;
}

void GiveBack(const Gpu* gpu, cuda::Event event) {
  if (event == nullptr) return;
  FreeEvents& free = TheFreeEvents();
  MutexLock lock(free.mutex);
  free.of_card[gpu].push_back(event);
}

std::string Describe(const Gpu& gpu, const GpuCall& call) {
  switch (call.kind) {
    case GpuCall::Kind::kCopyIn:
      return absl::StrCat("MEMCPYHtoD ", call.bytes, " bytes");
    case GpuCall::Kind::kCopyOut:
      return absl::StrCat("MEMCPYDtoH ", call.bytes, " bytes");
    case GpuCall::Kind::kCopyWithin:
      return absl::StrCat("MEMCPYDtoD ", call.bytes, " bytes");
    case GpuCall::Kind::kFill:
      return absl::StrCat("MEMSET ", call.bytes, " bytes");
    case GpuCall::Kind::kLibrary:
      return "call of a library";
    default:
      const GpuGrid& grid = call.grid;
      return absl::StrCat(const_cast<Gpu&>(gpu).programs().NameOf(call.function),
                          " grid:", grid.blocks_x, ",", grid.blocks_y, ",", grid.blocks_z,
                          " block:", grid.threads_x, ",", grid.threads_y, ",", grid.threads_z);
  }
}

}  // namespace

GpuTimes::~GpuTimes() {
  Take();
}

absl::StatusOr<GpuTimes::Base> GpuTimes::BaseOf(Gpu& gpu) {
  {
    MutexLock lock(mutex_);
    for (const Base& base : bases_)
      if (base.gpu == &gpu) return base;
  }
  Base base;
  base.gpu = &gpu;
  ASSIGN_OR_RETURN(base.event, RecordedEvent(gpu));
  RETURN_IF_ERROR(
      gpu.Check(gpu.driver().StreamSynchronize(gpu.stream_handle()), "work on the GPU"));
  base.nanos = Clock::Real().NowNanos();
  MutexLock lock(mutex_);
  bases_.push_back(base);
  return base;
}

absl::Status GpuTimes::Time(Gpu& gpu, const GpuCall& call, absl::FunctionRef<absl::Status()> run) {
  const NodeAtWork& at_work = RunningNode::Current();
  Pending pending;
  ASSIGN_OR_RETURN(pending.base, BaseOf(gpu));
  pending.call.device = *at_work.device;
  pending.call.node = *at_work.node;
  pending.call.op = *at_work.op;
  pending.call.what = Describe(gpu, call);
  pending.call.is_copy = call.kind == GpuCall::Kind::kCopyIn ||
                         call.kind == GpuCall::Kind::kCopyOut ||
                         call.kind == GpuCall::Kind::kCopyWithin;
  ASSIGN_OR_RETURN(pending.begin, RecordedEvent(gpu));
  const absl::Status status = run();
  if (status.ok()) {
    const absl::StatusOr<cuda::Event> end = RecordedEvent(gpu);
    if (end.ok()) pending.end = *end;
  }
  MutexLock lock(mutex_);
  pending_.push_back(std::move(pending));
  return status;
}

std::vector<GpuTimedCall> GpuTimes::Take() {
  std::vector<Base> bases;
  std::vector<Pending> pending;
  {
    MutexLock lock(mutex_);
    bases.swap(bases_);
    pending.swap(pending_);
  }
  std::vector<GpuTimedCall> calls;
  for (Pending& each : pending) {
    const Gpu& gpu = *each.base.gpu;
    float start_ms = 0, took_ms = 0;
    const bool is_timed =
        each.end != nullptr && gpu.MakeCurrent().ok() &&
        gpu.driver().EventElapsedTime(&start_ms, each.base.event, each.begin) == 0 &&
        gpu.driver().EventElapsedTime(&took_ms, each.begin, each.end) == 0;
    if (is_timed) {
      each.call.start_nanos = each.base.nanos + static_cast<int64_t>(start_ms * 1e6);
      each.call.end_nanos = each.call.start_nanos + static_cast<int64_t>(took_ms * 1e6);
      calls.push_back(std::move(each.call));
    }
    GiveBack(&gpu, each.begin);
    GiveBack(&gpu, each.end);
  }
  for (const Base& base : bases) GiveBack(base.gpu, base.event);
  return calls;
}

}  // namespace muster
