#include "muster/ops/fusion/element_groups.h"

#include <algorithm>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"

#include "muster/device/gpu/gpu.h"

namespace muster {
namespace {

constexpr size_t kMostNodes = 40;   // of a group
constexpr size_t kMostReads = 16;   // buffers that a group loads
constexpr size_t kMostWrites = 16;  // and writes
// Nodes with so few elements are joined even where they have nothing in common: a launch takes
// longer than they do.
constexpr int64_t kFewElements = int64_t{1} << 15;
// Calls after one that are looked at for what becomes of its result.
constexpr size_t kMostAhead = 64;

using Group = ElementGroup;
using Write = ElementWrite;

bool OverlapsAny(const GpuRange& range, const std::vector<GpuRange>& others) {
  return absl::c_any_of(others, [&](const GpuRange& other) { return range.Overlaps(other); });
}
bool OverlapsLive(const GpuRange& range, const std::vector<Write>& writes) {
  return absl::c_any_of(
      writes, [&](const Write& write) { return !write.is_dead && range.Overlaps(write.range); });
}
// Overlaps a range that is not the very same.
bool OverlapsPartly(const GpuRange& range, const std::vector<GpuRange>& others) {
  return absl::c_any_of(
      others, [&](const GpuRange& other) { return range.Overlaps(other) && !(range == other); });
}

// The rows that the group has, with the node.
const RowShape& RowsWith(const Group& group, const ElementNode& node) {
  return group.rows.size > 0 ? group.rows : node.rows;
}
// Whether the node has as many elements as the group, or as rows of it.
bool HasPlace(const Group& group, const ElementNode& node) {
  if (node.rows.size > 0)
    return node.full_count() == group.count && (group.rows.size == 0 || group.rows == node.rows);
  return node.count == group.count ||
         (group.rows.size > 0 && node.count * group.rows.size == group.count);
}
// Whether each thread, or those of one row, reads what is at its own place.
bool IsLocal(const RowShape& rows, int64_t count, const ElementOperand& operand) {
  return operand.is_flat() || IsOfRows(rows, count, operand);
}
// The write whose value the operand is.
const Write* ValueOf(const Group& group, const RowShape& rows, const ElementOperand& operand) {
  if (!IsLocal(rows, group.count, operand)) return nullptr;
  const Write* const write = group.LiveWrite(operand.range());
  if (write == nullptr || SizeOfGpuType(operand.type) != SizeOfGpuType(write->to.type))
    return nullptr;
  return write;
}

// Whether the node may run together with the group, at the node's place.
bool Fits(const Group& group, const ElementNode& node) {
  if (group.nodes.size() >= kMostNodes || group.writes.size() >= kMostWrites ||
      group.flat_reads.size() + group.other_reads.size() + node.operands.size() > kMostReads)
    return false;
  const RowShape& rows = RowsWith(group, node);
  const bool is_flat = node.out.is_flat();
  if (rows.size > 0) {
    if (!is_flat || absl::c_any_of(group.writes, [](const Write& w) { return !w.to.is_flat(); }))
      return false;
    // What has one element for each row takes such, or one for all.
    const bool is_of_rows = node.rows.size == 0 && node.count != group.count;
    if (is_of_rows && absl::c_any_of(node.operands, [](const ElementOperand& operand) {
          return !operand.is_flat() && !operand.is_scalar();
        }))
      return false;
  }
  for (const ElementOperand& operand : node.operands) {
    const GpuRange range = operand.range();
    // It is there as the value of a step, but element by element only.
    if (OverlapsLive(range, group.writes) && ValueOf(group, rows, operand) == nullptr) return false;
  }
  const GpuRange out = node.out.range();
  if (OverlapsAny(out, group.other_reads) || OverlapsPartly(out, group.flat_reads) ||
      (!is_flat && OverlapsAny(out, group.flat_reads)))
    return false;
  for (const ElementOperand& operand : node.operands) {
    // Other threads would read what this one has overwritten.
    const GpuRange range = operand.range();
    const bool is_same = IsLocal(rows, group.count, operand) && is_flat && out == range;
    if (out.Overlaps(range) && !is_same) return false;
  }
  return absl::c_all_of(group.writes, [&](const Write& write) {
    return write.is_dead || (is_flat && write.to.is_flat() && out == write.range) ||
           node.out.IsApartFrom(write.to);
  });
}

void Join(Group& group, int number, ElementNode node) {
  if (node.rows.size > 0) group.rows = node.rows;
  for (ElementOperand& operand : node.operands) {
    const GpuRange range = operand.range();
    operand.is_value = ValueOf(group, group.rows, operand) != nullptr;
    if (operand.is_value) continue;
    std::vector<GpuRange>& reads =
        IsLocal(group.rows, group.count, operand) ? group.flat_reads : group.other_reads;
    if (!absl::c_linear_search(reads, range)) reads.push_back(range);
  }
  const GpuRange out = node.out.range();
  // What is overwritten in the same step never gets to memory.
  if (node.out.is_flat()) {
    group.writes.erase(
        std::remove_if(group.writes.begin(), group.writes.end(),
                       [&](const Write& write) { return !write.is_dead && write.range == out; }),
        group.writes.end());
  }
  group.writes.push_back({node.out, out});
  group.nodes.emplace_back(number, std::move(node));
  group.position = std::max(group.position, number);
}

// Both are open, so neither needs anything of the other.
void Merge(Group& into, Group& from) {
  into.nodes.insert(into.nodes.end(), from.nodes.begin(), from.nodes.end());
  std::stable_sort(into.nodes.begin(), into.nodes.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto add = [](std::vector<GpuRange>& to, const std::vector<GpuRange>& ranges) {
    for (const GpuRange& range : ranges)
      if (!absl::c_linear_search(to, range)) to.push_back(range);
  };
  into.position = std::max(into.position, from.position);
  if (from.rows.size > 0) into.rows = from.rows;
  into.is_required |= from.is_required;
  add(into.flat_reads, from.flat_reads);
  add(into.other_reads, from.other_reads);
  into.writes.insert(into.writes.end(), from.writes.begin(), from.writes.end());
  from = Group();
  from.is_open = false;
}

class Grouping {
 public:
  Grouping(Gpu& gpu, const std::vector<GpuTracedCall>& calls,
           const absl::flat_hash_set<int>& left_out)
      : gpu_(gpu), calls_(calls), left_out_(left_out) {}

  std::vector<std::unique_ptr<Group>> Run() && {
    for (size_t i = 0; i < calls_.size(); ++i) Take(static_cast<int>(i));
    return std::move(groups_);
  }

 private:
  void Take(int number) {
    const GpuTracedCall& traced = calls_[static_cast<size_t>(number)];
    if (traced.call.kind == GpuCall::Kind::kFree) return TakeFree(traced.call);
    if (traced.call.kind == GpuCall::Kind::kCopyWithin && TakeCopy(number, traced.call)) return;
    std::vector<ElementNode> nodes = NodesOf(number, traced.call);
    if (nodes.empty()) {
      const bool may_read_writes = traced.call.kind != GpuCall::Kind::kFill;
      EndOthers(nullptr, traced.reads, traced.writes, may_read_writes, traced.reaches_all);
    }
    const bool is_required = nodes.size() > 1 || is_computed_again_;
    for (ElementNode& node : nodes) {
      Group* const group = GroupFor(node);
      std::vector<GpuRange> reads;
      for (const ElementOperand& operand : node.operands) reads.push_back(operand.range());
      EndOthers(group, reads, {node.out.range()}, /*may_read_writes=*/false, /*all=*/false);
      group->is_required |= is_required;
      Join(*group, number, std::move(node));
    }
  }

  // Ends the groups that a call with these accesses must come after.
  void EndOthers(const Group* group, const std::vector<GpuRange>& reads,
                 const std::vector<GpuRange>& writes, bool may_read_writes, bool all) {
    for (const auto& other : groups_) {
      if (other.get() == group) continue;
      bool ends = all;
      for (Write& write : other->writes) {
        if (write.is_dead) continue;
        const bool is_written = OverlapsAny(write.range, writes);
        const bool is_read =
            all || OverlapsAny(write.range, reads) || (may_read_writes && is_written);
        write.is_needed |= is_read;
        write.is_changed |= all || is_written;
        ends |= is_read || is_written;
      }
      if (!other->is_open) continue;
      for (const GpuRange& range : writes)
        ends |= OverlapsAny(range, other->flat_reads) || OverlapsAny(range, other->other_reads);
      if (ends) other->is_open = false;
    }
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
      return GpuRange{static_cast<const char*>(begin),
                      static_cast<const char*>(begin) + call.bytes};
    };
    const GpuRange from = range_of(call.from), to = range_of(call.to);
    for (const auto& group : groups_) {
      if (group->is_open) continue;
      const Write* const write = group->LiveWrite(from);
      if (write == nullptr || write->is_changed) continue;
      if (!CanAlsoWrite(*group, to) || IsUsedAfter(*group, number, to)) return false;
      ElementNode node;
      node.count = write->to.dims[0].size;
      node.operands = {FlatOperand(from.begin, write->to.type, node.count)};
      node.operands[0].is_value = true;
      node.out = FlatOperand(to.begin, write->to.type, node.count);
      group->writes.push_back({node.out, to});
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
      return runs_later &&
             (OverlapsAny(range, other->flat_reads) || OverlapsAny(range, other->other_reads) ||
              OverlapsLive(range, other->writes));
    });
  }

