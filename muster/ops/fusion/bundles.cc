#include "muster/ops/fusion/bundles.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

#include "muster/device/gpu/gpu.h"
#include "muster/ops/indexing/boxes.h"

namespace muster {
namespace {

// How far ahead a call is moved.
constexpr size_t kMostMoved = 512;

// What a function of several calls takes for one of them.
struct Bundled {
  std::string file, function;  // of several
  std::string argument;
  size_t most = 0;
  std::vector<const char*> written;  // all other memory is only read
  GpuGrid grid;
  bool is_along_y = false;  // the calls, in the grid of several; else along z
};

void Append(const GpuCall& call, std::string& to) {
  for (const GpuArgument& argument : call.arguments)
    to.append(static_cast<const char*>(argument.value), argument.bytes);
}
const char* PointerAt(const std::string& text, size_t offset) {
  const char* pointer = nullptr;
  std::memcpy(&pointer, text.data() + offset, sizeof(pointer));
  return pointer;
}

std::optional<Bundled> BundledOf(const GpuCall& call, absl::string_view name) {
  const size_t open = name.find('<');
  if (open == name.npos || call.grid.blocks_z != 1) return std::nullopt;
  const absl::string_view function = name.substr(0, open), types = name.substr(open);
  Bundled bundled;
  bundled.grid = call.grid;
  Append(call, bundled.argument);
  const size_t bytes = bundled.argument.size();
  if (function == "indexing/gather.cu: Gather" && bytes == 64) {
    bundled.function = absl::StrCat("Gathers", types);
    bundled.most = 32;
    bundled.written = {PointerAt(bundled.argument, 16)};
  } else if (function == "state/sparse_apply.cu: ApplyFew" && bytes == 136 + 48) {
    bundled.function = absl::StrCat("ApplyFews", types);
    bundled.most = 20;
    for (size_t i = 0; i < 4; ++i)  // the variable and its slots
      bundled.written.push_back(PointerAt(bundled.argument, i * sizeof(void*)));
  } else if (function == "indexing/strided_copy.cu: CopyBox" &&
             bytes == sizeof(GpuBox<kMostBoxAxes>) && call.grid.blocks_y == 1) {
    GpuBox<kMostBoxAxes> box;
    std::memcpy(&box, bundled.argument.data(), sizeof(box));
    if (box.rank > kAxesOfSmallBox) return std::nullopt;
    GpuBox<kAxesOfSmallBox> small = {box.from, box.to, box.count, box.rank, {}};
    std::copy_n(box.axes, kAxesOfSmallBox, small.axes);
    bundled.argument.assign(reinterpret_cast<const char*>(&small), sizeof(small));
    bundled.function = absl::StrCat("CopyBoxes", types);
    bundled.most = kMostBoxes;
    bundled.is_along_y = true;
    bundled.written = {static_cast<const char*>(box.to)};
  } else {
    return std::nullopt;
  }
  bundled.file = std::string(name.substr(0, name.find(": ")));
  return bundled;
}

bool OverlapSome(const std::vector<GpuRange>& a, const std::vector<GpuRange>& b) {
  return absl::c_any_of(a, [&](const GpuRange& x) {
    return absl::c_any_of(b, [&](const GpuRange& y) { return x.Overlaps(y); });
  });
}
bool HaveToKeepOrder(const PlacedCall& a, const PlacedCall& b) {
  return a.reaches_all || b.reaches_all || OverlapSome(a.writes, b.writes) ||
         OverlapSome(a.writes, b.reads) || OverlapSome(a.reads, b.writes);
}

// The blocks of a call's structs, told apart by what the function writes.
void TellApart(const Bundled& bundled, PlacedCall& placed) {
  std::vector<GpuRange> writes;
  for (const GpuRange& block : placed.writes) {
    const bool is_written = absl::c_any_of(bundled.written, [&](const char* pointer) {
      return pointer >= block.begin && pointer < block.end;
    });
    (is_written ? writes : placed.reads).push_back(block);
  }
  placed.writes = std::move(writes);
}

bool AreAlike(const Bundled& a, const Bundled& b) {
  return a.function == b.function && a.file == b.file && a.grid.blocks_x == b.grid.blocks_x &&
         a.grid.blocks_y == b.grid.blocks_y && a.grid.threads_x == b.grid.threads_x &&
         a.grid.threads_y == b.grid.threads_y && a.grid.threads_z == b.grid.threads_z &&
         a.grid.shared_bytes == b.grid.shared_bytes;
}

class Bundler {
 public:
  Bundler(Gpu& gpu, const std::vector<GpuTracedCall>& calls, std::vector<PlacedCall>& sequence)
      : gpu_(gpu), calls_(calls), sequence_(sequence), places_(sequence.size()) {}

