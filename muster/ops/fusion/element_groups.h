// Groups of element-wise calls that are computed together.
//
// A group is a number of element-wise nodes over equally many elements. It runs where its last call
// was: the earlier ones are put off. So a call outside of the group that needs what the group
// writes, or writes what the group reads or writes, ends it. A value that only the group reads, and
// whose memory is free at the end, is never written to memory at all.
//
// Sums and the like over the last dim take part: the threads that share a row then have all of it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"

#include "muster/ops/fusion/fusion_nodes.h"

namespace muster {

struct ElementWrite {
  ElementOperand to;
  GpuRange range;
  bool is_needed = false;   // another call reads it
  bool is_dead = false;     // nobody can read it any more
  bool is_changed = false;  // another call writes to it
};

struct ElementGroup {
  int64_t count = 0;  // of elements
  RowShape rows;      // where some node needs them: others may then have one element for each row
  bool is_open = true;
  int position = 0;                                // of its last call, where it runs
  std::vector<std::pair<int, ElementNode>> nodes;  // with the number of their call
  std::vector<GpuRange> flat_reads, other_reads;
  std::vector<ElementWrite> writes;
  // Some of its calls are replaced only together with other groups.
  bool is_required = false;

  // What has the very range, element by element.
  const ElementWrite* LiveWrite(const GpuRange& range) const {
    for (const ElementWrite& write : writes)
      if (!write.is_dead && write.to.is_flat() && write.range == range) return &write;
    return nullptr;
  }
};

// Has one element for each row.
bool IsOfRows(const RowShape& rows, int64_t count, const ElementOperand& operand);

// Those that were merged into others are empty. The calls `left_out`, if they copy parts of
// tensors, are no nodes.
std::vector<std::unique_ptr<ElementGroup>> FindElementGroups(
    Gpu& gpu, const std::vector<GpuTracedCall>& calls, const absl::flat_hash_set<int>& left_out);

}  // namespace muster
