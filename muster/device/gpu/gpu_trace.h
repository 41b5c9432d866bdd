// What a card is to do, noted call by call as bytes: equal bytes do the same, but for the addresses
// of copies in the memory of the host. Those are noted beside, since they differ where tensors come
// from other tasks and go to them.
//
// Notes also say when memory is freed. A sequence that is replayed may then leave out what nothing
// can read any more (see GpuRewriter).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

#include "muster/base/status.h"
#include "muster/device/gpu/cuda_api.h"

namespace muster {

// How many threads run a function: `blocks` of `threads`, each with `shared_bytes`.
struct GpuGrid {
  unsigned blocks_x = 1, blocks_y = 1, blocks_z = 1;
  unsigned threads_x = 256, threads_y = 1, threads_z = 1;
  unsigned shared_bytes = 0;
};

// A value that a function is called with.
struct GpuArgument {
  enum class Kind : uint8_t {
    kValue,   // a number, or a struct: memory to which it points may be read and written
    kReads,   // points to memory that is read only
    kWrites,  // points to memory that is written, and perhaps read
  };
  const void* value;
  size_t bytes;
  Kind kind = Kind::kValue;
};

// Puts calls of a library on the stream. Called once now or later, and once more for a graph; what it
// holds lives as long as the graph.
using GpuLibraryCall = absl::AnyInvocable<absl::Status()>;

// The memory that a call of a library reads and writes: a pointer into each buffer.
struct GpuAccesses {
  absl::Span<const void* const> reads;
  absl::Span<void* const> writes;  // and perhaps read
};

// One call as it was noted. What points into the notes is there until they change.
struct GpuCall {
  enum class Kind : uint32_t { kLaunch, kCopyIn, kCopyOut, kCopyWithin, kFill, kLibrary, kFree };
  Kind kind = Kind::kLaunch;
  // kLaunch
  cuda::Function function = nullptr;
  GpuGrid grid;
  std::vector<GpuArgument> arguments;
  // Copies, kFill; kFree: `to` and `bytes`.
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
  unsigned char value = 0;
  // kLibrary
  int library = 0;
  // Copies from and to the host: number in GpuTrace::hosts; -1: others.
  int host = -1;
  bool has_accesses = false;  // false: it may read and write anything
  std::vector<const void*> reads, writes;
};

// Confined.
class GpuTrace {
 public:
  void AddLaunch(cuda::Function function, const GpuGrid& grid,
                 absl::Span<const GpuArgument> arguments);
  void AddCopy(GpuCall::Kind kind, void* to, const void* from, size_t bytes);
  void AddFill(void* to, unsigned char value, size_t bytes);
  // `key` tells calls with different effects apart: all that the call depends on, pointers included.
  // Without accesses it is taken to reach all memory.
  void AddLibrary(absl::Span<const char> key, const GpuAccesses* accesses, GpuLibraryCall call);
  // Memory is free from here on. What was noted before any call says nothing and is left out.
  void AddFree(const void* base, size_t bytes);

  size_t num_calls() const { return num_calls_; }  // frees left out
  absl::Span<const char> bytes() const { return bytes_; }
  // Where copies from and to the host begin there, in their order.
  const std::vector<void*>& hosts() const { return hosts_; }
  // Calls `visit` with each call, and with each free, in order, until it fails.
  absl::Status ForEach(absl::FunctionRef<absl::Status(const GpuCall& call)> visit) const;
  GpuLibraryCall& library(int number) { return libraries_[static_cast<size_t>(number)]; }
  // Forgets all. What library calls hold is handed out, to be dropped where no lock is held.
  std::vector<GpuLibraryCall> Clear();
  // Likewise, of the library calls alone: they have been called for the last time.
  std::vector<GpuLibraryCall> TakeLibraries() { return std::exchange(libraries_, {}); }

 private:
  char* AddRecord(GpuCall::Kind kind, size_t bytes);
  void AddMemory(GpuCall::Kind kind, void* to, const void* from, size_t bytes, unsigned char value);

  std::vector<char> bytes_;
  std::vector<void*> hosts_;
  std::vector<GpuLibraryCall> libraries_;
  size_t num_calls_ = 0;
};

}  // namespace muster