  void Run() && {
    for (size_t i = 0; i < sequence_.size(); ++i) Take(i);
    std::vector<PlacedCall> result;
    for (size_t i = 0; i < sequence_.size(); ++i) {
      if (places_[i] != i) continue;
      const auto bundle = absl::c_find_if(bundles_, [&](const Bundle& b) { return b.place == i; });
      if (bundle != bundles_.end() && bundle->members.size() > 1)
        sequence_[i].replacement = Joined(*bundle);
      result.push_back(std::move(sequence_[i]));
    }
    sequence_ = std::move(result);
  }

 private:
  struct Bundle {
    size_t place;
    std::vector<Bundled> members;
  };

  void Take(size_t number) {
    places_[number] = number;
    PlacedCall& placed = sequence_[number];
    if (placed.replacement.program != nullptr) return;
    const GpuCall& call = calls_[static_cast<size_t>(placed.replacement.original)].call;
    if (call.kind != GpuCall::Kind::kLaunch) return;
    auto [name, is_new] = names_.try_emplace(call.function);
    if (is_new) name->second = gpu_.programs().NameOf(call.function);
    std::optional<Bundled> bundled = BundledOf(call, name->second);
    if (!bundled) return;
    TellApart(*bundled, placed);
    for (auto bundle = bundles_.rbegin(); bundle != bundles_.rend(); ++bundle) {
      if (bundle->members.size() == bundled->most || !AreAlike(bundle->members[0], *bundled) ||
          number - bundle->place > kMostMoved || !CanStandAt(bundle->place, number))
        continue;
      places_[number] = bundle->place;
      bundle->members.push_back(*std::move(bundled));
      return;
    }
    bundles_.push_back({number, {*std::move(bundled)}});
  }

  bool CanStandAt(size_t place, size_t number) const {
    for (size_t i = place; i < number; ++i)
      if (places_[i] >= place && HaveToKeepOrder(sequence_[i], sequence_[number])) return false;
    return true;
  }

  GpuReplacement Joined(const Bundle& bundle) const {
    const Bundled& first = bundle.members[0];
    GpuReplacement joined;
    joined.program = &gpu_.programs().Get(first.file, first.function);
    joined.grid = first.grid;
    (first.is_along_y ? joined.grid.blocks_y : joined.grid.blocks_z) =
        static_cast<unsigned>(bundle.members.size());
    for (const Bundled& member : bundle.members) joined.argument += member.argument;
    joined.argument.resize(first.most * first.argument.size());
    return joined;
  }

  Gpu& gpu_;
  const std::vector<GpuTracedCall>& calls_;
  std::vector<PlacedCall>& sequence_;
  std::vector<size_t> places_;  // where each stands
  std::vector<Bundle> bundles_;
  absl::flat_hash_map<cuda::Function, std::string> names_;
};

}  // namespace

void BundleCalls(Gpu& gpu, const std::vector<GpuTracedCall>& calls,
                 std::vector<PlacedCall>& sequence) {
  Bundler(gpu, calls, sequence).Run();
}

}  // namespace muster
