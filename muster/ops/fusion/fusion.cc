// Element-wise nodes of a sequence that is replayed are computed together (fused.cu).
//
// A group is a number of element-wise calls over equally many elements. It runs where its last call
// was: the earlier ones are put off. So a call outside of the group that needs what the group writes,
// or writes what the group reads or writes, ends it. A value that only the group reads, and whose
// memory is free at the end, is never written to memory at all.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "muster/device/gpu/gpu.h"
#include "muster/device/gpu/gpu_rewriter.h"
#include "muster/ops/math/elementwise_gpu.h"
#include "muster/ops/fusion/fusion_nodes.h"
#include "muster/ops/fusion/joined_updates.h"

namespace muster {
namespace {

constexpr size_t kMostNodes = 40;   // of a group
constexpr size_t kMostReads = 16;   // buffers that a group loads
constexpr size_t kMostWrites = 16;  // and writes
// Nodes with so few elements are joined even where they have nothing in common: a launch takes longer
// than they do.
constexpr int64_t kFewElements = int64_t{1} << 15;
constexpr int64_t kPackBytes = 16, kMostInPack = 8;
constexpr unsigned kThreads = 256;
constexpr int64_t kBlocksPerMultiprocessor = 16;

// --- Groups

struct Write {
  GpuRange range;
  std::string type;
  bool is_needed = false;  // another call reads it
  bool is_dead = false;    // nobody can read it any more
  bool is_changed = false;  // another call writes to it
};

struct Group {
  int64_t count = 0;
  bool is_open = true;
  int position = 0;                                // of its last call, where it runs
  std::vector<std::pair<int, ElementNode>> nodes;  // with the number of their call
  std::vector<GpuRange> flat_reads, other_reads;
  std::vector<Write> writes;