  // --- Nodes
  std::vector<ElementNode> NodesOf(int number, const GpuCall& call) {
    is_computed_again_ = false;
    if (call.kind == GpuCall::Kind::kLaunch) {
      auto [found, is_new] = names_.try_emplace(call.function);
      if (is_new) found->second = gpu_.programs().NameOf(call.function);
      std::vector<ElementNode> nodes = ReadElementNodes(call, found->second);
      if (nodes.empty() || !nodes[0].is_copy()) return nodes;
      return left_out_.contains(number) ? std::vector<ElementNode>()
                                        : Parts(number, std::move(nodes));
    }
    // A copy of what a group has computed.
    if (call.kind != GpuCall::Kind::kCopyWithin) return {};
    const char* const from = static_cast<const char*>(call.from);
    for (const auto& group : groups_) {
      if (!group->is_open) continue;
      const Write* const write = group->LiveWrite({from, from + call.bytes});
      if (write == nullptr) continue;
      ElementNode node;
      node.count = write->to.dims[0].size;
      node.operands = {FlatOperand(from, write->to.type, node.count)};
      node.out = FlatOperand(static_cast<const char*>(call.to), write->to.type, node.count);
      return {node};
    }
    return {};
  }

  // Copies of parts of tensors. Where a tensor is nothing but the result of one node, and is read
  // by these copies only, the node is computed for each of the parts instead.
  std::vector<ElementNode> Parts(int number, std::vector<ElementNode> copies) {
    for (ElementNode& copy : copies) {
      if (const Write* const write = WholeOf(copy.operands[0]).second)
        copy = WithElementsOf(std::move(copy), SizeOfGpuType(write->to.type));
    }
    std::vector<ElementNode> parts;
    std::vector<Write*> computed;
    for (const ElementNode& copy : copies) {
      const auto [group, write] = WholeOf(copy.operands[0]);
      if (group == nullptr) return copies;
      std::optional<ElementNode> part = ComputedPart(*group, *write, copy);
      if (!part || !DiesAfter(number, write->range)) return copies;
      parts.push_back(*std::move(part));
      computed.push_back(write);
      group->is_required = true;
    }
    for (Write* const write : computed) write->is_dead = true;
    is_computed_again_ = true;
    return parts;
  }

