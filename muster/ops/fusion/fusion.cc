// Element-wise nodes of a sequence that is replayed are computed together (element_groups.h).
#include <map>
#include <optional>

#include "absl/algorithm/container.h"

#include "muster/device/gpu/gpu.h"
#include "muster/device/gpu/gpu_rewriter.h"
#include "muster/ops/fusion/bundles.h"
#include "muster/ops/fusion/element_groups.h"
#include "muster/ops/fusion/group_function.h"
#include "muster/ops/fusion/joined_updates.h"

namespace muster {
namespace {

// Searches for groups; what does not turn out well is left out of the next one.
constexpr int kMostSearches = 6;

// A function of a group, in the place of a call.
struct GroupFunction {
  const ElementGroup* group;
  GpuReplacement replacement;
};
// What stands in the place of each call.
struct Sequence {
  std::vector<std::optional<GpuReplacement>> originals;  // calls that are part of others left out
  std::multimap<size_t, GroupFunction> functions;
};

// The calls that a group takes part in only together with others, and that are better made as they
// are: there would not be less to run.
absl::flat_hash_set<int> BetterLeftOut(const std::vector<std::unique_ptr<ElementGroup>>& groups) {
  absl::flat_hash_set<int> alone;
  for (const auto& group : groups) {
    if (!group->is_required) continue;
    const int number = group->nodes[0].first;
    if (absl::c_all_of(group->nodes, [&](const auto& each) { return each.first == number; }) &&
        group->nodes[0].second.is_copy())
      alone.insert(number);
  }
  return alone;
}

Sequence SequenceAsItIs(const std::vector<GpuTracedCall>& calls) {
  Sequence sequence;
  sequence.originals.resize(calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].call.kind == GpuCall::Kind::kFree) continue;
    sequence.originals[i].emplace();
    sequence.originals[i]->original = static_cast<int>(i);
  }
  return sequence;
}

// False: `left_out` has grown, by what is in the way.
bool PlaceGroups(Gpu& gpu, const std::vector<std::unique_ptr<ElementGroup>>& groups,
                 Sequence& sequence, absl::flat_hash_set<int>& left_out) {
  for (const auto& group : groups) {
    if (group->nodes.empty() || (group->nodes.size() < 2 && !group->is_required)) continue;
    const bool is_read =
        absl::c_any_of(group->writes, [](const ElementWrite& write) { return !write.is_dead; });
    std::optional<GpuReplacement> function;
    if (is_read) {
      function = FunctionFor(gpu, *group);
      if (!function && group->is_required) {
        for (const auto& [number, node] : group->nodes) left_out.insert(number);
        return false;
      }
      if (!function) continue;
      sequence.functions.emplace(static_cast<size_t>(group->position),
                                 GroupFunction{group.get(), *std::move(function)});
    }
    for (const auto& [number, node] : group->nodes)
      sequence.originals[static_cast<size_t>(number)].reset();
  }
  return true;
}

std::vector<PlacedCall> InOrder(Gpu& gpu, const std::vector<GpuTracedCall>& calls,
                                Sequence sequence) {
  auto joined = sequence.originals;
  for (const auto& [place, function] : sequence.functions) joined[place] = function.replacement;
  JoinUpdates(gpu, calls, joined);
  std::vector<PlacedCall> placed;
  const auto add = [&](GpuReplacement replacement) {
    placed.emplace_back();
    placed.back().replacement = std::move(replacement);
  };
  const auto add_accesses = [&](const GpuTracedCall& traced) {
    PlacedCall& to = placed.back();
    to.reaches_all |= traced.reaches_all;
    to.reads.insert(to.reads.end(), traced.reads.begin(), traced.reads.end());
    to.writes.insert(to.writes.end(), traced.writes.begin(), traced.writes.end());
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    if (sequence.originals[i]) {
      // Updates that were joined follow the first of them.
      if (joined[i]) add(*std::move(joined[i]));
      add_accesses(calls[i]);
    }
    const auto [begin, end] = sequence.functions.equal_range(i);
    for (auto at = begin; at != end; ++at) {
      const ElementGroup& group = *at->second.group;
      add(std::move(at->second.replacement));
      PlacedCall& function = placed.back();
      function.reads = group.flat_reads;
      function.reads.insert(function.reads.end(), group.other_reads.begin(),
                            group.other_reads.end());
      for (const ElementWrite& write : group.writes)
        if (!write.is_dead) function.writes.push_back(write.range);
    }
  }
  return placed;
}

class ElementwiseFuser : public GpuRewriter {
 public:
  std::vector<GpuReplacement> Rewrite(Gpu& gpu, const std::vector<GpuTracedCall>& calls) override {
    Sequence sequence;
    std::vector<std::unique_ptr<ElementGroup>> groups;
    absl::flat_hash_set<int> left_out;
    for (int search = 1;; ++search) {
      if (search == kMostSearches) {
        for (size_t i = 0; i < calls.size(); ++i) left_out.insert(static_cast<int>(i));
      }
      groups = FindElementGroups(gpu, calls, left_out);
      if (search < kMostSearches) {
        const absl::flat_hash_set<int> more = BetterLeftOut(groups);
        left_out.insert(more.begin(), more.end());
        if (!more.empty()) continue;
      }
      sequence = SequenceAsItIs(calls);
      if (PlaceGroups(gpu, groups, sequence, left_out) || search == kMostSearches) break;
    }
    std::vector<PlacedCall> placed = InOrder(gpu, calls, std::move(sequence));
    BundleCalls(gpu, calls, placed);
    std::vector<GpuReplacement> replacements;
    for (PlacedCall& each : placed) replacements.push_back(std::move(each.replacement));
    const auto num_calls = absl::c_count_if(calls, [](const GpuTracedCall& traced) {
      return traced.call.kind != GpuCall::Kind::kFree;
    });
    if (replacements.size() == static_cast<size_t>(num_calls)) replacements.clear();
    return replacements;
  }
};

[[maybe_unused]] const bool registered = [] {
  GpuRewriter::Set(new ElementwiseFuser);
  return true;
}();

}  // namespace
}  // namespace muster
