#include "muster/device/gpu/gpu_rewriter.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace muster {
namespace {

GpuRewriter*& Registered() {
  static GpuRewriter* rewriter = nullptr;
  return rewriter;
}

const char* Word(const void* at) {
  const char* word = nullptr;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

// The blocks in use at some place of a trace.
class Blocks {
 public:
  explicit Blocks(const std::vector<GpuRange>& blocks) {
    for (const GpuRange& block : blocks) ends_[block.begin] = block.end;
  }
  // One place earlier the block was in use; blocks that have been cut from its memory were not.
  void Unfree(const GpuRange& block) {
    auto at = ends_.upper_bound(block.begin);
    if (at != ends_.begin() && std::prev(at)->second > block.begin) --at;
    while (at != ends_.end() && at->first < block.end) at = ends_.erase(at);
    ends_[block.begin] = block.end;
  }
  // That of the pointer; empty where it is in none.
  GpuRange Of(const char* pointer) const {
    const auto after = ends_.upper_bound(pointer);
    if (after == ends_.begin()) return {};
    const auto& [begin, end] = *std::prev(after);
    return pointer < end ? GpuRange{begin, end} : GpuRange{};
  }

 private:
  std::map<const char*, const char*> ends_;
};

void AddBlock(const Blocks& blocks, const void* pointer, GpuTracedCall& traced,
              std::vector<GpuRange>& to) {
  if (pointer == nullptr) return;
  const GpuRange block = blocks.Of(static_cast<const char*>(pointer));
  if (block.begin == nullptr) {
    traced.reaches_all = true;
  } else {
    to.push_back(block);
  }
}

void FindOfLaunch(const Blocks& blocks, GpuTracedCall& traced) {
  for (const GpuArgument& argument : traced.call.arguments) {
    if (argument.kind != GpuArgument::Kind::kValue) {
      AddBlock(blocks, Word(argument.value), traced,
               argument.kind == GpuArgument::Kind::kReads ? traced.reads : traced.writes);
      continue;
    }
    // Structs may hold pointers. A number that looks like one does no harm.
    const char* const value = static_cast<const char*>(argument.value);
    for (size_t at = 0; at + sizeof(void*) <= argument.bytes; at += sizeof(void*)) {
      const GpuRange block = blocks.Of(Word(value + at));
      if (block.begin != nullptr) traced.writes.push_back(block);
    }
  }
}

}  // namespace

std::vector<GpuTracedCall> FindAccesses(const GpuTrace& trace,
                                        const std::vector<GpuRange>& blocks) {
  std::vector<GpuTracedCall> calls;
  trace
      .ForEach([&](const GpuCall& call) {
        calls.push_back({call, false, {}, {}});
        return absl::OkStatus();
      })
      .IgnoreError();
  Blocks in_use(blocks);
  for (auto at = calls.rbegin(); at != calls.rend(); ++at) {
    const GpuCall& call = at->call;
    const auto range = [&](const void* begin) {
      return GpuRange{static_cast<const char*>(begin), static_cast<const char*>(begin) + call.bytes};
    };
    switch (call.kind) {
      case GpuCall::Kind::kLaunch:
        FindOfLaunch(in_use, *at);
        break;
      case GpuCall::Kind::kCopyIn:
      case GpuCall::Kind::kCopyOut:
      case GpuCall::Kind::kCopyWithin:
        at->reads.push_back(range(call.from));
        at->writes.push_back(range(call.to));
        break;
      case GpuCall::Kind::kFill:
        at->writes.push_back(range(call.to));
        break;
      case GpuCall::Kind::kLibrary:
        at->reaches_all = !call.has_accesses;
        for (const void* pointer : call.reads) AddBlock(in_use, pointer, *at, at->reads);
        for (const void* pointer : call.writes) AddBlock(in_use, pointer, *at, at->writes);
        break;
      case GpuCall::Kind::kFree:
        in_use.Unfree(range(call.to));
        break;
    }
  }
  return calls;
}

GpuRewriter* GpuRewriter::Get() {
  return Registered();
}
void GpuRewriter::Set(GpuRewriter* rewriter) {
  Registered() = rewriter;
}

}  // namespace muster
