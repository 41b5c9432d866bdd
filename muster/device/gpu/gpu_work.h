// The work that waits to be put on a card's stream, and its replay as graphs.
//
// To put one function on a stream takes the driver some microseconds, more than most functions of a
// small model run. So work is collected first, and put on the stream when somebody is about to wait
// for it, or when much has been collected. A training loop collects the same work in each step: the
// same functions with the same arguments, since memory is handed out in the same order. Such a
// sequence is made a graph of CUDA's when it comes for the third time, and is then put on the
// stream by one call.
//
// Every step still runs the nodes on the host; only what they ask of the card is compared. So
// whatever decides on the host (control flow, other shapes, another seed) simply makes another
// sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"

#include "muster/base/mutex.h"
#include "muster/base/status.h"
#include "muster/device/gpu/cuda_api.h"
#include "muster/tensor/buffer.h"

namespace muster {

class Gpu;

// How many threads run a function: `blocks` of `threads`, each with `shared_bytes`.
struct GpuGrid {
  unsigned blocks_x = 1, blocks_y = 1, blocks_z = 1;
  unsigned threads_x = 256, threads_y = 1, threads_z = 1;
  unsigned shared_bytes = 0;
};

// A value that a function is called with.
struct GpuArgument {
  const void* value;
  size_t bytes;
};

// Puts calls of a library on the stream. Called once now or later, and once more for a graph; what
// it holds lives as long as the graph.
using GpuLibraryCall = absl::AnyInvocable<absl::Status()>;

// Thread-safe. Work comes in the order of the calls.
class GpuWork {
 public:
  explicit GpuWork(Gpu& gpu);
  ~GpuWork();

  absl::Status Launch(cuda::Function function, const GpuGrid& grid,
                      absl::Span<const GpuArgument> arguments);
  enum class Copy : uint8_t { kIn, kOut, kWithin };
  absl::Status AddCopy(Copy kind, void* to, const void* from, size_t bytes);
  absl::Status Fill(void* to, unsigned char value, size_t bytes);
  // `key` tells calls with different effects apart: all that the call depends on, pointers
  // included.
  absl::Status AddLibraryCall(absl::Span<const char> key, GpuLibraryCall call);
  // Keeps `buffer` until what was added so far is done.
  void Keep(Buffer buffer);

  // Puts all that waits on the stream; then calls `then`, before any other work is added. The
  // buffers that wait for it are handed to it.
  absl::Status Flush(absl::FunctionRef<absl::Status(std::vector<Buffer> kept)> then);

  struct Counts {
    int64_t calls = 0;     // of functions, copies and libraries
    int64_t replayed = 0;  // of them, as parts of graphs
    int64_t graphs = 0;    // that were made
  };
  Counts counts() const;

 private:
  // One piece of work; what it does is written in `bytes`, so that equal bytes do the same.
  struct Call {
    absl::InlinedVector<char, 160> bytes;
    GpuLibraryCall library;  // null: `bytes` say all
  };
  // Work that came before.
  struct Sequence {
    std::vector<absl::InlinedVector<char, 160>> calls;
    int seen = 0;
    bool cannot_be_captured = false;
    cuda::GraphExec graph = nullptr;
    std::vector<GpuLibraryCall> libraries;  // of the graph: what they hold is in use by it
    int64_t used = 0;                       // when, in flushes
  };

  absl::Status AddLocked(Call call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RunLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RunDirectlyLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Sequence* FindLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CaptureLocked(Sequence& sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetOldestLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Run(Call& call) const;

  Gpu& gpu_;
  const bool waits_for_each_;  // to find out which one fails
  mutable Mutex mutex_;
  std::vector<Call> calls_ ABSL_GUARDED_BY(mutex_);
  std::vector<Buffer> kept_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, std::unique_ptr<Sequence>> sequences_ ABSL_GUARDED_BY(mutex_);
  int64_t flushes_ ABSL_GUARDED_BY(mutex_) = 0;
  Counts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
