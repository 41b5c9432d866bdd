// Element-wise nodes as calls on a card show them: what they compute, of which memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "muster/device/gpu/gpu_rewriter.h"

namespace muster {

// Zero: elements of the type are not joined.
int64_t SizeOfGpuType(absl::string_view type);

struct StridedDim {
  int64_t size;
  int64_t stride;  // in elements
};

// What a node reads.
struct ElementOperand {
  const char* pointer = nullptr;
  std::string type;
  std::vector<StridedDim> dims;  // innermost first; neighbours that run on are one
  bool is_value = false;         // of the group that its node is in: nothing is loaded

  bool is_scalar() const { return dims.size() == 1 && dims[0].stride == 0; }
  bool is_flat() const { return dims.size() == 1 && dims[0].stride == 1; }
  // From its first element to its last one, with what is between the others.
  GpuRange range() const;
  // Has no element in common with the other: also where rows of both take turns, as parts of a
  // matrix do.
  bool IsApartFrom(const ElementOperand& other) const;
};

// Rows of `size` neighbouring elements, each shared by `lanes` threads that take `pack` elements in
// turn (math/reduce.cuh).
struct RowShape {
  int64_t size = 0;  // 0: there are no rows
  int64_t lanes = 0, pack = 0;
  bool operator==(const RowShape& other) const {
    return size == other.size && lanes == other.lanes && pack == other.pack;
  }
};

struct ElementNode {
  // Of steps.cuh, with the template arguments before those that name the operands. Empty: a copy.
  std::string step;
  std::string before;
  std::vector<ElementOperand> operands;
  ElementOperand out;
  int64_t count = 0;
  RowShape rows;            // of what it takes, where it needs whole rows
  bool gives_rows = false;  // else it gives one element for each of them

  int64_t full_count() const { return rows.size > 0 && !gives_rows ? count * rows.size : count; }
  bool is_copy() const { return step.empty(); }
};

ElementOperand FlatOperand(const char* pointer, absl::string_view type, int64_t count);

// The nodes that a call of the function of this name ("math/binary.cu: Binary<Add, float>") stands
// for: several are copies that one call makes. None where the function is not known to be
// element-wise.
std::vector<ElementNode> ReadElementNodes(const GpuCall& call, absl::string_view name);

// Of a copy whose elements are `bytes` large where they can be taken for such: else as it is.
ElementNode WithElementsOf(ElementNode copy, int64_t bytes);

// Elements of a value, as `part` takes them from where the value would be (flat, at `whole`): the
// operand that gives them, if the value is `operand`, element by element.
std::optional<ElementOperand> PartOf(const ElementOperand& operand, const char* whole,
                                     const ElementOperand& part);

}  // namespace muster