  // The open group that has computed the tensor of which this is a part, and nothing else has read.
  std::pair<Group*, Write*> WholeOf(const ElementOperand& part) {
    const GpuRange range = part.range();
    for (const auto& group : groups_) {
      if (!group->is_open) continue;
      for (Write& write : group->writes) {
        if (!write.is_dead && !write.is_needed && write.to.is_flat() &&
            write.range.begin <= range.begin && range.end <= write.range.end)
          return {group.get(), &write};
      }
    }
    return {nullptr, nullptr};
  }

  static std::optional<ElementNode> ComputedPart(const Group& group, const Write& write,
                                                 const ElementNode& copy) {
    const ElementOperand& part = copy.operands[0];
    if (group.rows.size > 0 || (part.is_flat() && write.range == part.range()) ||
        SizeOfGpuType(part.type) != SizeOfGpuType(write.to.type))
      return std::nullopt;
    const auto found = std::find_if(
        group.nodes.rbegin(), group.nodes.rend(),
        [&](const auto& numbered) { return numbered.second.out.pointer == write.to.pointer; });
    if (found == group.nodes.rend() || found->second.is_copy()) return std::nullopt;
    ElementNode node = found->second;
    for (ElementOperand& operand : node.operands) {
      // It must be in memory, as it was.
      const GpuRange range = operand.range();
      const bool is_written = absl::c_any_of(group.writes, [&](const Write& other) {
        return &other != &write && !other.is_dead && range.Overlaps(other.range);
      });
      if (operand.is_value || is_written) return std::nullopt;
      const std::optional<ElementOperand> there = PartOf(operand, write.to.pointer, part);
      if (!there) return std::nullopt;
      operand = *there;
    }
    const std::string type = node.out.type;
    node.out = copy.out;
    node.out.type = type;
    node.count = copy.count;
    return node;
  }

