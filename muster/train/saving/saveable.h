// What a checkpoint holds of a graph: tensors under names, and how each comes back.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "muster/base/status.h"
#include "muster/graph/build/scope.h"
#include "muster/train/model/variables.h"

namespace muster {

// One tensor of a checkpoint.
struct SaveSpec {
  std::string name;   // its key in the checkpoint
  std::string slice;  // "" for a whole tensor, else "4 3 0,2:0,3" (full shape, then the part)
  DType dtype = DType::kInvalid;
  std::string device;  // where the value is
  // The tensor that is saved; may add nodes that read it.
  std::function<absl::StatusOr<Output>(const Scope&)> tensor;
};

// The shape that a restored tensor is given: known, or found when the graph runs.
using RestoredShape = std::variant<Shape, Output>;

// Something that is saved and restored as one.
struct Saveable {
  // Names of slices of one variable are equal; all others must differ.
  std::string name;
  std::vector<SaveSpec> specs;
  // The node that holds the state. Two saveables must not share it; null: not compared.
  Node* op = nullptr;
  // Adds the nodes that put restored tensors, one per spec, back; gives the last of them. Shapes
  // are there when the variable takes the checkpoint's values in its own shape.
  std::function<absl::StatusOr<Node*>(const Scope&, const std::vector<Output>& tensors,
                                      const std::optional<std::vector<RestoredShape>>& shapes)>
      restore;
  // Read before all others: what it records as done must be contained in them.
  bool comes_first = false;
};

// A VariableV2 (or another node with a reference) under `name`. `read` is what is saved: the
// reference itself where it is not given.
Saveable ReferenceSaveable(std::string name, Output variable, std::string slice = "",
                           Output read = Output());
// A variable behind a handle. `read` is a node that reads it; where it is not given, one is made
// when the saver is built.
absl::StatusOr<Saveable> ResourceSaveable(std::string name, Output handle, std::string slice = "",
                                          Output read = Output());
// Either of them, under the variable's own name. `variable` is a reference, a handle or what reads
// one. InvalidArgument when it is none of these.
absl::StatusOr<Saveable> VariableSaveable(Output variable);
// A variable of C++'s training library, a slice of a partitioned one included.
absl::StatusOr<Saveable> VariableSaveable(const TrainVariable& variable);
// Whether `output` is a variable's reference, handle or value read from a handle.
bool ComesFromVariable(Output output);

}  // namespace muster