  const Write* LiveWrite(const GpuRange& range) const {
    for (const Write& write : writes)
      if (!write.is_dead && write.range == range) return &write;
    return nullptr;
  }
};

bool OverlapsAny(const GpuRange& range, const std::vector<GpuRange>& others) {
  return absl::c_any_of(others, [&](const GpuRange& other) { return range.Overlaps(other); });
}
bool OverlapsLive(const GpuRange& range, const std::vector<Write>& writes) {
  return std::any_of(writes.begin(), writes.end(), [&](const Write& write) {
    return !write.is_dead && range.Overlaps(write.range);
  });
}
// Overlaps a range that is not the very same.
bool OverlapsPartly(const GpuRange& range, const std::vector<GpuRange>& others) {
  return absl::c_any_of(others, [&](const GpuRange& other) {
    return range.Overlaps(other) && !(range == other);
  });
}

// Whether the node may run together with the group, at the node's place.
bool Fits(const Group& group, const ElementNode& node) {
  if (group.nodes.size() >= kMostNodes || group.writes.size() >= kMostWrites ||
      group.flat_reads.size() + group.other_reads.size() + node.operands.size() > kMostReads)
    return false;
  for (const ElementOperand& operand : node.operands) {
    const GpuRange range = operand.range();
    for (const Write& write : group.writes) {
      if (write.is_dead || !range.Overlaps(write.range)) continue;
      // It is there as the value of a step, but element by element only.
      if (!operand.is_flat() || !(range == write.range) || operand.type != write.type) return false;
    }
  }
  const GpuRange out = node.out_range();
  if (OverlapsAny(out, group.other_reads) || OverlapsPartly(out, group.flat_reads)) return false;
  for (const ElementOperand& operand : node.operands) {
    // Other threads would read what this one has overwritten.
    if (!operand.is_flat() && out.Overlaps(operand.range())) return false;
    if (operand.is_flat() && out.Overlaps(operand.range()) && !(out == operand.range()))
      return false;
  }
  for (const Write& write : group.writes) {
    if (!write.is_dead && out.Overlaps(write.range) && !(out == write.range)) return false;
  }
  return true;
}

void Join(Group& group, int number, ElementNode node) {
  for (ElementOperand& operand : node.operands) {
    const GpuRange range = operand.range();
    operand.is_value = group.LiveWrite(range) != nullptr;
    if (operand.is_value) continue;
    std::vector<GpuRange>& reads = operand.is_flat() ? group.flat_reads : group.other_reads;
    if (!absl::c_linear_search(reads, range)) reads.push_back(range);
  }
  const GpuRange out = node.out_range();
  // What is overwritten in the same step never gets to memory.
  group.writes.erase(std::remove_if(group.writes.begin(), group.writes.end(),
                                    [&](const Write& write) {
                                      return !write.is_dead && write.range == out;
                                    }),
                     group.writes.end());
  group.writes.push_back({out, node.out_type});
  group.nodes.emplace_back(number, std::move(node));
  group.position = number;
}

// Both are open, so neither needs anything of the other.
void Merge(Group& into, Group& from) {
  into.nodes.insert(into.nodes.end(), from.nodes.begin(), from.nodes.end());
  std::sort(into.nodes.begin(), into.nodes.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto add = [](std::vector<GpuRange>& to, const std::vector<GpuRange>& ranges) {
    for (const GpuRange& range : ranges)
      if (!absl::c_linear_search(to, range)) to.push_back(range);
  };
  into.position = std::max(into.position, from.position);
  add(into.flat_reads, from.flat_reads);
  add(into.other_reads, from.other_reads);
  into.writes.insert(into.writes.end(), from.writes.begin(), from.writes.end());
  from = Group();
  from.is_open = false;
}

class Grouping {
 public:
  Grouping(Gpu& gpu, const std::vector<GpuTracedCall>& calls) : gpu_(gpu), calls_(calls) {}

  // Finds the groups. Those that were merged into others are empty.
  std::vector<std::unique_ptr<Group>> Run() && {
    for (size_t i = 0; i < calls_.size(); ++i) Take(static_cast<int>(i));
    return std::move(groups_);
  }

 private:
  void Take(int number) {
    const GpuTracedCall& traced = calls_[static_cast<size_t>(number)];
    if (traced.call.kind == GpuCall::Kind::kFree) return TakeFree(traced.call);
    if (traced.call.kind == GpuCall::Kind::kCopyWithin && TakeCopy(number, traced.call)) return;
    std::optional<ElementNode> node = NodeOf(traced.call);
    Group* const group = node ? GroupFor(*node) : nullptr;
    std::vector<GpuRange> reads = traced.reads, writes = traced.writes;
    if (node) {
      reads.clear();
      for (const ElementOperand& operand : node->operands) reads.push_back(operand.range());
      writes = {node->out_range()};
    }
    const bool may_read_writes = !node && traced.call.kind != GpuCall::Kind::kFill;
    for (const auto& other : groups_) {
      if (other.get() == group) continue;
      bool ends = traced.reaches_all;
      for (Write& write : other->writes) {
        if (write.is_dead) continue;
        const bool is_read = traced.reaches_all || OverlapsAny(write.range, reads) ||
                             (may_read_writes && OverlapsAny(write.range, writes));
        write.is_needed |= is_read;
        write.is_changed |= traced.reaches_all || OverlapsAny(write.range, writes);
        ends |= is_read || OverlapsAny(write.range, writes);
      }
      for (const GpuRange& range : writes) {
        ends |= OverlapsAny(range, other->flat_reads) || OverlapsAny(range, other->other_reads);
      }
      if (ends) other->is_open = false;
    }
    if (group != nullptr) Join(*group, number, *std::move(node));
  }

  void TakeFree(const GpuCall& call) {
    const char* const begin = static_cast<const char*>(call.to);
    for (const auto& group : groups_) {
      for (Write& write : group->writes) {
        if (!write.is_needed && write.range.begin >= begin && write.range.end <= begin + call.bytes)
          write.is_dead = true;
      }
    }
  }

  // A copy of what a group before has computed, as assignments at the end of a step are: the group
  // writes it there as well, where nothing between the two looks at the old value.
  bool TakeCopy(int number, const GpuCall& call) {
    const auto range_of = [&](const void* begin) {
      return GpuRange{static_cast<const char*>(begin), static_cast<const char*>(begin) + call.bytes};
    };
    const GpuRange from = range_of(call.from), to = range_of(call.to);
    for (const auto& group : groups_) {
      if (group->is_open) continue;
      const Write* const write = group->LiveWrite(from);
      if (write == nullptr || write->is_changed) continue;
      if (!CanAlsoWrite(*group, to) || IsUsedAfter(*group, number, to)) return false;
      ElementNode node;
      node.count = group->count;
      node.operands = {FlatOperand(from.begin, write->type, group->count)};
      node.operands[0].is_value = true;
      node.out = to.begin;
      node.out_type = write->type;
      group->writes.push_back({to, write->type});
      group->nodes.emplace_back(number, std::move(node));
      return true;
    }
    return false;
  }

  static bool CanAlsoWrite(const Group& group, const GpuRange& range) {
    return group.nodes.size() < kMostNodes && group.writes.size() < kMostWrites &&
           !OverlapsAny(range, group.other_reads) && !OverlapsPartly(range, group.flat_reads) &&
           !OverlapsLive(range, group.writes);
  }

  // Whether anything that runs after the group, and comes before the call `end`, uses the memory.
  bool IsUsedAfter(const Group& group, int end, const GpuRange& range) const {
    for (int i = group.position + 1; i < end; ++i) {
      const GpuTracedCall& call = calls_[static_cast<size_t>(i)];
      if (call.reaches_all || OverlapsAny(range, call.reads) || OverlapsAny(range, call.writes))
        return true;
    }
    return absl::c_any_of(groups_, [&](const auto& other) {
      const bool runs_later =
          other.get() != &group && (other->is_open || other->position > group.position);
      return runs_later && (OverlapsAny(range, other->flat_reads) ||
                            OverlapsAny(range, other->other_reads) ||
                            OverlapsLive(range, other->writes));
    });
  }

  std::optional<ElementNode> NodeOf(const GpuCall& call) {
    if (call.kind == GpuCall::Kind::kLaunch) {
      auto [found, is_new] = names_.try_emplace(call.function);
      if (is_new) found->second = gpu_.programs().NameOf(call.function);
      return ReadElementNode(call, found->second);
    }
    // A copy of what a group has computed.
    if (call.kind != GpuCall::Kind::kCopyWithin) return std::nullopt;
    const char* const from = static_cast<const char*>(call.from);
    for (const auto& group : groups_) {
      if (!group->is_open) continue;
      const Write* const write = group->LiveWrite({from, from + call.bytes});
      if (write == nullptr) continue;
      ElementNode node;
      node.count = group->count;
      node.operands = {FlatOperand(from, write->type, group->count)};
      node.out = static_cast<const char*>(call.to);
      node.out_type = write->type;
      return node;
    }
    return std::nullopt;
  }

  // The open group that the node joins: those that hold its operands, made one. A new one where there
  // is none.
  Group* GroupFor(const ElementNode& node) {
    std::vector<Group*> holders;
    Group* small = nullptr;
    for (const auto& group : groups_) {
      if (!group->is_open || group->count != node.count) continue;
      const bool holds = absl::c_any_of(node.operands, [&](const ElementOperand& operand) {
        const GpuRange range = operand.range();
        return group->LiveWrite(range) != nullptr ||
               (operand.is_flat() && absl::c_linear_search(group->flat_reads, range));
      });
      if (holds) holders.push_back(group.get());
      if (node.count <= kFewElements) small = group.get();
    }
    // The latest first: most likely the one that has just computed an operand.
    std::reverse(holders.begin(), holders.end());
    if (holders.empty() && small != nullptr) holders.push_back(small);
    Group* joined = nullptr;
    for (Group* const holder : holders) {
      if (!Fits(*holder, node)) continue;
      if (joined == nullptr) {
        joined = holder;
      } else if (CanMerge(*joined, *holder, node)) {
        Merge(*joined, *holder);
      }
    }
    if (joined != nullptr && Fits(*joined, node)) return joined;
    groups_.push_back(std::make_unique<Group>());
    groups_.back()->count = node.count;
    return groups_.back().get();
  }

  static bool CanMerge(const Group& a, const Group& b, const ElementNode& node) {
    const auto reads = [](const Group& g) { return g.flat_reads.size() + g.other_reads.size(); };
    if (a.nodes.size() + b.nodes.size() >= kMostNodes ||
        a.writes.size() + b.writes.size() >= kMostWrites ||
        reads(a) + reads(b) + node.operands.size() > kMostReads)
      return false;
    // What one reads at other places than its own, or in part, the other must not write.
    const auto disturbs = [](const Group& writer, const Group& reader) {
      return absl::c_any_of(writer.writes, [&](const Write& write) {
        return !write.is_dead && (OverlapsAny(write.range, reader.other_reads) ||
                                  OverlapsAny(write.range, reader.flat_reads) ||
                                  OverlapsLive(write.range, reader.writes));
      });
    };
    return !disturbs(a, b) && !disturbs(b, a);
  }

  Gpu& gpu_;
  const std::vector<GpuTracedCall>& calls_;
  std::vector<std::unique_ptr<Group>> groups_;
  absl::flat_hash_map<cuda::Function, std::string> names_;
};

// --- Functions for groups

// Dims that all operands can be run along: neighbours that some operand separates are separate.
// Empty: there are none.
std::vector<std::vector<StridedDim>> CommonDims(std::vector<std::vector<StridedDim>> operands) {
  std::vector<std::vector<StridedDim>> common(operands.size());
  std::vector<size_t> at(operands.size(), 0);
  while (at[0] < operands[0].size()) {
    int64_t size = INT64_MAX;
    for (size_t k = 0; k < operands.size(); ++k) {
      if (at[k] >= operands[k].size()) return {};
      size = std::min(size, operands[k][at[k]].size);
    }
    for (size_t k = 0; k < operands.size(); ++k) {
      StridedDim& dim = operands[k][at[k]];
      if (dim.size % size != 0) return {};
      common[k].push_back({size, dim.stride});
      dim.stride *= size;
      dim.size /= size;
      if (dim.size == 1) ++at[k];
    }
  }
  return common;
}

class Bytes {
 public:
  template <typename T>
  void Put(const T& value) {
    Align(alignof(T));
    text_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void Align(size_t bytes) { text_.resize((text_.size() + bytes - 1) / bytes * bytes); }
  std::string Take() && { return std::move(text_); }

 private:
  std::string text_;
};

// The layout of Broadcast in elementwise.cuh.
void PutBroadcast(Bytes& bytes, int64_t count, const std::vector<std::vector<StridedDim>>& operands) {
  const size_t num_dims = operands[0].size();
  bytes.Put(count);
  bytes.Put(GpuDivisor(operands[0][0].size));
  for (const auto& dims : operands) bytes.Put(static_cast<int32_t>(dims[0].stride));
  bytes.Put(static_cast<int32_t>(num_dims - 1));
  bytes.Align(8);
  for (size_t d = 1; d <= GpuBroadcast<1>::kMaxOuter; ++d) {
    bytes.Put(d < num_dims ? GpuDivisor(operands[0][d].size) : GpuDivisor());
    for (const auto& dims : operands) bytes.Put(d < num_dims ? dims[d].stride : int64_t{0});
  }
}

std::optional<GpuReplacement> FunctionFor(Gpu& gpu, const Group& group) {
  std::vector<ElementOperand> ins;
  struct Value {
    bool is_loaded;
    size_t number;  // of `ins`, or of the steps
  };
  std::map<const char*, Value> values;  // of the group, by where they would be in memory
  std::vector<std::pair<const ElementNode*, std::vector<Value>>> steps;
  const auto load = [&](const ElementOperand& operand) -> Value {
    for (size_t i = 0; i < ins.size(); ++i) {
      const auto same = [](const StridedDim& a, const StridedDim& b) {
        return a.size == b.size && a.stride == b.stride;
      };
      if (ins[i].pointer == operand.pointer && ins[i].type == operand.type &&
          absl::c_equal(ins[i].dims, operand.dims, same))
        return {true, i};
    }
    ins.push_back(operand);
    return {true, ins.size() - 1};
  };
  for (const auto& [number, node] : group.nodes) {
    std::vector<Value> from;
    for (const ElementOperand& operand : node.operands) {
      from.push_back(operand.is_value ? values.at(operand.pointer) : load(operand));
    }
    if (node.is_copy()) {
      values[node.out] = from[0];
    } else {
      values[node.out] = {false, steps.size()};
      steps.emplace_back(&node, std::move(from));
    }
  }
  std::vector<std::pair<const char*, Value>> outs;
  for (const Write& write : group.writes) {
    if (!write.is_dead) outs.emplace_back(write.range.begin, values.at(write.range.begin));
  }
  if (ins.empty() || outs.empty()) return std::nullopt;

  std::vector<std::vector<StridedDim>> broadcasts;
  int64_t widest = 1;
  std::vector<std::string> parts;
  for (size_t i = 0; i < ins.size(); ++i) {
    std::string how = "kFlat";
    if (ins[i].is_scalar()) {
      how = "kScalar";
    } else if (!ins[i].is_flat()) {
      how = absl::StrCat(broadcasts.size());
      broadcasts.push_back(ins[i].dims);
    }
    widest = std::max(widest, SizeOfGpuType(ins[i].type));
    parts.push_back(absl::StrCat("In<", i, ", ", ins[i].type, ", ", how, ">"));
  }
  const auto step_of = [&](const Value& value) {
    return value.is_loaded ? value.number : ins.size() + value.number;
  };
  for (const auto& [node, from] : steps) {
    std::string part = absl::StrCat(node->step, "<", node->before);
    for (const Value& value : from) absl::StrAppend(&part, ", ", step_of(value));
    parts.push_back(absl::StrCat(part, ">"));
    widest = std::max(widest, SizeOfGpuType(node->out_type));
  }
  for (size_t i = 0; i < outs.size(); ++i)
    parts.push_back(absl::StrCat("Out<", i, ", ", step_of(outs[i].second), ">"));

  if (broadcasts.empty()) {
    broadcasts = {{{group.count, 1}}};
  } else {
    broadcasts = CommonDims(std::move(broadcasts));
    if (broadcasts.empty() || broadcasts[0].size() > GpuBroadcast<1>::kMaxOuter + 1)
      return std::nullopt;
  }
  const int64_t pack = std::min(kPackBytes / widest, kMostInPack);
  Bytes bytes;
  for (const ElementOperand& operand : ins) bytes.Put(operand.pointer);
  for (const auto& [pointer, value] : outs) bytes.Put(pointer);
  PutBroadcast(bytes, group.count, broadcasts);
  GpuReplacement replacement;
  replacement.program = &gpu.programs().Get(
      "fusion/fused.cu", absl::StrCat("Fused<", pack, ", FusedArguments<", ins.size(), ", ",
                                    outs.size(), ", ", broadcasts.size(), ">, ",
                                    absl::StrJoin(parts, ", "), ">"));
  const int64_t wanted = ((group.count + pack - 1) / pack + kThreads - 1) / kThreads;
  replacement.grid.threads_x = kThreads;
  replacement.grid.blocks_x = static_cast<unsigned>(
      std::min<int64_t>(wanted, gpu.multiprocessors() * kBlocksPerMultiprocessor));
  replacement.argument = std::move(bytes).Take();
  return replacement;
}

class ElementwiseFuser : public GpuRewriter {
 public:
  std::vector<GpuReplacement> Rewrite(Gpu& gpu,
                                      const std::vector<GpuTracedCall>& calls) override {
    const auto groups = Grouping(gpu, calls).Run();
    // What stands in the place of a call; calls that are part of a later function are left out.
    std::vector<std::optional<GpuReplacement>> placed(calls.size());
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].call.kind == GpuCall::Kind::kFree) continue;
      placed[i].emplace();
      placed[i]->original = static_cast<int>(i);
    }
    bool is_shorter = false;
    for (const auto& group : groups) {
      if (group->nodes.size() < 2) continue;
      std::optional<GpuReplacement> function = FunctionFor(gpu, *group);
      if (!function) continue;
      for (const auto& [number, node] : group->nodes) placed[static_cast<size_t>(number)].reset();
      placed[static_cast<size_t>(group->position)] = std::move(function);
      is_shorter = true;
    }
    is_shorter |= JoinUpdates(gpu, calls, placed);
    std::vector<GpuReplacement> replacements;
    if (!is_shorter) return replacements;
    for (std::optional<GpuReplacement>& each : placed)
      if (each) replacements.push_back(*std::move(each));
    return replacements;
  }
};

[[maybe_unused]] const bool registered = [] {
  GpuRewriter::Set(new ElementwiseFuser);
  return true;
}();

}  // namespace
}  // namespace muster
