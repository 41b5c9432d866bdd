// Sequences of calls that come again and again are worth looking at as a whole: which memory each
// call reads and writes, and what can be computed in one go. What may replace calls is up to the
// ops, which register a GpuRewriter.
#pragma once

#include <string>
#include <vector>

#include "muster/device/gpu/gpu_programs.h"
#include "muster/device/gpu/gpu_trace.h"

namespace muster {

class Gpu;

// Memory from `begin` up to `end`.
struct GpuRange {
  const char* begin = nullptr;
  const char* end = nullptr;
  bool Overlaps(const GpuRange& other) const { return begin < other.end && other.begin < end; }
  bool operator==(const GpuRange& other) const {
    return begin == other.begin && end == other.end;
  }
};

// A call of a sequence with what it may read and write: whole blocks of memory, since nobody says
// which part of a block a function touches. What it writes it may read as well.
struct GpuTracedCall {
  GpuCall call;
  bool reaches_all = false;  // nobody says what it reads and writes
  std::vector<GpuRange> reads, writes;
};

// The calls of a trace, frees included. `blocks` are those in use at its end.
std::vector<GpuTracedCall> FindAccesses(const GpuTrace& trace, const std::vector<GpuRange>& blocks);

// A place in the sequence that replaces another: one of its calls, by number, or a function with
// one argument.
struct GpuReplacement {
  int original = -1;
  GpuProgram* program = nullptr;
  GpuGrid grid;
  std::string argument;
};

class GpuRewriter {
 public:
  virtual ~GpuRewriter() = default;
  // A sequence with the same effects, bit for bit, on all memory that is in use at the end. Its
  // functions may still have to be compiled. Empty: nothing better is known.
  virtual std::vector<GpuReplacement> Rewrite(Gpu& gpu,
                                              const std::vector<GpuTracedCall>& calls) = 0;

  // The one of the process; null: none. Set before any card is used.
  static GpuRewriter* Get();
  static void Set(GpuRewriter* rewriter);
};

}  // namespace muster
