#include "muster/device/gpu/gpu.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

#include "muster/base/log.h"
#include "muster/base/threads/thread_name.h"
#include "muster/base/threads/waiting_thread.h"
#include "muster/device/device_failure.h"
#include "muster/device/gpu/gpu_report.h"
#include "muster/device/gpu/peer_memory.h"

namespace muster {
namespace {

// Events are looked at this long before the thread sleeps: waking it costs as much as a small step.
constexpr absl::Duration kSpin = absl::Microseconds(300);
// Buffers that wait for the stream are looked at when there are so many bytes of them.
constexpr int64_t kMostKeptBytes = int64_t{64} << 20;
// Copies to the host are waited for together until they have so many bytes, which take about as
// long as to start twenty functions.
constexpr size_t kMostCopiedTogether = size_t{4} << 20;

thread_local cuda::Context current_context = nullptr;

// Set once.
std::atomic<const std::vector<Gpu*>*> started{nullptr};

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

absl::StatusOr<std::vector<Gpu*>> Gpu::All() {
  static const auto* const cards = [] {
    auto* const made = new absl::StatusOr<std::vector<Gpu*>>;
    *made = [&]() -> absl::StatusOr<std::vector<Gpu*>> {
      ASSIGN_OR_RETURN(const cuda::Driver* const driver, cuda::LoadDriver());
      int count = 0;
      RETURN_IF_ERROR(cuda::Check(driver->DeviceGetCount(&count), "cuDeviceGetCount"));
      std::vector<Gpu*> all;
      for (int i = 0; i < count; ++i) {
        std::unique_ptr<Gpu> gpu(new Gpu(i, *driver));
        RETURN_IF_ERROR(gpu->Start());
        all.push_back(gpu.release());
      }
      return all;
    }();
    if (made->ok()) {
      started.store(&**made, std::memory_order_release);
      if (!(*made)->empty()) PeerMemory::Global().Start(*(*made)->front());
    }
    return made;
  }();
  return *cards;
}

std::vector<Gpu*> Gpu::Started() {
  const std::vector<Gpu*>* const cards = started.load(std::memory_order_acquire);
  return cards == nullptr ? std::vector<Gpu*>() : *cards;
}

std::vector<GpuReport> GpuReports() {
  std::vector<GpuReport> reports;
  for (Gpu* const gpu : Gpu::Started()) {
    const GpuWork::Counts counts = gpu->work_counts();
    const Allocator::Usage usage = gpu->memory().usage();
    reports.push_back({gpu->ordinal(), gpu->name(), static_cast<int64_t>(gpu->total_bytes()),
                       static_cast<int64_t>(gpu->memory().taken_bytes()), usage.bytes_in_use,
                       usage.peak_bytes_in_use, counts.calls, counts.replayed, counts.graphs,
                       counts.saved});
  }
  return reports;
}

absl::Status Gpu::Start() {
  RETURN_IF_ERROR(cuda::Check(driver_.DeviceGet(&device_, ordinal_), "cuDeviceGet"));
  char name[256] = "";
  RETURN_IF_ERROR(
      cuda::Check(driver_.DeviceGetName(name, sizeof(name), device_), "cuDeviceGetName"));
  name_ = name;
  RETURN_IF_ERROR(cuda::Check(driver_.DeviceTotalMem(&total_bytes_, device_), "cuDeviceTotalMem"));
  const auto read = [&](int attribute, int* value) {
    return cuda::Check(driver_.DeviceGetAttribute(value, attribute, device_),
                       "cuDeviceGetAttribute");
  };
  int major = 0, minor = 0, bus = 0, slot = 0, domain = 0;
  RETURN_IF_ERROR(read(cuda::kComputeMajor, &major));
  RETURN_IF_ERROR(read(cuda::kComputeMinor, &minor));
  RETURN_IF_ERROR(read(cuda::kMultiprocessors, &multiprocessors_));
  RETURN_IF_ERROR(read(cuda::kPciBus, &bus));
  RETURN_IF_ERROR(read(cuda::kPciDevice, &slot));
  RETURN_IF_ERROR(read(cuda::kPciDomain, &domain));
  compute_capability_ = 10 * major + minor;
  description_ = absl::StrFormat(
      "device: %d, name: %s, pci bus id: %04x:%02x:%02x.0, compute capability: %d.%d", ordinal_,
      name_, domain, bus, slot, major, minor);
  RETURN_IF_ERROR(
      cuda::Check(driver_.DevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain"));
  RETURN_IF_ERROR(MakeCurrent());
  RETURN_IF_ERROR(
      cuda::Check(driver_.StreamCreate(&stream_, cuda::kStreamNonBlocking), "cuStreamCreate"));
  memory_ = std::make_unique<GpuMemory>(*this);
  pinned_ = std::make_unique<PinnedMemory>(*this);
  programs_ = std::make_unique<GpuPrograms>(*this);
  work_ = std::make_unique<GpuWork>(*this);
  std::thread([this] { RunWaiter(); }).detach();
  return absl::OkStatus();
}

absl::Status Gpu::MakeCurrent() const {
  if (current_context == context_) return absl::OkStatus();
  RETURN_IF_ERROR(cuda::Check(driver_.CtxSetCurrent(context_), "cuCtxSetCurrent"));
  current_context = context_;
  return absl::OkStatus();
}

void Gpu::AddDevice(int64_t limit_bytes) {
  MutexLock lock(devices_mutex_);
  device_limits_.insert(limit_bytes);
  LimitMemoryLocked();
}

void Gpu::RemoveDevice(int64_t limit_bytes) {
  {
    MutexLock lock(devices_mutex_);
    device_limits_.erase(device_limits_.find(limit_bytes));
    LimitMemoryLocked();
    if (!device_limits_.empty()) return;
  }
  if (!Synchronize().ok()) return;
  work_->ForgetSequences();
  memory_->GiveBack();
  pinned_->GiveBack();
}

void Gpu::LimitMemoryLocked() {
  int64_t all = 0;
  for (const int64_t limit : device_limits_)
    all = std::min(all + limit, static_cast<int64_t>(total_bytes_));
  memory_->Limit(static_cast<size_t>(all));
}

absl::Status Gpu::Check(cuda::Result result, const char* what) {
  if (result == 0) return absl::OkStatus();
  const absl::Status status = cuda::Check(result, what);
  if (!cuda::EndsAllUse(result)) return status;
  if (failure_.load(std::memory_order_acquire) == nullptr) {
    auto failed = std::make_unique<const absl::Status>(absl::InternalError(absl::StrCat(
        "GPU ", ordinal_, " (", name_, ") failed: ", status.message(), ". ",
        history_.Candidates(programs()), " This process cannot use the card any more.")));
    const absl::Status* none = nullptr;
    if (failure_.compare_exchange_strong(none, failed.get(), std::memory_order_acq_rel)) {
      const absl::Status* const kept = failed.release();
      LOG(ERROR) << kept->message();
      ReportDeviceFailure(*kept);
    }
  }
  return failure();
}

absl::Status Gpu::failure() const {
  const absl::Status* const failed = failure_.load(std::memory_order_acquire);
  return failed == nullptr ? absl::OkStatus() : *failed;
}

absl::Status Gpu::CopyIn(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  const Added added(*this);
  return work_->AddCopy(GpuCall::Kind::kCopyIn, to, from, bytes);
}

absl::Status Gpu::CopyOut(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  const Added added(*this);
  return work_->AddCopy(GpuCall::Kind::kCopyOut, to, from, bytes);
}

absl::Status Gpu::CopyWithin(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  const Added added(*this);
  return work_->AddCopy(GpuCall::Kind::kCopyWithin, to, from, bytes);
}

absl::Status Gpu::Fill(void* to, unsigned char value, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  const Added added(*this);
  return work_->Fill(to, value, bytes);
}

void Gpu::Submit() {
  AddMark(nullptr);
}

absl::Status Gpu::Synchronize() {
  return RunNow([] { return absl::OkStatus(); });
}

absl::Status Gpu::RunNow(absl::FunctionRef<absl::Status()> run) {
  std::vector<Mark> over;  // their buffers go outside the locks
  return work_->Flush([&](std::vector<Buffer> kept) {
    const absl::Status ran = run();
    const absl::Status status = Check(driver_.StreamSynchronize(stream_), "work on the GPU");
    if (status.ok()) history_.NoteDone(history_.last());
    kept_bytes_.store(0, std::memory_order_relaxed);
    MutexLock lock(mutex_);
    marks_.push_front({nullptr, std::move(kept), nullptr, 0});
    TakeOverLocked(over);
    return ran.ok() ? status : ran;
  });
}

void Gpu::KeepUntilDone(Buffer buffer) {
  const auto bytes = static_cast<int64_t>(buffer.length_bytes());
  work_->Keep(std::move(buffer));
  if (kept_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes > kMostKeptBytes)
    AddMark(nullptr);
}

void Gpu::WhenDone(Done done) {
  // As at the end of a step whose results have been waited for.
  const uint64_t num_done = num_done_.load(std::memory_order_acquire);
  if (num_added_.load(std::memory_order_acquire) == num_done)
    return std::move(done)(absl::OkStatus());
  WhenCopied(0, std::move(done));
}

// Work of the same turn goes to the stream as one sequence, so that it is recognized when it comes
// again.
void Gpu::WhenCopied(size_t bytes, Done done) {
  std::vector<TurnEnd>& ends = TurnEnds();
  auto end = std::find_if(ends.begin(), ends.end(),
                          [this](const TurnEnd& each) { return each.gpu == this; });
  const bool is_first = end == ends.end();
  if (is_first) {
    ends.push_back({this, 0, {}});
    end = std::prev(ends.end());
  }
  end->done.push_back(std::move(done));
  end->copied_bytes += bytes;
  if (end->copied_bytes >= kMostCopiedTogether) return AddMarkOfTurn();
  if (is_first) WaitingThread::Current().AtEndOfTurn([this] { AddMarkOfTurn(); });
}

std::vector<Gpu::TurnEnd>& Gpu::TurnEnds() {
  thread_local std::vector<TurnEnd> ends;
  return ends;
}

// Does nothing where enough has been copied earlier in the turn.
void Gpu::AddMarkOfTurn() {
  std::vector<TurnEnd>& ends = TurnEnds();
  const auto end = std::find_if(ends.begin(), ends.end(),
                                [this](const TurnEnd& each) { return each.gpu == this; });
  if (end == ends.end()) return;
  std::vector<Done> done = std::move(end->done);
  ends.erase(end);
  if (done.size() == 1) return AddMark(std::move(done.front()));
  AddMark([done = std::move(done)](const absl::Status& status) mutable {
    const Turn turn;  // what they send goes together
    for (Done& each : done) std::move(each)(status);
  });
}

void Gpu::AddMark(Done done) {
  const bool is_wanted = done != nullptr;
  const uint64_t num_added = num_added_.load(std::memory_order_acquire);
  std::vector<Mark> over;  // their buffers go outside the locks
  const absl::Status status = work_->Flush([&](std::vector<Buffer> kept) -> absl::Status {
    kept_bytes_.store(0, std::memory_order_relaxed);
    MutexLock lock(mutex_);
    TakeOverLocked(over);
    Mark mark{nullptr, std::move(kept), nullptr, num_added, history_.last()};
    absl::StatusOr<cuda::Event> event = TakeEventLocked();
    absl::Status recorded = event.status();
    if (recorded.ok()) {
      mark.event = *event;
      recorded = Check(driver_.EventRecord(mark.event, stream_), "cuEventRecord");
    }
    if (!recorded.ok()) {
      // Without an event nobody can tell when the stream has come here: what it keeps is never
      // freed.
      lost_.push_back(std::move(mark));
      return recorded;
    }
    mark.done = std::move(done);
    marks_.push_back(std::move(mark));
    if (is_wanted) {
      ++num_wanted_;
      num_wanted_hint_.store(num_wanted_, std::memory_order_release);
      if (waiter_sleeps_) wanted_.NotifyOne();
    }
    return absl::OkStatus();
  });
  if (status.ok()) return;
  if (failure().ok()) LOG(ERROR) << name_ << ": " << status.message();
  if (is_wanted && done != nullptr) std::move(done)(status);
}

absl::StatusOr<cuda::Event> Gpu::TakeEventLocked() {
  if (!free_events_.empty()) {
    const cuda::Event event = free_events_.back();
    free_events_.pop_back();
    return event;
  }
  cuda::Event event = nullptr;
  RETURN_IF_ERROR(
      cuda::Check(driver_.EventCreate(&event, cuda::kEventDisableTiming | cuda::kEventBlockingSync),
                  "cuEventCreate"));
  return event;
}

void Gpu::TakeOverLocked(std::vector<Mark>& over) {
  while (!marks_.empty() && marks_.front().done == nullptr) {
    const cuda::Event event = marks_.front().event;
    if (event != nullptr && driver_.EventQuery(event) == cuda::kNotReady) return;
    if (event != nullptr) free_events_.push_back(event);
    history_.NoteDone(marks_.front().history);
    over.push_back(std::move(marks_.front()));
    marks_.pop_front();
  }
}

absl::Status Gpu::Await(cuda::Event event) {
  const absl::Time begin = absl::Now();
  for (;;) {
    const cuda::Result result = driver_.EventQuery(event);
    if (result != cuda::kNotReady) return Check(result, "work on the GPU");
    for (int i = 0; i < 16; ++i) Pause();
    if (absl::Now() - begin > kSpin)
      return Check(driver_.EventSynchronize(event), "work on the GPU");
  }
}

void Gpu::RunWaiter() {
  NameThread("muster-gpu");
  const absl::Status current = MakeCurrent();
  for (;;) {
    const absl::Time begin = absl::Now();
    while (num_wanted_hint_.load(std::memory_order_acquire) == 0 && absl::Now() - begin < kSpin)
      Pause();
    Mark mark;
    {
      MutexLock lock(mutex_);
      waiter_sleeps_ = true;
      while (num_wanted_ == 0) wanted_.Wait(mutex_);
      waiter_sleeps_ = false;
      mark = std::move(marks_.front());
      marks_.pop_front();
    }
    absl::Status status = current;
    if (status.ok() && mark.event != nullptr) status = Await(mark.event);
    // The only thread that sets it; marks come in the order of the stream.
    if (status.ok()) {
      history_.NoteDone(mark.history);
      num_done_.store(std::max(num_done_.load(std::memory_order_relaxed), mark.num_added),
                      std::memory_order_release);
    }
    mark.kept.clear();
    {
      MutexLock lock(mutex_);
      if (mark.event != nullptr) free_events_.push_back(mark.event);
      if (mark.done != nullptr) num_wanted_hint_.store(--num_wanted_, std::memory_order_release);
    }
    if (mark.done != nullptr) std::move(mark.done)(std::move(status));
  }
}

}  // namespace muster
