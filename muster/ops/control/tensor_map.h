// Maps from tensors to tensors as values, held by variant tensors.
#pragma once

#include <memory>
#include <vector>

#include "muster/ops/op.h"

namespace muster {

// Immutable once it is held by a variant.
struct TensorMap {
  struct Item {
    Tensor key;
    Tensor value;
  };
  std::vector<Item> items;  // in the order in which the keys came

  // The item of a key; null when there is none.
  const Item* Find(const Tensor& key) const;
  // With a value for the key, in place of the one that it had.
  void Set(const Tensor& key, Tensor value);
};

}  // namespace muster