  // Nothing reads the memory after this call before it is free.
  bool DiesAfter(int number, const GpuRange& range) const {
    const size_t first = static_cast<size_t>(number) + 1;
    for (size_t i = first; i < std::min(first + kMostAhead, calls_.size()); ++i) {
      const GpuTracedCall& traced = calls_[i];
      if (traced.call.kind == GpuCall::Kind::kFree) {
        const char* const begin = static_cast<const char*>(traced.call.to);
        if (begin <= range.begin && range.end <= begin + traced.call.bytes) return true;
      } else if (traced.reaches_all || OverlapsAny(range, traced.reads) ||
                 OverlapsAny(range, traced.writes)) {
        return false;
      }
    }
    return false;
  }

  // The open group that the node joins: those that hold its operands, made one. A new one where
  // there is none.
  Group* GroupFor(const ElementNode& node) {
    std::vector<Group*> holders;
    Group* small = nullptr;
    for (const auto& group : groups_) {
      if (!group->is_open || !HasPlace(*group, node)) continue;
      const RowShape& rows = RowsWith(*group, node);
      const bool holds = absl::c_any_of(node.operands, [&](const ElementOperand& operand) {
        return IsLocal(rows, group->count, operand) &&
               (ValueOf(*group, rows, operand) != nullptr ||
                absl::c_linear_search(group->flat_reads, operand.range()));
      });
      if (holds) holders.push_back(group.get());
      if (node.count <= kFewElements && node.count == group->count) small = group.get();
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
    groups_.back()->count = node.full_count();
    return groups_.back().get();
  }

  static bool CanMerge(const Group& a, const Group& b, const ElementNode& node) {
    const auto reads = [](const Group& g) { return g.flat_reads.size() + g.other_reads.size(); };
    if (a.nodes.size() + b.nodes.size() >= kMostNodes ||
        a.writes.size() + b.writes.size() >= kMostWrites ||
        reads(a) + reads(b) + node.operands.size() > kMostReads)
      return false;
    if (a.count != b.count || (a.rows.size > 0 && b.rows.size > 0 && !(a.rows == b.rows)))
      return false;
    const auto is_strided = [](const Write& write) { return !write.to.is_flat(); };
    if ((a.rows.size > 0 || b.rows.size > 0) &&
        (absl::c_any_of(a.writes, is_strided) || absl::c_any_of(b.writes, is_strided)))
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
  const absl::flat_hash_set<int>& left_out_;
  bool is_computed_again_ = false;  // what NodesOf has given
  std::vector<std::unique_ptr<Group>> groups_;
  absl::flat_hash_map<cuda::Function, std::string> names_;
};

}  // namespace

bool IsOfRows(const RowShape& rows, int64_t count, const ElementOperand& operand) {
  const std::vector<StridedDim>& dims = operand.dims;
  return rows.size > 0 && dims.size() == 2 && dims[0].size == rows.size && dims[0].stride == 0 &&
         dims[1].stride == 1 && dims[1].size * rows.size == count;
}

std::vector<std::unique_ptr<ElementGroup>> FindElementGroups(
    Gpu& gpu, const std::vector<GpuTracedCall>& calls, const absl::flat_hash_set<int>& left_out) {
  return Grouping(gpu, calls, left_out).Run();
}

}  // namespace muster
