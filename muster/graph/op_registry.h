// All ops of the process. Op files link themselves into a list before main; the registry is built
// from it, checked and frozen on first use.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "muster/graph/gradients/gradient_context.h"
#include "muster/graph/op_def.h"
#include "muster/graph/shape_context.h"

namespace muster {

struct OpRegistration {
  OpDef def;
  ShapeFunction shape = nullptr;
  GradientFunction gradient;  // empty: see no_gradient
  std::string doc;
  std::string no_gradient_reason;  // why the op has none (its gradient is None); empty:
                                   // LookupError, like TensorFlow
};

// One node of the list of op definitions; made by DEFINE_OP only.
struct OpEntry {
  OpEntry(const char* op_name, void (*define_op)(const char* op_name));
  const char* name;
  void (*define)(const char* op_name);
  OpEntry* next;
};

// Thread-safe once built.
class OpRegistry {
 public:
  static OpRegistry& Global();

  const OpRegistration* Find(absl::string_view op) const;
  // NotFound "Op type not registered 'X' in binary running on <host>. ..." as TensorFlow says it.
  absl::StatusOr<const OpRegistration*> Lookup(absl::string_view op) const;
  // Sorted by name.
  std::vector<const OpRegistration*> All() const;

  // While the list is run: what ops/op.h adds to.
  static OpRegistry* building() { return building_; }
  void Add(OpRegistration registration);

 private:
  OpRegistry() = default;
  static OpRegistry* building_;
  absl::flat_hash_map<std::string, std::unique_ptr<OpRegistration>> ops_;
};

}  // namespace muster
