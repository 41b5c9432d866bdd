// What an Einsum means for its operands: how they are laid out as matrices [batch, free, summed],
// multiplied, and where the product's elements are in the output.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "muster/ops/op.h"

namespace muster {

struct EinsumEquation {
  std::vector<std::string> inputs;
  std::string output;
};

// For a node with so many inputs.
absl::StatusOr<EinsumEquation> ParseEinsum(const Node& node);

// Axes to go through: sizes, and the steps that each means in one tensor.
struct EinsumAxes {
  Dims sizes;
  Dims strides;

  void Add(int64_t size, int64_t stride) {
    sizes.push_back(size);
    strides.push_back(stride);
  }
  int64_t count() const {
    int64_t product = 1;
    for (const int64_t size : sizes) product *= size;
    return product;
  }
  // Calls visit(offset) for every place in row-major order.
  template <typename Visit>
  void ForEach(Visit visit) const {
    if (count() == 0) return;
    const int rank = static_cast<int>(sizes.size());
    Dims at(rank, 0);
    int64_t offset = 0;
    while (true) {
      visit(offset);
      int axis = rank - 1;
      for (; axis >= 0; --axis) {
        offset += strides[axis];
        if (++at[axis] < sizes[axis]) break;
        offset -= strides[axis] * sizes[axis];
        at[axis] = 0;
      }
      if (axis < 0) return;
    }
  }
};

struct EinsumPlan {
  Shape output;
  struct Operand {
    EinsumAxes kept;                  // [batch, free, summed with the other operand]
    int num_batch = 0, num_free = 0;  // of the kept axes
    EinsumAxes summed;                // alone, before that
  };
  std::array<Operand, 2> operands;
  // Of the products; with one operand there is none.
  int64_t batch = 1, m = 1, n = 1, k = 1;
  EinsumAxes places;  // of the product's elements in the output
};
absl::StatusOr<EinsumPlan> PlanEinsum(const EinsumEquation& equation, const KernelContext& c);

absl::Status EinsumShape(ShapeContext& c);
KernelFactory MakeGpuEinsum(DType dtype);

}  // namespace muster
