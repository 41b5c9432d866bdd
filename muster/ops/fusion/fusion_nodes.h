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
  GpuRange range() const;
};

struct ElementNode {
  // Of fused.cu, with the template arguments before those that name the operands. Empty: a copy.
  std::string step;
  std::string before;
  std::vector<ElementOperand> operands;
  const char* out = nullptr;
  std::string out_type;
  int64_t count = 0;

  bool is_copy() const { return step.empty(); }
  GpuRange out_range() const { return {out, out + count * SizeOfGpuType(out_type)}; }
};

ElementOperand FlatOperand(const char* pointer, absl::string_view type, int64_t count);

// The node that calls the function of this name ("math/binary.cu: Binary<Add, float>"); none where
// the function is not known to be element-wise.
std::optional<ElementNode> ReadElementNode(const GpuCall& call, absl::string_view name);

}  // namespace muster
