// How values held by variant tensors travel. The layer that has a type of values registers it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "muster/tensor/handles.h"
#include "muster/tensor/tensor.h"

namespace muster {

// A value in the form that messages have.
struct VariantParts {
  std::string metadata;  // the type's own bytes
  std::vector<Tensor> tensors;
};

struct VariantCodec {
  std::string type_name;  // TensorFlow's
  // Nothing when the value is of another type.
  std::optional<VariantParts> (*encode)(const Variant& value);
  absl::StatusOr<Variant> (*decode)(VariantParts parts);
};

// Before main only, as ops are.
bool RegisterVariantCodec(VariantCodec codec);
const std::vector<VariantCodec>& VariantCodecs();

}  // namespace muster
