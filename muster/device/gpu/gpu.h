// A card: its context, the one stream in whose order everything runs on it, its memory, and the
// kernels that were compiled for it.
//
// All work of a card is put on one stream. So memory that is freed may be handed out again at once:
// what uses it next comes later in the same order. The host learns that work is done by events,
// which one thread of the card waits for.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "muster/base/mutex.h"
#include "muster/device/device.h"
#include "muster/device/gpu/cuda_api.h"
#include "muster/device/gpu/gpu_history.h"
#include "muster/device/gpu/gpu_memory.h"
#include "muster/device/gpu/gpu_programs.h"
#include "muster/device/gpu/gpu_work.h"
#include "muster/device/gpu/pinned_memory.h"

namespace muster {

// Thread-safe. One for each card of the process; never destroyed, since the driver's library may be
// gone before the last destructor runs.
class Gpu : public Stream {
 public:
  // The cards that the driver shows, in its order; the first call starts them up. Errors of
  // cuda::LoadDriver.
  static absl::StatusOr<std::vector<Gpu*>> All();
  // Those that All has started up; none before.
  static std::vector<Gpu*> Started();

  int ordinal() const { return ordinal_; }
  const std::string& name() const { return name_; }                // "NVIDIA H200"
  const std::string& description() const { return description_; }  // as TensorFlow words it
  int compute_capability() const { return compute_capability_; }   // 90 for 9.0
  int multiprocessors() const { return multiprocessors_; }
  size_t total_bytes() const { return total_bytes_; }

  // A device that has at most so many bytes of the card. When the last one goes, what the process
  // keeps for reuse goes back to the driver: memory, pinned memory and graphs.
  void AddDevice(int64_t limit_bytes);
  void RemoveDevice(int64_t limit_bytes);

  // cuda::Check, for what touches the card. Some errors, such as an access to memory that is not
  // there, are met by later calls and end all use of the card: the first one names the functions
  // that may have met it, is logged, and is the error of all calls from then on.
  absl::Status Check(cuda::Result result, const char* what);
  // Not OK after such an error.
  absl::Status failure() const;

  const cuda::Driver& driver() const { return driver_; }
  // Makes this card the one that the calling thread's calls of CUDA are for.
  absl::Status MakeCurrent() const;
  cuda::StreamHandle stream_handle() const { return stream_; }
  cuda::Context context() const { return context_; }
  GpuMemory& memory() { return *memory_; }
  PinnedMemory& pinned() { return *pinned_; }
  GpuPrograms& programs() { return *programs_; }

  // All of these add to the work of the card, which is put on its stream when somebody waits for
  // it.
  absl::Status Launch(cuda::Function function, const GpuGrid& grid,
                      absl::Span<const GpuArgument> arguments) {
    const Added added(*this);
    return work_->Launch(function, grid, arguments);
  }
  // Copies whose memory on the host is pinned and stays until the copy is done (KeepUntilDone).
  absl::Status CopyIn(void* to, const void* from, size_t bytes);
  absl::Status CopyOut(void* to, const void* from, size_t bytes);
  absl::Status CopyWithin(void* to, const void* from, size_t bytes);
  absl::Status Fill(void* to, unsigned char value, size_t bytes);
  // See GpuTrace::AddLibrary. Calls whose accesses are known leave more to the GpuRewriter.
  absl::Status AddLibraryCall(absl::Span<const char> key, GpuLibraryCall call) {
    const Added added(*this);
    return work_->AddLibraryCall(key, nullptr, std::move(call));
  }
  absl::Status AddLibraryCall(absl::Span<const char> key, const GpuAccesses& accesses,
                              GpuLibraryCall call) {
    const Added added(*this);
    return work_->AddLibraryCall(key, &accesses, std::move(call));
  }
  void NoteFree(const void* base, size_t bytes) { work_->NoteFree(base, bytes); }
  // Puts what was added on the stream now: the card works on it while the host goes on.
  void Submit();
  // Waits until all that was added is done.
  absl::Status Synchronize();
  // Puts all that was added on the stream, then calls `run`, which may put more there by itself,
  // and waits for it; no other work comes in between.
  absl::Status RunNow(absl::FunctionRef<absl::Status()> run);
  GpuWork::Counts work_counts() const { return work_->counts(); }
  // What was put on the stream lately.
  GpuHistory& history() { return history_; }

  // Keeps `buffer` until what was added so far is done.
  void KeepUntilDone(Buffer buffer);
  // Those of one turn are called one after the other, when the last of them is.
  void WhenDone(Done done) override;
  // Likewise, for a copy of so many bytes to the host: much of it does not wait for the end of the
  // turn, so that it is on its way while the card computes.
  void WhenCopied(size_t bytes, Done done);

 private:
  // Counts what is added, when it has been added.
  class Added {
   public:
    explicit Added(Gpu& gpu) : gpu_(gpu) {}
    ~Added() { gpu_.num_added_.fetch_add(1, std::memory_order_release); }

   private:
    Gpu& gpu_;
  };
  // What a thread waits for in its turn.
  struct TurnEnd {
    Gpu* gpu = nullptr;
    size_t copied_bytes = 0;
    std::vector<Done> done;
  };
  static std::vector<TurnEnd>& TurnEnds();  // of this thread
  // Where the stream was when it was added.
  struct Mark {
    cuda::Event event = nullptr;
    std::vector<Buffer> kept;
    Done done;
    uint64_t num_added = 0;
    uint64_t history = 0;  // GpuHistory::last then
  };

  Gpu(int ordinal, const cuda::Driver& driver) : ordinal_(ordinal), driver_(driver) {}
  absl::Status Start();
  void AddMark(Done done);
  void AddMarkOfTurn();
  absl::StatusOr<cuda::Event> TakeEventLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves marks that nobody waits for and that are over from the front of the queue to `over`.
  void TakeOverLocked(std::vector<Mark>& over) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Await(cuda::Event event);
  void LimitMemoryLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(devices_mutex_);
  void RunWaiter();

  const int ordinal_;
  const cuda::Driver& driver_;
  int device_ = 0;
  std::string name_;
  std::string description_;
  int compute_capability_ = 0;
  int multiprocessors_ = 0;
  size_t total_bytes_ = 0;
  cuda::Context context_ = nullptr;
  cuda::StreamHandle stream_ = nullptr;
  std::unique_ptr<GpuMemory> memory_;
  std::unique_ptr<PinnedMemory> pinned_;
  std::unique_ptr<GpuPrograms> programs_;
  std::unique_ptr<GpuWork> work_;
  std::atomic<int64_t> kept_bytes_{0};  // since the last mark
  std::atomic<uint64_t> num_added_{0};  // calls
  std::atomic<uint64_t> num_done_{0};   // of them, without an error
  GpuHistory history_;
  std::atomic<const absl::Status*> failure_{nullptr};  // set once, never freed

  Mutex devices_mutex_;
  std::multiset<int64_t> device_limits_ ABSL_GUARDED_BY(devices_mutex_);

  Mutex mutex_;
  CondVar wanted_;
  std::deque<Mark> marks_ ABSL_GUARDED_BY(mutex_);  // in the order of the stream
  std::vector<Mark> lost_ ABSL_GUARDED_BY(mutex_);  // without an event
  int num_wanted_ ABSL_GUARDED_BY(mutex_) = 0;      // of them have a `done`
  bool waiter_sleeps_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<int> num_wanted_hint_{0};
  std::vector<cuda::Event> free_events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
