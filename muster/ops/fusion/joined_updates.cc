#include "muster/ops/fusion/joined_updates.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "muster/device/gpu/gpu.h"

namespace muster {
namespace {

constexpr absl::string_view kApply = "state/apply.cu: Apply<";
// The layout of JoinedUpdates in apply.cu: the arguments of this many updates, and where their
// blocks end.
constexpr size_t kMost = 24;
constexpr size_t kArgumentBytes = 136;
constexpr size_t kCountAt = 112;   // of an update's arguments
constexpr size_t kNumWritten = 4;  // pointers that they begin with: the variable and its slots
constexpr unsigned kThreads = 256;
constexpr int64_t kElementsPerThread = 4;
constexpr int64_t kBlocksPerMultiprocessor = 16;

const char* ArgumentOf(const GpuCall& call) {
  return static_cast<const char*>(call.arguments[0].value);
}

// Whether one of them writes to what the other uses.
bool AreApart(const GpuTracedCall& a, const GpuTracedCall& b) {
  const auto writes_to_other = [](const GpuTracedCall& writer, const GpuTracedCall& other) {
    for (size_t i = 0; i < kNumWritten; ++i) {
      const char* written = nullptr;
      std::memcpy(&written, ArgumentOf(writer.call) + i * sizeof(written), sizeof(written));
      for (const GpuRange& used : other.writes)
        if (written != nullptr && written >= used.begin && written < used.end) return true;
    }
    return false;
  };
  return !writes_to_other(a, b) && !writes_to_other(b, a);
}

GpuReplacement Joined(Gpu& gpu, const std::string& function,
                      const std::vector<const GpuTracedCall*>& updates) {
  GpuReplacement joined;
  joined.program = &gpu.programs().Get("state/apply.cu", function);
  joined.argument.assign(kMost * (kArgumentBytes + sizeof(int32_t)), '\0');
  int64_t end_block = 0;
  for (size_t k = 0; k < kMost; ++k) {
    if (k < updates.size()) {
      const char* const argument = ArgumentOf(updates[k]->call);
      int64_t count = 0;
      std::memcpy(&count, argument + kCountAt, sizeof(count));
      std::memcpy(&joined.argument[k * kArgumentBytes], argument, kArgumentBytes);
      constexpr int64_t kPerBlock = kThreads * kElementsPerThread;
      end_block += std::clamp<int64_t>((count + kPerBlock - 1) / kPerBlock, 1,
                                       gpu.multiprocessors() * kBlocksPerMultiprocessor);
    }
    const auto end = static_cast<int32_t>(end_block);
    std::memcpy(&joined.argument[kMost * kArgumentBytes + k * sizeof(end)], &end, sizeof(end));
  }
  joined.grid.threads_x = kThreads;
  joined.grid.blocks_x = static_cast<unsigned>(end_block);
  return joined;
}

}  // namespace

bool JoinUpdates(Gpu& gpu, const std::vector<GpuTracedCall>& calls,
                 std::vector<std::optional<GpuReplacement>>& placed) {
  bool joins = false;
  std::string function;  // of the updates
  std::vector<const GpuTracedCall*> updates;
  size_t first = 0;
  std::vector<size_t> places;
  const auto finish = [&] {
    if (updates.size() > 1) {
      for (const size_t place : places) placed[place].reset();
      placed[first] = Joined(gpu, function, updates);
      joins = true;
    }
    updates.clear();
    places.clear();
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!placed[i]) continue;
    const GpuCall& call = calls[i].call;
    std::string name;
    if (placed[i]->program == nullptr && call.kind == GpuCall::Kind::kLaunch &&
        call.arguments.size() == 1 && call.arguments[0].bytes == kArgumentBytes) {
      const std::string called = gpu.programs().NameOf(call.function);
      absl::string_view rest = called;
      if (absl::ConsumePrefix(&rest, kApply)) name = absl::StrCat("ApplyJoined<", rest);
    }
    if (name.empty() || updates.size() == kMost || name != function ||
        !std::all_of(updates.begin(), updates.end(),
                     [&](const GpuTracedCall* other) { return AreApart(calls[i], *other); }))
      finish();
    if (name.empty()) continue;
    if (updates.empty()) {
      first = i;
      function = name;
    }
    updates.push_back(&calls[i]);
    places.push_back(i);
  }
  finish();
  return joins;
}

}  // namespace muster
