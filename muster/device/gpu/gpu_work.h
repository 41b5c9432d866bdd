// The work that waits to be put on a card's stream, and its replay as graphs.
//
// To put one function on a stream takes the driver some microseconds, more than most functions of a
// small model run. So work is collected first, and put on the stream when somebody is about to wait
// for it, or when much has been collected: the first of it soon, so that the card has something to
// do, and then more and more, since long sequences leave more to the GpuRewriter. A training loop collects the same work in each step: the
// same functions with the same arguments, since memory is handed out in the same order. Such a
// sequence is made a graph of CUDA's when it comes for the third time, and is then put on the
// stream by one call. The GpuRewriter then looks for a shorter sequence that does the same, whose
// graph takes the place of the first one when its functions are compiled.
//
// Every step still runs the nodes on the host; only what they ask of the card is compared. So
// whatever decides on the host (control flow, other shapes, another seed) simply makes another
// sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"

#include "muster/base/mutex.h"
#include "muster/base/status.h"
#include "muster/device/gpu/cuda_api.h"
#include "muster/device/gpu/gpu_history.h"
#include "muster/device/gpu/gpu_rewriter.h"
#include "muster/device/gpu/gpu_trace.h"
#include "muster/tensor/buffer.h"

namespace muster {

class Gpu;

// Thread-safe. Work comes in the order of the calls.
class GpuWork {
 public:
  explicit GpuWork(Gpu& gpu);
  ~GpuWork();

  absl::Status Launch(cuda::Function function, const GpuGrid& grid,
                      absl::Span<const GpuArgument> arguments);
  absl::Status AddCopy(GpuCall::Kind kind, void* to, const void* from, size_t bytes);
  absl::Status Fill(void* to, unsigned char value, size_t bytes);
  // See GpuTrace::AddLibrary.
  absl::Status AddLibraryCall(absl::Span<const char> key, const GpuAccesses* accesses,
                              GpuLibraryCall call);
  // Memory of the card is handed back: calls that follow may get it.
  void NoteFree(const void* base, size_t bytes);
  // Keeps `buffer` until what was added so far is done.
  void Keep(Buffer buffer);

  // Puts all that waits on the stream; then calls `then`, before any other work is added. The
  // buffers that wait for it are handed to it.
  absl::Status Flush(absl::FunctionRef<absl::Status(std::vector<Buffer> kept)> then);

  // Drops all graphs and what they hold. Requires: the stream is done.
  void ForgetSequences();

  struct Counts {
    int64_t calls = 0;     // of functions, copies and libraries
    int64_t replayed = 0;  // of them, as parts of graphs
    int64_t graphs = 0;    // that were made
    int64_t saved = 0;     // calls that replays did without, since others do their work as well
  };
  Counts counts() const;

 private:
  // A copy from or to the host, in a graph.
  struct HostCopy {
    int host = 0;  // number in GpuTrace::hosts
    void* at = nullptr;
    cuda::GraphNode node = nullptr;
    cuda::Copy3D copy = {};
  };
  // Work that came before.
  struct Sequence {
    std::vector<char> bytes;
    int64_t num_calls = 0;
    GpuFunctions functions;
    int seen = 0;
    bool cannot_be_captured = false;
    cuda::GraphExec graph = nullptr;
    cuda::Graph source = nullptr;  // that it was made of: owns the nodes of `copies`
    std::vector<HostCopy> copies;
    bool keeps_hosts = false;      // the driver does not change copies of the graph
    std::vector<GpuLibraryCall> libraries;  // of the graph: what they hold is in use by it
    std::vector<GpuReplacement> rewritten;  // until the graph is made of it
    int64_t saved = 0;                      // calls by which it is shorter
    int64_t used = 0;                       // when, in flushes
  };
  // What is dropped where no lock is held: it may hand memory back.
  using Over = std::vector<GpuLibraryCall>;

  // Adds a call by `add`, and runs all where enough waits.
  absl::Status Add(absl::FunctionRef<void(GpuTrace&)> add);
  absl::Status RunLocked(Over& over) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  GpuFunctions FunctionsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RunDirectlyLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RunRewrittenLocked(const Sequence& sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Sequence* FindLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The graph of what `run` puts on the stream, and its copies from and to the host; null where it
  // cannot be captured.
  struct Captured {
    cuda::GraphExec graph = nullptr;
    cuda::Graph source = nullptr;
    std::vector<HostCopy> copies;
  };
  Captured CaptureLocked(absl::FunctionRef<absl::Status()> run)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeGraphLocked(Sequence& sequence, Captured captured) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropGraphLocked(Sequence& sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the graph copy from and to where the calls that wait do. False: it does as before.
  void NoteCapturedLocked(const GpuCall& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool PlaceCopiesLocked(Sequence& sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RewriteLocked(Sequence& sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the rewritten sequence where all its functions are compiled.
  void AdoptRewrittenLocked(Sequence& sequence, Over& over) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetOldestLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ShowLocked(const Sequence& sequence) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RunLocked(const GpuCall& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Gpu& gpu_;
  const bool waits_for_each_;  // to find out which one fails
  const bool rewrites_;
  const bool shows_;
  mutable Mutex mutex_;
  GpuTrace trace_ ABSL_GUARDED_BY(mutex_);
  size_t most_waiting_ ABSL_GUARDED_BY(mutex_);  // calls
  std::vector<Buffer> kept_ ABSL_GUARDED_BY(mutex_);
  // Of what is being captured; null: nothing is.
  std::vector<HostCopy>* captured_ ABSL_GUARDED_BY(mutex_) = nullptr;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Sequence>> sequences_ ABSL_GUARDED_BY(mutex_);
  size_t sequence_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t flushes_ ABSL_GUARDED_BY(mutex_) = 0;
  Counts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
